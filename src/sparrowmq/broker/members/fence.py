"""What a broker enforces for managed groups (pmq:3.14): pure decisions about policies and requests.

A queue is granted to one member under a generation. Requests about it with another generation are refused.
Requests without a generation are refused unless its owner does not use generations. Only a later policy
replaces a policy, and a queue's generation never decreases: not by a request of an older coordinator, not by
a restart, and not if a queue or group is removed and added again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from sparrowmq.core.errors import InvalidNameError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import check_group
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.managed import EVERY_QUEUE, EVERY_TOPIC, GroupPolicy, QueueGrant

GROUPS_MAX: Final = 10_000
"""Maximum number of groups with a current or former policy at one broker: a save writes all of them."""
MEMBERS_MAX: Final = 10_000
QUEUES_MAX: Final = 20_000
PAUSES_MAX: Final = 1000
EPOCH_MAX: Final = 2**31
"""Maximum epoch. Epochs count leaders; a higher one cannot be genuine, and no leader could follow it."""
NUMBER_MAX: Final = 2**48
"""The highest revision and generation, for the same reason."""
NOBODY: Final = "sparrowmq-nobody"
"""Client id in an answer to 38 when no member may consume: Java's members ignore an empty list."""


class ManagedGroup:
    """One group's policy in a form for fast lookup. `broker_name` is the broker whose queues are guarded.

    `generations` has those of granted queues: a request with the same generation is accepted, which adds
    almost no cost to a pull. `may_rest`: whether there are pauses.
    """

    __slots__ = ("_broker", "_grants", "_pauses", "generations", "may_rest", "policy")

    def __init__(self, policy: GroupPolicy, broker_name: str) -> None:
        self.policy = policy
        self._broker = broker_name
        self._grants = {
            (grant.topic, grant.queue_id): grant
            for grant in policy.queues
            if grant.broker_name == broker_name
        }
        self._pauses = {(rule.topic, rule.queue_id): rule for rule in policy.pauses}
        self.generations = {place: grant.generation for place, grant in self._grants.items()}
        self.may_rest = bool(self._pauses)

    def refusal(self, topic: str, queue_id: int, generation: int | None) -> str:
        """Why a request about a queue is refused; empty when it is accepted."""
        grant = self._grants.get((topic, queue_id))
        if grant is None:
            if generation is None:
                return ""
            return f"generation {generation} of {self._place(topic, queue_id)} was not granted here"
        if generation == grant.generation:
            return ""
        if generation is None and not grant.fenced:
            return ""
        place = self._place(topic, queue_id)
        owner = f"{grant.owner} has it" if grant.owner else "nobody has it"
        asked = "no generation" if generation is None else f"generation {generation}"
        return f"{asked} of {place} is not accepted: {owner} under generation {grant.generation}"

    def _place(self, topic: str, queue_id: int) -> str:
        queue = MessageQueue(topic, self._broker, queue_id)
        return f"{queue} for group {self.policy.group}"

    def paused_until(self, topic: str, queue_id: int, now_ms: int) -> int | None:
        """Until when a queue is paused, epoch milliseconds, 0 without an end; None when it is not paused."""
        if not self._pauses:
            return None
        found = [
            rule.until
            for place in ((EVERY_TOPIC, EVERY_QUEUE), (topic, EVERY_QUEUE), (topic, queue_id))
            if (rule := self._pauses.get(place)) is not None and (not rule.until or rule.until > now_ms)
        ]
        if not found:
            return None
        return 0 if 0 in found else max(found)

    def listed(self, online: Collection[str]) -> list[str]:
        """The online clients that may consume, in the order of the policy; never empty (38)."""
        policy = self.policy
        known = frozenset(online)
        found = list(online) if policy.members is None else [one for one in policy.members if one in known]
        if policy.maximum:
            found = found[: policy.maximum]
        return found or [NOBODY]

    def assigned(self, topic: str, client_id: str) -> list[MessageQueue] | None:
        """The queues of a member on all brokers (400); None when the policy assigns none."""
        if not self.policy.queues:
            return None
        return [
            grant.queue for grant in self.policy.queues if grant.topic == topic and grant.owner == client_id
        ]

    def moved(self, before: ManagedGroup | None) -> list[MessageQueue]:
        """Queues of this broker with a newer generation than before."""
        known = {} if before is None else before._grants
        return [
            grant.queue
            for place, grant in self._grants.items()
            if place not in known or known[place].generation < grant.generation
        ]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a policy is refused."""

    code: ResponseCode
    text: str


def judge(new: GroupPolicy, old: GroupPolicy | None, retired: int, broker_name: str) -> Refusal | None:
    """Why a policy may not replace `old` at a broker; None when it may.

    `retired` is the highest generation of a queue that was in an earlier policy of the group and is no longer
    in one. Only the broker's own queues are guarded. For other queues it repeats the last policy; a later
    leader may revert that if their own broker never received it.
    """
    problem = _malformed(new)
    if problem:
        return Refusal(ResponseCode.INVALID_PARAMETER, problem)
    known: dict[MessageQueue, QueueGrant] = {}
    if old is not None:
        if new.age < old.age or (new.age == old.age and new != old):
            return _outdated(
                f"policy {new.epoch}.{new.revision} of group {new.group} is not later than "
                f"{old.epoch}.{old.revision}, which is in force; read that one first"
            )
        known = {grant.queue: grant for grant in old.queues}
    for grant in new.queues:
        if grant.broker_name != broker_name:
            continue
        before = known.get(grant.queue)
        lowest = retired + 1 if before is None else before.generation
        if grant.generation < lowest:
            return _outdated(
                f"generation {grant.generation} of {grant.queue} for group {new.group} is older than "
                f"{lowest}, the lowest that may follow"
            )
        if before is not None and grant.generation == before.generation and grant.owner != before.owner:
            return _outdated(
                f"generation {grant.generation} of {grant.queue} for group {new.group} is granted to "
                f"{before.owner or 'nobody'}; another owner needs a higher one"
            )
    return None


def _outdated(text: str) -> Refusal:
    return Refusal(ResponseCode.POLICY_OUTDATED, text)


def _malformed(policy: GroupPolicy) -> str:
    """Errors within a policy."""
    try:
        check_group(policy.group)
    except InvalidNameError as error:
        return str(error)
    for name, count, limit in (
        ("members", len(policy.members or ()), MEMBERS_MAX),
        ("queues", len(policy.queues), QUEUES_MAX),
        ("pauses", len(policy.pauses), PAUSES_MAX),
    ):
        if count > limit:
            return f"the policy of {policy.group} has {count} {name}, the limit is {limit}"
    if not 0 <= policy.maximum <= MEMBERS_MAX:
        return f"maximum={policy.maximum} is out of range: 0 (no limit) to {MEMBERS_MAX} members"
    if not 0 <= policy.epoch <= EPOCH_MAX or not 1 <= policy.revision <= NUMBER_MAX:
        return (
            f"epoch {policy.epoch} and revision {policy.revision} of group {policy.group} are out of range: "
            f"0 to {EPOCH_MAX} and 1 to {NUMBER_MAX}"
        )
    if len({grant.queue for grant in policy.queues}) != len(policy.queues):
        return f"the policy of {policy.group} names a queue twice"
    wrong = next(
        (grant for grant in policy.queues if not 1 <= grant.generation <= NUMBER_MAX or grant.queue_id < 0),
        None,
    )
    if wrong is not None:
        return (
            f"{wrong.queue}: generation {wrong.generation} is out of range (1 to {NUMBER_MAX}), or its queue "
            "id below 0"
        )
    return ""


def highest_gone(old: GroupPolicy, new: GroupPolicy | None) -> int:
    """The highest generation among queues that the policy has and its successor lacks; 0 without any."""
    staying = set() if new is None else {grant.queue for grant in new.queues}
    return _highest(grant for grant in old.queues if grant.queue not in staying)


def _highest(grants: Iterable[QueueGrant]) -> int:
    return max((grant.generation for grant in grants), default=0)
