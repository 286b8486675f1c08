"""Queues of a topic as name servers report them, and how long they are cached."""

from __future__ import annotations

import asyncio

import pytest
from tests.broker.doubles import FakeClock
from tests.support import run

from sparrowmq.broker.base import routes
from sparrowmq.broker.base.routes import RouteLookup
from sparrowmq.core.errors import RequestTimeoutError
from sparrowmq.core.route import BrokerData, QueueData, TopicRoute
from sparrowmq.protocol.bodies import route_to_json
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.frame import Command

ROUTE = TopicRoute(
    (QueueData("b", 4, 4, 6), QueueData("a", 2, 8, 6), QueueData("c", 8, 8, 2)),
    (BrokerData("x", "a", {0: "a:1"}),),
)


class NameServers:
    """A client with prepared answers by address: a route, a code, or none."""

    def __init__(self, **answers: TopicRoute | int | None) -> None:
        self.answers = answers
        self.asked: list[str] = []

    async def call(self, address: str, command: Command, timeout: float) -> Command:
        self.asked.append(f"{address} {command.ext['topic']}")
        await asyncio.sleep(0)
        found = self.answers[address]
        if found is None:
            raise RequestTimeoutError(f"{address} does not answer")
        if isinstance(found, int):
            return Command(found)
        return Command(ResponseCode.SUCCESS, body=route_to_json(found))


def lookup(clock: FakeClock, **answers: TopicRoute | int | None) -> tuple[RouteLookup, NameServers]:
    servers = NameServers(**answers)
    return RouteLookup(servers, tuple(answers), clock), servers  # type: ignore[arg-type]


def test_answer_of_the_first_name_server_that_knows_the_topic_is_cached_for_seconds() -> None:
    async def main() -> None:
        clock = FakeClock()
        found, servers = lookup(clock, one=None, two=17, three=ROUTE)
        assert await found.find("T") == {"b": 4, "a": 2}, "queues that cannot be read are left out"
        assert servers.asked == ["one T", "two T", "three T"]
        clock.ms += 5000
        assert await found.find("T") == {"b": 4, "a": 2} and len(servers.asked) == 3
        clock.ms += 1
        servers.answers["three"] = 17
        assert await found.find("T") is None
        assert len(servers.asked) == 6

    run(main())


def test_simultaneous_queries_for_one_topic_share_an_answer() -> None:
    async def main() -> None:
        found, servers = lookup(FakeClock(), one=ROUTE)
        assert (
            await asyncio.gather(found.find("T"), found.find("T"), found.find("U")) == [{"b": 4, "a": 2}] * 3
        )
        assert servers.asked == ["one T", "one U"]

    run(main())


def test_number_of_cached_routes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "ROUTES_MAX", 2)

    async def main() -> None:
        found, servers = lookup(FakeClock(), one=ROUTE)
        for topic in ("T", "U", "V", "U", "T"):
            await found.find(topic)
        assert servers.asked == ["one T", "one U", "one V", "one T"]

    run(main())
