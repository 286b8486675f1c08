"""Where members of managed groups reach their coordinator: requests 90211 to 90213 on a port of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from sparrowmq import GroupConnections
from sparrowmq.coordinator.groups.handover import Times
from sparrowmq.coordinator.groups.led import Groups
from sparrowmq.coordinator.groups.moves import Cluster
from sparrowmq.coordinator.groups.plan import Rules
from sparrowmq.coordinator.groups.takeover import Said
from sparrowmq.core.clock import Clock, SystemClock
from sparrowmq.core.errors import InvalidNameError, SparrowError
from sparrowmq.core.names import check_group, check_topic
from sparrowmq.protocol.codes import RequestCode as Code
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.frame import FLAG_RESPONSE, Command
from sparrowmq.protocol.managed import (
    COORDINATOR_KEY,
    COORDINATOR_NAMESPACE,
    JoinBody,
    JoinedBody,
    LeaveBody,
    OrdersBody,
    ReportBody,
)
from sparrowmq.transport.address import format_address
from sparrowmq.transport.dispatch import CommandHandler, Handler
from sparrowmq.transport.occasional import OccasionalLog
from sparrowmq.transport.server import Server

if TYPE_CHECKING:
    from sparrowmq.transport.connection import Connection
    from sparrowmq.transport.tls import ServerTls

log = logging.getLogger("sparrowmq.coordinator")

TELL_SECONDS: Final = 5.0
FRAME_BYTES_MAX: Final = 4 * 1024 * 1024
CONNECTIONS_MAX: Final = 20_000
IDLE_SECONDS: Final = 120.0
FORGET_SECONDS: Final = 2.0
"""How long name servers are waited for when members are to find nobody any more."""
CLIENT_CHARS_MAX: Final = 200
LATE_MAX: Final = 10**12
"""Late results one member may tell of: sums over all members fit what a database keeps."""
UNABLE_MAX: Final = 32
"""Knobs one member may say that it cannot go by."""
WORD_CHARS_MAX: Final = 32
TOPICS_MAX: Final = 1000
"""Topics one member may subscribe."""


class Keeper(Cluster, Protocol):
    """A cluster whose name servers keep values."""

    async def value(self, namespace: str, key: str) -> str | None:
        """A value, None when there is none."""

    async def put_value(self, namespace: str, key: str, value: str) -> None:
        """Keep a value."""

    async def delete_value(self, namespace: str, key: str) -> None:
        """Forget a value."""

    async def group_connections(self, group: str) -> GroupConnections | None:
        """The members of a group by their heartbeats; None when there are none."""

    async def consume_refusal(self, fields: Mapping[str, str], body: bytes) -> str:
        """Why brokers do not let the sender of a request consume; empty when they do."""


class Proofs(Protocol):
    """What shows that a member is who it says."""

    def of(self, group: str, member: str) -> str:
        """The proof of a member."""

    def is_right(self, group: str, member: str, proof: str) -> bool:
        """Whether it is the member's."""


@dataclass(frozen=True, slots=True)
class Port:
    """Where members are listened to: `host` and `port` (0: any free one), and the host they are told."""

    host: str
    port: int = 0
    told_host: str = ""
    tls: ServerTls | None = None


@asynccontextmanager
async def open_port(
    cluster: Keeper, groups: Groups, port: Port, *, proofs: Proofs | None = None, clock: Clock | None = None
) -> AsyncIterator[MemberServer]:
    """Listen to members while the block runs; the address is what they find at the name servers.

    Raises `ListenError` for a port that cannot be had, `SparrowError` when name servers cannot be told.
    """
    server = MemberServer(
        groups, port=port, clock=clock or SystemClock(), proofs=proofs, admits=cluster.consume_refusal
    )
    try:
        await server.start()
        address = server.address
        await cluster.put_value(COORDINATOR_NAMESPACE, COORDINATOR_KEY, address)
    except BaseException:
        await server.close()
        raise
    told = asyncio.get_running_loop().create_task(_keep_told(cluster, address))
    try:
        yield server
    finally:
        told.cancel()
        await server.close()
        await asyncio.wait([told])
        with suppress(SparrowError, TimeoutError):
            async with asyncio.timeout(FORGET_SECONDS):
                if await cluster.value(COORDINATOR_NAMESPACE, COORDINATOR_KEY) == address:
                    await cluster.delete_value(COORDINATOR_NAMESPACE, COORDINATOR_KEY)


