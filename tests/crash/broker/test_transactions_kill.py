"""kill -9 amid transactions: what was committed shows exactly once, what was rolled back never."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.crash.broker.test_broker_kill import read_all, servers
from tests.support import run, until

from sparrowmq import aio
from sparrowmq.client.producer.transaction import TransactionState
from sparrowmq.core.errors import SparrowError
from sparrowmq.core.message import Message, ReceivedMessage
from sparrowmq.runtime.child import ChildServers

pytestmark = pytest.mark.crash

TOPIC = "Ledger"
SENDERS = 16
ROUNDS = 3
QUICK_CHECKS = {"transactionTimeOut": "200", "transactionCheckInterval": "100"}
STATES = {
    b"C": TransactionState.COMMIT,
    b"R": TransactionState.ROLLBACK,
    b"U": TransactionState.UNKNOWN,
}


class Bank:
    """Local transactions. A body's first letter is the local end, its second what a check says."""

    def __init__(self, numbers: Iterator[int], child: ChildServers, kill_after: int) -> None:
        self.numbers = numbers
        self.child = child
        self.left = kill_after
        self.executed: set[bytes] = set()

    def execute(self, message: Message, argument: object) -> TransactionState:
        """Note that the transaction was begun; kill the broker when it is time."""
        self.executed.add(message.body)
        self.left -= 1
        if self.left == 0:
            self.child.kill()
        return STATES[message.body[:1]]

    def check(self, message: ReceivedMessage) -> TransactionState:
        """The transaction's end, the same however often it is asked."""
        return STATES[message.body[1:2]]


async def bank_until_killed(bank: Bank) -> None:
    async def teller(producer: aio.Producer) -> None:
        while bank.child.running:
            number = next(bank.numbers)
            kind = (b"CC", b"RR", b"UC", b"UR")[number % 4]
            await producer.send_in_transaction(Message(TOPIC, b"%b%06d" % (kind, number)), timeout=2.0)

    producer = aio.Producer(
        "bank", namesrv=bank.child.nameserver_address, retries=0, transaction_listener=bank
    )
    async with producer:
        tasks = [asyncio.create_task(teller(producer)) for _ in range(SENDERS)]
        for task in tasks:
            with contextlib.suppress(SparrowError):
                await task


async def settle(child: ChildServers, executed: set[bytes]) -> list[bytes]:
    """All bodies once every transaction that was begun and is to be committed shows."""
    wanted = {body for body in executed if b"C" in body[:2]}
    bank = Bank(iter(()), child, 0)
    shown: list[bytes] = []

    async def complete() -> bool:
        shown[:] = [body for bodies in (await read_all(child)).values() for body in bodies]
        return wanted <= set(shown)

    producer = aio.Producer("bank", namesrv=child.nameserver_address, transaction_listener=bank)
    async with producer:
        await producer.queues(TOPIC)
        await until(complete)
    return shown


def test_transactions_survive_kill_9(tmp_path: Path) -> None:
    seed = 20_240_302
    rng = random.Random(seed)
    numbers = itertools.count()
    executed: set[bytes] = set()

    def start() -> ChildServers:
        child = servers(tmp_path, "ASYNC_FLUSH", **QUICK_CHECKS)
        child.start()
        return child

    child = start()
    try:
        run(_create(child))
        for number in range(ROUNDS):
            bank = Bank(numbers, child, rng.randrange(100, 600))
            run(bank_until_killed(bank))
            assert len(bank.executed) >= 100
            executed |= bank.executed
            child = start()
            shown = run(settle(child, executed))
            assert len(shown) == len(set(shown)), f"doubled, seed {seed} round {number}"
            assert not [body for body in shown if b"C" not in body[:2]], f"rolled back, seed {seed}"
    finally:
        child.kill()


async def _create(child: ChildServers) -> None:
    async with aio.Admin(namesrv=child.nameserver_address) as admin:
        await admin.topics.create(TOPIC, queues=4)
