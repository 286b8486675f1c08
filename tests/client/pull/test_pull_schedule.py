from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from tests.client.fake import FakeCluster, fake_cluster
from tests.client.pulling import quick, store
from tests.support import about, run, until, until_sync

import sparrowmq as mq
from sparrowmq.client.base.lifecycle import State
from sparrowmq.client.pull.pull_schedule import PullContext, PullSchedule
from sparrowmq.core.errors import ConnectError, InvalidNameError, InvalidStateError, SettingsError
from sparrowmq.core.message import MessageQueue


def schedule_on(cluster: FakeCluster, **settings: object) -> PullSchedule:
    return PullSchedule("g", settings=quick(cluster, **settings))


@pytest.mark.proves("client:E-17", "client:E-18", "client:E-20")
def test_callback_pulls_its_queues_and_keeps_its_progress() -> None:
    async def main() -> None:
        async with fake_cluster("T", queues=2) as cluster:
            store(cluster, 3)
            store(cluster, 4, queue_id=1)
            seen: list[tuple[int, bytes]] = []

            async def work(queue: MessageQueue, context: PullContext) -> None:
                offset = await context.consumer.fetch_consume_offset(queue) or 0
                result = await context.consumer.pull(queue, offset, max_messages=2)
                seen.extend((queue.queue_id, m.body) for m in result.messages)
                context.consumer.update_consume_offset(queue, result.next_offset)
                assert context.next_delay == 0.2, "unless it is set"
                context.next_delay = 0.0

            schedule = schedule_on(cluster)
            schedule.register("T", work)
            async with schedule:
                await until(lambda: len(seen) == 7)
                assert schedule.queues == schedule.consumer.assignment
                with pytest.raises(InvalidStateError, check=about(what="created", value="running")):
                    schedule.register("U", work)
            assert schedule.queues == []
            assert [b for q, b in seen if q == 0] == [b"0", b"1", b"2"]
            assert [b for q, b in seen if q == 1] == [b"0", b"1", b"2", b"3"]
            assert cluster.broker.offsets == {("g", "T", 0): 3, ("g", "T", 1): 4}

    run(main())


@pytest.mark.proves("client:E-19")
def test_revoked_queues_are_not_called_any_more_and_new_ones_at_once() -> None:
    async def main() -> None:
        async with fake_cluster("T", queues=2) as cluster:
            calls: list[tuple[str, int]] = []

            def worker(name: str) -> object:
                async def work(queue: MessageQueue, context: PullContext) -> None:
                    calls.append((name, queue.queue_id))
                    context.next_delay = 0.001

                return work

            one, two = schedule_on(cluster), schedule_on(cluster)
            one.register("T", worker("one"))
            two.register("T", worker("two"))
            async with one:
                await until(lambda: {("one", 0), ("one", 1)} <= set(calls))
                async with two:
                    await until(lambda: len(one.queues) == len(two.queues) == 1)
                    calls.clear()
                    await until(lambda: len(set(calls)) == 2)
                    assert {number for _, number in calls} == {0, 1}
                    assert len({name for name, number in calls if number == 0}) == 1
                await until(lambda: len(one.queues) == 2)
            calls.clear()
            await asyncio.sleep(0)
            assert calls == []

    run(main())


@pytest.mark.proves("client:E-20")
def test_failing_callback_is_called_again_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("sparrowmq.client.pull.pull_schedule.ERROR_DELAY", 0.01)

    async def main() -> None:
        async with fake_cluster("T", queues=1) as cluster:
            delays: list[float] = []

            async def work(queue: MessageQueue, context: PullContext) -> None:
                delays.append(context.next_delay)
                context.next_delay = 3600
                if len(delays) < 3:
                    raise ZeroDivisionError("my callback")

            schedule = schedule_on(cluster)
            schedule.register("T", work)
            async with schedule:
                await until(lambda: len(delays) == 3)
            assert "pull callback of T/broker-a/0 failed and is called again in 1 s" in caplog.text

    run(main())


