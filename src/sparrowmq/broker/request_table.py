"""The table from request code to handler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import convert

from sparrowmq.broker.access.gate import gate_handlers
from sparrowmq.broker.members.filters import FilterCheck
from sparrowmq.broker.replication.read_only import refuse_writes
from sparrowmq.protocol.codes import RequestCode as Code
from sparrowmq.protocol.headers import PullMessageRequest, from_ext
from sparrowmq.protocol.hot import PullFields, PullFrame

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrowmq.broker.parts import BrokerParts
    from sparrowmq.broker.pull.pull_path import PullPath
    from sparrowmq.protocol.frame import Command
    from sparrowmq.transport.connection import Connection


def request_handlers(parts: BrokerParts) -> dict[int, Any]:
    """The handler of each request code of a broker, behind the fence of managed groups."""
    settings = parts.settings
    handlers = {
        **gate_handlers(parts.gate),
        Code.SEND_MESSAGE: parts.sending.handle,
        Code.SEND_MESSAGE_V2: parts.sending.handle,
        Code.SEND_BATCH_MESSAGE: parts.sending.handle,
        Code.PULL_MESSAGE: _general_pull(parts.pulling),
        Code.LITE_PULL_MESSAGE: _general_pull(parts.pulling),
        Code.HEART_BEAT: parts.membership.heartbeat,
        Code.UNREGISTER_CLIENT: parts.membership.unregister,
        Code.GET_CONSUMER_LIST_BY_GROUP: parts.membership.members,
        Code.CHECK_CLIENT_CONFIG: FilterCheck(enabled=settings.enable_property_filter).check,
        Code.QUERY_ASSIGNMENT: parts.assignments.query,
        Code.SET_MESSAGE_REQUEST_MODE: parts.request_modes.set,
        Code.GET_ALL_MESSAGE_REQUEST_MODE: parts.request_modes.all,
        **parts.proxy_requests.handlers(),
        **_offset_handlers(parts),
        **_topic_handlers(parts),
        **_group_handlers(parts),
        **parts.upkeep.handlers(),
        **parts.delayed.handlers(),
        **parts.exchange.handlers(),
        **parts.pop.handlers(),
        **parts.replication_requests.handlers(),
        **parts.replica_requests.handlers(),
    }
    if settings.is_slave:
        handlers = refuse_writes(handlers)
    return parts.fence.guard(handlers, parts.inner)


def _general_pull(pulling: PullPath) -> Callable[[Connection, Command], None]:
    """Handles a pull whose header is not written like Java's; the answer is sent separately."""

    def pull(connection: Connection, command: Command) -> None:
        request = from_ext(PullMessageRequest, command.ext)
        fields = convert(request, PullFields, from_attributes=True)
        pulling.pull(connection, PullFrame(command.opaque, command.flag, fields))

    return pull


def _offset_handlers(parts: BrokerParts) -> dict[int, Any]:
    requests = parts.offset_requests
    return {
        Code.QUERY_CONSUMER_OFFSET: requests.query,
        Code.UPDATE_CONSUMER_OFFSET: requests.update,
        Code.SEARCH_OFFSET_BY_TIMESTAMP: requests.search,
        Code.GET_MAX_OFFSET: requests.max_offset,
        Code.GET_MIN_OFFSET: requests.min_offset,
        Code.GET_EARLIEST_MSG_STORETIME: requests.earliest,
    }


def _topic_handlers(parts: BrokerParts) -> dict[int, Any]:
    requests = parts.topic_requests
    return {
        Code.UPDATE_AND_CREATE_TOPIC: requests.create,
        Code.UPDATE_AND_CREATE_TOPIC_LIST: requests.create_all,
        Code.DELETE_TOPIC_IN_BROKER: requests.delete,
        Code.GET_TOPIC_CONFIG: requests.config,
        Code.GET_ALL_TOPIC_CONFIG: requests.all_configs,
        Code.GET_TOPIC_STATS_INFO: requests.stats,
        Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: requests.system_topics,
    }


def _group_handlers(parts: BrokerParts) -> dict[int, Any]:
    requests = parts.group_requests
    return {
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: requests.put,
        Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: requests.all_configs,
        Code.GET_SUBSCRIPTIONGROUP_CONFIG: requests.config,
        Code.DELETE_SUBSCRIPTIONGROUP: requests.delete,
        Code.GET_CONSUMER_CONNECTION_LIST: requests.consumer_connections,
        Code.GET_PRODUCER_CONNECTION_LIST: requests.producer_connections,
        Code.GET_CONSUME_STATS: requests.consume_stats,
        Code.QUERY_TOPIC_CONSUME_BY_WHO: requests.groups_of_topic,
        Code.QUERY_TOPICS_BY_CONSUMER: requests.topics_of_group,
    }
