"""Apache's tools and a gRPC consumer at our proxy: progress, members, running info, direct consumption."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest
from tests.interop.admin.test_group_admin import mqadmin
from tests.interop.driver import JavaDriver
from tests.proxy.rig import message, running
from tests.proxy.test_members import consumer_at
from tests.support import run

from sparrowmq import aio
from sparrowmq.core.message import MessageQueue
from sparrowmq.proxy.definition.messages import Code, v2
from sparrowmq.testing import LocalCluster

pytestmark = pytest.mark.interop


async def answering(stream: Any) -> None:
    """A client that answers the commands of tools."""
    while (asked := await stream.read()) is not None and hasattr(asked, "WhichOneof"):
        told = v2.TelemetryCommand(status=v2.Status(code=Code.OK))
        if asked.WhichOneof("command") == "print_thread_stack_trace_command":
            told.thread_stack_trace.nonce = asked.print_thread_stack_trace_command.nonce
            told.thread_stack_trace.thread_stack_trace = "worker-1: waiting for work"
        elif asked.WhichOneof("command") == "verify_message_command":
            told.verify_message_result.nonce = asked.verify_message_command.nonce
            told.status.code = Code.FAILED_TO_CONSUME_MESSAGE
        else:
            continue
        await stream.write(told)


def test_mqadmin_sees_and_asks_a_grpc_consumer(driver: JavaDriver, ours: LocalCluster, name: str) -> None:
    async def main() -> None:
        tool = partial(asyncio.to_thread, mqadmin, driver, ours)
        async with aio.Admin(namesrv=ours.namesrv) as admin, running(ours.namesrv) as proxy:
            await admin.topics.create(name, queues=1)
            async with consumer_at(proxy, name, f"{name}-1", name) as (client, stream):
                answers = asyncio.ensure_future(answering(stream))
                await client.receive(name, name, long_polling_timeout={"seconds": 5})
                for number in range(3):
                    await client.send(message(name, b"%d" % number, number=number))
                _, got = await client.receive(name, name, batch_size=2)
                assert len(got) == 2

                shown = await tool("consumerProgress", "-g", name)
                row = next(line.split() for line in shown.splitlines() if line.startswith(name))
                assert row[3:7] == ["3", "0", "3", "2"], "broker offset, consumer offset, diff, in flight"
                assert "Consume Diff Total: 3" in shown and "Consume Inflight Total: 2" in shown

                shown = await tool("consumerConnection", "-g", name)
                row = next(line.split() for line in shown.splitlines() if f"{name}-1" in line)
                assert row[-2:] == ["PYTHON", "V5_1_2"] and "127.0.0.1:" in " ".join(row)

                shown = await tool("consumerStatus", "-g", name, "-i", f"{name}-1", "-s")
                assert "PROP_CONSUME_TYPE" in shown and "worker-1: waiting for work" in shown, shown

                stored = await admin_view(admin, name, ours)
                shown = await tool("queryMsgById", "-t", name, "-i", stored, "-g", name, "-d", f"{name}-1")
                assert "CR_LATER" in shown and "from gRPC client" in shown, shown
                answers.cancel()
                stream.cancel()

    run(main())


async def admin_view(admin: aio.Admin, topic: str, cluster: LocalCluster) -> str:
    """The offset id of the first message of a topic."""
    async with aio.PullConsumer(namesrv=cluster.namesrv) as reader:
        (found, *_) = (await reader.pull(MessageQueue(topic, "broker-a", 0), 0)).messages
        return found.offset_message_id
