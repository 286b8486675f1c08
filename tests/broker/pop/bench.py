"""POP of a broker with a real store; the test moves the clock."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from tests.broker.doubles import FakeClock
from tests.broker.rig import Rig, connection, send_command
from tests.support import run

from sparrowmq.broker.pop.revive import BUSY_SECONDS
from sparrowmq.core.errors import SparrowError
from sparrowmq.protocol import properties
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.pop.receipts import (
    Receipt,
    parse_message_offsets,
    parse_start_offsets,
    real_topic,
    retry_flag,
)
from sparrowmq.protocol.record import StoredRecord, decode_records
from sparrowmq.protocol.refusals import Refused

T0 = 1_700_000_000_000
GROUP, TOPIC = "g", "TopicTest"
TURNS_MAX = 2000


class Popped(NamedTuple):
    """A popped message, and the receipt handle that a client makes for it."""

    record: StoredRecord
    receipt: Receipt

    @property
    def body(self) -> bytes:
        return self.record.body

    @property
    def own(self) -> dict[str, str]:
        return properties.decode(self.record.properties)

    @property
    def real_topic(self) -> str:
        return real_topic(self.record.topic, GROUP, self.receipt.flag)


def received(answer: Command, broker_name: str = "broker-a") -> list[Popped]:
    """An answer as clients read it: the messages with their receipt handles."""
    ext = answer.ext
    starts = parse_start_offsets(ext.get("startOffsetInfo"))
    offsets = parse_message_offsets(ext.get("msgOffsetInfo"))
    found = []
    for record in decode_records(answer.body):
        told = properties.decode(record.properties).get("POP_CK")
        if told is not None:
            found.append(Popped(record, Receipt.parse(told)))
            continue
        flag = retry_flag(record.topic)
        assert record.queue_offset in offsets[flag, record.queue_id]
        receipt = Receipt(
            starts[flag, record.queue_id],
            int(ext["popTime"]),
            int(ext["invisibleTime"]),
            int(ext["reviveQid"]),
            flag,
            broker_name,
            record.queue_id,
            record.queue_offset,
        )
        found.append(Popped(record, receipt))
    return found


class PopBench:
    """A broker with one topic; requests are commands, answers are command results."""

    def __init__(
        self, root: Path, *, queues: int = 1, clock: FakeClock | None = None, **settings: Any
    ) -> None:
        self.rig = Rig(root, clock=clock or FakeClock(T0), **settings)
        if self.rig.topics.get(TOPIC) is None:
            self.rig.make_topic(TOPIC, queues)
        self.client = connection()

    @property
    def now(self) -> int:
        return self.rig.clock.ms

    def send(self, *bodies: bytes, queue_id: int = 0, **own: str) -> None:
        text = "".join(f"{name}\x01{value}\x02" for name, value in own.items())
        for body in bodies:
            command = send_command(body, queue_id=queue_id, properties=f"UNIQ_KEY\x01{body.hex()}\x02{text}")
            client = connection()
            self.rig.sending.handle(client, command)
            (answer,) = client.answers()
            assert answer.code == ResponseCode.SUCCESS, answer.remark

    def make_again(self) -> None:
        """Delete the topic and create it again."""
        run(self.rig.topics.delete(TOPIC))
        self.rig.store.delete_topic(TOPIC)
        self.rig.offsets.forget_topic(TOPIC)
        self.rig.parts.pop.forget_topic(TOPIC)
        self.rig.topics.deleted(TOPIC)
        self.rig.make_topic(TOPIC, 1)

    def ask(self, code: int, body: bytes = b"", **fields: Any) -> Command | None:
        """The answer to a request; None while it is held."""
        ext = {name: str(value) for name, value in fields.items()}
        try:
            answer = self.rig.parts.handlers[code](self.client, Command(code, 7, 0, ext, body))
        except (Refused, SparrowError) as error:
            answer = Refused.of(error).answer(7)
        if answer is not None:
            assert isinstance(answer, Command)
            return answer
        answers = self.client.answers()
        return answers[0] if answers else None

    def pop_answer(self, **fields: Any) -> Command | None:
        defaults = {
            "consumerGroup": GROUP,
            "topic": TOPIC,
            "queueId": -1,
            "maxMsgNums": 32,
            "invisibleTime": 60_000,
            "pollTime": 0,
            "bornTime": self.now,
            "initMode": 0,
        }
        return self.ask(RequestCode.POP_MESSAGE, **(defaults | fields))

    def pop(self, **fields: Any) -> list[Popped]:
        answer = self.pop_answer(**fields)
        assert answer is not None
        assert answer.code in (ResponseCode.SUCCESS, ResponseCode.POLLING_TIMEOUT), answer.remark
        return received(answer)

    def ack_answer(self, one: Popped, **fields: Any) -> Command:
        defaults = {
            "consumerGroup": GROUP,
            "topic": one.real_topic,
            "queueId": one.receipt.queue_id,
            "extraInfo": one.receipt.encode(),
            "offset": one.receipt.offset,
        }
        answer = self.ask(RequestCode.ACK_MESSAGE, **(defaults | fields))
        assert answer is not None
        return answer

    def ack(self, *messages: Popped) -> None:
        for one in messages:
            answer = self.ack_answer(one)
            assert answer.code == ResponseCode.SUCCESS, answer.remark

    def change(self, one: Popped, invisible_time: int, **fields: Any) -> Command:
        defaults = {
            "consumerGroup": GROUP,
            "topic": one.real_topic,
            "queueId": one.receipt.queue_id,
            "extraInfo": one.receipt.encode(),
            "offset": one.receipt.offset,
            "invisibleTime": invisible_time,
        }
        answer = self.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, **(defaults | fields))
        assert answer is not None
        return answer

    def settle(self) -> None:
        """Run everything that is due now in the timer and in the reviver."""
        timer, reviver = self.rig.delayed.timer, self.rig.parts.pop.reviver
        assert timer is not None and reviver is not None
        for _ in range(TURNS_MAX):
            self.rig.store.flush()
            if timer.turn() == 0.0:
                continue
            if reviver.turn() not in (0.0, BUSY_SECONDS):
                return
        raise AssertionError("the timer or the reviver has no end")

    def after(self, ms: int) -> None:
        """Advance the clock."""
        end = self.now + ms
        while self.now < end:
            self.rig.clock.ms = min(end, self.now + 1000)
            self.settle()

    def committed(self, topic: str = TOPIC, queue_id: int = 0) -> int | None:
        return self.rig.offsets.query(topic, GROUP, queue_id)

    def kill(self) -> None:
        """Stop as `kill -9` does."""
        self.rig.kill()

    def save_offsets(self) -> None:
        """Save offsets as the broker does every few seconds."""
        unsaved = self.rig.offsets.unsaved()
        if unsaved is not None:
            self.rig.store.flush()
            self.rig.offsets.write(unsaved)

    def close(self) -> None:
        self.rig.close()