def test_invalid_delay_does_not_end_the_calls(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("sparrowmq.client.pull.pull_schedule.ERROR_DELAY", 0.01)
    wishes: list[Any] = ["soon", float("inf"), None, -1.0]

    class Worker:
        """A callable object: its `__call__` is awaited, not run in a thread and forgotten."""

        def __init__(self) -> None:
            self.calls = 0

        async def __call__(self, queue: MessageQueue, context: PullContext) -> None:
            self.calls += 1
            context.next_delay = wishes.pop(0) if wishes else 3600

    async def main() -> None:
        async with fake_cluster("T", queues=1) as cluster:
            schedule, worker = schedule_on(cluster), Worker()
            schedule.register("T", worker)
            async with schedule:
                await until(lambda: worker.calls == 5)
            assert caplog.text.count("failed and is called again") == 3, "a negative one means at once"
            assert "next_delay=inf is out of range: must be 0 to 86400 seconds" in caplog.text

    run(main())


@pytest.mark.proves("client:E-17")
def test_plain_functions_run_in_threads_of_the_schedule() -> None:
    async def main() -> None:
        async with fake_cluster("T", queues=2) as cluster:
            names: set[str] = set()

            def work(queue: MessageQueue, context: PullContext) -> None:
                names.add(threading.current_thread().name)

            schedule = schedule_on(cluster)
            schedule.register("T", work)
            async with schedule:
                await until(lambda: names)
            assert all(name.startswith("sparrowmq-schedule") for name in names)

    run(main())


def test_synchronous_schedule_passes_the_synchronous_consumer_to_callbacks() -> None:
    from sparrowmq.testing import LocalCluster

    with LocalCluster() as cluster:
        with mq.Admin(namesrv=cluster.namesrv) as admin:
            admin.topics.create("T", 1)
        with mq.Producer("p", namesrv=cluster.namesrv) as producer:
            for number in range(5):
                producer.send(mq.Message("T", str(number).encode()))
        seen: list[bytes] = []

        def work(queue: mq.MessageQueue, context: mq.PullContext) -> None:
            offset = context.consumer.fetch_consume_offset(queue) or 0
            result = context.consumer.pull(queue, offset)
            seen.extend(message.body for message in result.messages)
            context.consumer.update_consume_offset(queue, result.next_offset)
            context.next_delay = 0.01

        schedule = mq.PullSchedule("g", namesrv=cluster.namesrv)
        schedule.register("T", work)
        with schedule:
            until_sync(lambda: len(seen) == 5)
            assert schedule.consumer.assignment == [mq.MessageQueue("T", "broker-a", 0)]
        with mq.PullConsumer("g", namesrv=cluster.namesrv) as consumer:
            assert consumer.committed(mq.MessageQueue("T", "broker-a", 0)) == 5


def test_invalid_arguments_and_states_are_refused() -> None:
    with pytest.raises(InvalidNameError):
        PullSchedule("DEFAULT_CONSUMER")
    with pytest.raises(SettingsError, check=about(setting="threads", value=0, limit=1)):
        PullSchedule("g", threads=0)

    async def main() -> None:
        schedule = PullSchedule("g", namesrv="127.0.0.1:1")

        async def work(queue: MessageQueue, context: PullContext) -> None:
            raise AssertionError("never called")

        with pytest.raises(InvalidNameError):
            schedule.register("a b", work)
        schedule.register("T", work)
        assert "created" in repr(schedule)
        with pytest.raises(ConnectError, match="name server"):
            await schedule.start()
        await schedule.close()
        await schedule.close()

    run(main())


def test_second_start_is_refused_and_does_no_harm() -> None:
    async def main() -> None:
        async with fake_cluster("T", queues=1) as cluster:
            calls: list[MessageQueue] = []

            def work(queue: MessageQueue, context: PullContext) -> None:
                calls.append(queue)
                context.next_delay = 0.01

            schedule = schedule_on(cluster)
            schedule.register("T", work)
            async with schedule:
                await until(lambda: calls)
                with pytest.raises(InvalidStateError, check=about(what="starting")):
                    await schedule.start()
                before = len(calls)
                await until(lambda: len(calls) > before)

    run(main())


def test_schedule_closed_during_its_start_calls_nothing() -> None:
    async def main() -> None:
        async with fake_cluster("T", queues=1) as cluster:
            calls: list[MessageQueue] = []

            async def work(queue: MessageQueue, context: PullContext) -> None:
                calls.append(queue)

            schedule = schedule_on(cluster)
            schedule.register("T", work)
            starting = asyncio.create_task(schedule.start())
            await asyncio.sleep(0)
            await schedule.close()
            await starting
            assert (schedule.state, schedule.queues, calls) == (State.CLOSED, [], [])

    run(main())


def test_callback_that_closes_the_schedule_goes_on_and_its_progress_is_committed() -> None:
    async def main() -> None:
        async with fake_cluster("T") as cluster:
            schedule, ended = schedule_on(cluster, persist_interval=60.0), asyncio.Event()

            async def work(queue: MessageQueue, context: PullContext) -> None:
                context.consumer.store_offset(queue, 1)
                await schedule.close()
                ended.set()

            schedule.register("T", work)
            await schedule.start()
            await until(ended.is_set, 10)
            assert (schedule.state, schedule.queues) == (State.CLOSED, [])
            assert cluster.broker.offsets == {("g", "T", 0): 1}

    run(main())


def test_hanging_callback_does_not_keep_the_program_from_exiting() -> None:
    async def main() -> None:
        async with fake_cluster("T", queues=1) as cluster:
            threads: list[threading.Thread] = []
            go = threading.Event()

            def hang(queue: MessageQueue, context: PullContext) -> None:
                threads.append(threading.current_thread())
                go.wait(20)

            schedule = schedule_on(cluster)
            schedule.register("T", hang)
            async with schedule:
                await until(lambda: threads)
            assert threads[0].is_alive() and threads[0].daemon
            go.set()

    run(main())
