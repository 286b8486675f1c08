"""Requests that combine several calls: which calls are combined, and the answer to each call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import Any, cast

import pytest
from tests.support import run

from sparrowmq.client.base.tasks import TaskGroup
from sparrowmq.client.cluster.security import ACTING
from sparrowmq.core.errors import BrokerError, ConnectionLostError, ProxyRefusal
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.batch import decode_batch
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.headers import send_from_v2
from sparrowmq.protocol.pop.receipts import Receipt
from sparrowmq.protocol.pop.records import BatchAckBody
from sparrowmq.proxy.base.converting import StoredForm
from sparrowmq.proxy.base.handles import ReceiptHandle
from sparrowmq.proxy.cluster import batches
from sparrowmq.proxy.cluster.ack_batches import AckBatches
from sparrowmq.proxy.cluster.send_batches import BORN_APART_MS, SendBatches, SentPlace
from sparrowmq.proxy.definition.messages import Code
from sparrowmq.transport.signing import Credentials

QUEUES = [MessageQueue("T", "broker-a", number) for number in range(3)]
Judge = Callable[[Command], Command | Exception]


class FakeBrokers:
    """Brokers that record requests, and answer as `judge` says."""

    def __init__(self, judge: Judge | None = None, *, connected: bool = True) -> None:
        self.asked: list[Command] = []
        self.accounts: list[Credentials | None] = []
        self.connected = connected
        self._judge = judge or stored

    def master(self, broker_name: str) -> str:
        if broker_name != "broker-a":
            raise ProxyRefusal(Code.BAD_REQUEST, f"there is no broker {broker_name!r}")
        return "h:1"

    def failed(self, topic: str, error: Exception) -> None:
        """Do nothing: routes do not change here."""

    def begin(self, address: str, asked: Command) -> asyncio.Future[Command] | None:
        if not self.connected:
            return None
        answer: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        self._answer(asked, answer)
        return answer

    async def call(self, address: str, asked: Command) -> Command:
        self.connected = True
        answer = self.begin(address, asked)
        assert answer is not None
        return await answer

    def _answer(self, asked: Command, answer: asyncio.Future[Command]) -> None:
        self.asked.append(asked)
        self.accounts.append(ACTING.get())
        told = self._judge(asked)
        if isinstance(told, Exception):
            answer.set_exception(told)
        else:
            answer.set_result(told)


def stored(asked: Command) -> Command:
    """Answer as if the queue already had seven messages."""
    fields = {"msgId": "0A", "queueId": "0", "queueOffset": "7"}
    return Command(ResponseCode.SUCCESS, ext=fields)


def form(number: int, *, born: int = 1000, body: bytes = b"body") -> StoredForm:
    key = f"KEY{number}"
    return StoredForm(body, f"UNIQ_KEY\x01{key}\x02".encode(), 0, born, key, "", "NORMAL")


class Sends:
    """A `SendBatches` with fake brokers, and the results of its messages by id."""

    def __init__(self, brokers: FakeBrokers) -> None:
        self.brokers = brokers
        self.tasks = TaskGroup(lambda name, error: None)
        self.batches = SendBatches(cast("Any", brokers), self.tasks)
        self.told: dict[str, SentPlace | Exception] = {}

    def add(self, one: StoredForm, queues: list[MessageQueue] | None = None) -> bool:
        return self.batches.add(queues or QUEUES, one, self._tell)

    def _tell(self, one: StoredForm, found: SentPlace | Exception) -> None:
        assert one.message_id not in self.told
        self.told[one.message_id] = found

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        assert self.batches.waiting == 0

    def requests(self) -> list[list[str]]:
        """The messages of each request."""
        return [
            [own.decode().split("\x01")[1].rstrip("\x02") for _, _, own in decode_batch(asked.body)]
            if asked.code == RequestCode.SEND_BATCH_MESSAGE
            else [(send_from_v2(asked.ext).properties or "").split("\x01")[1].rstrip("\x02")]
            for asked in self.brokers.asked
        ]


def sends(work: Callable[[Sends], Coroutine[Any, Any, None]], brokers: FakeBrokers | None = None) -> None:
    async def main() -> None:
        await work(Sends(brokers or FakeBrokers()))

    run(main())


def test_messages_of_one_loop_turn_share_a_request_and_get_their_own_offsets() -> None:
    async def work(sends: Sends) -> None:
        for number in range(3):
            assert sends.add(form(number))
        assert sends.brokers.asked == []
        await sends.settle()
        assert sends.requests() == [["KEY0", "KEY1", "KEY2"]]
        assert sends.told == {f"KEY{number}": SentPlace(Code.OK, 7 + number) for number in range(3)}
        header = send_from_v2(sends.brokers.asked[0].ext)
        assert (header.batch, header.properties, header.born_timestamp) == (True, "", 1000)

    sends(work)


def test_single_message_is_sent_without_a_batch() -> None:
    async def work(sends: Sends) -> None:
        sends.add(form(0))
        await sends.settle()
        assert sends.brokers.asked[0].code == RequestCode.SEND_MESSAGE_V2
        assert sends.told == {"KEY0": SentPlace(Code.OK, 7, "0A")}

    sends(work)


def test_each_batch_goes_to_the_next_queue() -> None:
    async def work(sends: Sends) -> None:
        for number in range(6):
            sends.add(form(2 * number))
            sends.add(form(2 * number + 1))
            await sends.settle()
        used = [send_from_v2(asked.ext).queue_id for asked in sends.brokers.asked]
        assert sorted(used) == [0, 0, 1, 1, 2, 2]

    sends(work)


def test_incompatible_messages_are_not_combined() -> None:
    """Messages of other topics or accounts, messages with distant birth times, and more messages than a
    batch may have."""

    async def work(sends: Sends) -> None:
        ann = Credentials("ann", "ann-secret-1")
        sends.add(form(0))
        sends.add(form(1), [MessageQueue("U", "broker-a", 0)])
        context = copy_context()
        context.run(ACTING.set, ann)
        context.run(sends.add, form(2))
        sends.add(form(3))
        sends.add(form(4, born=1000 + BORN_APART_MS + 1))
        await sends.settle()
        assert sends.requests() == [["KEY0", "KEY3"], ["KEY1"], ["KEY2"], ["KEY4"]]
        assert sends.brokers.accounts == [None, None, ann, None]

    sends(work)


def test_batch_size_is_limited() -> None:
    async def work(sends: Sends) -> None:
        for number in range(batches.ENTRIES_MAX + 1):
            sends.add(form(number))
        await sends.settle()
        for number in range(100, 103):
            sends.add(form(number, body=bytes(batches.BATCH_BYTES_MAX // 2)))
        await sends.settle()
        assert [len(keys) for keys in sends.requests()] == [batches.ENTRIES_MAX, 1, 1, 1, 1]

    sends(work)


def test_one_illegal_message_does_not_affect_the_others() -> None:
    def judge(asked: Command) -> Command:
        if b"KEY1" in asked.body or "KEY1" in (asked.ext.get("i") or ""):
            return Command(ResponseCode.MESSAGE_ILLEGAL, remark="too long")
        return stored(asked)

    async def work(sends: Sends) -> None:
        for number in range(3):
            sends.add(form(number))
        await sends.settle()
        refused = sends.told.pop("KEY1")
        assert isinstance(refused, BrokerError) and refused.code == ResponseCode.MESSAGE_ILLEGAL
        assert sends.told == {"KEY0": SentPlace(Code.OK, 7, "0A"), "KEY2": SentPlace(Code.OK, 7, "0A")}

    sends(work, FakeBrokers(judge))


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (Command(ResponseCode.NO_PERMISSION, remark="no"), BrokerError),
        (ConnectionLostError("it broke", address="h:1"), ConnectionLostError),
    ],
)
def test_failed_request_fails_all_its_calls(answer: Command | Exception, told: type[Exception]) -> None:
    async def work(sends: Sends) -> None:
        sends.add(form(0))
        sends.add(form(1))
        sends.add(form(2), [MessageQueue("T2", "unknown", 0)])
        await sends.settle()
        assert len(sends.brokers.asked) == 1
        assert isinstance(sends.told["KEY0"], told) and isinstance(sends.told["KEY1"], told)
        assert isinstance(sends.told["KEY2"], ProxyRefusal)

    sends(work, FakeBrokers(lambda asked: answer))


def test_batch_waits_for_a_connection() -> None:
    async def work(sends: Sends) -> None:
        sends.add(form(0))
        sends.add(form(1))
        await sends.settle()
        assert sends.told == {"KEY0": SentPlace(Code.OK, 7), "KEY1": SentPlace(Code.OK, 8)}

    sends(work, FakeBrokers(connected=False))


def test_request_is_repeated_after_a_broker_disconnects() -> None:
    answers = [Command(ResponseCode.GO_AWAY)]

    async def work(sends: Sends) -> None:
        sends.add(form(0))
        sends.add(form(1))
        await sends.settle()
        assert sends.requests() == [["KEY0", "KEY1"]] * 2
        assert sends.told == {"KEY0": SentPlace(Code.OK, 7), "KEY1": SentPlace(Code.OK, 8)}

    sends(work, FakeBrokers(lambda asked: answers.pop() if answers else stored(asked)))


def test_number_of_waiting_calls_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "WAITING_BYTES_MAX", 10_000)

    async def work(sends: Sends) -> None:
        assert sends.add(form(0, body=bytes(5_000)))
        assert not sends.add(form(1, body=bytes(5_000)))
        assert sends.batches.waiting < 10_000
        await sends.settle()
        assert sends.add(form(2, body=bytes(5_000)))
        await sends.settle()
        assert sorted(sends.told) == ["KEY0", "KEY2"]

    sends(work)


def test_all_calls_are_answered_when_the_proxy_stops() -> None:
    class Silent(FakeBrokers):
        async def call(self, address: str, asked: Command) -> Command:
            return await cast("asyncio.Future[Command]", asyncio.get_running_loop().create_future())

    async def work(sends: Sends) -> None:
        sends.add(form(0))
        await asyncio.sleep(0.01)
        await sends.tasks.close()
        assert isinstance(sends.told["KEY0"], ConnectionLostError)
        assert sends.batches.waiting == 0

    sends(work, Silent(connected=False))


# Acknowledgements


def handle(
    offset: int, *, start: int = 10, queue: int = 0, revive: int = 3, flag: str = "0"
) -> ReceiptHandle:
    return ReceiptHandle(Receipt(start, 5000, 60_000, revive, flag, "broker-a", queue, offset), 100)


class Acks:
    """An `AckBatches` with fake brokers, and the result of each acknowledgement."""

    def __init__(self, brokers: FakeBrokers) -> None:
        self.brokers = brokers
        self.batches = AckBatches(cast("Any", brokers), TaskGroup(lambda name, error: None))
        self.told: dict[str, Exception | None] = {}

    def add(self, name: str, handle: ReceiptHandle) -> bool:
        def tell(error: Exception | None) -> None:
            assert name not in self.told
            self.told[name] = error

        return self.batches.add("h:1", "T", "G", handle, tell)

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        assert self.batches.waiting == 0


def acks(work: Callable[[Acks], Coroutine[Any, Any, None]], judge: Judge) -> None:
    async def main() -> None:
        await work(Acks(FakeBrokers(judge)))

    run(main())


def done(asked: Command) -> Command:
    return Command(ResponseCode.SUCCESS)


def test_acknowledgements_of_one_loop_turn_share_a_request() -> None:
    """Acknowledgements of one check point are one entry of the request."""

    async def work(acks: Acks) -> None:
        for name, one in {
            "a": handle(10),
            "b": handle(13),
            "c": handle(10, queue=1),
            "d": handle(10),
        }.items():
            assert acks.add(name, one)
        await acks.settle()
        (asked,) = acks.brokers.asked
        assert asked.code == RequestCode.BATCH_ACK_MESSAGE
        body = BatchAckBody.decode_request(asked.body)
        assert body.broker_name == "broker-a"
        assert [(one.queue_id, one.offsets) for one in body.acks] == [(0, [10, 13]), (1, [10])]
        first = body.acks[0]
        assert (first.topic, first.group, first.pop_time, first.invisible_time) == ("T", "G", 5000, 60_000)
        assert (first.revive_queue, first.flag, first.start_offset) == (3, "0", 10)
        assert acks.told == dict.fromkeys("abcd")

    acks(work, done)


def test_incompatible_receipts_are_not_combined() -> None:
    """Receipts of ordered messages, without an offset, or far from the beginning of the check point."""

    async def work(acks: Acks) -> None:
        assert not acks.add("ordered", handle(10, revive=999))
        assert not acks.add("old", handle(-1))
        assert not acks.add("far", handle(10 + 4096))
        await acks.settle()
        assert acks.brokers.asked == []

    acks(work, done)


def test_each_acknowledgement_of_a_refused_batch_gets_its_own_answer() -> None:
    def judge(asked: Command) -> Command:
        is_good = asked.code == RequestCode.ACK_MESSAGE and asked.ext["offset"] != "11"
        return Command(ResponseCode.SUCCESS if is_good else ResponseCode.NO_MESSAGE, remark="no")

    async def work(acks: Acks) -> None:
        for offset in (10, 11, 12):
            acks.add(str(offset), handle(offset))
        await acks.settle()
        refused = acks.told.pop("11")
        assert isinstance(refused, BrokerError) and refused.code == ResponseCode.NO_MESSAGE
        assert acks.told == {"10": None, "12": None}

    acks(work, judge)
