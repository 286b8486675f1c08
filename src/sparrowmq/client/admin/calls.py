"""Requests to brokers and name servers, shared by the parts of `Admin`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakKeyDictionary

from sparrowmq.client.admin.arguments import CheckedCalls
from sparrowmq.client.admin.former import former_call
from sparrowmq.client.admin.types import GroupMemberInfo
from sparrowmq.client.base.lifecycle import Lifecycle, NotPickled
from sparrowmq.client.base.settings import ClientSettings
from sparrowmq.client.cluster.broker_api import check, command, need_address
from sparrowmq.client.cluster.instance import ClientInstance
from sparrowmq.client.cluster.instances import shared_instance
from sparrowmq.core.errors import BrokerError, ClientError, NoRouteError, SparrowError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import check_topic, retry_topic
from sparrowmq.core.route import TopicRoute
from sparrowmq.protocol import bodies, headers
from sparrowmq.protocol.codes import RequestCode, ResponseCode

T = TypeVar("T")
TIMEOUT: Final = 5.0
"""Seconds for one admin request (client:F-01)."""
INLINE_BYTES_MAX: Final = 64 * 1024
"""Larger tables are decoded in a thread: thousands of rows would block the loop for 50 ms or more."""
OFFSETS_INLINE_BYTES: Final = 4 * 1024
"""The same for tables of offsets: their rows take few bytes, or have keys that only the slow parser reads."""
TABLE_SECONDS: Final = 15.0
"""Timeout for requests whose response has all of a broker's entries, in seconds."""
_decoding: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]] = WeakKeyDictionary()
"""Held by the caller, on each loop, whose large body is decoded."""


class AdminCalls:
    """The requests of one admin client, for its parts."""

    def __init__(self) -> None:
        self.life = Lifecycle("admin client")
        self.instance: ClientInstance | None = None

    def start(self, settings: ClientSettings) -> None:
        """Start the client, see `Admin.start`."""
        with self.life.starting():
            self.instance = shared_instance(settings)
            self.instance.follow_name_servers()

    async def close(self) -> None:
        """Close the connections, see `Admin.close`."""
        await self.life.close(self._end)

    async def _end(self) -> None:
        if self.instance is not None:
            await self.instance.close()

    def running(self) -> ClientInstance:
        """The instance. Raises `InvalidStateError` unless the client runs."""
        self.life.need_running()
        assert self.instance is not None
        return self.instance

    async def ask(self, address: str, code: RequestCode, header: headers.Header | None = None) -> bytes:
        """The body of the response of a broker or name server."""
        return (await self.running().brokers.ask(address, code, header, timeout=TIMEOUT)).body

    async def ask_name_server(self, code: RequestCode) -> bytes:
        """The body of the response of one name server."""
        name_servers = self.running().name_servers
        answer = await name_servers.call(command(code), TIMEOUT)
        return check(answer, name_servers.current, code).body

    async def table(
        self, broker: str, code: RequestCode, decode: Callable[[bytes], T], inline_bytes: int | None = None
    ) -> T:
        """A whole table of a broker, given by name or `host:port`; `inline_bytes` as for `apart`."""
        address = await self.broker_address(broker)
        answer = await self.running().brokers.ask(address, code, timeout=TABLE_SECONDS)
        return await apart(decode, answer.body, inline_bytes)

    async def cluster_info(self) -> bodies.ClusterInfo:
        """Brokers by name, broker names by cluster, as the name server has them."""
        return bodies.ClusterInfo.decode(await self.ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO))

    async def route(self, topic: str) -> TopicRoute:
        """Queues and brokers of `topic`, fresh from a name server. Raises `NoRouteError`."""
        check_topic(topic)
        route = await self.running().update_route(topic)
        if route is None:
            raise NoRouteError(
                f"no broker serves topic {topic!r}; see the names with `sparrow topic list` or create it "
                f"with `sparrow topic create {topic}`",
                topic=topic,
            )
        return route

    async def broker_address(self, broker: str) -> str:
        """The address of a broker's master, given its name; an address is returned unchanged."""
        if ":" in broker:
            return broker
        found = (await self.cluster_info()).brokers.get(broker)
        if found is None or found.master is None:
            text = f"there is no broker {broker!r}; see the names with `sparrow cluster list`"
            raise ClientError(text, what="broker", value=broker)
        return found.master

    async def cluster_masters(self, cluster: str | None) -> dict[str, str]:
        """Broker name to master address, of one cluster or of all. Raises `ClientError` without any."""
        info = await self.cluster_info()
        if cluster is not None and cluster not in info.clusters:
            known = ", ".join(sorted(info.clusters)) or "none"
            text = f"there is no cluster {cluster!r}; the name server knows: {known}"
            raise ClientError(text, what="cluster", value=cluster, limit=known)
        names = sorted(info.brokers) if cluster is None else sorted(info.clusters[cluster])
        masters = {n: m for n in names if n in info.brokers and (m := info.brokers[n].master) is not None}
        if not masters:
            text = "no broker with a master is registered with the name server; start one first"
            raise ClientError(text, what="masters", value=0)
        return masters

    async def group_masters(self, group: str) -> list[str]:
        """Masters that know the group: those with its retry topic, or else all (remoting:2.7)."""
        route = await self.running().update_route(retry_topic(group))
        if route is not None and (found := list(masters_of(route).values())):
            return found
        return list((await self.cluster_masters(None)).values())

    async def master_of(self, queue: MessageQueue) -> str:
        """The address of the master of a queue."""
        address = await self.running().master_of(queue)
        if address is None:
            await self.route(queue.topic)  # its error says that there is no such topic
        return need_address(address, queue, "master")

    async def members_at(self, address: str, group: str) -> list[GroupMemberInfo]:
        """The group's members that are connected to the broker at an address."""
        header = headers.GetConsumerConnectionListRequest(consumer_group=group)
        try:
            body = await self.ask(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
        except BrokerError as error:
            if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
                raise
            return []
        found = (await apart(bodies.ConsumerConnection.decode, body)).connections
        return [GroupMemberInfo(c.client_id, c.client_addr, c.language, c.version) for c in found]


class AdminPart(NotPickled, metaclass=CheckedCalls):
    """A part of `Admin`: the calls for one kind of thing.

    A method `list` stands last in its class: it hides the type in the annotations after it.
    """

    def __init__(self, calls: AdminCalls) -> None:
        self._calls = calls

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._calls.life.state.value}>"

    if not TYPE_CHECKING:
        __call__ = former_call


