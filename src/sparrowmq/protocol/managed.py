"""Managed groups on the wire (pmq:3.14), a SparrowMQ extension: policies at brokers (90201 to 90203), and the
requests between members and their coordinator (90211 to 90213).

A policy defines who may consume, who has which queue under which generation, and what is paused. Only brokers
of SparrowMQ understand it. Requests of members carry the generation under which they have a queue in the
field `generation`; clients of RocketMQ leave it out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final, Self

import msgspec
from msgspec import field

from sparrowmq.core.dynamic_settings import SettingPlace, SettingValue, dump, fingerprint, for_members, load
from sparrowmq.core.errors import SparrowError
from sparrowmq.core.grants import Orders, Report
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.rights import SUB, Resource, Right, resource
from sparrowmq.protocol.bodies.base import Body, Int32, Int64, read_request
from sparrowmq.protocol.headers import Header

COORDINATOR_NAMESPACE: Final = "SPARROW_COORDINATOR"
COORDINATOR_KEY: Final = "members"
"""The name servers' key for the coordinator's `host:port` for members of groups."""
GENERATIONS_PROPERTY: Final = "managedGenerations"
"""Property in a managed member's running info (307)."""
QUEUES_MAX: Final = 10_000
"""Maximum queues of a managed group."""
POLICY_BYTES_MAX: Final = 4 * 1024 * 1024
"""The longest policy that a broker accepts: `QUEUES_MAX` queues with names of 400 bytes. Only admins set
policies.
"""
EVERY_TOPIC: Final = ""
EVERY_QUEUE: Final = -1


class QueueGrant(Body, frozen=True):
    """The owner of a queue. Without `owner` no member may read it.

    `fenced`: requests about it must carry this generation. Otherwise, for an owner without generation
    support, requests without one are accepted too.
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
    """A pause of a queue, a topic (`queue_id` -1) or, without `topic`, everything.

    `until` is epoch milliseconds, 0 for no end.
    """

    topic: str = EVERY_TOPIC
    queue_id: Int32 = EVERY_QUEUE
    until: Int64 = 0
    reason: str = ""


class GroupPolicy(Body, frozen=True):
    """All that a broker enforces for a group.

    `epoch` is that of the coordinator's leader, 0 for a policy set by an operator; `revision` counts changes.
    `members` are the client ids that may consume, longest membership first; None allows all. Of the online
    members, the first `maximum` may consume; 0 means all.
    """

    group: str
    epoch: Int64 = 0
    revision: Int64 = 1
    members: list[str] | None = None
    maximum: Int32 = 0
    queues: list[QueueGrant] = field(default_factory=list)
    pauses: list[PauseRule] = field(default_factory=list)

    @classmethod
    def decode_request(cls, data: bytes) -> Self:
        """The policy in a request, up to `POLICY_BYTES_MAX`."""
        return read_request(data, cls, bytes_max=POLICY_BYTES_MAX)

    @property
    def age(self) -> tuple[int, int]:
        """Orders policies of one group: a later one is larger."""
        return self.epoch, self.revision


class GroupPolicies(Body, frozen=True):
    """The policies of one broker (90203), and the highest generation of each group that had one."""

    policies: list[GroupPolicy] = field(default_factory=list)
    retired: dict[str, Int64] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Compact JSON with nulls, because it is fast: brokers encode thousands of groups on their loop."""
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
    """The value of `GENERATIONS_PROPERTY` in running info: a member's queues with their generations."""
    return msgspec.json.encode(_numbered(queues)).decode()


def generations_of(text: str) -> dict[MessageQueue, int]:
    """The queues in that property; empty for an invalid text."""
    try:
        return _queues(msgspec.json.decode(text, type=list[NumberedQueue]))
    except msgspec.DecodeError:
        return {}


class MemberBody(Body, frozen=True):
    """Common to joins and reports: the group, and the subscribed topics."""

    group: str
    topics: list[str] = field(default_factory=list)


def _of_member(body: bytes) -> Iterable[Resource]:
    asked = MemberBody.decode_request(body)
    yield ("Group", asked.group)
    for topic in asked.topics:
        yield resource("Topic", topic)


