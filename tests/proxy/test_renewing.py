"""Renewal of invisible times: which handle is valid when a client settles a message."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from tests.broker.doubles import FakeClock
from tests.proxy.test_clients import Memory
from tests.support import run, until

from sparrowmq.client.base.tasks import TaskGroup
from sparrowmq.core.errors import BrokerError, RequestTimeoutError, TransportError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.pop.receipts import Receipt
from sparrowmq.proxy.base.caller import GrpcCaller
from sparrowmq.proxy.base.handles import ReceiptHandle
from sparrowmq.proxy.calls.abandoned import Abandoned
from sparrowmq.proxy.calls.answers import MessageAnswers
from sparrowmq.proxy.calls.receiving import MessageReceives
from sparrowmq.proxy.calls.renewing import AT_ONCE, TRIES_MAX, Renewing
from sparrowmq.proxy.cluster.ack_batches import AckBatches
from sparrowmq.proxy.definition.messages import Code, v2
from sparrowmq.transport.slices import TurnGate

CALLER = GrpcCaller("c", "10.0.0.1:5000", None, {}, Memory())


class FakeBrokers:
    """A broker that counts requests and fails a given number of times."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.failures = 0
        self.hold: asyncio.Event | None = None
        """What renewals wait for."""
        self.acked: list[Receipt] = []

    async def master_for(self, broker_name: str, topic: str) -> str:
        return "h:1"

    def known_master(self, broker_name: str) -> str:
        return "h:1"

    async def change_invisible(
        self, address: str, topic: str, group: str, handle: ReceiptHandle, millis: int
    ) -> ReceiptHandle:
        if self.hold is not None:
            await self.hold.wait()
        receipt = handle.receipt._replace(pop_time=self.clock.now_ms(), invisible_time=millis)
        return replace(handle, receipt=receipt)

    def failed(self, topic: str, error: Exception) -> None:
        """Do nothing: routes do not change here."""

    def begin(self, address: str, asked: Command) -> asyncio.Future[Command]:
        answer: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        if self.failures:
            self.failures -= 1
            answer.set_exception(TransportError("the connection broke"))
        else:
            self.acked.append(Receipt.parse(asked.ext["extraInfo"]))
            answer.set_result(Command(ResponseCode.SUCCESS))
        return answer


def test_failed_acknowledgement_can_be_repeated_after_renewals() -> None:
    """The client has the first handle, which has expired; only the proxy knows the current one."""

    async def scenario() -> None:
        clock = FakeClock()
        brokers = FakeBrokers(clock)
        renewing = Renewing(cast("Any", brokers), lambda client_id: True, clock)
        tasks = TaskGroup(lambda *_: None)
        acks = AckBatches(cast("Any", brokers), tasks)
        receives = MessageReceives(
            cast("Any", brokers), renewing, tasks, Abandoned(), acks, clock, MessageAnswers(TurnGate(64))
        )
        first = ReceiptHandle(Receipt(0, clock.now_ms(), 60_000, 0, "0", "broker-a", 0, 0), 100)
        renewing.begin("c", "T", "g", [cast("Any", SimpleNamespace(handle=first))])
        clock.ms += 55_000
        await renewing.round()
        clock.ms += 30_000
        request = v2.AckMessageRequest()
        request.topic.name, request.group.name = "T", "g"
        request.entries.add(message_id="m", receipt_handle=first.encode())
        brokers.failures = 1
        assert (await receives.ack_message(CALLER, request)).entries[0].status.code != Code.OK
        assert len(renewing) == 1
        assert (await receives.ack_message(CALLER, request)).entries[0].status.code == Code.OK
        assert [one.pop_time for one in brokers.acked] == [first.receipt.pop_time + 55_000]
        assert len(renewing) == 0

    run(scenario())


class Told:
    """The answer to an acknowledgement without a task."""

    def __init__(self) -> None:
        self.codes: list[int] = []

    def respond(self, response: Any) -> None:
        self.codes.append(response.entries[0].status.code)

    def refuse(self, error: Exception) -> None:
        raise error


