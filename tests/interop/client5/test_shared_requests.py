"""Sends and acknowledgements that share requests of our proxy, at Apache's broker."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.interop.apache import ApacheCluster
from tests.proxy.rig import connected, message, running
from tests.support import run, until

from sparrowmq import aio
from sparrowmq.proxy.cluster.brokers import Brokers
from sparrowmq.proxy.definition.messages import Code, v2

pytestmark = pytest.mark.interop
COUNT = 60


def test_each_message_is_stored_and_acknowledged(
    apache: ApacheCluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    begin = Brokers.begin

    def counted(brokers: Brokers, address: str, command: Any) -> Any:
        asked.append(command.code)
        return begin(brokers, address, command)

    monkeypatch.setattr(Brokers, "begin", counted)

    async def main() -> None:
        async with aio.Admin(namesrv=apache.namesrv) as admin:
            await admin.topics.create(name, queues=2)
            await admin.groups.create(name)
        async with running(apache.namesrv) as proxy, connected(proxy.address) as client:
            await client.send(message(name, b"first", number=COUNT))
            await client.receive(name, name, long_polling_timeout={"seconds": 5})
            sent = [message(name, f"body {number}".encode(), number=number) for number in range(COUNT)]
            answers = await asyncio.gather(*map(client.send, sent))
            assert {answer.status.code for answer in answers} == {Code.OK}
            assert len(asked) < COUNT, "the sends shared requests"
            got: list[Any] = []

            async def enough() -> bool:
                _, found = await client.receive(name, name, invisible_duration={"seconds": 10})
                got.extend(one for one in found if one.body != b"first")
                return len(got) >= COUNT

            await until(enough)
            wanted = {one.system_properties.message_id: one.body for one in sent}
            assert {one.system_properties.message_id: one.body for one in got} == wanted
            asked.clear()
            acks = []
            for one in got:
                acks.append(request := v2.AckMessageRequest())
                request.topic.name = request.group.name = name
                request.entries.add(message_id="m", receipt_handle=one.system_properties.receipt_handle)
            answers = await asyncio.gather(*(client.call("AckMessage", each) for each in acks))
            assert {answer.status.code for answer in answers} == {Code.OK}
            assert len(asked) < COUNT, "the acknowledgements shared requests"
            await asyncio.sleep(13)
            _, again = await client.receive(name, name, long_polling_timeout={"seconds": 5})
            assert [one.body for one in again if one.body != b"first"] == []

    run(main())
