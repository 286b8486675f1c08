"""The server for members of managed groups: requests 90211 to 90213 on a separate port."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from sparrowmq import GroupConnections
from sparrowmq.coordinator.groups.group_registry import GroupRegistry
from sparrowmq.coordinator.groups.initial_state import ReportedState
from sparrowmq.coordinator.groups.judging import Admits, Judge
from sparrowmq.coordinator.groups.leader import GroupLeader
from sparrowmq.coordinator.groups.moves import ManagedCluster
from sparrowmq.coordinator.groups.proofs import digest_of, is_right, new_proof
from sparrowmq.core.clock import Clock, Sleep, SystemClock
from sparrowmq.core.errors import InvalidNameError, SparrowError
from sparrowmq.core.names import check_group, check_topic
from sparrowmq.core.rights import Resource, Right, actions
from sparrowmq.protocol.codes import RequestCode as Code
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.frame import FLAG_RESPONSE, Command
from sparrowmq.protocol.managed import (
    COORDINATOR_KEY,
    COORDINATOR_NAMESPACE,
    MEMBER_RIGHT,
    JoinBody,
    JoinedBody,
    LeaveBody,
    OrdersBody,
    ReportBody,
)
from sparrowmq.transport.address import format_address
from sparrowmq.transport.dispatch import CommandHandler, Handler, check_rows
from sparrowmq.transport.occasional import OccasionalLog
from sparrowmq.transport.server import Server

if TYPE_CHECKING:
    from sparrowmq.transport.connection import Connection
    from sparrowmq.transport.tls import ServerTls

log = logging.getLogger("sparrowmq.coordinator")

PUBLISH_SECONDS: Final = 5.0
FRAME_BYTES_MAX: Final = 4 * 1024 * 1024
CONNECTIONS_MAX: Final = 20_000
IDLE_SECONDS: Final = 120.0
FORGET_SECONDS: Final = 2.0
"""How long to wait for name servers when the published address is deleted."""
CLIENT_CHARS_MAX: Final = 200
LATE_MAX: Final = 10**12
"""Maximum of late results in one member's report: sums over all members must fit the database's type."""
UNABLE_MAX: Final = 32
"""Maximum of settings that one member may report as not applicable."""
WORD_CHARS_MAX: Final = 32
TOPICS_MAX: Final = 1000
"""Maximum number of topics that one member may subscribe to."""


def _of_leave(body: bytes) -> Iterable[Resource]:
    yield ("Group", LeaveBody.decode_request(body).group)


RIGHTS: Final[Mapping[int, Right]] = {
    Code.JOIN_MANAGED_GROUP: MEMBER_RIGHT,
    Code.REPORT_MANAGED_MEMBER: replace(MEMBER_RIGHT, proof=True),
    Code.LEAVE_MANAGED_GROUP: Right(actions=actions(), body=_of_leave, free=True, proof=True),
}
"""The rights that each request of members needs: one row per request code; see `core.rights`."""


class Keeper(ManagedCluster, Protocol):
    """A cluster whose name servers keep values."""

    async def value(self, namespace: str, key: str) -> str | None:
        """A value, None if there is none."""

    async def put_value(self, namespace: str, key: str, value: str) -> None:
        """Store a value."""

    async def delete_value(self, namespace: str, key: str) -> None:
        """Delete a value."""

    async def group_connections(self, group: str) -> GroupConnections | None:
        """The members of a group by their heartbeats; None when there are none."""

    async def consume_refusal(self, code: int, fields: Mapping[str, str], body: bytes) -> str:
        """Why brokers do not let the sender of a request consume; empty if they do."""


@dataclass(frozen=True, slots=True)
class Port:
    """Where the server listens: `host` and `port` (0: any free one), and the host that members are given."""

    host: str
    port: int = 0
    told_host: str = ""
    tls: ServerTls | None = None


@asynccontextmanager
async def open_port(
    cluster: Keeper,
    groups: GroupRegistry,
    port: Port,
    *,
    proven: bool = False,
    clock: Clock | None = None,
    sleep: Sleep = asyncio.sleep,
) -> AsyncIterator[MemberServer]:
    """Listen to members while the block runs; yields the address that is published at the name servers.

    `proven`: members have to prove their identity. Raises `ListenError` if the port is not available,
    `SparrowError` if the address cannot be published.
    """
    server = MemberServer(
        groups, port=port, clock=clock or SystemClock(), proven=proven, admits=cluster.consume_refusal
    )
    try:
        await server.start()
        address = server.address
        await cluster.put_value(COORDINATOR_NAMESPACE, COORDINATOR_KEY, address)
    except BaseException:
        await server.close()
        raise
    told = asyncio.get_running_loop().create_task(_keep_published(cluster, address, sleep))
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


async def _keep_published(cluster: Keeper, address: str, sleep: Sleep) -> None:
    """Publish the address at restarted name servers again; another coordinator's address is left alone."""
    occasional = OccasionalLog(log)
    while True:  # until cancelled
        await sleep(PUBLISH_SECONDS)
        try:
            known = await cluster.value(COORDINATOR_NAMESPACE, COORDINATOR_KEY)
            if known is None:
                await cluster.put_value(COORDINATOR_NAMESPACE, COORDINATOR_KEY, address)
            elif known != address:
                text = f"the name servers direct members to another coordinator, {known}; stop one of the two"
                occasional.write(logging.WARNING, "another", text)
        except SparrowError as error:
            text = f"the coordinator's address cannot be published at the name servers: {error}"
            occasional.write(logging.WARNING, "told", text)


