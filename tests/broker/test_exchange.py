"""Transactions, locks, replies and resets through a whole broker over sockets."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from tests.broker.rig import pull_ext, send_command
from tests.broker.test_server import ask, serving
from tests.support import run, until

from sparrowmq.core.ids import parse_offset_message_id
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.bodies import (
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    ProducerData,
    ResetOffsetBody,
    wire_queues,
)
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import FLAG_RESPONSE, Command
from sparrowmq.protocol.headers import SendMessageRequest, send_v2_to_ext
from sparrowmq.protocol.record import decode_records
from sparrowmq.transport.client import RemotingClient

HALF = "TRAN_MSG\x01true\x02PGROUP\x01p\x02UNIQ_KEY\x01AB12\x02"


async def bodies(call: Any, topic: str = "TopicTest") -> list[bytes]:
    answer = await call(ask(RequestCode.PULL_MESSAGE, **pull_ext(topic=topic)))
    return [record.body for record in decode_records(answer.body)]


async def end(call: Any, sent: Command, state: int) -> Command:
    physical = parse_offset_message_id(sent.ext["msgId"])[2]
    return await call(
        ask(
            RequestCode.END_TRANSACTION,
            producerGroup="p",
            tranStateTableOffset=sent.ext["queueOffset"],
            commitLogOffset=physical,
            commitOrRollback=state,
        )
    )


@pytest.mark.proves("broker:9.1", "broker:9.2", "broker:9.4")
def test_transactions_are_ended_and_stay_ended_across_a_restart(tmp_path: Path) -> None:
    async def first() -> None:
        async with serving(tmp_path) as call:
            await call.create("TopicTest")
            sent = [await call(send_command(b"%d" % n, sys_flag=4, properties=HALF)) for n in range(3)]
            assert await bodies(call) == []
            assert (await end(call, sent[0], 8)).code == ResponseCode.SUCCESS
            assert (await end(call, sent[1], 12)).code == ResponseCode.SUCCESS
            assert await bodies(call) == [b"0"]
            left.append(sent)

    async def second() -> None:
        async with serving(tmp_path) as call:
            sent = left[0]
            assert (await end(call, sent[0], 8)).code == ResponseCode.SYSTEM_ERROR
            assert (await end(call, sent[1], 8)).code == ResponseCode.SYSTEM_ERROR
            assert (await end(call, sent[2], 8)).code == ResponseCode.SUCCESS
            assert await bodies(call) == [b"0", b"2"]

    left: list[Any] = []
    run(first())
    run(second())


@pytest.mark.proves("broker:9.4", "broker:9.5", "client:B-102")
def test_producer_is_checked_about_a_forgotten_transaction(tmp_path: Path) -> None:
    asked: list[Command] = []

    async def main() -> None:
        settings: dict[str, Any] = {"transaction_time_out": 0, "transaction_check_interval": 20}
        async with serving(tmp_path, **settings) as call:
            await call.create("TopicTest")
            handlers = {RequestCode.CHECK_TRANSACTION_STATE: lambda _, command: asked.append(command)}
            client = RemotingClient(on_request=handlers)
            try:
                beat = HeartbeatData(client_id="c", producers=(ProducerData("p"),)).encode()
                await client.call(call.broker.address, Command(RequestCode.HEART_BEAT, body=beat), 5.0)
                born = int(time.time() * 1000)
                await call(send_command(b"x", sys_flag=4, properties=HALF, born_timestamp=born))
                await until(lambda: asked)
                ext = asked[0].ext
                answer = ask(
                    RequestCode.END_TRANSACTION,
                    producerGroup="p",
                    tranStateTableOffset=ext["tranStateTableOffset"],
                    commitLogOffset=ext["commitLogOffset"],
                    commitOrRollback=8,
                    fromTransactionCheck="true",
                )
                assert (await client.call(call.broker.address, answer, 5.0)).code == ResponseCode.SUCCESS
                assert await bodies(call) == [b"x"]
            finally:
                await client.close()

    run(main())


@pytest.mark.proves("broker:6.7", "client:B-90", "client:B-96")
def test_reply_reaches_the_requester(tmp_path: Path) -> None:
    pushed: list[Command] = []

    def take(_: object, command: Command) -> Command:
        pushed.append(command)
        return Command(ResponseCode.SUCCESS, command.opaque, FLAG_RESPONSE)

    async def main() -> None:
        async with serving(tmp_path) as call:
            client = RemotingClient(on_request={RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: take})
            request = SendMessageRequest(
                producer_group="answerers",
                topic="DefaultCluster_REPLY_TOPIC",
                default_topic="TBW102",
                default_topic_queue_nums=4,
                queue_id=0,
                sys_flag=0,
                born_timestamp=1,
                flag=0,
                properties="REPLY_TO_CLIENT\x01asker\x02CORRELATION_ID\x01c\x02",
            )
            reply = Command(RequestCode.SEND_REPLY_MESSAGE_V2, ext=send_v2_to_ext(request), body=b"yes")
            try:
                assert (await call(reply)).code == ResponseCode.SYSTEM_ERROR
                beat = HeartbeatData(client_id="asker", producers=(ProducerData("p"),)).encode()
                await client.call(call.broker.address, Command(RequestCode.HEART_BEAT, body=beat), 5.0)
                answer = await call(reply)
                assert (answer.code, answer.ext["queueOffset"]) == (ResponseCode.SUCCESS, "1")
                assert [one.body for one in pushed] == [b"yes"]
                assert await bodies(call, "DefaultCluster_REPLY_TOPIC") == [b"yes", b"yes"]
            finally:
                await client.close()

    run(main())


@pytest.mark.proves("broker:10.6")
def test_locks_and_resets_work_through_the_broker(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as call:
            await call.create("TopicTest")
            queue = MessageQueue("TopicTest", "broker-a", 0)

            async def lock(client_id: str) -> list[MessageQueue]:
                body = LockBatchRequestBody(client_id, "g", wire_queues([queue])).encode()
                answer = await call(Command(RequestCode.LOCK_BATCH_MQ, body=body))
                return LockBatchResponseBody.decode(answer.body).queues

            assert await lock("one") == [queue]
            assert await lock("two") == []
            for n in range(3):
                await call(send_command(b"%d" % n))
            assert await bodies(call) == [b"0", b"1", b"2"]
            reset = {"topic": "TopicTest", "group": "g", "timestamp": -1, "isForce": "true", "queueId": 0}
            answer = await call(ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **reset))
            assert ResetOffsetBody.decode(answer.body).offset_table == {queue: 3}
            moved = await call(ask(RequestCode.PULL_MESSAGE, **pull_ext()))
            assert (moved.code, moved.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "3")

    run(main())
