"""Queue locks: acquired, renewed, expired, released."""

from __future__ import annotations

import pytest
from tests.broker.doubles import FakeClock
from tests.broker.rig import connection
from tests.protocol import recorded

from sparrowmq.broker.members.locks import LOCK_SECONDS, LockTable
from sparrowmq.core.errors import BodyError, JavaJsonError
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.bodies import LockBatchRequestBody, LockBatchResponseBody, wire_queues
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.java_json import loads

A, B, C = (MessageQueue("T", "broker-a", number) for number in range(3))
CLIENT = connection()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def locks(clock: FakeClock) -> LockTable:
    return LockTable(clock)


@pytest.mark.proves("broker:10.6", "client:C-26")
def test_claim_returns_the_queues_the_client_holds_now(locks: LockTable) -> None:
    assert locks.claim("g", "one", [A, B]) == [A, B]
    assert locks.claim("g", "two", [B, C]) == [C]
    assert locks.claim("g", "one", [A, B, C]) == [A, B]
    assert locks.claim("other", "two", [A]) == [A]


def test_length_of_names_in_locks_is_limited(locks: LockTable) -> None:
    """200,000 locks are kept, each with its names: they would fill the memory."""
    long = "x" * 600
    assert locks.claim("g", "one", [A, MessageQueue(long, long, 0)]) == [A]
    assert locks.claim(long, long, [A]) == []
    assert locks.claim("g" * 255, "c" * 255, [MessageQueue("T" * 255, "b" * 255, 0)]) != []
    assert len(locks) == 2


@pytest.mark.proves("broker:10.6", "client:C-30")
def test_lock_expires_a_minute_after_its_last_claim(locks: LockTable, clock: FakeClock) -> None:
    locks.claim("g", "one", [A])
    clock.ms += 59_999
    assert locks.claim("g", "two", [A]) == []
    locks.claim("g", "one", [A])
    clock.ms += 59_999
    assert locks.claim("g", "two", [A]) == []
    assert locks.is_ordered("g")
    clock.ms += 1
    assert not locks.is_ordered("g")
    assert locks.claim("g", "two", [A]) == [A]
    assert locks.claim("g", "one", [A]) == []


@pytest.mark.proves("broker:10.6", "client:C-29")
def test_only_the_holder_releases_a_lock(locks: LockTable) -> None:
    locks.claim("g", "one", [A, B])
    locks.release("g", "two", [A])
    assert locks.claim("g", "two", [A]) == []
    locks.release("g", "one", [A, C])
    locks.release("unknown", "one", [A])
    assert locks.claim("g", "two", [A, B]) == [A]


def test_queue_claimed_twice_in_one_request_is_locked_once(locks: LockTable) -> None:
    assert locks.claim("g", "one", [A, A]) == [A]
    assert len(locks) == 1


@pytest.mark.proves("broker:10.6")
def test_locks_of_vanished_clients_are_removed(locks: LockTable, clock: FakeClock) -> None:
    locks.claim("g", "one", [A])
    clock.ms += 30_000
    locks.claim("g", "two", [B])
    locks.claim("h", "one", [A])
    clock.ms += int(LOCK_SECONDS * 1000) - 30_000
    locks.drop_expired()
    assert len(locks) == 2
    clock.ms += 30_000
    locks.drop_expired()
    assert len(locks) == 0 and not locks.is_ordered("g")


def test_no_new_lock_is_granted_above_the_limit(clock: FakeClock) -> None:
    locks = LockTable(clock, locks_max=2)
    assert locks.claim("g", "one", [A, B, C]) == [A, B]
    assert locks.claim("h", "one", [A]) == []
    assert locks.claim("g", "one", [A, B]) == [A, B]
    locks.release("g", "one", [A, B])
    assert locks.claim("h", "one", [A]) == [A]


def test_one_connection_cannot_take_all_locks(clock: FakeClock) -> None:
    """Whatever groups and client ids it invents; released and expired locks no longer count."""
    locks = LockTable(clock, locks_max=1000)
    many = [MessageQueue("T", "broker-a", number) for number in range(2000)]
    assert len(locks.claim("g", "one", many, asker=1)) == 250
    assert locks.claim("h", "another name", many, asker=1) == []
    assert len(locks.claim("h", "two", many, asker=2)) == 187
    assert locks.claim("g", "one", many[:250], asker=1) == many[:250], "renewed"
    assert len(locks) == 437
    locks.release("g", "one", many[:200])
    assert len(locks) == 237 and len(locks.claim("i", "one", many, asker=1)) == 140
    clock.ms += int(LOCK_SECONDS * 1000)
    locks.drop_expired()
    assert len(locks) == 0 and len(locks.claim("g", "one", many, asker=1)) == 250


def test_renewed_lock_counts_for_the_connection_that_renews_it(clock: FakeClock) -> None:
    locks = LockTable(clock, locks_max=1000)
    many = [MessageQueue("T", "broker-a", number) for number in range(2000)]
    assert len(locks.claim("g", "one", many, asker=1)) == 250
    assert len(locks.claim("g", "one", many[:200], asker=2)) == 200
    assert len(locks) == 250
    locks.drop("g", many)
    assert len(locks) == 0 and len(locks.claim("h", "two", many, asker=2)) == 250


def test_empty_claim_leaves_no_entry(locks: LockTable) -> None:
    assert locks.claim("g", "one", []) == []
    assert len(locks) == 0 and not locks.is_ordered("g")


@pytest.mark.proves("broker:10.6")
def test_recorded_claims_are_answered_as_recorded(clock: FakeClock) -> None:
    seen = 0
    for exchange, request in recorded.requests(RequestCode.LOCK_BATCH_MQ):
        answer = LockTable(clock).lock(CLIENT, request)
        assert exchange.response is not None
        wanted = loads(recorded.command(exchange.response).body)["lockOKMQSet"]
        given = loads(answer.body)["lockOKMQSet"]
        assert answer.code == ResponseCode.SUCCESS
        assert all(one in given for one in wanted) and len(given) >= len(wanted), exchange
        seen += 1
    assert seen


def test_handlers_lock_and_unlock(locks: LockTable) -> None:
    def ask(code: RequestCode, client: str, *queues: MessageQueue) -> Command:
        body = LockBatchRequestBody(client, "g", wire_queues(list(queues))).encode()
        return Command(code, 1, body=body)

    answer = locks.lock(CLIENT, ask(RequestCode.LOCK_BATCH_MQ, "one", A))
    assert LockBatchResponseBody.decode(answer.body).queues == [A]
    answer = locks.lock(CLIENT, ask(RequestCode.LOCK_BATCH_MQ, "two", A))
    assert LockBatchResponseBody.decode(answer.body).queues == []
    assert locks.unlock(CLIENT, ask(RequestCode.UNLOCK_BATCH_MQ, "one", A)).code == ResponseCode.SUCCESS
    answer = locks.lock(CLIENT, ask(RequestCode.LOCK_BATCH_MQ, "two", A))
    assert LockBatchResponseBody.decode(answer.body).queues == [A]


@pytest.mark.parametrize("body", [b"", b"nonsense", b"{}", b'{"clientId":"c","consumerGroup":"g","mqSet":7}'])
def test_unreadable_bodies_are_refused(locks: LockTable, body: bytes) -> None:
    with pytest.raises((JavaJsonError, BodyError)):
        locks.lock(CLIENT, Command(RequestCode.LOCK_BATCH_MQ, 1, body=body))
    assert len(locks) == 0
