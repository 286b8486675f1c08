from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support import about, run

from sparrowmq.client.cluster.broker_api import (
    BrokerRequests,
    check,
    decode_pull,
    need_address,
    pull_request,
)
from sparrowmq.core.errors import BrokerError, ClientError, InvalidExpressionError, ProtocolError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.results import PullStatus
from sparrowmq.core.subscription import SubscriptionData
from sparrowmq.protocol import headers
from sparrowmq.protocol.bodies import CheckClientBody
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import FLAG_RESPONSE, Command

QUEUE = MessageQueue("T", "b", 3)


class Remote:
    """Gives every call the same answer and records the requests."""

    def __init__(self, answer: Command) -> None:
        self.answer = answer
        self.asked: list[Command] = []
        self.notified: list[Command] = []
        self.timeouts: set[float] = set()

    async def call(self, addr: str, command: Command, timeout: float) -> Command:
        self.asked.append(command)
        self.timeouts.add(timeout)
        return self.answer

    async def notify(self, addr: str, command: Command) -> None:
        self.notified.append(command)


def remote(code: int = 0, body: bytes = b"", **ext: str) -> tuple[Remote, BrokerRequests]:
    found = Remote(Command(code, flag=FLAG_RESPONSE, ext=ext, body=body, remark="why"))
    return found, BrokerRequests(found)


def test_error_codes_are_raised_with_request_and_address() -> None:
    with pytest.raises(BrokerError, check=about(code=17, remark="gone")):
        check(Command(17, flag=FLAG_RESPONSE, remark="gone"), "h:1", 30)


@pytest.mark.proves("client:B-71")
def test_offsets_of_a_queue_are_returned() -> None:
    at, asks = remote(offset="42")
    assert run(asks.max_offset("h:1", QUEUE)) == 42
    assert run(asks.min_offset("h:1", QUEUE)) == 42
    assert run(asks.search_offset("h:1", QUEUE, 99)) == 42
    assert [c.code for c in at.asked] == [30, 31, 29]
    assert all(c.ext["topic"] == "T" and c.ext["queueId"] == "3" and c.ext["bname"] == "b" for c in at.asked)
    assert at.asked[2].ext["timestamp"] == "99" and at.timeouts == {6.0}
    _, asks = remote(timestamp="-1")
    assert run(asks.earliest_store_time("h:1", QUEUE)) == -1


def test_stored_offset_or_none_is_returned() -> None:
    at, asks = remote(offset="7")
    assert run(asks.query_offset("h:1", "g", QUEUE)) == 7
    assert at.asked[0].ext["consumerGroup"] == "g"
    _, asks = remote(22)
    assert run(asks.query_offset("h:1", "g", QUEUE)) is None
    _, asks = remote(1)
    with pytest.raises(BrokerError):
        run(asks.query_offset("h:1", "g", QUEUE))


def test_offsets_are_stored_with_or_without_an_answer() -> None:
    at, asks = remote()
    run(asks.update_offset("h:1", "g", QUEUE, 5, oneway=True))
    assert not at.asked
    assert at.notified[0].ext["commitOffset"] == "5"
    run(asks.update_offset("h:1", "g", QUEUE, 6, oneway=False))
    assert at.asked[0].ext["commitOffset"] == "6"


def test_first_commit_of_a_group_and_topic_is_sent_alone() -> None:
    """Apache's broker may lose one of two simultaneous commits: it creates their table without a lock."""

    under_way: list[int] = []
    most: list[int] = []

    class Slow(Remote):
        async def call(self, *args: Any) -> Command:
            under_way.append(1)
            most.append(len(under_way))
            await asyncio.sleep(0)
            under_way.pop()
            return await super().call(*args)

    async def main() -> None:
        at = Slow(Command(0, 1, FLAG_RESPONSE, {}))
        asks = BrokerRequests(at)
        queues = [MessageQueue("T", "b", number) for number in range(4)]
        await asyncio.gather(*(asks.update_offset("h:1", "g", queue, 5, oneway=False) for queue in queues))
        assert most == [1, 1, 1, 1]
        await asyncio.gather(*(asks.update_offset("h:1", "g", queue, 6, oneway=False) for queue in queues))
        assert max(most) == 4
        assert sorted(int(command.ext["queueId"]) for command in at.asked) == [0, 0, 1, 1, 2, 2, 3, 3]

    run(main())


