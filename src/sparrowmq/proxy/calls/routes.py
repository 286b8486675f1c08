"""QueryRoute and QueryAssignment."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any, Final

from sparrowmq.core.errors import ProxyRefusal
from sparrowmq.proxy.base.caller import GrpcCaller
from sparrowmq.proxy.base.checks import group_name, topic_name
from sparrowmq.proxy.base.refusals import ok
from sparrowmq.proxy.base.routing import assignments, endpoints_of, route_queues
from sparrowmq.proxy.cluster.brokers import Brokers
from sparrowmq.proxy.definition.messages import Code, v2
from sparrowmq.transport.slices import TurnGate, shared

QUEUES_OF_STEP: Final = 32
"""Queues of an answer that are made without a pause."""
QUEUES_OF_WEIGHT: Final = 16
"""To encode so many takes as long as to make one message."""


class Routes:
    """Routes of topics: all queues are at the proxy."""

    def __init__(self, brokers: Brokers, address: Callable[[], str], gate: TurnGate) -> None:
        """`address` returns the address at which the proxy listens, for clients that do not send the
        endpoints that they used.
        """
        self._brokers = brokers
        self._address = address
        self._gate = gate

    async def query_route(self, caller: GrpcCaller, request: Any) -> Any:
        """The queues of a topic, and the types of messages that it accepts."""
        topic = topic_name(request.topic)
        route = await self._brokers.route(topic)
        if not await self._brokers.may_use(topic):
            raise ProxyRefusal(Code.FORBIDDEN, f"the account may not use the topic {topic!r}")
        endpoints = endpoints_of(request.endpoints, self._address())
        queues = route_queues(request.topic, route, endpoints, await self._brokers.message_type(topic))
        found = v2.QueryRouteResponse(status=ok())
        await shared().result(_adding(found.message_queues, queues))
        await self._gate.passed(1 + len(found.message_queues) // QUEUES_OF_WEIGHT)
        return found

    async def query_assignment(self, caller: GrpcCaller, request: Any) -> Any:
        """The assignments of a member of a group: it receives messages from every broker."""
        topic, group = topic_name(request.topic), group_name(request.group)
        route = await self._brokers.route(topic)
        if not await self._brokers.may_receive(topic, group):
            raise ProxyRefusal(
                Code.FORBIDDEN, f"the account may not receive from the topic {topic!r} for {group!r}"
            )
        config = await self._brokers.group(group)
        ordered = config is not None and config.consume_message_orderly
        endpoints = endpoints_of(request.endpoints, self._address())
        found = v2.QueryAssignmentResponse(status=ok())
        queues = assignments(request.topic, route, endpoints, ordered=ordered)
        await shared().result(_adding(found.assignments, queues))
        if not found.assignments:
            raise ProxyRefusal(Code.FORBIDDEN, f"the topic {topic!r} has no readable queue")
        await self._gate.passed(1 + len(found.assignments) // QUEUES_OF_WEIGHT)
        return found


def _adding(into: Any, found: Iterator[Any]) -> Generator[None, None, None]:
    """Put queues into a response in steps: a topic may have many thousands."""
    for count, one in enumerate(found, 1):
        into.append(one)
        if not count % QUEUES_OF_STEP:
            yield
