"""POP by single requests, as a client of any kind makes them: the same script for either broker."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from tests.broker.pop.bench import Popped, received
from tests.broker.rig import send_command
from tests.interop.apache import ask
from tests.support import until_sync

from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.pop.receipts import real_topic
from sparrowmq.protocol.pop.records import BatchAck, BatchAckBody, bits_of


@dataclass
class Popper:
    """One group at one broker's topic."""

    address: str
    topic: str
    group: str

    def ask(self, code: int, body: bytes = b"", **fields: Any) -> Command:
        return ask(
            self.address, Command(code, 1, 0, {name: str(value) for name, value in fields.items()}, body)
        )

    def create_topic(self, queues: int) -> None:
        answer = self.ask(
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            topic=self.topic,
            defaultTopic="TBW102",
            readQueueNums=queues,
            writeQueueNums=queues,
            perm=6,
            topicFilterType="SINGLE_TAG",
            topicSysFlag=0,
            order="false",
        )
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    def send(self, *bodies: bytes, queue_id: int = 0, **own: str) -> None:
        text = "".join(f"{name}\x01{value}\x02" for name, value in own.items())
        for body in bodies:
            command = send_command(
                body, topic=self.topic, queue_id=queue_id, properties=f"UNIQ_KEY\x01{body.hex()}\x02{text}"
            )
            answer = ask(self.address, command)
            assert answer.code == ResponseCode.SUCCESS, answer.remark

    def pop_answer(self, **fields: Any) -> Command:
        wanted: dict[str, Any] = {
            "consumerGroup": self.group,
            "topic": self.topic,
            "queueId": -1,
            "maxMsgNums": 32,
            "invisibleTime": 60_000,
            "pollTime": 0,
            "bornTime": int(time.time() * 1000),
            "initMode": 0,
        }
        return self.ask(RequestCode.POP_MESSAGE, **(wanted | fields))

    def pop(self, **fields: Any) -> list[Popped]:
        answer = self.pop_answer(**fields)
        assert answer.code in (ResponseCode.SUCCESS, ResponseCode.POLLING_TIMEOUT), answer.remark
        return received(answer)

    def pop_until(self, count: int, seconds: float = 60.0, **fields: Any) -> list[Popped]:
        """POP until so many messages came."""
        found: list[Popped] = []

        def enough() -> bool:
            found.extend(self.pop(**fields))
            return len(found) >= count

        until_sync(enough, seconds)
        return found

    def _named(self, one: Popped) -> dict[str, Any]:
        return {
            "consumerGroup": self.group,
            "topic": real_topic(self.topic, self.group, one.receipt.flag),
            "queueId": one.receipt.queue_id,
            "extraInfo": one.receipt.encode(),
            "offset": one.receipt.offset,
        }

    def ack(self, one: Popped, **fields: Any) -> Command:
        return self.ask(RequestCode.ACK_MESSAGE, **(self._named(one) | fields))

    def change(self, one: Popped, invisible_time: int, **fields: Any) -> Command:
        named = self._named(one) | {"invisibleTime": invisible_time}
        return self.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, **(named | fields))

    def batch_ack(self, one: Popped, offsets: list[int]) -> Command:
        receipt = one.receipt
        ack = BatchAck(
            bits=bits_of(offsets, receipt.start_offset),
            group=self.group,
            invisible_time=receipt.invisible_time,
            pop_time=receipt.pop_time,
            queue_id=receipt.queue_id,
            flag=receipt.flag,
            revive_queue=receipt.revive_queue,
            start_offset=receipt.start_offset,
            topic=self.topic,
        )
        body = BatchAckBody([ack], receipt.broker_name).encode()
        return self.ask(RequestCode.BATCH_ACK_MESSAGE, body)
