"""Request handlers of the name server: they decode headers and bodies, and answer with the registry's
decisions (remoting:2.2).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator
from typing import Final

import msgspec

from sparrowmq.core.clock import Clock
from sparrowmq.core.outside import one_line
from sparrowmq.core.settings.text import request_text
from sparrowmq.nameserver.kv import ORDER_TOPIC_CONFIG, KeyValues
from sparrowmq.nameserver.options import BLACK_LIST, Options, names_in
from sparrowmq.nameserver.registry import FLAG_UNIT, FLAG_UNIT_SUB, Registry
from sparrowmq.protocol.bodies import (
    DataVersion,
    KVTable,
    PackedRegistration,
    TopicList,
    member_group_to_json,
    route_from_request,
    route_to_json,
)
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.crc import CRC_MASK, crc32
from sparrowmq.protocol.frame import FLAG_RESPONSE, Command
from sparrowmq.protocol.headers import (
    AddWritePermRequest,
    AddWritePermResponse,
    BrokerHeartbeatRequest,
    DeleteKVConfigRequest,
    DeleteTopicFromNamesrvRequest,
    GetBrokerMemberGroupRequest,
    GetKVConfigRequest,
    GetKVConfigResponse,
    GetKVListByNamespaceRequest,
    GetRouteInfoRequest,
    GetTopicsByClusterRequest,
    PutKVConfigRequest,
    QueryDataVersionRequest,
    QueryDataVersionResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    RegisterTopicRequest,
    UnregisterBrokerRequest,
    WipeWritePermRequest,
    WipeWritePermResponse,
    from_ext,
    to_ext,
)
from sparrowmq.transport.connection import Connection
from sparrowmq.transport.dispatch import Handler, refusal
from sparrowmq.transport.occasional import OccasionalLog
from sparrowmq.transport.slices import finished, shared

STRICT_JSON_VERSION: Final = 401
"""Clients since 4.9.4 read routes as strict JSON; older ones expect bare integer keys (remoting:1.5)."""
SMALL_BYTES: Final = 16 * 1024
"""The longest plain registration that is processed at once: about a hundred topics."""
IGNORED_SHOWN: Final = 10
"""Maximum number of meaningless setting names listed in a log line."""
TOPIC_CHARS_SHOWN: Final = 255
NAME_CHARS_SHOWN: Final = 127
"""Maximum length of a broker's name and address in the log."""
ZONE_NAME: Final = "__ZONE_NAME"
ZONE_MODE: Final = "__ZONE_MODE"

logger = logging.getLogger("sparrowmq.nameserver")


def success(body: bytes = b"", ext: dict[str, str] | None = None) -> Command:
    """An answer of code 0."""
    return Command(code=ResponseCode.SUCCESS, flag=FLAG_RESPONSE, ext=ext or {}, body=body)