MEMBER_RIGHT: Final = Right(actions=SUB, body=_of_member)
"""What joins and reports need: the same right as pulling. Coordinators ask a broker whether it is granted."""


class JoinBody(Body, frozen=True):
    """JOIN_MANAGED_GROUP (90211): a client that subscribes `topics` wants queues."""

    group: str
    client_id: str
    topics: list[str] = field(default_factory=list)
    version: str = ""


class JoinedBody(Body, frozen=True):
    """The answer: the client's member id. Every join creates a new member.

    `proof` must be in all its requests, so that no other client can act for it.
    """

    member: str
    proof: str = ""


class LeaveBody(Body, frozen=True):
    """LEAVE_MANAGED_GROUP (90213): a member that has released all its queues."""

    group: str
    member: str
    proof: str = ""


class ReportBody(Body, frozen=True):
    """REPORT_MANAGED_MEMBER (90212): the plan that a member knows, the queues it released, and its topics.

    `late` counts its results that brokers refused because the queue had moved. `knobs` is the revision of the
    dynamic settings that it applies; `unable` names those it cannot apply, with a reason code (`Unable`). The
    answer is an `OrdersBody`, or code 90013 for an unknown member, which must join. (Dynamic settings were
    once called knobs; the names of fields on the wire stay.)
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
        applied_revision: int = 0,
        *,
        proof: str = "",
        unable: Mapping[str, str] | None = None,
    ) -> Self:
        """The body for a report."""
        released, cannot = _numbered(report.released), dict(unable or {})
        numbers = report.number, report.revision
        return cls(group, member, *numbers, released, topics, late, applied_revision, proof, cannot)

    @property
    def report(self) -> Report:
        """The report as a core value."""
        return Report(self.number, self.revision, _queues(self.released))


class DynamicSettingBody(Body, frozen=True):
    """A dynamic setting's value in a scope; `value` is JSON, `until` epoch milliseconds, 0 for no end."""

    name: str
    place: str
    value: str
    until: Int64 = 0


class DynamicSettingsBody(Body, frozen=True):
    """All dynamic settings that a member must apply, and their revision (0: none).

    `now_ms` is the coordinator's time when it sent them, so that a member with a wrong clock can tell when
    they end; 0 if not included.
    """

    revision: Int64 = 0
    knobs: list[DynamicSettingBody] = field(default_factory=list)
    now_ms: Int64 = 0

    @classmethod
    def of(cls, settings: Iterable[SettingValue]) -> Self:
        """The body for a group's settings."""
        sent = for_members(settings)
        bodies = [DynamicSettingBody(one.name, str(one.place), dump(one.value), one.until) for one in sent]
        return cls(fingerprint(sent), bodies)

    def at(self, now_ms: int) -> DynamicSettingsBody:
        """The same, sent at this time."""
        return DynamicSettingsBody(self.revision, self.knobs, now_ms)

    @property
    def unknown(self) -> list[str]:
        """Settings that this release does not know, or whose value it does not accept."""
        known = {(one.name, str(one.place)) for one in self.settings}
        return sorted({one.name for one in self.knobs if (one.name, one.place) not in known})

    @property
    def settings(self) -> list[SettingValue]:
        """The settings, without those that this release does not know."""
        found = []
        for one in self.knobs:
            with suppress(SparrowError):
                found.append(
                    SettingValue(
                        one.name, SettingPlace.parse(one.place), load(one.name, one.value), one.until
                    )
                )
        return found


class OrdersBody(Body, frozen=True):
    """The answer to a report; `lease` in milliseconds; `knobs` only if the member applies other settings."""

    revision: Int64
    lease_ms: Int64
    granted: list[NumberedQueue] = field(default_factory=list)
    revoked: list[NumberedQueue] = field(default_factory=list)
    knobs: DynamicSettingsBody | None = None

    @classmethod
    def of(cls, orders: Orders, settings: DynamicSettingsBody | None = None) -> Self:
        """The body for orders."""
        lease_ms = int(orders.lease * 1000)
        return cls(orders.revision, lease_ms, _numbered(orders.granted), _numbered(orders.revoked), settings)

    @property
    def orders(self) -> Orders:
        """The orders as a core value."""
        return Orders(self.revision, self.lease_ms / 1000, _queues(self.granted), _queues(self.revoked))
