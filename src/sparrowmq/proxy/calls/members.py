"""The consumers that brokers know of: each connected consumer is told to every broker (90501).

Tools then see it among the members of its group, and reach it by its broker. A broker forgets what it was
told when the connection of the proxy is lost; the next heartbeat of each client tells it again. Apache's
brokers do not know the request, and are told nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sparrowmq.client.base.tasks import TaskGroup
from sparrowmq.core.clock import Clock
from sparrowmq.core.errors import BrokerError, SparrowError
from sparrowmq.core.subscription import SubscriptionData
from sparrowmq.protocol.bodies import ConsumerData, ConsumeType, HeartbeatData
from sparrowmq.protocol.call_headers import ProxiedClientRequest
from sparrowmq.protocol.codes import LANGUAGES, RequestCode, ResponseCode
from sparrowmq.proxy.base.caller import CLIENT_VERSION, LANGUAGE, CallMemory, GrpcCaller
from sparrowmq.proxy.cluster.brokers import Brokers
from sparrowmq.proxy.definition.messages import ClientType

_log = logging.getLogger("sparrowmq.proxy")
SUBSCRIPTION_BYTES: Final = 600
TAG_BYTES: Final = 100
"""What a subscription, and a tag of it, are thought to take beside their names."""
CALLS_MAX: Final = 64
"""Requests about members that run at one time."""
REST_SECONDS: Final = 10.0
"""A broker that did not answer is left alone for so long."""
UNKNOWN_SECONDS: Final = 600.0
"""A broker that does not know the request is asked again after so long."""
_FIRST_VERSION: Final = 413
"""RocketMQ's number for version 5.0.0; each later release has the next but one."""
_TYPES: Final = {
    ClientType.PUSH_CONSUMER: ConsumeType.CONSUME_PASSIVELY,
    ClientType.SIMPLE_CONSUMER: ConsumeType.CONSUME_ACTIVELY,
}


@dataclass(slots=True, eq=False)
class ProxyMember:
    """A connected consumer."""

    client_id: str
    address: str
    language: str
    version: int
    group: str
    consume_type: ConsumeType
    subscriptions: tuple[SubscriptionData, ...]
    since_ms: int
    memory: CallMemory
    """Of its stream: it counts the subscriptions."""
    told: set[str] = field(default_factory=set)
    """The brokers that know it."""
    telling: bool = False

    def is_as(self, other: ProxyMember) -> bool:
        """Whether brokers would be told the same of both."""
        return (self.group, self.consume_type, self.subscriptions) == (
            other.group,
            other.consume_type,
            other.subscriptions,
        )

    @property
    def size(self) -> int:
        """About how many bytes its subscriptions take."""
        return sum(
            SUBSCRIPTION_BYTES
            + len(one.topic)
            + len(one.expression)
            + sum(TAG_BYTES + len(tag) for tag in one.tags)
            for one in self.subscriptions
        )


