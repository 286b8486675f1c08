"""Which POP requests are served: the checks of broker:13.1, in RocketMQ's order."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from sparrowmq.broker.members.filters import EVERYTHING, PullFilter, is_tag_type, wanted_filter, wanted_tags
from sparrowmq.core.errors import InvalidExpressionError
from sparrowmq.core.message import POP_MAX
from sparrowmq.core.route import PERM_READ
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.filter import parse_tags
from sparrowmq.protocol.pop.receipts import pop_retry_topic
from sparrowmq.protocol.refusals import Refused

if TYPE_CHECKING:
    from sparrowmq.broker.tables.groups import GroupTable
    from sparrowmq.broker.tables.topics import Topic, TopicTable
    from sparrowmq.core.settings.servers import BrokerSettings
    from sparrowmq.protocol.frame import Command
    from sparrowmq.protocol.pop.headers import PopMessageRequest
    from sparrowmq.transport.connection import Connection

log = logging.getLogger("sparrowmq.broker")
HOLD_MS_MAX: Final = 60_000
"""Maximum time that a request may wait."""
UNSENT_BYTES_MAX: Final = 64 * 1024 * 1024
"""A client with more unread answer bytes than this gets code 215 and has to wait."""
EXPRESSION_CHARS_MAX: Final = 32 * 1024
ATTEMPT_CHARS_MAX: Final = 255
"""The id of an attempt is kept for each queue that is consumed in order; clients send a UUID."""
REFUSED_FIELDS: Final = {"popTime": "0", "invisibleTime": "0", "reviveQid": "0", "restNum": "0"}
"""Fields of every answer to a POP that hands out nothing because of an error."""


class PopChecks:
    """Checks of one broker. `is_managed` says whether a coordinator plans a group; `invisible_max` is in ms.

    Everything raises `Refused`.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        topics: TopicTable,
        groups: GroupTable,
        *,
        is_managed: Callable[[str], bool],
        invisible_max: int,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._is_managed = is_managed
        self._invisible_max = invisible_max

    def apply(self, settings: BrokerSettings) -> None:
        """Apply changed settings."""
        self._settings = settings

    def may_serve(self, connection: Connection, request: PopMessageRequest) -> None:
        """Check the numbers of a POP, and that its client reads its answers."""
        settings = self._settings
        if not 0 < request.max_msg_nums <= POP_MAX:
            raise refused(
                ResponseCode.INVALID_PARAMETER,
                f"the broker[{settings.broker_ip1}] pop message's num is greater than {POP_MAX} or below 1: "
                f"{request.max_msg_nums}",
            )
        if request.attempt_id is not None and len(request.attempt_id) > ATTEMPT_CHARS_MAX:
            raise refused(
                ResponseCode.INVALID_PARAMETER,
                f"attemptId has {len(request.attempt_id)} characters, the limit is {ATTEMPT_CHARS_MAX}",
            )
        if not settings.timer_wheel_enable:
            raise refused(
                ResponseCode.SYSTEM_ERROR,
                f"the broker[{settings.broker_ip1}] pop message is forbidden because timerWheelEnable is "
                "false",
            )
        if not 0 < request.invisible_time <= self._invisible_max:
            raise refused(
                ResponseCode.INVALID_PARAMETER,
                f"invisibleTime {request.invisible_time} is not between 1 and {self._invisible_max} ms "
                "(timerMaxDelaySec)",
            )
        if connection.owes_more_than(UNSENT_BYTES_MAX):
            raise refused(
                ResponseCode.FLOW_CONTROL,
                f"{connection.unsent_bytes} bytes of answers wait to be read; read them before asking for "
                "more",
            )

    def topic(self, name: str, queue_id: int, group: str) -> Topic:
        """The topic of a request, if the group may consume this queue of it by POP (-1: all queues)."""
        if not self._settings.broker_permission & PERM_READ:
            raise refused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._settings.broker_ip1}] pop message is forbidden",
            )
        topic = self._topics.get(name)
        if topic is None:
            raise refused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{name}] not exist, apply first please! create it with: sparrow topic create",
            )
        if not topic.readable:
            raise refused(ResponseCode.NO_PERMISSION, f"the topic[{name}] peeking message is forbidden")
        if queue_id >= topic.config.read_queue_nums:
            raise refused(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{queue_id}] is illegal, topic:[{name}] "
                f"topicConfig.readQueueNums:[{topic.config.read_queue_nums}]",
            )
        self._check_group(group, name)
        return topic

    def _check_group(self, name: str, topic: str) -> None:
        group = self._groups.get(name)
        if group is None:
            raise refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, self._groups.missing(name))
        if not group.consume_enable:
            raise refused(ResponseCode.NO_PERMISSION, f"subscription group no permission, {name}")
        if self._groups.is_forbidden(name, topic):
            raise refused(ResponseCode.NO_PERMISSION, f"group {name} may not consume {topic}")
        if self._is_managed(name):
            raise refused(
                ResponseCode.GENERATION_FENCED,
                f"group {name} is managed: a coordinator gives each queue to one member, and POP gives every "
                "message to any; delete its policy first",
            )


def wanted_by(request: PopMessageRequest) -> PullFilter:
    """The filter of a POP. Raises `Refused` for an expression that cannot be read."""
    expression = request.exp
    if not expression:
        return EVERYTHING
    try:
        if len(expression) > EXPRESSION_CHARS_MAX:
            raise InvalidExpressionError(
                f"it has {len(expression)} characters, the limit is {EXPRESSION_CHARS_MAX}"
            )
        if is_tag_type(request.exp_type):
            return wanted_tags(parse_tags(request.topic, expression, 0).tags)
        return wanted_filter(request.exp_type or "", expression)
    except InvalidExpressionError as error:
        raise refused(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"parse the consumer's subscription failed: {error}"
        ) from None


def deadline_of(born_time: int, poll_time: int, now_ms: int) -> int:
    """How long a request may wait, epoch ms of this broker; a client's clock may be wrong."""
    return min(born_time + poll_time, now_ms + min(poll_time, HOLD_MS_MAX))


def topics_of(topic: str, group: str) -> tuple[str, ...]:
    """The topics whose messages a POP of a topic may get."""
    return (topic, pop_retry_topic(group, topic), pop_retry_topic(group, topic, v2=True))


def refused(code: int, remark: str) -> Refused:
    """A refusal with the fields of every answer to a POP."""
    return Refused(code, remark, REFUSED_FIELDS)


def refuse(connection: Connection, command: Command, error: Exception) -> None:
    """Answer a POP with an error."""
    if not isinstance(error, Refused):
        log.debug("a POP failed", exc_info=error)
    connection.send(Refused.of(error).answer(command.opaque, REFUSED_FIELDS))