def test_incomplete_answers_are_protocol_errors() -> None:
    _, asks = remote()
    with pytest.raises(ProtocolError, match="offset"):
        run(asks.max_offset("h:1", QUEUE))


def test_members_of_a_group_are_returned() -> None:
    _, asks = remote(body=b'{"consumerIdList":["a","b"]}')
    assert run(asks.consumer_ids("h:1", "g", 3)) == ["a", "b"]


@pytest.mark.proves("client:D-24", "client:D-23")
def test_pull_request_has_the_expected_fields() -> None:
    subscription = SubscriptionData("T", "A || B", frozenset("AB"), 77)
    values = {
        "group": "g",
        "queue": QUEUE,
        "offset": 10,
        "max_messages": 32,
        "max_bytes": 262144,
        "hold": 15.0,
        "subscription": subscription,
    }
    plain = pull_request(**values, sys_flag=3, commit_offset=9)
    header = headers.from_ext(headers.PullMessageRequest, plain.ext)
    assert plain.code == 11
    assert (header.queue_offset, header.max_msg_nums, header.max_msg_bytes) == (10, 32, 262144)
    assert (header.sys_flag, header.commit_offset, header.suspend_timeout_millis) == (3, 9, 15000)
    assert (header.subscription, header.sub_version, header.expression_type) == (None, 77, "TAG")
    assert header.bulk_bytes is None
    bulk = pull_request(**values, sys_flag=4, bulk_bytes=1000)
    header = headers.from_ext(headers.PullMessageRequest, bulk.ext)
    assert (header.subscription, header.bulk_bytes) == ("A || B", 1000)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (0, PullStatus.FOUND),
        (19, PullStatus.NO_NEW_MESSAGE),
        (20, PullStatus.NO_MATCHED_MESSAGE),
        (21, PullStatus.OFFSET_ILLEGAL),
    ],
)
def test_four_codes_answer_a_pull(code: int, status: PullStatus) -> None:
    ext = {"nextBeginOffset": "5", "minOffset": "1", "maxOffset": "9", "suggestWhichBrokerId": "1"}
    found = decode_pull(Command(code, flag=FLAG_RESPONSE, ext=ext, body=b"x"), "h:1", QUEUE)
    assert found.status is status
    assert (found.next_offset, found.min_offset, found.max_offset) == (5, 1, 9)
    assert (found.suggested_broker_id, found.body) == (1, b"x")


def test_other_codes_of_a_pull_are_errors() -> None:
    with pytest.raises(BrokerError, check=about(code=26)):
        decode_pull(Command(26, flag=FLAG_RESPONSE), "h:1", QUEUE)


def test_missing_address_names_broker_and_queue() -> None:
    assert need_address("h:1", QUEUE, "master") == "h:1"
    with pytest.raises(ClientError, check=about(what="broker", value="b")):
        need_address(None, QUEUE, "master")


@pytest.mark.proves("client:D.2-14")
def test_filter_is_checked_by_the_broker() -> None:
    data = SubscriptionData("T", "a >", version=3, expression_type="SQL92")
    found, requests = remote()
    run(requests.check_filter("h:1", "g", "c", data, 1.0))
    (asked,) = found.asked
    assert asked.code == RequestCode.CHECK_CLIENT_CONFIG
    body = CheckClientBody.decode(asked.body)
    assert (body.client_id, body.group) == ("c", "g")
    assert body.subscription_data is not None and body.subscription_data.core() == data
    _, requests = remote(int(ResponseCode.SUBSCRIPTION_PARSE_FAILED))
    with pytest.raises(InvalidExpressionError, match="h:1 cannot read the SQL92"):
        run(requests.check_filter("h:1", "g", "c", data, 1.0))
    _, requests = remote(1)
    with pytest.raises(BrokerError):
        run(requests.check_filter("h:1", "g", "c", data, 1.0))