def masters_of(route: TopicRoute) -> dict[str, str]:
    """Broker name to master address."""
    return {broker.broker_name: broker.master for broker in route.brokers if broker.master is not None}


async def at_each(work: Mapping[str, Awaitable[object]]) -> None:
    """Wait for the same change at all brokers, by name. If some fail, raises the first error, which then says
    at which of them the change was made.
    """
    results = await asyncio.gather(*work.values(), return_exceptions=True)
    failed = {name: one for name, one in zip(work, results, strict=True) if isinstance(one, BaseException)}
    if not failed:
        return
    error, done = next(iter(failed.values())), [name for name in work if name not in failed]
    if done and isinstance(error, SparrowError):
        error.add(
            f"; the change was made at {', '.join(done)} and not at {', '.join(failed)}: repeat the call "
            f"when that can do it, or change {', '.join(done)} back"
        )
    raise error


async def apart(decode: Callable[[bytes], T], body: bytes, inline_bytes: int | None = None) -> T:
    """`decode(body)`, in a thread if the body is large: its thousands of rows would block the loop.

    `inline_bytes` is the limit for bodies that take longer to decode than tables.
    """
    return await all_apart(lambda found: decode(found[0]), [body], inline_bytes)


async def all_apart(
    decode: Callable[[Sequence[bytes]], T], answers: Sequence[bytes], inline_bytes: int | None = None
) -> T:
    """The same for the answers of several brokers.

    Only one thread decodes at a time. Several would be no faster, because they share the interpreter, and
    the loop would have to wait for all of them.
    """
    limit = INLINE_BYTES_MAX if inline_bytes is None else inline_bytes
    if sum(map(len, answers)) <= limit:
        return decode(answers)
    async with _decoding.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
        return await asyncio.to_thread(decode, answers)
