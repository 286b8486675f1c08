"""Where members of managed groups reach their coordinator: requests 90211 to 90214 on a port of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final, Protocol

from sparrowmq.coordinator.groups import Cluster, Groups
from sparrowmq.coordinator.handover import Times
from sparrowmq.coordinator.plan import Rules
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
    SteerBody,
)
from sparrowmq.transport.dispatch import CommandHandler, Handler
from sparrowmq.transport.occasional import OccasionalLog
from sparrowmq.transport.server import Server

if TYPE_CHECKING:
    from sparrowmq.transport.connection import Connection

log = logging.getLogger("sparrowmq.coordinator")

TELL_SECONDS: Final = 5.0
FRAME_BYTES_MAX: Final = 4 * 1024 * 1024
CONNECTIONS_MAX: Final = 20_000
IDLE_SECONDS: Final = 120.0
PAUSES_MAX: Final = 1000
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
    """Coordinate while the block runs; its address is what members find at the name servers.

    Raises `ListenError` for a port that cannot be had.
    """
    used = clock or SystemClock()
    groups = Groups(cluster, times=times, rules=rules, monotonic=used.monotonic)
    server = MemberServer(groups, host=host, port=port, clock=used)
    await server.start()
    address = server.address
    told = asyncio.get_running_loop().create_task(_keep_told(cluster, address))
    try:
        await cluster.put_value(COORDINATOR_NAMESPACE, COORDINATOR_KEY, address)
        yield server
    finally:
        told.cancel()
        await asyncio.wait([told])
        with suppress(SparrowError):
            if await cluster.value(COORDINATOR_NAMESPACE, COORDINATOR_KEY) == address:
                await cluster.delete_value(COORDINATOR_NAMESPACE, COORDINATOR_KEY)
        await server.close()


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

    def __init__(self, groups: Groups, *, host: str, port: int, clock: Clock | None = None) -> None:
        self.groups = groups
        self._host = host
        self._clock = clock or SystemClock()
        handlers: dict[int, Handler[Connection]] = {
            Code.JOIN_MANAGED_GROUP: self.join,
            Code.REPORT_MANAGED_MEMBER: self.report,
            Code.LEAVE_MANAGED_GROUP: self.leave,
            Code.STEER_MANAGED_GROUP: self.steer,
        }
        self._commands = CommandHandler(handlers)
        self._server = Server(
            self._commands,
            host=host,
            port=port,
            frame_bytes_max=FRAME_BYTES_MAX,
            connections_max=CONNECTIONS_MAX,
            idle_seconds=IDLE_SECONDS,
        )

    @property
    def address(self) -> str:
        """`host:port` that members are told."""
        return f"{self._host}:{self._server.port}"

    async def start(self) -> None:
        """Take the port. Raises `ListenError`."""
        await self._server.start()

    async def close(self) -> None:
        """Answer what is under way and close."""
        await self._commands.close()
        await self._server.close()
        await self.groups.close()

    async def join(self, connection: Connection, command: Command) -> Command:
        """90211: a client wants queues of a group."""
        body = JoinBody.decode(command.body)
        wrong = _wrong_names(body.group, body.topics)
        if wrong or not body.client_id:
            return _refusal(ResponseCode.INVALID_PARAMETER, wrong or "a member has a client id")
        leader = await self.groups.lead(body.group)
        address = str(connection.peer[0])
        member = leader.join(body.client_id, address, body.topics, self._clock.now_ms())
        return _answer(JoinedBody(member).encode())

    async def report(self, connection: Connection, command: Command) -> Command:
        """90212: what a member knows and released; what it is to do."""
        body = ReportBody.decode(command.body)
        wrong = _wrong_names(body.group, body.topics)
        if wrong:
            return _refusal(ResponseCode.INVALID_PARAMETER, wrong)
        leader = await self.groups.lead(body.group)
        address = str(connection.peer[0])
        orders = leader.report(body.member, address, body.report, body.topics, body.late)
        if orders is None:
            text = f"{body.member} is not counted in for group {body.group}; it has to join"
            return _refusal(ResponseCode.MEMBER_UNKNOWN, text)
        return _answer(OrdersBody.of(orders).encode())

    def leave(self, connection: Connection, command: Command) -> Command:
        """90213: a member goes; nothing happens when it is not counted in."""
        body = LeaveBody.decode(command.body)
        leader = self.groups.find(body.group)
        if leader is not None:
            leader.leave(body.member)
        return _answer(b"")

    async def steer(self, connection: Connection, command: Command) -> Command:
        """90214: an operator changes the maximum or pauses of a group that has members here."""
        body = SteerBody.decode(command.body)
        leader = self.groups.find(body.group)
        if leader is None:
            text = (
                f"group {body.group} has no members that this coordinator plans; start one with managed=True"
            )
            return _refusal(ResponseCode.CONSUMER_NOT_ONLINE, text)
        if len(body.pauses or ()) > PAUSES_MAX:
            text = f"group {body.group} would have {len(body.pauses or ())} pauses, the limit is {PAUSES_MAX}"
            return _refusal(ResponseCode.INVALID_PARAMETER, text)
        leader.steer(body.maximum, body.pauses)
        return _answer(b"")


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


def _answer(body: bytes) -> Command:
    return Command(ResponseCode.SUCCESS, 0, FLAG_RESPONSE, body=body)


def _refusal(code: ResponseCode, text: str) -> Command:
    return Command(code, 0, FLAG_RESPONSE, remark=text)
