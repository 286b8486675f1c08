"""Topic deletions that a crash interrupts at any point: the topic is either deleted or unchanged, and its
name can be used again."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Awaitable
from pathlib import Path

import pytest
from tests.broker.rig import Rig, connection, send_command
from tests.store.rig import bodies_of, put
from tests.support import run, until

from sparrowmq.core.errors import StoreError, StoreFullError
from sparrowmq.files import disk
from sparrowmq.protocol.bodies import TopicConfig
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.java_json import loads
from sparrowmq.store.queue_deletion import Leaving

TOPIC = "TopicTest"


class Died(BaseException):
    """The simulated end of the process."""


def made(root: Path) -> Rig:
    """A broker with a topic of three messages, two of which a group has consumed, all on disk."""
    rig = Rig(root)
    rig.make_topic(TOPIC, 1)
    send(rig, 3)
    rig.offsets.commit(TOPIC, "g", 0, 2)
    rig.offsets.save()
    rig.store.flush_queues(safe_point=True)
    return rig


def send(rig: Rig, count: int) -> None:
    for _ in range(count):
        client = connection()
        assert rig.sending.handle(client, send_command()) is None
        assert client.answers()[0].code == ResponseCode.SUCCESS


def die(rig: Rig, where: str, patch: pytest.MonkeyPatch) -> None:
    """End the process before or after a step of the deletion."""

    def now(*_: object, **__: object) -> None:
        raise Died

    async def soon() -> None:
        raise Died

    if where == "before the table is saved":
        patch.setattr(rig.topics._file._file, "save", now)
    elif where == "before the queues go":
        patch.setattr(rig.store, "leave", now)
    elif where == "among the queues":
        patch.setattr(rig.store._queues, "delete_one", now)
    elif where == "before the offsets go":
        patch.setattr(rig.offsets, "forget_topic", now)
    elif where == "before the offsets are saved":
        patch.setattr(rig.deletions, "_save_offsets", soon)
    else:
        patch.setattr(rig.topics, "deleted", now)


PLACES = [
    "before the table is saved",
    "before the queues go",
    "among the queues",
    "before the offsets go",
    "before the offsets are saved",
    "before it is said to be done",
]


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("asked", ["again", "not again"])
def test_interrupted_deletion_is_finished_at_the_next_start(
    where: str, asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = made(tmp_path)

    async def deleting() -> None:
        with pytest.raises(Died):
            await rig.deletions._delete(TOPIC)

    with monkeypatch.context() as patch:
        die(rig, where, patch)
        run(deleting())
    rig.kill()

    rig = Rig(tmp_path)
    is_there = where == "before the table is saved"
    assert (TOPIC in rig.topics.configs) is is_there
    if asked == "again":
        assert run(rig.deletions.topic(TOPIC)) is is_there
        is_there = False
    elif is_there:
        assert bodies_of(rig.store, TOPIC) == [b"hello"] * 3
        assert rig.offsets.query(TOPIC, "g", 0) == 2
    if not is_there:
        assert rig.store.find_queue(TOPIC, 0) is None
        assert rig.offsets.query(TOPIC, "g", 0) is None
        assert not rig.topics.is_going(TOPIC)
        rig.make_topic(TOPIC, 1)
        send(rig, 5)
        rig.kill()  # nothing was saved since then
        rig = Rig(tmp_path)
        assert rig.store.queue(TOPIC, 0).max_offset == 5
        assert rig.offsets.query(TOPIC, "g", 0) is None, "the old offset would skip new messages"
        assert TOPIC in rig.topics.configs, "no start deletes the topic that has the name now"
    rig.close()


def test_deleting_a_topic_again_removes_leftovers_of_an_older_crash(tmp_path: Path) -> None:
    rig = made(tmp_path)
    rig.close()
    path = tmp_path / "config" / "topics.json"
    table = loads(path.read_bytes())
    del table["topicConfigTable"][TOPIC]
    path.write_text(json.dumps(table))
    rig = Rig(tmp_path)
    assert not run(rig.deletions.topic(TOPIC)), "no topic of that name, but its queue and offsets"
    assert rig.store.find_queue(TOPIC, 0) is None and rig.offsets.query(TOPIC, "g", 0) is None
    rig.make_topic(TOPIC, 1)
    assert rig.store.queue(TOPIC, 0).max_offset == 0
    rig.close()


def test_topic_created_during_a_crash_is_not_treated_as_leftover(tmp_path: Path) -> None:
    rig = made(tmp_path)
    assert not run(rig.deletions.topic(TOPIC, left_over=True))
    assert bodies_of(rig.store, TOPIC) == [b"hello"] * 3 and TOPIC in rig.topics.configs
    rig.close()


@pytest.mark.parametrize("fails", [False, True])
def test_recreated_topic_keeps_its_messages_when_leftovers_are_removed(
    fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = made(tmp_path)
    note, noting, go_on = rig.store.note, threading.Event(), threading.Event()

    def slow(leaving: Leaving) -> None:
        noting.set()
        assert go_on.wait(10)
        if fails:
            raise StoreFullError("no space left")
        note(leaving)

    async def main() -> None:
        await rig.deletions.topic(TOPIC)
        late = rig.store.queue(TOPIC, 0)  # as a delayed message for the topic does
        put(rig.store, late, b"late")
        monkeypatch.setattr(rig.store, "note", slow)
        deleting = asyncio.create_task(rig.deletions.topic(TOPIC))
        await asyncio.to_thread(noting.wait, 10)
        refused = rig.sending.handle(connection(), send_command())
        assert isinstance(refused, Command) and refused.code == ResponseCode.TOPIC_NOT_EXIST
        go_on.set()
        if fails:
            with pytest.raises(StoreFullError):
                await deleting
        else:
            assert not await deleting
        client = connection()
        sent = rig.sending.handle(client, send_command())
        assert isinstance(sent, Awaitable)
        await sent
        assert client.answers()[0].code == ResponseCode.SUCCESS
        bodies = [b"hello"]
        assert bodies_of(rig.store, TOPIC) == ([b"late", *bodies] if fails else bodies)

    run(main())
    rig.close()


def test_offsets_are_on_disk_before_the_deletion_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = made(tmp_path)

    async def full() -> None:
        raise StoreFullError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(rig.deletions, "_save_offsets", full)
        with pytest.raises(StoreError):
            run(rig.deletions.topic(TOPIC))
    assert rig.topics.is_going(TOPIC)
    assert not rig.topics.put_soon(TopicConfig(topic_name=TOPIC)), "not before nothing of it is left"
    assert not run(rig.deletions.topic(TOPIC))
    assert rig.topics.put_soon(TopicConfig(topic_name=TOPIC))
    rig.close()


def test_topic_stays_when_the_table_cannot_be_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = made(tmp_path)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(disk, "replace", full)
        with pytest.raises(StoreFullError):
            run(rig.deletions.topic(TOPIC))
    assert bodies_of(rig.store, TOPIC) == [b"hello"] * 3 and not rig.topics.is_going(TOPIC)
    rig.topics.save()
    rig.kill()
    rig = Rig(tmp_path)
    assert bodies_of(rig.store, TOPIC) == [b"hello"] * 3
    rig.close()


def test_second_request_waits_for_the_first(tmp_path: Path) -> None:
    rig = made(tmp_path)

    async def main() -> None:
        first = asyncio.create_task(rig.deletions.topic(TOPIC))
        await asyncio.sleep(0)
        second = asyncio.create_task(rig.deletions.topic(TOPIC))
        await asyncio.sleep(0)
        first.cancel()  # its connection is gone
        assert await second
        assert rig.store.find_queue(TOPIC, 0) is None

    run(main())
    rig.close()


def test_expired_queue_leaves_no_offset_that_skips_its_next_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = made(tmp_path)
    queue = rig.store.queue(TOPIC, 0)
    monkeypatch.setattr(rig.store, "is_expired", lambda _: True)

    def dead(*_: object, **__: object) -> None:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(rig.store, "leave", dead)

        async def main() -> None:
            with pytest.raises(Died):
                await rig.deletions.queues(TOPIC, [queue])

        run(main())
    rig.kill()
    rig = Rig(tmp_path)
    assert rig.offsets.query(TOPIC, "g", 0) is None
    monkeypatch.setattr(rig.store, "is_expired", lambda _: True)
    rig.offsets.commit(TOPIC, "g", 0, 3)  # by a consumer that knows nothing of it
    run(rig.deletions.queues(TOPIC, [rig.store.queue(TOPIC, 0)]))
    assert rig.store.find_queue(TOPIC, 0) is None and rig.offsets.query(TOPIC, "g", 0) is None
    rig.kill()
    rig = Rig(tmp_path)
    assert rig.offsets.query(TOPIC, "g", 0) is None
    rig.close()


def test_queue_that_gets_messages_during_its_deletion_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = made(tmp_path)
    queue = rig.store.queue(TOPIC, 0)
    monkeypatch.setattr(rig.store, "is_expired", lambda _: True)
    note = rig.store.note

    async def main() -> None:
        loop, noting = asyncio.get_running_loop(), asyncio.Event()

        def slow(leaving: Leaving) -> None:
            loop.call_soon_threadsafe(noting.set)
            note(leaving)
            time.sleep(0.05)

        monkeypatch.setattr(rig.store, "note", slow)
        deleting = asyncio.create_task(rig.deletions.queues(TOPIC, [queue]))
        await noting.wait()
        send(rig, 1)
        await deleting

    run(main())
    assert bodies_of(rig.store, TOPIC) == [b"hello"] * 4
    rig.store.flush_queues(safe_point=True)
    rig.kill()
    rig = Rig(tmp_path)
    assert bodies_of(rig.store, TOPIC) == [b"hello"] * 4
    rig.close()


def test_loop_is_not_blocked_while_queues_are_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic is deleted while another thread flushes queues."""
    rig = made(tmp_path)
    rig.make_topic("Other", 1)
    rig.sending.handle(connection(), send_command(topic="Other"))
    flushing, end = threading.Event(), threading.Event()
    sync_file = disk.sync_file

    def slow(path: Path) -> None:
        if "Other" in str(path):
            flushing.set()
            assert end.wait(20)
        sync_file(path)

    monkeypatch.setattr(disk, "sync_file", slow)

    async def main() -> None:
        flush = asyncio.create_task(asyncio.to_thread(rig.store.flush_queues, safe_point=True))
        await until(flushing.is_set)
        deleting = asyncio.create_task(rig.deletions.topic(TOPIC))
        try:
            async with asyncio.timeout(20):
                assert await deleting
            assert not flush.done(), "the flush is over: nothing was shown"
        finally:
            end.set()
            await flush

    run(main())
    assert rig.store.find_queue(TOPIC, 0) is None
    rig.kill()
    rig = Rig(tmp_path)
    assert rig.store.find_queue(TOPIC, 0) is None
    assert bodies_of(rig.store, "Other") == [b"hello"]
    rig.close()


def test_queue_that_got_messages_meanwhile_stays(tmp_path: Path) -> None:
    rig = made(tmp_path)
    run(rig.deletions.queues(TOPIC, [rig.store.queue(TOPIC, 0)]))
    assert bodies_of(rig.store, TOPIC) == [b"hello"] * 3
    rig.close()


def test_offsets_of_a_group_are_written_to_disk(tmp_path: Path) -> None:
    rig = made(tmp_path)
    run(rig.deletions.offsets_of_group("g"))
    rig.kill()
    rig = Rig(tmp_path)
    assert rig.offsets.query(TOPIC, "g", 0) is None
    rig.close()
