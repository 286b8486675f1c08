"""Routes of very wide topics, and route look-ups for topics named in settings."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.proxy.test_clients import Memory
from tests.support import run

from sparrowmq.client.base.tasks import TaskGroup
from sparrowmq.core.errors import NoRouteError
from sparrowmq.core.route import BrokerData, QueueData, TopicRoute
from sparrowmq.proxy.base.caller import GrpcCaller
from sparrowmq.proxy.calls import transactions as module
from sparrowmq.proxy.calls.answers import MessageAnswers
from sparrowmq.proxy.calls.clients import Stream
from sparrowmq.proxy.calls.routes import Routes
from sparrowmq.proxy.calls.transactions import ProxyTransactions
from sparrowmq.proxy.definition.messages import v2
from sparrowmq.transport.slices import TurnGate

QUEUES = 10_000


class WideBrokers:
    """A topic with many queues; records which topics are looked up."""

    def __init__(self, listed: frozenset[str] = frozenset()) -> None:
        self.asked: list[str] = []
        self._listed = listed

    async def route(self, topic: str) -> TopicRoute:
        data = QueueData("b", QUEUES, QUEUES, 6)
        return TopicRoute((data,), (BrokerData("c", "b", {0: "a:1"}),))

    async def message_type(self, topic: str) -> str:
        self.asked.append(topic)
        if self._listed and topic not in self._listed:
            raise NoRouteError(topic)
        return "NORMAL"

    async def may_use(self, topic: str) -> bool:
        return True

    async def may_receive(self, topic: str, group: str) -> bool:
        return True

    async def group(self, name: str) -> Any:
        class Ordered:
            consume_message_orderly = True

        return Ordered()

    async def listed(self) -> frozenset[str]:
        return self._listed


CALLER = GrpcCaller("c", "10.0.0.1:5000", None, {}, Memory())


@pytest.mark.parametrize("method", ["query_route", "query_assignment"])
def test_loop_is_not_blocked_while_a_wide_route_is_built(method: str) -> None:
    brokers: Any = WideBrokers()
    routes = Routes(brokers, lambda: "127.0.0.1:8081", TurnGate(64))
    kind = v2.QueryRouteRequest if method == "query_route" else v2.QueryAssignmentRequest
    request = kind(topic=v2.Resource(name="t"))
    if method == "query_assignment":
        request.group.name = "g"

    async def main() -> int:
        asking = asyncio.ensure_future(getattr(routes, method)(CALLER, request))
        turns = 0
        while not asking.done():
            await asyncio.sleep(0)
            turns += 1
        answer = asking.result()
        found = answer.message_queues if method == "query_route" else answer.assignments
        assert len(found) == QUEUES
        return turns

    assert run(main()) > 4, "other calls get their turns in between"


@pytest.mark.parametrize("method", ["query_route", "query_assignment"])
def test_narrow_routes_take_turns_too(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.QUEUES", 1)
    brokers: Any = WideBrokers()
    routes = Routes(brokers, lambda: "127.0.0.1:8081", TurnGate(2))
    kind = v2.QueryRouteRequest if method == "query_route" else v2.QueryAssignmentRequest
    request = kind(topic=v2.Resource(name="t"))
    if method == "query_assignment":
        request.group.name = "g"

    async def main() -> int:
        asking = [asyncio.ensure_future(getattr(routes, method)(CALLER, request)) for _ in range(40)]
        turns = 0
        while not all(one.done() for one in asking):
            await asyncio.sleep(0)
            turns += 1
        return turns

    assert run(main()) >= 20


def test_settings_with_thousands_of_topics_cause_few_requests() -> None:
    async def main() -> None:
        brokers: Any = WideBrokers(frozenset({"real-1", "real-2"}))
        tasks, answers = TaskGroup(print), MessageAnswers(TurnGate(64))
        transactions = ProxyTransactions(brokers, answers, tasks)
        names = frozenset({"real-1", "real-2", *(f"no-{number}" for number in range(9_000))})
        await transactions.publishes("c", names, Stream())
        assert sorted(brokers.asked) == ["real-1", "real-2"]
        brokers.asked.clear()
        few = frozenset(f"new-{number}" for number in range(module.UNLISTED_MAX))
        await transactions.publishes("c", few, Stream())
        assert len(brokers.asked) == module.UNLISTED_MAX, "a topic that was made just now is not listed yet"

    run(main())
