from __future__ import annotations

import asyncio

from tests.spark.support import Topics, close_clients
from tests.support import run

from sparrowmq import State
from sparrowmq.spark.cluster.clients import READER_GROUP, admin, producer, pull_consumer
from sparrowmq.spark.options.table import ReadOptions, WriteOptions


def test_clients_are_shared_by_cluster_and_group(topics: Topics) -> None:
    server = topics.cluster.namesrv
    plain, group = ReadOptions(name_server=server), ReadOptions(name_server=server, group_id="g")
    write = WriteOptions(name_server=server)

    async def main() -> None:
        first, again = await asyncio.gather(pull_consumer(plain), pull_consumer(plain))
        assert first is again
        assert first.group == READER_GROUP
        other = await pull_consumer(group)
        assert other is not first
        assert other.group == "g"
        assert await admin(plain) is await admin(group)
        sender = await producer(write)
        assert sender is await producer(write)
        assert sender is not await producer(WriteOptions(name_server=server, retries=0))
        assert sender.settings.send_timeout == write.send_timeout
        await close_clients()
        assert first.state is sender.state is State.CLOSED
        assert await pull_consumer(plain) is not first
        await close_clients()
        await close_clients()

    run(main())


def test_each_loop_has_its_own_clients(topics: Topics) -> None:
    options = ReadOptions(name_server=topics.cluster.namesrv)

    async def one() -> object:
        found = await pull_consumer(options)
        await close_clients()
        return found

    assert run(one()) is not run(one())
