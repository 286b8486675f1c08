"""Managed groups on the wire: the policy of a group at a broker (90201 to 90203; pmq:3.14). SparrowMQ's own.

A policy says who may consume, who has which queue under which generation, and what rests. Only brokers of
SparrowMQ understand it. Requests of members carry the generation under which they have a queue in the field
`generation`; clients of RocketMQ leave it out.
"""

from __future__ import annotations

from typing import Final

from msgspec import field

from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.bodies.base import Body, Int32, Int64
from sparrowmq.protocol.headers import Header

EVERY_TOPIC: Final = ""
EVERY_QUEUE: Final = -1


class QueueGrant(Body, frozen=True):
    """Who has a queue. Without `owner` nobody may read it.

    `fenced`: requests about it must carry this generation. Else, for an owner that knows no generations,
    requests without one are taken too.
    """

    topic: str
    broker_name: str
    queue_id: Int32
    generation: Int64
    owner: str = ""
    fenced: bool = True

    @property
    def queue(self) -> MessageQueue:
        """The queue as a core value."""
        return MessageQueue(self.topic, self.broker_name, self.queue_id)


class PauseRule(Body, frozen=True):
    """What is not delivered: a queue, a topic (`queue_id` -1) or, without `topic`, everything.

    `until` is epoch milliseconds, 0 for no end.
    """

    topic: str = EVERY_TOPIC
    queue_id: Int32 = EVERY_QUEUE
    until: Int64 = 0
    reason: str = ""


class GroupPolicy(Body, frozen=True):
    """All that a broker enforces for a group.

    `epoch` is that of the coordinator's leader, 0 for an operator's own policy; `revision` counts changes.
    `members` are the client ids that may consume, the longest first, None for everybody; of those online the
    first `maximum` count, 0 for all.
    """

    group: str
    epoch: Int64 = 0
    revision: Int64 = 1
    members: list[str] | None = None
    maximum: Int32 = 0
    queues: list[QueueGrant] = field(default_factory=list)
    pauses: list[PauseRule] = field(default_factory=list)

    @property
    def age(self) -> tuple[int, int]:
        """Orders policies of one group: a later one is larger."""
        return self.epoch, self.revision


class GroupPolicies(Body, frozen=True):
    """The policies of one broker (90203), and of groups that had one the highest generation."""

    policies: list[GroupPolicy] = field(default_factory=list)
    retired: dict[str, Int64] = field(default_factory=dict)


class GroupPolicyRequest(Header, kw_only=True):
    """DELETE_GROUP_POLICY (90202), and GET_GROUP_POLICIES (90203) where an empty `group` means all."""

    group: str = ""
