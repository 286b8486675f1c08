"""Queue locks: claiming, renewing, running out, giving back."""

from __future__ import annotations

import pytest
from tests.broker.doubles import FakeClock
from tests.broker.rig import connection
from tests.protocol import recorded

from sparrowmq.broker.locks import LOCK_SECONDS, QueueLocks
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
def locks(clock: FakeClock) -> QueueLocks:
    return QueueLocks(clock)


@pytest.mark.proves("broker:10.6", "client:C-26")
def test_a_claim_is_answered_with_what_the_client_holds_now(locks: QueueLocks) -> None:
    assert locks.claim("g", "one", [A, B]) == [A, B]
    assert locks.claim("g", "two", [B, C]) == [C]
    assert locks.claim("g", "one", [A, B, C]) == [A, B]
    assert locks.claim("other", "two", [A]) == [A]


@pytest.mark.proves("broker:10.6", "client:C-30")
def test_a_lock_runs_out_a_minute_after_its_last_claim(locks: QueueLocks, clock: FakeClock) -> None:
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
def test_only_the_holder_gives_a_lock_back(locks: QueueLocks) -> None:
    locks.claim("g", "one", [A, B])
    locks.release("g", "two", [A])
    assert locks.claim("g", "two", [A]) == []
    locks.release("g", "one", [A, C])
    locks.release("unknown", "one", [A])
    assert locks.claim("g", "two", [A, B]) == [A]


def test_a_queue_claimed_twice_in_one_request_is_held_once(locks: QueueLocks) -> None:
    assert locks.claim("g", "one", [A, A]) == [A]
    assert len(locks) == 1


@pytest.mark.proves("broker:10.6")
def test_locks_of_clients_that_vanished_are_swept(locks: QueueLocks, clock: FakeClock) -> None:
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


def test_above_the_limit_nothing_new_is_granted(clock: FakeClock) -> None:
    locks = QueueLocks(clock, locks_max=2)
    assert locks.claim("g", "one", [A, B, C]) == [A, B]
    assert locks.claim("h", "one", [A]) == []
    assert locks.claim("g", "one", [A, B]) == [A, B]
    locks.release("g", "one", [A, B])
    assert locks.claim("h", "one", [A]) == [A]


def test_an_empty_claim_leaves_nothing(locks: QueueLocks) -> None:
    assert locks.claim("g", "one", []) == []
    assert len(locks) == 0 and not locks.is_ordered("g")


@pytest.mark.proves("broker:10.6")
def test_recorded_claims_are_answered_as_recorded(clock: FakeClock) -> None:
    seen = 0
    for exchange, request in recorded.requests(RequestCode.LOCK_BATCH_MQ):
        answer = QueueLocks(clock).lock(CLIENT, request)
        assert exchange.response is not None
        wanted = loads(recorded.command(exchange.response).body)["lockOKMQSet"]
        given = loads(answer.body)["lockOKMQSet"]
        assert answer.code == ResponseCode.SUCCESS
        assert all(one in given for one in wanted) and len(given) >= len(wanted), exchange
        seen += 1
    assert seen


def test_handlers_lock_and_unlock(locks: QueueLocks) -> None:
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
def test_bodies_that_cannot_be_read_are_refused(locks: QueueLocks, body: bytes) -> None:
    with pytest.raises((JavaJsonError, BodyError)):
        locks.lock(CLIENT, Command(RequestCode.LOCK_BATCH_MQ, 1, body=body))
    assert len(locks) == 0
