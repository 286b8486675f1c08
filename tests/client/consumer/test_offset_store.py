from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.client.fake import FakeCluster, answer, fake_cluster
from tests.support import about, run, until

from sparrowmq.client.base.settings import ClientSettings
from sparrowmq.client.cluster.broker_api import no_generation
from sparrowmq.client.cluster.instance import ClientInstance
from sparrowmq.client.consumer.offset_store import (
    BrokerOffsetStore,
    LocalOffsetStore,
    forget_deleted,
    local_path,
    offsets_text,
    parse_offsets,
)
from sparrowmq.core.errors import BrokerError, ClientError, JavaJsonError
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.codes import RequestCode

QUEUE = MessageQueue("T", "broker-a", 0)
UPDATE = int(RequestCode.UPDATE_CONSUMER_OFFSET)


def flow(test: Callable[[FakeCluster, BrokerOffsetStore], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with fake_cluster("T") as cluster:
            instance = ClientInstance(ClientSettings(namesrv=cluster.namesrv))
            try:
                await test(cluster, BrokerOffsetStore(instance, "g", no_generation))
            finally:
                await instance.close()

    run(main())


@pytest.mark.proves("client:D-75")
def test_offsets_in_memory_only_grow_unless_set() -> None:
    async def test(cluster: FakeCluster, store: BrokerOffsetStore) -> None:
        assert store.get(QUEUE) is None
        store.advance(QUEUE, 0)
        assert store.get(QUEUE) == 0
        store.advance(QUEUE, 5)
        store.advance(QUEUE, 3)
        assert store.get(QUEUE) == 5
        store.set(QUEUE, 2)
        assert store.get(QUEUE) == 2
        store.forget(QUEUE)
        assert store.get(QUEUE) is None

    flow(test)


@pytest.mark.proves("client:C-38", "client:D-76")
def test_reading_queries_the_broker_and_fills_the_memory() -> None:
    async def test(cluster: FakeCluster, store: BrokerOffsetStore) -> None:
        assert await store.read(QUEUE) is None
        assert store.get(QUEUE) is None
        cluster.broker.offsets["g", "T", 0] = 12
        assert await store.read(QUEUE) == 12
        assert store.get(QUEUE) == 12
        cluster.broker.on[RequestCode.QUERY_CONSUMER_OFFSET] = lambda conn, c: answer(1)
        with pytest.raises(BrokerError):
            await store.read(QUEUE)

    flow(test)


@pytest.mark.proves("client:D-77")
def test_persisting_sends_the_offsets_in_memory() -> None:
    async def test(cluster: FakeCluster, store: BrokerOffsetStore) -> None:
        other = MessageQueue("T", "broker-a", 1)
        store.advance(QUEUE, 5)
        assert await store.persist([QUEUE, other])
        await until(lambda: cluster.broker.offsets.get(("g", "T", 0)) == 5)
        assert [c.is_oneway for c in cluster.broker.requests(UPDATE)] == [True]
        store.advance(other, 1)
        assert await store.persist([QUEUE, other], confirmed=True)
        assert cluster.broker.offsets == {("g", "T", 0): 5, ("g", "T", 1): 1}
        assert await store.persist([QUEUE]), "again: the first may have been lost"
        await until(lambda: len(cluster.broker.requests(UPDATE)) == 4)

    flow(test)


def test_offsets_that_cannot_be_persisted_are_kept() -> None:
    async def test(cluster: FakeCluster, store: BrokerOffsetStore) -> None:
        store.advance(QUEUE, 5)
        cluster.broker.on[UPDATE] = lambda conn, c: answer(26, remark="no group")
        assert not await store.persist([QUEUE], confirmed=True)
        gone = MessageQueue("T", "broker-z", 0)
        store.advance(gone, 1)
        assert not await store.persist([gone])
        del cluster.broker.on[UPDATE]
        assert await store.persist([QUEUE], confirmed=True)
        assert cluster.broker.offsets["g", "T", 0] == 5

    flow(test)


def test_unknown_broker_is_named() -> None:
    async def test(cluster: FakeCluster, store: BrokerOffsetStore) -> None:
        with pytest.raises(ClientError, check=about(what="broker", value="broker-z")):
            await store.read(MessageQueue("T", "broker-z", 0))

    flow(test)


# The local file

QUEUES = [MessageQueue("TopicTest", "broker-a", number) for number in range(4)]
JAVA_FILE = b"""{
\t"offsetTable":{{
\t\t\t"brokerName":"broker-a",
\t\t\t"queueId":3,
\t\t\t"topic":"TopicTest"
\t\t}:12,{
\t\t\t"brokerName":"broker-a",
\t\t\t"queueId":0,
\t\t\t"topic":"TopicTest"
\t\t}:5
\t}
}"""


@pytest.mark.proves("client:D-70", "MUST-67")
def test_path_and_format_are_those_of_java(tmp_path: Path) -> None:
    assert (
        local_path(tmp_path, "10.0.0.1@DEFAULT", "g") == tmp_path / "10.0.0.1@DEFAULT" / "g" / "offsets.json"
    )
    assert local_path(None, "i", "g") == Path.home() / ".rocketmq_offsets" / "i" / "g" / "offsets.json"
    assert parse_offsets(JAVA_FILE)[0] == {QUEUES[3]: 12, QUEUES[0]: 5}
    table = {queue: queue.queue_id * 10 for queue in QUEUES}
    text = offsets_text(table)
    assert parse_offsets(text)[0] == table
    assert b'{"brokerName":"broker-a","queueId":3,"topic":"TopicTest"}:30' in text
    assert parse_offsets(offsets_text({})) == ({}, {})


def test_births_stand_beside_the_offsets_and_follow_them(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"

    async def main() -> None:
        first = LocalOffsetStore(path)
        for queue in QUEUES[:2]:
            first.set(queue, 5)
            first.births[queue] = 77
        await first.persist(QUEUES)
        again = LocalOffsetStore(path)
        await again.load()
        again.forget(QUEUES[0])
        assert await again.read(QUEUES[0]) == 5 and again.births == {QUEUES[0]: 77, QUEUES[1]: 77}
        await forget_deleted(again, QUEUES[0])
        assert parse_offsets(path.read_bytes()) == ({QUEUES[0]: 0, QUEUES[1]: 5}, {QUEUES[1]: 77})

    run(main())


@pytest.mark.proves("client:D-71", "client:D-72", "client:D-73", "client:D-74")
def test_offsets_are_stored_in_the_file_with_a_backup_of_its_previous_content(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "offsets.json"

    async def main() -> None:
        store = LocalOffsetStore(path)
        await store.load()
        assert await store.read(QUEUES[0]) is None
        store.advance(QUEUES[0], 5)
        store.advance(QUEUES[1], 6)
        assert await store.persist([QUEUES[0], QUEUES[2]], confirmed=True)
        assert parse_offsets(path.read_bytes())[0] == {QUEUES[0]: 5}, "nothing in memory: nothing written"
        assert await store.persist_all([QUEUES[1]])
        assert parse_offsets(path.read_bytes())[0] == {QUEUES[0]: 5, QUEUES[1]: 6}, "others stay"
        assert parse_offsets(path.with_name("offsets.json.bak").read_bytes())[0] == {QUEUES[0]: 5}

        again = LocalOffsetStore(path)
        await again.load()
        assert again.get(QUEUES[1]) == 6
        again.forget(QUEUES[1])
        assert await again.read(QUEUES[1]) == 6
        assert again.get(QUEUES[1]) == 6

        path.write_bytes(b"")
        last = LocalOffsetStore(path)
        await last.load()
        assert (last.get(QUEUES[0]), last.get(QUEUES[1])) == (5, None), "from the copy"

        path.write_bytes(b"{broken")
        path.with_name("offsets.json.bak").write_bytes(b"[]")
        with pytest.raises(ClientError, check=about(what="offsets", value=path)):
            await LocalOffsetStore(path).load()

    run(main())


def test_file_that_cannot_be_written_is_tried_again(tmp_path: Path) -> None:
    async def main() -> None:
        blocked = tmp_path / "file"
        blocked.write_text("in the way")
        store = LocalOffsetStore(blocked / "offsets.json")
        store.advance(QUEUES[0], 5)
        assert not await store.persist([QUEUES[0]])
        blocked.unlink()
        assert await store.persist([QUEUES[0]])

    run(main())


@pytest.mark.parametrize(
    "data", [b'{"offsetTable":[1]}', b'{"offsetTable":{"x":1}}', b'{"offsetTable":{}} x', b"{}"]
)
def test_other_files_are_refused(data: bytes) -> None:
    with pytest.raises(JavaJsonError):
        parse_offsets(data)


@pytest.mark.proves("client:D-27", "client:D-77")
def test_frozen_offsets_stay_and_others_are_forgotten() -> None:
    async def test(cluster: FakeCluster, store: BrokerOffsetStore) -> None:
        one, two = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1)
        store.freeze(one, 3)
        store.advance(one, 9)
        store.set(one, 9)
        assert store.get(one) == 3
        store.set(two, 7)
        assert await store.persist_all([])
        assert store.get(two) == 7, "an empty set does nothing"
        assert await store.persist_all([one])
        assert (store.get(one), store.get(two)) == (3, None)
        store.forget(one)
        store.advance(one, 9)
        assert store.get(one) == 9

    flow(test)


def test_commit_reaches_a_broker_that_came_back_under_another_address() -> None:
    async def test(cluster: FakeCluster, store: BrokerOffsetStore) -> None:
        store.set(QUEUE, 3)
        assert await store.persist([QUEUE], confirmed=True)
        async with cluster.moved(store._instance):
            store.set(QUEUE, 4)
            assert await store.persist([QUEUE], confirmed=True)
            assert cluster.broker.offsets["g", "T", 0] == 4

    flow(test)


def test_negative_offsets_of_a_file_are_left_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    text = offsets_text({QUEUES[0]: -7, QUEUES[1]: 6})
    assert parse_offsets(text)[0] == {QUEUES[1]: 6}
    assert "the offset -7 of" in caplog.text
