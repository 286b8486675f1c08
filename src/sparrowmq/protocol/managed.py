"""Managed groups on the wire (pmq:3.14), SparrowMQ's own: policies at brokers (90201 to 90203), and what
members and their coordinator say to each other (90211 to 90213).

A policy says who may consume, who has which queue under which generation, and what rests. Only brokers of
SparrowMQ understand it. Requests of members carry the generation under which they have a queue in the field
`generation`; clients of RocketMQ leave it out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final, Self

import msgspec
from msgspec import field

from sparrowmq.core.errors import SparrowError
from sparrowmq.core.grants import Orders, Report
from sparrowmq.core.knobs import Place, Setting, dump, fingerprint, for_members, load
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.bodies.base import Body, Int32, Int64
from sparrowmq.protocol.headers import Header

COORDINATOR_NAMESPACE: Final = "SPARROW_COORDINATOR"
COORDINATOR_KEY: Final = "members"
"""Where name servers keep the `host:port` at which a coordinator answers members of groups."""
GENERATIONS_PROPERTY: Final = "managedGenerations"
"""In a managed member's running info (307)."""
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

    def encode(self) -> bytes:
        """Compact JSON, null included: brokers have thousands of groups, and tell of them on their loop."""
        return msgspec.json.encode(self)


class GroupPolicyRequest(Header, kw_only=True):
    """DELETE_GROUP_POLICY (90202), and GET_GROUP_POLICIES (90203) where an empty `group` means all."""

    group: str = ""


# Members and their coordinator


class NumberedQueue(Body, frozen=True):
    """A queue and the generation under which a member has it."""

    topic: str
    broker_name: str
    queue_id: Int32
    generation: Int64


def _numbered(queues: Mapping[MessageQueue, int]) -> list[NumberedQueue]:
    return [NumberedQueue(q.topic, q.broker_name, q.queue_id, number) for q, number in queues.items()]


def _queues(numbered: list[NumberedQueue]) -> dict[MessageQueue, int]:
    return {MessageQueue(one.topic, one.broker_name, one.queue_id): one.generation for one in numbered}


def generations_text(queues: Mapping[MessageQueue, int]) -> str:
    """The running info's property `GENERATIONS_PROPERTY`: what a member has, under which generations."""
    return msgspec.json.encode(_numbered(queues)).decode()


def generations_of(text: str) -> dict[MessageQueue, int]:
    """What that property says; nothing for a text that is none."""
    try:
        return _queues(msgspec.json.decode(text, type=list[NumberedQueue]))
    except msgspec.DecodeError:
        return {}


class JoinBody(Body, frozen=True):
    """JOIN_MANAGED_GROUP (90211): a client that subscribes `topics` wants queues."""

    group: str
    client_id: str
    topics: list[str] = field(default_factory=list)
    version: str = ""


class JoinedBody(Body, frozen=True):
    """The answer: who the client is from now on. Every join makes another member.

    `proof` goes with all that it says: nobody else can speak for it.
    """

    member: str
    proof: str = ""


class LeaveBody(Body, frozen=True):
    """LEAVE_MANAGED_GROUP (90213): a member that is done with all it had."""

    group: str
    member: str
    proof: str = ""


class ReportBody(Body, frozen=True):
    """REPORT_MANAGED_MEMBER (90212): what a member knows, has released and subscribes.

    `late` counts its results that brokers refused because the queue had gone on, `knobs` numbers the live
    knobs it goes by, `unable` says which of them it cannot go by, and why in a word (`Unable`). The answer is
    an `OrdersBody`, or code 90013 for a member that is not counted in and has to join.
    """

    group: str
    member: str
    number: Int64
    revision: Int64
    released: list[NumberedQueue] = field(default_factory=list)
    topics: list[str] = field(default_factory=list)
    late: Int64 = 0
    knobs: Int64 = 0
    proof: str = ""
    unable: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        group: str,
        member: str,
        report: Report,
        topics: list[str],
        late: int,
        knobs: int = 0,
        *,
        proof: str = "",
        unable: Mapping[str, str] | None = None,
    ) -> Self:
        """The body for a report."""
        released, cannot = _numbered(report.released), dict(unable or {})
        numbers = report.number, report.revision
        return cls(group, member, *numbers, released, topics, late, knobs, proof, cannot)

    @property
    def report(self) -> Report:
        """The report as a core value."""
        return Report(self.number, self.revision, _queues(self.released))


class KnobBody(Body, frozen=True):
    """A live knob at a place (core/knobs.py); `value` is JSON, `until` epoch milliseconds, 0 for no end."""

    name: str
    place: str
    value: str
    until: Int64 = 0


class KnobsBody(Body, frozen=True):
    """All live knobs that a member is to go by, and their number, which is 0 for none.

    `now_ms` is the coordinator's time when it told them, by which a member with a wrong clock knows when they
    end; 0 from one that does not say.
    """

    revision: Int64 = 0
    knobs: list[KnobBody] = field(default_factory=list)
    now_ms: Int64 = 0

    @classmethod
    def of(cls, settings: Iterable[Setting]) -> Self:
        """The body for what is set of a group."""
        told = for_members(settings)
        knobs = [KnobBody(one.name, str(one.place), dump(one.value), one.until) for one in told]
        return cls(fingerprint(told), knobs)

    def at(self, now_ms: int) -> KnobsBody:
        """The same, told at this time."""
        return KnobsBody(self.revision, self.knobs, now_ms)

    @property
    def unknown(self) -> list[str]:
        """Knobs that this release does not know, or whose value it does not take."""
        known = {(one.name, str(one.place)) for one in self.settings}
        return sorted({one.name for one in self.knobs if (one.name, one.place) not in known})

    @property
    def settings(self) -> list[Setting]:
        """What it says, but for what this release does not know."""
        found = []
        for one in self.knobs:
            with suppress(SparrowError):
                found.append(Setting(one.name, Place.parse(one.place), load(one.name, one.value), one.until))
        return found


class OrdersBody(Body, frozen=True):
    """The answer to a report; `lease` in milliseconds, `knobs` when the member goes by others."""

    revision: Int64
    lease_ms: Int64
    granted: list[NumberedQueue] = field(default_factory=list)
    revoked: list[NumberedQueue] = field(default_factory=list)
    knobs: KnobsBody | None = None

    @classmethod
    def of(cls, orders: Orders, knobs: KnobsBody | None = None) -> Self:
        """The body for orders."""
        lease_ms = int(orders.lease * 1000)
        return cls(orders.revision, lease_ms, _numbered(orders.granted), _numbered(orders.revoked), knobs)

    @property
    def orders(self) -> Orders:
        """The orders as a core value."""
        return Orders(self.revision, self.lease_ms / 1000, _queues(self.granted), _queues(self.revoked))