class ProxyMembers:
    """The connected consumers by client id."""

    def __init__(self, brokers: Brokers, tasks: TaskGroup, clock: Clock) -> None:
        self._brokers = brokers
        self._tasks = tasks
        self._clock = clock
        self._members: dict[str, ProxyMember] = {}
        self._left_alone: dict[str, float] = {}
        """When a broker may be told again, by address, in monotonic seconds."""
        self._calls = asyncio.Semaphore(CALLS_MAX)
        brokers.on_lost(self._connection_lost)

    def __len__(self) -> int:
        return len(self._members)

    def get(self, client_id: str) -> ProxyMember | None:
        """A connected consumer."""
        return self._members.get(client_id)

    def joined(
        self, caller: GrpcCaller, group: str, client_type: int, subscriptions: Sequence[SubscriptionData]
    ) -> None:
        """A consumer sent its settings."""
        consume_type = _TYPES.get(client_type)
        if consume_type is None:
            return
        member = ProxyMember(
            caller.client_id,
            caller.address,
            language_of(caller),
            version_number(caller.metadata.get(CLIENT_VERSION, "")),
            group,
            consume_type,
            tuple(subscriptions),
            self._clock.now_ms(),
            caller.memory,
        )
        known = self._members.get(caller.client_id)
        if known is not None and known.is_as(member):
            known.memory.hold(-known.size)  # it may come with a new stream
            known.address, known.memory = caller.address, caller.memory
            known.memory.hold(known.size)
            self.seen(caller.client_id)
            return
        if known is not None:
            self._drop(known)
        member.memory.hold(member.size)
        self._members[caller.client_id] = member
        self.seen(caller.client_id)

    def seen(self, client_id: str) -> None:
        """A client lives: tell the brokers that do not know of it, with the account of this call."""
        member = self._members.get(client_id)
        if member is not None and not member.telling and self._untold(member):
            member.telling = True
            self._tasks.start(self._tell(member), f"telling brokers of {client_id}")

    def left(self, client_id: str) -> None:
        """A client is no longer connected."""
        member = self._members.get(client_id)
        if member is not None:
            self._drop(member)

    def _drop(self, member: ProxyMember) -> None:
        del self._members[member.client_id]
        member.memory.hold(-member.size)
        if member.told:
            self._tasks.start(self._untell(member), f"telling brokers that {member.client_id} left")

    def _untold(self, member: ProxyMember) -> list[str]:
        now = self._clock.monotonic()
        return [
            address
            for address in self._brokers.masters()
            if address not in member.told and self._left_alone.get(address, 0.0) <= now
        ]

    async def _tell(self, member: ProxyMember) -> None:
        try:
            for address in self._untold(member):
                async with self._calls:
                    if self._members.get(member.client_id) is member:
                        await self._tell_one(member, address)
        finally:
            member.telling = False
        if self._members.get(member.client_id) is not member:
            await self._untell(member)

    async def _tell_one(self, member: ProxyMember, address: str) -> None:
        consumer = ConsumerData(member.group, member.consume_type, subscriptions=member.subscriptions)
        header = ProxiedClientRequest(
            client_id=member.client_id,
            consumer_group=member.group,
            client_address=member.address,
            language=member.language,
            client_version=member.version,
        )
        body = HeartbeatData(member.client_id, consumers=(consumer,)).encode()
        try:
            await self._brokers.ask(address, RequestCode.REGISTER_PROXIED_CLIENT, header, body=body)
        except BrokerError as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                self._leave_alone(address, UNKNOWN_SECONDS)
                return
            _log.info("the broker at %s was not told of %s: %s", address, member.client_id, error)
        except SparrowError as error:
            self._leave_alone(address, REST_SECONDS)
            _log.info("the broker at %s could not be told of clients: %s", address, error)
        else:
            member.told.add(address)

    async def _untell(self, member: ProxyMember) -> None:
        now = self._members.get(member.client_id)
        if now is not None and now.group == member.group:
            return  # it is told anew, in place of what brokers know
        header = ProxiedClientRequest(client_id=member.client_id, consumer_group=member.group)
        told, member.told = member.told, set()
        for address in told:
            try:
                async with self._calls:
                    await self._brokers.ask(address, RequestCode.UNREGISTER_PROXIED_CLIENT, header)
            except SparrowError as error:
                _log.info("the broker at %s was not told that %s left: %s", address, member.client_id, error)

    def _leave_alone(self, address: str, seconds: float) -> None:
        now = self._clock.monotonic()
        for known in [known for known, until in self._left_alone.items() if until <= now]:
            del self._left_alone[known]
        self._left_alone[address] = now + seconds

    def _connection_lost(self, address: str) -> None:
        self._left_alone.pop(address, None)
        for member in self._members.values():
            member.told.discard(address)


def language_of(caller: GrpcCaller) -> str:
    """The caller's language under a name that tools know."""
    given = caller.metadata.get(LANGUAGE, "").upper()
    return given if given in LANGUAGES else "OTHER"


def version_number(text: str) -> int:
    """RocketMQ's number of a client's version `5.x.y`; that of 5.0.0 for others. Pure."""
    parts: list[Any] = text.split("-")[0].split(".")
    if (
        len(parts) != 3
        or parts[0] != "5"
        or any(len(part) != 1 or part not in "0123456789" for part in parts)
    ):
        return _FIRST_VERSION
    return _FIRST_VERSION + 2 * (10 * int(parts[1]) + int(parts[2]))