def test_failed_acknowledgement_without_a_task_can_be_repeated() -> None:
    async def scenario() -> None:
        clock = FakeClock()
        brokers = FakeBrokers(clock)
        renewing = Renewing(cast("Any", brokers), lambda client_id: True, clock)
        tasks = TaskGroup(lambda *_: None)
        acks = AckBatches(cast("Any", brokers), tasks)
        receives = MessageReceives(
            cast("Any", brokers), renewing, tasks, Abandoned(), acks, clock, MessageAnswers(TurnGate(64))
        )
        first = ReceiptHandle(Receipt(0, clock.now_ms(), 60_000, 0, "0", "broker-a", 0, 0), 100)
        renewing.begin("c", "T", "g", [cast("Any", SimpleNamespace(handle=first))])
        request = v2.AckMessageRequest()
        request.topic.name, request.group.name = "T", "g"
        request.entries.add(message_id="m", receipt_handle=first.encode())
        told = Told()
        brokers.hold = asyncio.Event()
        clock.ms += 55_000
        renewal = asyncio.create_task(renewing.round())
        await until(lambda: all(held.busy.locked() for held in renewing._held.values()))
        assert not receives.ack_now(CALLER, request, told)  # its handle is about to change
        brokers.hold.set()
        await renewal
        clock.ms += 30_000
        brokers.failures = 1
        for _ in range(2):
            assert receives.ack_now(CALLER, request, told)
            await until(lambda: acks.waiting == 0)
        assert told.codes == [Code.INTERNAL_SERVER_ERROR, Code.OK]
        assert [one.pop_time for one in brokers.acked] == [first.receipt.pop_time + 55_000]
        assert len(renewing) == 0

    run(scenario())


class ManyBrokers(FakeBrokers):
    """`frozen` does not answer, `slave` is no longer the master, `strict` refuses; all others answer."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.asked: Counter[str] = Counter()

    async def master_for(self, broker_name: str, topic: str) -> str:
        return broker_name

    async def change_invisible(
        self, address: str, topic: str, group: str, handle: ReceiptHandle, millis: int
    ) -> ReceiptHandle:
        self.asked[address] += 1
        await asyncio.sleep(0)
        if address == "frozen":
            raise RequestTimeoutError("no answer")
        if address in ("slave", "strict"):
            code = ResponseCode.SYSTEM_ERROR if address == "slave" else ResponseCode.MESSAGE_ILLEGAL
            raise BrokerError(code, "no", address=address, request="CHANGE")
        return await super().change_invisible(address, topic, group, handle, millis)


def held_at(renewing: Renewing, clock: FakeClock, broker_name: str, count: int) -> None:
    for number in range(count):
        receipt = Receipt(0, clock.now_ms(), 60_000, 0, "0", broker_name, 0, number)
        one = SimpleNamespace(handle=ReceiptHandle(receipt, 100 + number))
        renewing.begin("c", "T", "g", [cast("Any", one)])


def test_silent_broker_does_not_block_renewals_at_others() -> None:
    async def scenario() -> None:
        clock = FakeClock()
        brokers = ManyBrokers(clock)
        renewing = Renewing(cast("Any", brokers), lambda client_id: True, clock)
        held_at(renewing, clock, "frozen", 200)
        held_at(renewing, clock, "good", 100)
        clock.ms += 55_000
        await renewing.round()
        assert brokers.asked["good"] == 100 and brokers.asked["frozen"] == AT_ONCE
        assert len(renewing) == 300, "all are tried again"
        await renewing.round()
        assert brokers.asked["good"] == 100, "they are hidden for another minute"

    run(scenario())


def test_renewal_refused_by_a_former_master_is_retried_at_the_new_one() -> None:
    async def scenario() -> None:
        clock = FakeClock()
        brokers = ManyBrokers(clock)
        renewing = Renewing(cast("Any", brokers), lambda client_id: True, clock)
        held_at(renewing, clock, "slave", 1)
        held_at(renewing, clock, "strict", 1)
        clock.ms += 55_000
        for _ in range(TRIES_MAX):
            await renewing.round()
        assert brokers.asked == {"slave": TRIES_MAX, "strict": 1}

    run(scenario())


def test_messages_of_a_disconnected_client_are_returned_to_all_brokers() -> None:
    async def scenario() -> None:
        clock = FakeClock()
        brokers = ManyBrokers(clock)
        renewing = Renewing(cast("Any", brokers), lambda client_id: False, clock)
        held_at(renewing, clock, "frozen", 2)
        held_at(renewing, clock, "good", 100)
        await renewing.round()
        assert brokers.asked["good"] == 100 and len(renewing) == 0

    run(scenario())
