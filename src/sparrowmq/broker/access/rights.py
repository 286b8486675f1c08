"""The rights that each request needs, and what its answer or effect may concern: one row per request code.

The gate, and `by_position` and `callers` after it, use this table. A broker does not start if a handler has
no row here. Pure: no state, no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from sparrowmq.core.ids import parse_offset_message_id
from sparrowmq.core.rights import (
    CREATE,
    DELETE,
    GET,
    PUB,
    SUB,
    SUB_GET,
    UPDATE,
    Fields,
    Named,
    Resource,
    Right,
    Without,
    actions,
    resource,
)
from sparrowmq.protocol.bodies import (
    AssignmentRequest,
    HeartbeatData,
    LockBatchRequestBody,
    SubscriptionGroupConfig,
)
from sparrowmq.protocol.call_headers import (
    ConsumeMessageDirectlyRequest,
    EndTransactionRequest,
    ResumeCheckHalfMessageRequest,
)
from sparrowmq.protocol.codes import RequestCode as Code
from sparrowmq.protocol.headers import ConsumerSendMsgBackRequest, ViewMessageRequest, from_ext
from sparrowmq.protocol.managed import MEMBER_RIGHT
from sparrowmq.protocol.pop.receipts import normal_topic
from sparrowmq.protocol.pop.records import BatchAckBody, RequestMode

# What bodies name


def _heartbeat(body: bytes) -> Iterable[Resource]:
    for consumer in HeartbeatData.decode(body).consumers:
        yield ("Group", consumer.group)
        for wanted in consumer.subscriptions:
            yield resource("Topic", wanted.topic)


def producer_groups(code: int, body: bytes) -> list[str]:
    """The groups that a heartbeat joins as a producer; empty for other requests."""
    if code != Code.HEART_BEAT:
        return []
    return [producer.group for producer in HeartbeatData.decode(body).producers]


def _locks(body: bytes) -> Iterable[Resource]:
    asked = LockBatchRequestBody.decode_request(body)
    yield ("Group", asked.consumer_group or "")
    for queue in asked.queues:
        yield resource("Topic", queue.topic)


def _group(body: bytes) -> Iterable[Resource]:
    yield ("Group", SubscriptionGroupConfig.decode_request(body).group_name)


def _assignment(body: bytes) -> Iterable[Resource]:
    asked = AssignmentRequest.decode_request(body)
    return resource("Topic", asked.topic), ("Group", asked.consumer_group)


def _request_mode(body: bytes) -> Iterable[Resource]:
    asked = RequestMode.decode_request(body)
    return resource("Topic", asked.topic), ("Group", asked.consumer_group)


def _batch_ack(body: bytes) -> Iterable[Resource]:
    for one in BatchAckBody.decode_request(body).acks:
        yield ("Group", one.group)
        yield resource("Topic", one.topic)


def _stored_for(ext: Fields) -> Iterable[Resource]:
    """The topic that stored a message of POP; a retry topic of the group itself counts as the group."""
    name, group = ext.get("topic", ""), ext.get("consumerGroup", "")
    return [("Group", group) if normal_topic(name, group) != name else resource("Topic", name)]


def _of_id(text: str | None) -> int:
    return parse_offset_message_id(text or "")[2]


ANY_USE: Final = actions("Pub", "Sub", "Get")
SUB_UPDATE: Final = actions("Sub", "Update")
_TOPIC: Final = (Named("Topic", "topic"),)
_CONSUMER: Final = (Named("Group", "consumerGroup"),)
_GROUP: Final = (Named("Group", "group"),)
_TOPIC_AND_CONSUMER: Final = (*_TOPIC, *_CONSUMER)
_TOPIC_AND_GROUP: Final = (*_TOPIC, *_GROUP)


def _send(field: str) -> Right:
    return Right(actions=PUB, fields=(Named("Topic", field),))


def _admin(needed: frozenset[str], *fields: Named) -> Right:
    return Right(actions=needed, fields=fields)


def _look(*fields: Named) -> Right:
    """Tables and counters."""
    return Right(actions=GET, fields=fields)


_CHANGE_USERS: Final = Right(actions=UPDATE, without=Without.NOBODY)
_READ_USERS: Final = Right(actions=GET, without=Without.NOBODY)
_LOCK: Final = Right(
    actions=SUB,
    body=_locks,
    client=lambda ext, body: LockBatchRequestBody.decode_request(body).client_id,
)
_PULL: Final = Right(actions=SUB, fields=_TOPIC_AND_CONSUMER)
_ACK: Final = Right(actions=SUB, fields=_CONSUMER, stored=_stored_for)

RIGHTS: Final[Mapping[int, Right]] = {
    Code.SEND_MESSAGE: _send("topic"),
    Code.SEND_MESSAGE_V2: _send("b"),
    Code.SEND_BATCH_MESSAGE: _send("b"),
    Code.SEND_REPLY_MESSAGE: _send("topic"),
    Code.SEND_REPLY_MESSAGE_V2: _send("b"),
    Code.RECALL_MESSAGE: _send("topic"),
    Code.END_TRANSACTION: Right(
        # The topic in its header is the half topic after a check: only the position identifies the topic.
        actions=PUB,
        free=True,
        place=lambda ext: from_ext(EndTransactionRequest, ext).commit_log_offset,
        placed=PUB,
    ),
    Code.RESUME_CHECK_HALF_MESSAGE: Right(
        actions=UPDATE,
        fields=(Named("Topic", "topic", optional=True),),
        place=lambda ext: _of_id(from_ext(ResumeCheckHalfMessageRequest, ext).msg_id),
        placed=UPDATE,
    ),
    Code.PULL_MESSAGE: _PULL,
    Code.LITE_PULL_MESSAGE: _PULL,
    Code.QUERY_MESSAGE: Right(actions=SUB_GET, fields=_TOPIC),
    Code.VIEW_MESSAGE_BY_ID: Right(
        actions=GET,
        fields=(Named("Topic", "topic", optional=True),),
        place=lambda ext: from_ext(ViewMessageRequest, ext).offset,
    ),
    Code.QUERY_CONSUME_QUEUE: Right(
        actions=GET,
        fields=(*_TOPIC, Named("Group", "consumerGroup", optional=True)),
    ),
    Code.CONSUMER_SEND_MSG_BACK: Right(
        actions=SUB,
        fields=_GROUP,
        place=lambda ext: from_ext(ConsumerSendMsgBackRequest, ext).offset,
    ),
    Code.CONSUME_MESSAGE_DIRECTLY: Right(
        actions=SUB,
        fields=(*_CONSUMER, Named("Topic", "topic", optional=True)),
        place=lambda ext: _of_id(from_ext(ConsumeMessageDirectlyRequest, ext).msg_id),
    ),
    Code.QUERY_CONSUMER_OFFSET: Right(actions=SUB_GET, fields=_TOPIC_AND_CONSUMER),
    Code.UPDATE_CONSUMER_OFFSET: Right(actions=SUB_UPDATE, fields=_TOPIC_AND_CONSUMER),
    Code.SEARCH_OFFSET_BY_TIMESTAMP: _look(*_TOPIC),
    Code.GET_MAX_OFFSET: _look(*_TOPIC),
    Code.GET_MIN_OFFSET: _look(*_TOPIC),
    Code.GET_EARLIEST_MSG_STORETIME: _look(*_TOPIC),
    Code.HEART_BEAT: Right(
        actions=SUB,
        body=_heartbeat,
        free=True,
        client=lambda ext, body: HeartbeatData.decode(body).client_id,
    ),
    Code.UNREGISTER_CLIENT: Right(
        actions=SUB,
        fields=(Named("Group", "consumerGroup", optional=True),),
        free=True,
        client=lambda ext, body: ext.get("clientID"),
    ),
    Code.REGISTER_PROXIED_CLIENT: Right(
        actions=SUB,
        body=_heartbeat,
        client=lambda ext, body: HeartbeatData.decode(body).client_id,
    ),
    Code.UNREGISTER_PROXIED_CLIENT: Right(
        actions=SUB,
        fields=_CONSUMER,
        client=lambda ext, body: ext.get("clientID"),
    ),
    Code.CHECK_TOPIC_RIGHT: Right(actions=ANY_USE, fields=_TOPIC),
    Code.CHECK_CLIENT_CONFIG: Right(actions=actions(), free=True),
    Code.GET_CONSUMER_LIST_BY_GROUP: Right(actions=SUB_GET, fields=_CONSUMER),
    Code.LOCK_BATCH_MQ: _LOCK,
    Code.UNLOCK_BATCH_MQ: _LOCK,
    Code.QUERY_ASSIGNMENT: Right(
        actions=SUB,
        body=_assignment,
        client=lambda ext, body: AssignmentRequest.decode_request(body).client_id,
    ),
    Code.SET_MESSAGE_REQUEST_MODE: Right(actions=UPDATE, body=_request_mode),
    Code.POP_MESSAGE: _PULL,
    Code.NOTIFICATION: _PULL,
    Code.POLLING_INFO: _PULL,
    Code.ACK_MESSAGE: _ACK,
    Code.CHANGE_MESSAGE_INVISIBLETIME: _ACK,
    Code.BATCH_ACK_MESSAGE: Right(actions=SUB, body=_batch_ack),
    # Topics, groups and their state
    Code.UPDATE_AND_CREATE_TOPIC: _admin(CREATE, *_TOPIC),
    Code.UPDATE_AND_CREATE_TOPIC_LIST: _admin(UPDATE),
    Code.DELETE_TOPIC_IN_BROKER: _admin(DELETE, *_TOPIC),
    Code.GET_TOPIC_CONFIG: _look(*_TOPIC),
    Code.GET_ALL_TOPIC_CONFIG: _look(),
    Code.GET_TOPIC_STATS_INFO: _look(*_TOPIC),
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: _look(),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: Right(actions=CREATE, body=_group),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _admin(UPDATE),
    Code.DELETE_SUBSCRIPTIONGROUP: _admin(DELETE, Named("Group", "groupName")),
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _look(),
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: _look(*_GROUP),
    Code.GET_CONSUMER_CONNECTION_LIST: _look(*_CONSUMER),
    Code.GET_PRODUCER_CONNECTION_LIST: _look(),
    Code.GET_ALL_PRODUCER_INFO: _look(),
    Code.GET_CONSUME_STATS: _look(*_CONSUMER, Named("Topic", "topic", optional=True)),
    Code.GET_BROKER_CONSUME_STATS: _look(),
    Code.GET_ALL_CONSUMER_OFFSET: _look(),
    Code.GET_ALL_DELAY_OFFSET: _look(),
    Code.GET_TIMER_CHECK_POINT: _look(),
    Code.GET_TIMER_METRICS: _look(),
    Code.GET_ALL_MESSAGE_REQUEST_MODE: _look(),
    Code.GET_BROKER_HA_STATUS: _look(),
    Code.GET_BROKER_EPOCH_CACHE: _look(),
    Code.GET_REPLICA_STATE: _look(),
    Code.SET_REPLICA_ROLE: _admin(UPDATE),
    Code.FOLLOW_MASTER: _admin(GET),
    Code.QUERY_TOPIC_CONSUME_BY_WHO: _look(*_TOPIC),
    Code.QUERY_TOPICS_BY_CONSUMER: _look(*_GROUP),
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER: _look(*_TOPIC_AND_GROUP),
    Code.QUERY_CONSUME_TIME_SPAN: _look(*_TOPIC_AND_GROUP),
    Code.QUERY_CORRECTION_OFFSET: _look(),
    Code.INVOKE_BROKER_TO_RESET_OFFSET: _admin(UPDATE, *_TOPIC_AND_GROUP),
    Code.CLONE_GROUP_OFFSET: _admin(
        UPDATE, Named("Group", "destGroup"), Named("Topic", "topic", optional=True)
    ),
    Code.UPDATE_AND_GET_GROUP_FORBIDDEN: _admin(UPDATE, *_TOPIC_AND_GROUP),
    # Sent to clients
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: Right(actions=GET, fields=_TOPIC_AND_GROUP),
    Code.GET_CONSUMER_RUNNING_INFO: Right(actions=GET, fields=_CONSUMER),
    # The broker
    Code.UPDATE_BROKER_CONFIG: _admin(UPDATE),
    Code.GET_BROKER_CONFIG: _look(),
    Code.GET_BROKER_RUNTIME_INFO: _look(),
    Code.VIEW_BROKER_STATS_DATA: _look(),
    Code.CLEAN_EXPIRED_CONSUMEQUEUE: _admin(UPDATE),
    Code.CLEAN_UNUSED_TOPIC: _admin(UPDATE),
    Code.DELETE_EXPIRED_COMMITLOG: _admin(UPDATE),
    # Users and policies
    **dict.fromkeys(range(Code.AUTH_CREATE_USER, Code.AUTH_GET_USER), _CHANGE_USERS),
    Code.AUTH_GET_USER: _READ_USERS,
    Code.AUTH_LIST_USER: _READ_USERS,
    **dict.fromkeys(range(Code.AUTH_CREATE_ACL, Code.AUTH_GET_ACL), _CHANGE_USERS),
    Code.AUTH_GET_ACL: _READ_USERS,
    Code.AUTH_LIST_ACL: _READ_USERS,
    # SparrowMQ's own
    Code.PUT_RETENTION_HOLD: _admin(UPDATE),
    Code.DELETE_RETENTION_HOLD: _admin(UPDATE),
    Code.GET_RETENTION_HOLDS: _look(),
    Code.PUT_GROUP_POLICY: _admin(UPDATE),
    Code.DELETE_GROUP_POLICY: _admin(UPDATE),
    Code.GET_GROUP_POLICIES: _look(),
    Code.JOIN_MANAGED_GROUP: MEMBER_RIGHT,
    Code.REPORT_MANAGED_MEMBER: MEMBER_RIGHT,
    Code.END_PRODUCERS: _send("topic"),
}
