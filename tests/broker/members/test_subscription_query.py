"""When a pull is newer than the last heartbeat, the broker asks the client for its subscriptions."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.broker.doubles import FakeClock, FakeConnection
from tests.support import run

from sparrowmq.broker.members.filters import ConsumerFilters
from sparrowmq.broker.members.subscription_query import SubscriptionQuery
from sparrowmq.broker.tables.clients import ClientTable, ConnectedMember, ConsumerGroup
from sparrowmq.core.clock import SystemClock
from sparrowmq.core.errors import NoRoomError, RequestTimeoutError
from sparrowmq.core.subscription import SubscriptionData
from sparrowmq.protocol.bloom import BloomFilter
from sparrowmq.protocol.bodies import ConsumeFromWhere, ConsumerRunningInfo, ConsumeType, MessageModel
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.filter import parse_tags
from sparrowmq.protocol.frame import FLAG_RESPONSE, Command
from sparrowmq.store.tables.config_file import ConfigFile

GROUP = "g"
FILTERS = ConsumerFilters(ConfigFile(Path("unread.json")), SystemClock(), BloomFilter(), keep_ms=1000)


class Asked(FakeConnection):
    """A client that receives requests; the test answers."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Command, asyncio.Future[Command]]] = []
        self.refuses = False

    def call(self, command: Command, timeout: float) -> asyncio.Future[Command]:
        if self.refuses:
            raise NoRoomError("too many")
        future: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        self.calls.append((command, future))
        return future


def subscribed(version: int, expression: str = "a", topic: str = "T") -> SubscriptionData:
    return parse_tags(topic, expression, version)


def info(*subscriptions: SubscriptionData) -> Command:
    body = ConsumerRunningInfo(subscriptions=subscriptions).encode()
    return Command(ResponseCode.SUCCESS, flag=FLAG_RESPONSE, body=body)


def group_of(clients: ClientTable, connection: Asked) -> ConsumerGroup:
    incoming = ConsumerGroup(
        GROUP,
        ConsumeType.CONSUME_PASSIVELY,
        MessageModel.CLUSTERING,
        ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        {"T": subscribed(5)},
    )
    clients.add_consumer(incoming, connection, ConnectedMember("c1", "JAVA", 475, 0.0))
    return clients.consumers[GROUP]


async def answered(answer: Command | Exception) -> dict[str, SubscriptionData]:
    """The group's subscription after its member was asked and gave `answer`."""
    clients, connection = ClientTable(), Asked()
    group = group_of(clients, connection)
    SubscriptionQuery(clients, FILTERS, SystemClock()).ask(connection, GROUP)
    [(command, future)] = connection.calls
    assert command.code == RequestCode.GET_CONSUMER_RUNNING_INFO
    assert command.ext["consumerGroup"] == GROUP
    assert command.ext["clientId"] == "c1"
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)
    await asyncio.sleep(0)
    return group.subscriptions


@pytest.mark.proves("broker:5.3")
def test_newer_subscription_is_adopted() -> None:
    assert run(answered(info(subscribed(6, "b")))) == {"T": subscribed(6, "b")}


@pytest.mark.parametrize(
    "answer",
    [
        info(subscribed(5, "b")),
        info(subscribed(9, "b", "Unknown")),
        info(SubscriptionData(topic="T", expression="a > 1", version=9, expression_type="SQL92")),
        info(),
        Command(ResponseCode.SYSTEM_ERROR, flag=FLAG_RESPONSE, remark="no such group"),
        Command(ResponseCode.SUCCESS, flag=FLAG_RESPONSE, body=b"{"),
        RequestTimeoutError("no answer"),
    ],
    ids=["old", "unknown", "sql", "none", "refused", "garbage", "silent"],
)
def test_any_other_answer_changes_nothing(answer: Command | Exception) -> None:
    assert run(answered(answer)) == {"T": subscribed(5)}


@pytest.mark.proves("broker:5.3", "broker:14.2")
def test_newer_filter_is_adopted_with_its_compiled_form() -> None:
    async def main() -> None:
        clients, connection = ClientTable(), Asked()
        group = group_of(clients, connection)
        old, new = (SubscriptionData("T", f"a > {n}", version=n, expression_type="SQL92") for n in (5, 6))
        group.subscriptions["T"] = old
        FILTERS.register(GROUP, [old])
        SubscriptionQuery(clients, FILTERS, SystemClock()).ask(connection, GROUP)
        connection.calls[0][1].set_result(info(new))
        await asyncio.sleep(0)
        stored = FILTERS.get("T", GROUP)
        assert group.subscriptions["T"] == new
        assert stored is not None and (stored.expression, stored.client_version) == ("a > 6", 6)

    run(main())


def test_member_is_asked_at_most_once_a_second() -> None:
    async def main() -> None:
        clients, connection = ClientTable(), Asked()
        group_of(clients, connection)
        clock = FakeClock()
        query = SubscriptionQuery(clients, FILTERS, clock)
        for _ in range(3):
            query.ask(connection, GROUP)
        assert len(connection.calls) == 1
        clock.ms += 999
        query.ask(connection, GROUP)
        assert len(connection.calls) == 1
        clock.ms += 1
        query.ask(connection, GROUP)
        assert len(connection.calls) == 2

    run(main())


def test_unknown_and_busy_clients_are_not_asked() -> None:
    async def main() -> None:
        clients, connection, stranger = ClientTable(), Asked(), Asked()
        group_of(clients, connection)
        SubscriptionQuery(clients, FILTERS, SystemClock()).ask(stranger, GROUP)
        SubscriptionQuery(clients, FILTERS, SystemClock()).ask(connection, "other")
        connection.refuses = True
        SubscriptionQuery(clients, FILTERS, SystemClock()).ask(connection, GROUP)
        assert not connection.calls
        assert not stranger.calls

    run(main())


def test_group_that_left_meanwhile_is_not_added_again() -> None:
    async def main() -> None:
        clients, connection = ClientTable(), Asked()
        group_of(clients, connection)
        SubscriptionQuery(clients, FILTERS, SystemClock()).ask(connection, GROUP)
        list(clients.leaving(connection))
        connection.calls[0][1].set_result(info(subscribed(6, "b")))
        await asyncio.sleep(0)
        assert not clients.consumers

    run(main())