@asynccontextmanager
async def serve_members(
    cluster: Keeper,
    *,
    host: str,
    port: int,
    times: Times | None = None,
    rules: Mapping[str, Rules] | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[MemberServer]:
    """Coordinate without database while the block runs. Raises as `open_port`."""
    used = clock or SystemClock()
    groups = Groups(cluster, times=times, rules=rules, monotonic=used.monotonic)
    async with open_port(cluster, groups, Port(host, port), clock=used) as server:
        yield server


async def _keep_told(cluster: Keeper, address: str) -> None:
    """Tell name servers that were started anew; another coordinator's address is left alone."""
    occasional = OccasionalLog(log)
    while True:  # until cancelled
        await asyncio.sleep(TELL_SECONDS)
        try:
            known = await cluster.value(COORDINATOR_NAMESPACE, COORDINATOR_KEY)
            if known is None:
                await cluster.put_value(COORDINATOR_NAMESPACE, COORDINATOR_KEY, address)
            elif known != address:
                text = f"members are sent to another coordinator, {known}; stop one of the two"
                occasional.write(logging.WARNING, "another", text)
        except SparrowError as error:
            text = f"name servers cannot be told where members find their coordinator: {error}"
            occasional.write(logging.WARNING, "told", text)


class MemberServer:
    """Listens for members. `start` takes the port (0: any free one), `close` gives it back."""

    def __init__(
        self,
        groups: Groups,
        *,
        port: Port,
        clock: Clock | None = None,
        proofs: Proofs | None = None,
        admits: Callable[[Mapping[str, str], bytes], Awaitable[str]] | None = None,
    ) -> None:
        """`admits` says why the sender of a join may not consume; empty when it may."""
        self.groups = groups
        self._told_host = port.told_host or port.host
        self._clock = clock or SystemClock()
        self._proofs = proofs
        self._admits = admits
        handlers: dict[int, Handler[Connection]] = {
            Code.JOIN_MANAGED_GROUP: self.join,
            Code.REPORT_MANAGED_MEMBER: self.report,
            Code.LEAVE_MANAGED_GROUP: self.leave,
        }
        self._commands = CommandHandler(handlers)
        self._server = Server(
            self._commands,
            host=port.host,
            port=port.port,
            tls=port.tls,
            frame_bytes_max=FRAME_BYTES_MAX,
            connections_max=CONNECTIONS_MAX,
            idle_seconds=IDLE_SECONDS,
        )

    @property
    def address(self) -> str:
        """`host:port` that members are told."""
        return format_address(self._told_host, self._server.port)

    async def start(self) -> None:
        """Take the port. Raises `ListenError`."""
        await self._server.start()

    async def close(self) -> None:
        """Plan and tell nothing any more, and close. Idempotent."""
        await self.groups.close()
        await self._server.close()
        await self._commands.close()

    async def join(self, connection: Connection, command: Command) -> Command:
        """90211: a client wants queues of a group."""
        body = JoinBody.decode(command.body)
        wrong = _wrong_names(body.group, body.topics)
        wrong = wrong or _wrong_client(body.client_id)
        if wrong:
            return _refusal(ResponseCode.INVALID_PARAMETER, wrong)
        if self._admits is not None:
            if command.ext.get("consumerGroup") != body.group:
                text = f"the header names another group than {body.group}, which the body wants to join"
                return _refusal(ResponseCode.INVALID_PARAMETER, text)
            why = await self._admits(command.ext, command.body)
            if why:
                text = f"group {body.group} is not for this account: {why}"
                return _refusal(ResponseCode.NO_PERMISSION, text)
        leader = await self.groups.lead(body.group)
        address = str(connection.peer[0])
        version = body.version if body.version.isprintable() else ""
        member = leader.join(body.client_id, address, body.topics, self._clock.now_ms(), version)
        proof = "" if self._proofs is None else self._proofs.of(body.group, member)
        return _answer(JoinedBody(member, proof).encode())

    async def report(self, connection: Connection, command: Command) -> Command:
        """90212: what a member knows and released; what it is to do."""
        body = ReportBody.decode(command.body)
        wrong = _wrong_names(body.group, body.topics)
        if wrong:
            return _refusal(ResponseCode.INVALID_PARAMETER, wrong)
        if not self._knows(body.group, body.member, body.proof):
            return _unknown(body.group, body.member)  # nothing is begun for who makes groups up
        leader = await self.groups.lead(body.group)
        address = str(connection.peer[0])
        late = max(0, min(body.late, LATE_MAX))
        said = Said(late, body.knobs, _unable(body.unable))
        orders = leader.report(body.member, address, body.report, body.topics, said)
        if orders is None:
            return _unknown(body.group, body.member)
        knobs = leader.terms.knobs
        if knobs is None or knobs.revision == body.knobs:  # it goes by them
            return _answer(OrdersBody.of(orders).encode())
        return _answer(OrdersBody.of(orders, knobs.at(self._now_ms())).encode())

    def _now_ms(self) -> int:
        return self._clock.now_ms() + self.groups.ahead_ms

    def leave(self, connection: Connection, command: Command) -> Command:
        """90213: a member goes; nothing happens when it is not counted in."""
        body = LeaveBody.decode(command.body)
        if not self._knows(body.group, body.member, body.proof):
            return _unknown(body.group, body.member)
        leader = self.groups.find(body.group)
        if leader is not None:
            leader.leave(body.member)
        return _answer(b"")

    def _knows(self, group: str, member: str, proof: str) -> bool:
        """Whether it is the member itself that speaks."""
        return self._proofs is None or self._proofs.is_right(group, member, proof)


def _wrong_names(group: str, topics: list[str]) -> str:
    """What is wrong with a group's or its topics' names; empty when nothing is."""
    if len(topics) > TOPICS_MAX:
        return f"a member subscribes {len(topics)} topics, the limit is {TOPICS_MAX}"
    try:
        check_group(group)
        for topic in topics:
            check_topic(topic)
    except InvalidNameError as error:
        return str(error)
    return ""


def _wrong_client(client_id: str) -> str:
    """What is wrong with a client's id; empty when nothing is."""
    if not 0 < len(client_id) <= CLIENT_CHARS_MAX or not client_id.isprintable():
        return f"a member has a client id of 1 to {CLIENT_CHARS_MAX} printable characters"
    return ""


def _unable(told: Mapping[str, str]) -> dict[str, str]:
    """The knobs a member cannot go by, as far as they are kept: a few words."""
    items = sorted(told.items())[:UNABLE_MAX]
    return {
        name[:WORD_CHARS_MAX]: why[:WORD_CHARS_MAX] for name, why in items if f"{name}{why}".isprintable()
    }


def _unknown(group: str, member: str) -> Command:
    text = f"{member} is not counted in for group {group}; it has to join"
    return _refusal(ResponseCode.MEMBER_UNKNOWN, text)


def _answer(body: bytes) -> Command:
    return Command(ResponseCode.SUCCESS, 0, FLAG_RESPONSE, body=body)


def _refusal(code: ResponseCode, text: str) -> Command:
    return Command(code, 0, FLAG_RESPONSE, remark=text)
