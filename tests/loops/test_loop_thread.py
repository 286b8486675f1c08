from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable

import pytest
from tests.support import about

from sparrowmq.client.sync.sync_base import check_caller
from sparrowmq.core.errors import InvalidStateError
from sparrowmq.loops.event_loop import LoopThread, loop_thread


def test_there_is_one_loop_and_it_runs_what_it_is_given() -> None:
    background = loop_thread()
    assert loop_thread() is background
    names = []

    async def work() -> str:
        names.append(threading.current_thread().name)
        await asyncio.sleep(0)
        return "done"

    assert background.run(work()) == "done"
    assert background.call(lambda: threading.current_thread().name) == "sparrowmq"
    assert names == ["sparrowmq"]
    assert "running" in repr(background)


def test_a_timeout_of_the_coroutine_is_not_taken_for_a_pause() -> None:
    async def fails() -> None:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, check=about(args=("its own",))):
        loop_thread().run(fails())


def test_waiting_goes_on_over_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparrowmq.loops.event_loop._SIGNAL_SECONDS", 0.001)

    async def slow() -> int:
        await asyncio.sleep(0.02)  # many of the caller's pauses
        return 7

    assert loop_thread().run(slow()) == 7


def test_errors_come_back_to_the_caller() -> None:
    background = loop_thread()

    async def fails() -> None:
        raise KeyError("x")

    def fails_too() -> None:
        raise ValueError("y")

    with pytest.raises(KeyError):
        background.run(fails())
    with pytest.raises(ValueError, check=about(args=("y",))):
        background.call(fails_too)


def test_calls_on_the_loops_own_thread_are_refused() -> None:
    background = loop_thread()
    with pytest.raises(InvalidStateError, check=about(what="loop")):
        background.call(lambda: check_caller(os.getpid(), "thing"))


def test_calls_from_another_process_are_refused() -> None:
    with pytest.raises(InvalidStateError, check=about(what="process", value=os.getpid() + 1)):
        check_caller(os.getpid() + 1, "thing")


def test_stopping_cancels_what_runs_and_ends_the_thread() -> None:
    background = LoopThread()
    ended = threading.Event()

    async def works() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    asyncio.run_coroutine_threadsafe(works(), background.loop)
    background.call(lambda: None)
    background.stop()
    assert ended.is_set()
    assert "stopped" in repr(background)
    background.close()


def test_work_that_takes_too_long_is_cancelled() -> None:
    background = LoopThread()
    cancelled = threading.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with pytest.raises(TimeoutError, match=r"a call took longer than 0\.01 s and was cancelled"):
        background.run(work(), 0.01)
    assert cancelled.wait(10)
    background.close()


def test_a_loop_does_not_wait_for_itself() -> None:
    async def work() -> int:
        return loop_thread().run(asyncio.sleep(0, 1))

    with pytest.raises(InvalidStateError, match="the loop's own thread, which would wait for itself"):
        loop_thread().run(work())


def test_what_was_submitted_is_cancelled_by_the_end() -> None:
    background = LoopThread()
    running = background.submit(asyncio.sleep(3600))
    background.close()
    assert running.cancelled()


def test_what_is_kept_lives_as_long_as_the_loop() -> None:
    first, second = LoopThread(), LoopThread()
    try:
        assert first.kept(list) is first.kept(list)
        assert first.kept(dict) is first.kept(dict) == {}
        assert first.kept(list) is not second.kept(list)
    finally:
        first.close()
        second.close()


def script(source: str, seconds: float = 60) -> subprocess.CompletedProcess[str]:
    """Run a program of its own, warnings as errors."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(source)],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


Script = Callable[[str], subprocess.CompletedProcess[str]]


def test_a_process_with_a_loop_exits() -> None:
    done = script(
        """
        import asyncio
        from sparrowmq.loops.event_loop import loop_thread

        async def work():
            while True:
                try:
                    await asyncio.sleep(3600)
                except asyncio.CancelledError:
                    pass  # a task that does not end

        asyncio.run_coroutine_threadsafe(work(), loop_thread().loop)
        loop_thread().call(lambda: None)
        print("last line")
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "last line\n", "")


def test_a_forked_child_gets_a_loop_of_its_own() -> None:
    done = script(
        """
        import os, threading
        from sparrowmq.client.sync.sync_base import check_caller
        from sparrowmq.core.errors import InvalidStateError
        from sparrowmq.loops.event_loop import loop_thread

        parent, pid = loop_thread(), os.getpid()
        parent.call(lambda: None)
        child = os.fork()
        if child == 0:
            try:
                check_caller(pid, "thing")
            except InvalidStateError:
                mine = loop_thread()
                assert mine is not parent and mine.call(lambda: 7) == 7
                os._exit(5)
            os._exit(1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), parent.call(lambda: 8))
        """
    )
    assert (done.stdout, done.stderr) == ("5 8\n", "")


def test_a_loop_that_ended_is_said_to_have_ended() -> None:
    done = script(
        """
        import asyncio, os
        from sparrowmq.client.sync.sync_base import check_caller
        from sparrowmq.core.errors import InvalidStateError
        from sparrowmq.loops.event_loop import loop_thread

        background = loop_thread()
        background.stop()
        for call in (lambda: check_caller(os.getpid(), "x"), lambda: background.call(lambda: None)):
            try:
                call()
            except InvalidStateError as error:
                print(str(error)[:27])
        """
    )
    assert (done.stdout, done.stderr) == ("SparrowMQ's loop has ended \n" * 2, "")


def test_clients_can_be_closed_by_atexit() -> None:
    done = script(
        """
        import atexit
        import sparrowmq as mq

        producer = mq.Producer("g", namesrv="127.0.0.1:1")
        atexit.register(lambda: print("then", producer.state.value))
        atexit.register(producer.close)
        producer.start()
        print("last line")
        """
    )
    assert (done.stdout, done.stderr) == ("last line\nthen closed\n", "")


def test_closing_after_the_loop_ended_says_so_and_does_not_hang() -> None:
    done = script(
        """
        import atexit
        import sparrowmq as mq

        atexit.register(lambda: producer.close())
        producer = mq.Producer("g", namesrv="127.0.0.1:1")
        producer.start()
        print("last line")
        """
    )
    assert done.stdout == "last line\n"
    assert "InvalidStateError: SparrowMQ's loop has ended because the interpreter exits" in done.stderr


def test_an_unfinished_iteration_does_not_keep_the_process() -> None:
    done = script(
        """
        import sparrowmq as mq
        from sparrowmq.testing import LocalCluster

        with LocalCluster() as cluster:
            cluster.create_topic("T", 1)
            with mq.Producer("p", namesrv=cluster.namesrv) as producer:
                producer.send(mq.Message("T", b"x"))
            consumer = mq.PushConsumer("g", namesrv=cluster.namesrv, consume_from="first")
            consumer.subscribe("T")
            consumer.start()
            messages = iter(consumer)
            print(next(messages).body)
        """
    )
    assert (done.returncode, done.stdout) == (0, "b'x'\n")
    # The cluster is gone before the consumer, which may say so once; that is all there is to see.
    assert all(line.startswith(("pulling T/", "the route of ")) for line in done.stderr.splitlines()), (
        done.stderr
    )