class Handlers:
    """One method per request. `settings` returns the values of code 319 that cannot be changed, `runtime` the
    table of code 28, which for name servers is specific to SparrowMQ.
    """

    def __init__(
        self,
        registry: Registry,
        values: KeyValues,
        options: Options,
        clock: Clock,
        *,
        settings: Callable[[], dict[str, object]],
        runtime: Callable[[], dict[str, str]],
    ) -> None:
        self._registry = registry
        self._values = values
        self._options = options
        self._clock = clock
        self._settings = settings
        self._runtime = runtime
        self._occasional = OccasionalLog(logger)
        self._large = asyncio.Lock()

    def table(self) -> dict[int, Handler[Connection]]:
        """Handlers by request code."""
        return {
            RequestCode.PUT_KV_CONFIG: self._put_value,
            RequestCode.GET_KV_CONFIG: self._get_value,
            RequestCode.DELETE_KV_CONFIG: self._delete_value,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self._values_of_namespace,
            RequestCode.REGISTER_BROKER: self._register,
            RequestCode.UNREGISTER_BROKER: self._unregister,
            RequestCode.QUERY_DATA_VERSION: self._query_data_version,
            RequestCode.BROKER_HEARTBEAT: self._heartbeat,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: self._register_topic,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._cluster_info,
            RequestCode.GET_BROKER_MEMBER_GROUP: self._member_group,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._topics,
            RequestCode.GET_TOPICS_BY_CLUSTER: self._topics_of_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: self._unit_topics,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self._unit_sub_topics,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._unit_sub_ununit_topics,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write_perm,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._add_write_perm,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            RequestCode.UPDATE_NAMESRV_CONFIG: self._update_options,
            RequestCode.GET_NAMESRV_CONFIG: self._get_options,
            RequestCode.GET_BROKER_RUNTIME_INFO: self._runtime_info,
        }

    # Brokers

    def _register(self, conn: Connection, request: Command) -> Command | Awaitable[Command | None]:
        header = from_ext(RegisterBrokerRequest, request.ext)
        if header.compressed or len(request.body) > SMALL_BYTES:
            return self._register_large(conn, request, header)
        if not _is_whole(header, request.body):
            return refusal(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        packed = PackedRegistration.opened(request.body, compressed=False)
        return finished(self._registering(conn, request, header, packed))

    async def _register_large(
        self, conn: Connection, request: Command, header: RegisterBrokerRequest
    ) -> Command | None:
        """Decompress in a thread, then parse and register in slices, one after the other."""
        async with self._large:
            if conn.closed:
                return None
            if not await asyncio.to_thread(_is_whole, header, request.body):
                return refusal(ResponseCode.SYSTEM_ERROR, "crc32 not match")
            packed = await asyncio.to_thread(
                PackedRegistration.opened, request.body, compressed=header.compressed
            )
            return await shared().result(self._registering(conn, request, header, packed))

    def _registering(
        self, conn: Connection, request: Command, header: RegisterBrokerRequest, packed: PackedRegistration
    ) -> Generator[None, None, Command]:
        body = yield from packed.reading(request.version)
        if conn.closed:
            return refusal(ResponseCode.SYSTEM_ERROR, "the connection closed")  # the answer is not read
        known = self._registry.data_version(header.cluster_name, header.broker_addr)
        registered = yield from self._registry.registering(
            header,
            body.topic_config_serialize_wrapper,
            connection=conn.id,
            now=self._clock.monotonic(),
            zone=request.ext.get(ZONE_NAME),
        )
        if registered is None:
            return refusal(ResponseCode.SYSTEM_ERROR, "register broker failed")
        if registered.left_out:
            text = (
                f"{registered.left_out} topics of a broker were not registered: the limits are topicsMax="
                f"{self._registry.topics_max} and routesMax={self._registry.routes_max}; delete topics or "
                f"raise them"
            )
            self._occasional.write(logging.WARNING, "left out", text)
        if registered.displaced:
            text = (
                f"broker {header.broker_name} with id {header.broker_id} was at {registered.displaced} and "
                f"is now at {header.broker_addr}; if both are running, give one a different brokerName or "
                f"brokerId"
            )
            self._occasional.write(logging.WARNING, "displaced", one_line(text))
        elif registered.kept:
            text = (
                f"broker {header.broker_name} with id {header.broker_id} stays at {registered.kept}, which "
                f"has a newer state; {header.broker_addr} claims the same name and id"
            )
            self._occasional.write(logging.WARNING, "kept", one_line(text))
        if known is None:
            self._tell(header.broker_name, header.broker_addr, "registered")
        table: dict[str, str] = {}
        if self._options.return_order_topic_config_to_broker:
            table = self._values.namespace(ORDER_TOPIC_CONFIG)
        told = RegisterBrokerResponse(
            ha_server_addr=registered.ha_address,
            master_addr=registered.master_address,
            sparrow_rival=registered.displaced or registered.kept,
        )
        return success(KVTable(table).encode() if table else b"", to_ext(told))

    def _unregister(self, conn: Connection, request: Command) -> Command:
        header = from_ext(UnregisterBrokerRequest, request.ext)
        self._registry.unregister(header.cluster_name, header.broker_name, header.broker_addr)
        self._tell(header.broker_name, header.broker_addr, "unregistered")
        return success()

    def _tell(self, name: str, address: str, what: str) -> None:
        """Log that a broker registered or disappeared; limited, as any client may claim this under any
        name."""
        kind, shown = f"{what} {name[:NAME_CHARS_SHOWN]}", one_line(f"{name[:NAME_CHARS_SHOWN]}")
        where = one_line(address[:NAME_CHARS_SHOWN])
        self._occasional.write(logging.INFO, kind, f"broker {shown} ({where}) {what}")

    def _query_data_version(self, conn: Connection, request: Command) -> Command:
        header = from_ext(QueryDataVersionRequest, request.ext)
        sent = DataVersion.decode_request(request.body) if request.body else DataVersion()
        known = self._registry.data_version(header.cluster_name, header.broker_addr)
        self._registry.heard(header.cluster_name, header.broker_addr, self._clock.monotonic())
        ext = to_ext(QueryDataVersionResponse(changed=known != sent))
        return success(known.encode() if known is not None else b"", ext)

    def _heartbeat(self, conn: Connection, request: Command) -> Command:
        header = from_ext(BrokerHeartbeatRequest, request.ext)
        self._registry.heard(header.cluster_name, header.broker_addr, self._clock.monotonic())
        return success()

    def _register_topic(self, conn: Connection, request: Command) -> Command:
        header = from_ext(RegisterTopicRequest, request.ext)
        route = route_from_request(request.body)
        if not self._registry.register_topic(header.topic, route.queues):
            text = (
                f"topic {header.topic[:TOPIC_CHARS_SHOWN]} was not registered: it names an "
                "unregistered broker"
            )
            self._occasional.write(logging.WARNING, "topic", one_line(text))
        return success()

    # Routes

    def _route(self, conn: Connection, request: Command) -> Command:
        header = from_ext(GetRouteInfoRequest, request.ext)
        order = self._options.order_message_enable
        zone = request.ext.get(ZONE_NAME) if request.ext.get(ZONE_MODE, "").lower() == "true" else None
        route = self._registry.route(
            header.topic,
            order_conf=self._values.get(ORDER_TOPIC_CONFIG, header.topic) if order else None,
            zone=zone or None,
        )
        if route is None:
            return refusal(
                ResponseCode.TOPIC_NOT_EXIST,
                f"No topic route info in name server for the topic: {header.topic}\n"
                "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details.",
            )
        strict = request.version >= STRICT_JSON_VERSION or header.accept_standard_json_only
        return success(route_to_json(route, bare_keys=not strict))

    def _cluster_info(self, conn: Connection, request: Command) -> Command:
        rivals = self._registry.rivals(self._clock.monotonic())
        return success(msgspec.structs.replace(self._registry.cluster_info(), rivals=rivals).encode())

    def _member_group(self, conn: Connection, request: Command) -> Command:
        header = from_ext(GetBrokerMemberGroupRequest, request.ext)
        group = self._registry.member_group(header.cluster_name, header.broker_name)
        return success(member_group_to_json(group))

    # Topics

    def _topics(self, conn: Connection, request: Command) -> Command:
        return _names(self._registry.topics())

    def _topics_of_cluster(self, conn: Connection, request: Command) -> Command:
        header = from_ext(GetTopicsByClusterRequest, request.ext)
        return _names(self._registry.topics_of_cluster(header.cluster))

    def _system_topics(self, conn: Connection, request: Command) -> Command:
        return success(self._registry.system_topics().encode())

    def _unit_topics(self, conn: Connection, request: Command) -> Command:
        return _names(self._registry.topics_by_flag(lambda flag: bool(flag & FLAG_UNIT)))

    def _unit_sub_topics(self, conn: Connection, request: Command) -> Command:
        return _names(self._registry.topics_by_flag(lambda flag: bool(flag & FLAG_UNIT_SUB)))

    def _unit_sub_ununit_topics(self, conn: Connection, request: Command) -> Command:
        only_sub = self._registry.topics_by_flag(
            lambda flag: flag & (FLAG_UNIT | FLAG_UNIT_SUB) == FLAG_UNIT_SUB
        )
        return _names(only_sub)

    def _wipe_write_perm(self, conn: Connection, request: Command) -> Command:
        header = from_ext(WipeWritePermRequest, request.ext)
        count = self._registry.wipe_write_perm(header.broker_name)
        self._done("read-only", header.broker_name, f": {count} topics are read-only")
        return success(ext=to_ext(WipeWritePermResponse(wipe_topic_count=count)))

    def _add_write_perm(self, conn: Connection, request: Command) -> Command:
        header = from_ext(AddWritePermRequest, request.ext)
        count = self._registry.add_write_perm(header.broker_name)
        self._done("writable", header.broker_name, f": {count} topics can be written")
        return success(ext=to_ext(AddWritePermResponse(add_topic_count=count)))

    def _delete_topic(self, conn: Connection, request: Command) -> Command:
        header = from_ext(DeleteTopicFromNamesrvRequest, request.ext)
        self._registry.delete_topic(header.topic, header.cluster_name or None)
        self._done("deleted", header.topic, " was deleted")
        return success()

    def _done(self, kind: str, name: str, what: str) -> None:
        """Log a change of a broker or topic; limited like `_tell`."""
        shown = one_line(name[:TOPIC_CHARS_SHOWN])
        self._occasional.write(logging.INFO, f"{kind} {shown}", f"{shown}{what}")

    # Keys and values

    async def _put_value(self, conn: Connection, request: Command) -> Command:
        header = from_ext(PutKVConfigRequest, request.ext)
        await self._values.put(header.namespace, header.key, header.value)
        return success()

    def _get_value(self, conn: Connection, request: Command) -> Command:
        header = from_ext(GetKVConfigRequest, request.ext)
        value = self._values.get(header.namespace, header.key)
        if value is None:
            text = f"No config item, Namespace: {header.namespace} Key: {header.key}"
            return refusal(ResponseCode.QUERY_NOT_FOUND, text)
        return success(ext=to_ext(GetKVConfigResponse(value=value)))

    async def _delete_value(self, conn: Connection, request: Command) -> Command:
        header = from_ext(DeleteKVConfigRequest, request.ext)
        await self._values.delete(header.namespace, header.key)
        return success()

    def _values_of_namespace(self, conn: Connection, request: Command) -> Command:
        header = from_ext(GetKVListByNamespaceRequest, request.ext)
        table = self._values.namespace(header.namespace)
        if not table:
            text = f"No config item, Namespace: {header.namespace}"
            return refusal(ResponseCode.QUERY_NOT_FOUND, text)
        return success(KVTable(table).encode())

    # Settings

    def _update_options(self, conn: Connection, request: Command) -> Command:
        text = request_text(request.body)
        if BLACK_LIST & names_in(text):
            return refusal(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        ignored = self._options.update(text)
        if ignored:
            names = ", ".join(name[:TOPIC_CHARS_SHOWN] for name in ignored[:IGNORED_SHOWN])
            text = f"settings unknown to a name server were ignored: {names}"
            self._occasional.write(logging.WARNING, "ignored", one_line(text))
        return success()

    def _get_options(self, conn: Connection, request: Command) -> Command:
        return success(self._options.properties(self._settings()).encode())

    def _runtime_info(self, conn: Connection, request: Command) -> Command:
        return success(KVTable(self._runtime()).encode())


def _is_whole(header: RegisterBrokerRequest, body: bytes) -> bool:
    """Whether the body matches the checksum in the header, if there is one."""
    return header.body_crc32 == 0 or header.body_crc32 == crc32(body) & CRC_MASK


def _names(topics: list[str]) -> Command:
    return success(TopicList(topics).encode())