class MemberServer:
    """Listens for members. `start` opens the port (0: any free one), `close` closes it."""

    def __init__(
        self,
        groups: GroupRegistry,
        *,
        port: Port,
        clock: Clock | None = None,
        proven: bool = False,
        admits: Admits | None = None,
    ) -> None:
        """`admits` returns why the sender of a request may not consume; empty if it may."""
        self.groups = groups
        self._told_host = port.told_host or port.host
        self._clock = clock or SystemClock()
        self._proven = proven
        self._judge = None if admits is None else Judge(admits, self._clock.monotonic)
        handlers = self.handlers()
        check_rows(handlers, RIGHTS, __name__, guarded=admits is not None)
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

    def handlers(self) -> dict[int, Handler[Connection]]:
        """Handlers by request code."""
        return {
            Code.JOIN_MANAGED_GROUP: self.join,
            Code.REPORT_MANAGED_MEMBER: self.report,
            Code.LEAVE_MANAGED_GROUP: self.leave,
        }

    @property
    def address(self) -> str:
        """The `host:port` given to members."""
        return format_address(self._told_host, self._server.port)

    async def start(self) -> None:
        """Open the port. Raises `ListenError`."""
        await self._server.start()
        self._server.begin_watch()

    async def close(self) -> None:
        """Stop planning and sending orders, and close. Idempotent."""
        await self.groups.close()
        if self._judge is not None:
            await self._judge.close()
        await self._server.close()
        await self._commands.close()

    async def join(self, connection: Connection, command: Command) -> Command:
        """90211: a client joins a group."""
        body = JoinBody.decode_request(command.body)
        wrong = _wrong_names(body.group, body.topics)
        wrong = wrong or _wrong_client(body.client_id)
        if wrong:
            return _refusal(ResponseCode.INVALID_PARAMETER, wrong)
        if self._judge is not None:
            if command.ext.get("consumerGroup") != body.group:
                text = f"the header and the body name different groups; the body asks to join {body.group}"
                return _refusal(ResponseCode.INVALID_PARAMETER, text)
            why = await self._judge.join(command.code, command.ext, command.body)
            if why:
                return _not_for(body.group, why)
        leader = await self.groups.lead(body.group)
        address = str(connection.peer[0])
        version = body.version if body.version.isprintable() else ""
        member = leader.join(body.client_id, address, body.topics, self._clock.now_ms(), version)
        if self._judge is not None:
            self._judge.joined(body.group, member, body.topics, command.ext)
        proof = new_proof() if self._proven else ""
        leader.vouch(member, digest_of(body.group, member, proof) if proof else "")
        return _answer(JoinedBody(member, proof).encode())

    async def report(self, connection: Connection, command: Command) -> Command:
        """90212: a member reports what it knows and released; the answer has its orders."""
        body = ReportBody.decode_request(command.body)
        wrong = _wrong_names(body.group, body.topics)
        if not wrong and command.ext.get("consumerGroup", body.group) != body.group:
            wrong = f"the header and the body name different groups; the body reports for {body.group}"
        if wrong:
            return _refusal(ResponseCode.INVALID_PARAMETER, wrong)
        leader = await self._leader(body.group)
        if leader is None or not self._knows(leader, body.member, body.proof):
            return _unknown(body.group, body.member)  # no work is done for unknown groups
        if self._judge is not None:
            request = command.code, command.ext, command.body
            why = await self._judge.report((body.group, body.member), body.topics, request)
            if why:
                return _not_for(body.group, why)
        address = str(connection.peer[0])
        late = max(0, min(body.late, LATE_MAX))
        said = ReportedState(late, body.knobs, _unable(body.unable))
        orders = leader.report(body.member, address, body.report, body.topics, said)
        if orders is None:
            return _unknown(body.group, body.member)
        newest = leader.terms.for_members
        if newest is None or newest.revision == body.knobs:  # the member applies it
            return _answer(OrdersBody.of(orders).encode())
        return _answer(OrdersBody.of(orders, newest.at(self._now_ms())).encode())

    def _now_ms(self) -> int:
        return self._clock.now_ms() + self.groups.ahead_ms

    def leave(self, connection: Connection, command: Command) -> Command:
        """90213: a member leaves; unknown members are ignored."""
        body = LeaveBody.decode_request(command.body)
        leader = self.groups.find(body.group)
        if self._proven and (leader is None or not self._knows(leader, body.member, body.proof)):
            return _unknown(body.group, body.member)
        if leader is not None:
            leader.leave(body.member)
        if self._judge is not None:
            self._judge.forget(body.group, body.member)
        return _answer(b"")

    async def _leader(self, group: str) -> GroupLeader | None:
        """The leader for a report; without proofs, reports are accepted for any group."""
        return await (self.groups.known(group) if self._proven else self.groups.lead(group))

    def _knows(self, leader: GroupLeader, member: str, proof: str) -> bool:
        """Whether the request comes from the member itself."""
        return not self._proven or is_right(leader.digest(member), leader.group, member, proof)


def _wrong_names(group: str, topics: list[str]) -> str:
    """What is wrong with the names of a group or its topics; empty if nothing is."""
    if len(topics) > TOPICS_MAX:
        return f"a member subscribes to {len(topics)} topics, the limit is {TOPICS_MAX}"
    try:
        check_group(group)
        for topic in topics:
            check_topic(topic)
    except InvalidNameError as error:
        return str(error)
    return ""


def _wrong_client(client_id: str) -> str:
    """What is wrong with a client's id; empty if nothing is."""
    if not 0 < len(client_id) <= CLIENT_CHARS_MAX or not client_id.isprintable():
        return f"a member's client id must have 1 to {CLIENT_CHARS_MAX} printable characters"
    return ""


def _unable(told: Mapping[str, str]) -> dict[str, str]:
    """The settings that a member cannot apply, limited to what is stored."""
    items = sorted(told.items())[:UNABLE_MAX]
    return {
        name[:WORD_CHARS_MAX]: why[:WORD_CHARS_MAX] for name, why in items if f"{name}{why}".isprintable()
    }


def _not_for(group: str, why: str) -> Command:
    return _refusal(ResponseCode.NO_PERMISSION, f"this account may not use group {group}: {why}")


def _unknown(group: str, member: str) -> Command:
    text = f"{member} is not a member of group {group}; it has to join first"
    return _refusal(ResponseCode.MEMBER_UNKNOWN, text)


def _answer(body: bytes) -> Command:
    return Command(ResponseCode.SUCCESS, 0, FLAG_RESPONSE, body=body)


def _refusal(code: ResponseCode, text: str) -> Command:
    return Command(code, 0, FLAG_RESPONSE, remark=text)
