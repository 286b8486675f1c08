"""Assignment of a managed group's queues to members: computed for all members at once, with reasons
(pmq:3.14).

A plan is a pure function of queues, members, rules and the previous plan. The same input gives the same plan,
regardless of the order of its parts, so a new leader continues where the old one stopped.

* Balanced: for every topic, the numbers of queues per member differ by at most one. * Sticky: no plan
that is balanced leaves more queues where they are. Extra queues go to members that have the fewest extras
over all topics. * Numbered: a plan that changes any queue has the next generation, and
so have the queues it changes. The others keep theirs and are not interrupted.
"""

from __future__ import annotations

import ipaddress
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, NewType

from sortedcontainers import SortedList

from sparrowmq.core.dynamic_settings import Network, parse_network
from sparrowmq.core.errors import InvariantError, SettingsError
from sparrowmq.core.message import MessageQueue

MEMBERS_MAX: Final = 10_000
"""Upper limit of `maximum`, against typing errors."""
LIST_MAX: Final = 1000
"""Maximum number of entries in a list; every member is compared with each of them."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A client that asks for queues. `address` is `host` or `host:port`, `joined` orders by seniority."""

    client_id: str
    address: str = ""
    joined: int = 0


@dataclass(frozen=True, slots=True)
class AdmissionRules:
    """Rules that select members.

    Lists have addresses and networks; an empty `allow` allows everybody. `maximum` limits the number of
    members with queues, the most senior ones first; 0: unlimited.
    """

    allow: tuple[Network, ...] = ()
    deny: tuple[Network, ...] = ()
    maximum: int = 0

    @classmethod
    def parse(
        cls, *, allow: Iterable[str] = (), deny: Iterable[str] = (), maximum: int = 0
    ) -> AdmissionRules:
        """Rules of texts like `10.0.0.5` and `10.1.0.0/16`. Raises `SettingsError` for invalid ones."""
        if not 0 <= maximum <= MEMBERS_MAX:
            raise SettingsError(
                f"maximum={maximum} is out of range: 0 (no limit) to {MEMBERS_MAX} members",
                "maximum",
                maximum,
                limit=MEMBERS_MAX,
            )
        return cls(_networks("allow", allow), _networks("deny", deny), maximum)


def _networks(name: str, texts: Iterable[str]) -> tuple[Network, ...]:
    found = [parse_network(text, name) for text in texts]
    if len(found) > LIST_MAX:
        raise SettingsError(
            f"{name} has {len(found)} entries, the limit is {LIST_MAX}; combine addresses into networks",
            name,
            len(found),
            limit=LIST_MAX,
        )
    return tuple(found)


class AdmissionStatus(Enum):
    """Status of a member in a plan."""

    ACTIVE = "active"
    STANDBY = "standby"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class Admission:
    """A member's status, and the rule that decided it; `reason` is empty for active members."""

    client_id: str
    standing: AdmissionStatus
    reason: str = ""


class Why(Enum):
    """Why a queue has its owner in the plan."""

    KEPT = "kept"
    NEW = "new"
    OWNER_LEFT = "owner left"
    OWNER_NOT_ADMITTED = "owner not admitted"
    SHARED = "shared out"
    NOBODY = "nobody"


@dataclass(frozen=True, slots=True)
class PlannedQueue:
    """A queue, its owner since `generation` (None: nobody), and its previous owner."""

    queue: MessageQueue
    owner: str | None
    generation: int
    previous: str | None
    why: Why


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """The assignment of a group; `queues` are sorted, `members` in order of seniority."""

    group: str
    generation: int = 0
    members: tuple[Admission, ...] = ()
    queues: tuple[PlannedQueue, ...] = ()
    _index: dict[MessageQueue, PlannedQueue] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        self._index.update((one.queue, one) for one in self.queues)
        if len(self._index) != len(self.queues):
            named = Counter(one.queue for one in self.queues)
            twice = next(queue for queue, count in named.items() if count > 1)
            raise InvariantError(f"a plan of group {self.group} names {twice} more than once", value=twice)

    def find(self, queue: MessageQueue) -> PlannedQueue | None:
        """The assignment of `queue`."""
        return self._index.get(queue)

    @property
    def moved(self) -> list[PlannedQueue]:
        """Queues that change owners: a member has to stop reading them."""
        return [one for one in self.queues if one.previous is not None and one.previous != one.owner]

    def of(self, client_id: str) -> list[MessageQueue]:
        """The queues of a member."""
        return [one.queue for one in self.queues if one.owner == client_id]


KeptPlan = NewType("KeptPlan", GroupPlan)
"""A plan that the ledger has, so that members may be told. Only `MetadataWriter` makes them."""


def observed(group: str, owners: Mapping[MessageQueue, str]) -> GroupPlan:
    """The current assignment of an unplanned group, as the start for a first plan."""
    queues = (PlannedQueue(queue, owner, 0, owner, Why.KEPT) for queue, owner in sorted(owners.items()))
    return GroupPlan(group, queues=tuple(queues))


def make_plan(
    group: str,
    queues: Iterable[MessageQueue],
    candidates: Iterable[Candidate],
    *,
    rules: AdmissionRules = AdmissionRules(),
    before: GroupPlan | None = None,
) -> GroupPlan:
    """Assign `queues` to the members that `rules` admit.

    `before` is the plan in force. If no queue changes, the generation stays the same. Members with the same
    id count once, as the one that joined first.
    """
    start = GroupPlan(group) if before is None else before
    admissions = admit(candidates, rules)
    active = [one.client_id for one in admissions if one.standing is AdmissionStatus.ACTIVE]
    by_topic: dict[str, list[MessageQueue]] = defaultdict(list)
    for queue in sorted(set(queues)):
        by_topic[queue.topic].append(queue)
    owners: dict[MessageQueue, str | None] = {}
    dealer = _Dealer(active)
    for topic in sorted(by_topic):
        owners.update(dealer.deal(by_topic[topic], start))
    _check_cover(group, owners, by_topic, active)
    changed = len(owners) != len(start.queues) or any(
        (known := start.find(queue)) is None or known.owner != owner for queue, owner in owners.items()
    )
    generation = start.generation + changed
    known_ids = {one.client_id for one in admissions}
    admitted = frozenset(active)
    planned = (
        _planned(queue, owner, start, generation, known_ids, admitted) for queue, owner in owners.items()
    )
    return GroupPlan(group, generation, tuple(admissions), tuple(planned))


def _check_cover(
    group: str,
    owners: Mapping[MessageQueue, str | None],
    by_topic: Mapping[str, Sequence[MessageQueue]],
    active: Sequence[str],
) -> None:
    """Raise `InvariantError` unless exactly these queues are assigned, and only to members."""
    count = sum(map(len, by_topic.values()))
    if len(owners) != count or not all(queue in owners for queues in by_topic.values() for queue in queues):
        raise InvariantError(
            f"a plan of group {group} assigns {len(owners)} queues, but the group has {count}",
            what="queues",
            value=len(owners),
            limit=count,
        )
    members: set[str | None] = set(active) if active else {None}
    wrong = set(owners.values()) - members
    if wrong:
        raise InvariantError(
            f"a plan of group {group} assigns queues to {wrong}, which are not members of the group",
            what="members",
            value=wrong,
        )


def renumbered(plan: GroupPlan, before: GroupPlan, queues: Collection[MessageQueue]) -> GroupPlan:
    """The plan, with a new generation for some of its queues: their owners stop and start again.

    `before` is the plan in force.
    """
    chosen = frozenset(queues)
    found = [one for one in plan.queues if one.queue in chosen and one.generation == _was(before, one)]
    if not found:
        return plan
    generation = max(plan.generation, before.generation + 1)
    again = {one.queue: replace(one, generation=generation) for one in found}
    return GroupPlan(
        plan.group, generation, plan.members, tuple(again.get(one.queue, one) for one in plan.queues)
    )


def _was(before: GroupPlan, one: PlannedQueue) -> int:
    known = before.find(one.queue)
    return -1 if known is None else known.generation


def _planned(
    queue: MessageQueue,
    owner: str | None,
    start: GroupPlan,
    generation: int,
    known: set[str],
    active: frozenset[str],
) -> PlannedQueue:
    """What the plan says about one queue, and why."""
    before = start.find(queue)
    previous = None if before is None else before.owner
    if before is not None and previous == owner:
        why = Why.NOBODY if owner is None else Why.KEPT
        return PlannedQueue(queue, owner, before.generation, previous, why)
    if owner is None:
        why = Why.NOBODY
    elif previous is None:
        why = Why.NEW
    elif previous not in known:
        why = Why.OWNER_LEFT
    else:
        why = Why.SHARED if previous in active else Why.OWNER_NOT_ADMITTED
    return PlannedQueue(queue, owner, generation, previous, why)


# Who takes part


def admit(candidates: Iterable[Candidate], rules: AdmissionRules) -> list[Admission]:
    """Status of all members, in order of seniority: lists first, deny before allow, then the maximum."""
    seen: set[str] = set()
    found: list[Admission] = []
    room = rules.maximum or MEMBERS_MAX
    for candidate in sorted(candidates, key=lambda one: (one.joined, one.client_id)):
        if candidate.client_id in seen:
            continue
        seen.add(candidate.client_id)
        reason = _rejected(candidate, rules)
        if reason:
            found.append(Admission(candidate.client_id, AdmissionStatus.REJECTED, reason))
        elif room:
            room -= 1
            found.append(Admission(candidate.client_id, AdmissionStatus.ACTIVE))
        else:
            reason = f"{rules.maximum or MEMBERS_MAX} members that joined earlier have the queues"
            found.append(Admission(candidate.client_id, AdmissionStatus.STANDBY, reason))
    return found


def _rejected(candidate: Candidate, rules: AdmissionRules) -> str:
    """The list that excludes a member; empty if none does."""
    if not rules.deny and not rules.allow:
        return ""
    address = _address(candidate.address)
    if address is None:
        return f"its address {candidate.address!r} is not known, and the group has address lists"
    for network in rules.deny:
        if address in network:
            return f"deny list: {address} is in {network}"
    if rules.allow and not any(address in network for network in rules.allow):
        return f"allow list: {address} is not on it"
    return ""


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    host = text
    if text.startswith("["):
        host = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        host = text.partition(":")[0]
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return None
    mapped = getattr(found, "ipv4_mapped", None)
    return found if mapped is None else ipaddress.IPv4Address(int(mapped))


# Who gets what


class _Dealer:
    """Assigns one topic after another to the same members.

    Every member gets the same number of a topic's queues; the remaining queues are extras, at most one for
    each member. Members that already hold more than that number get extras first, because that saves moves;
    then those with the fewest extras so far.
    """

    def __init__(self, members: Iterable[str]) -> None:
        self._extras = dict.fromkeys(sorted(members), 0)
        self._fewest: SortedList[tuple[int, str]] = SortedList((0, member) for member in self._extras)

    def deal(self, queues: Sequence[MessageQueue], before: GroupPlan) -> dict[MessageQueue, str | None]:
        """Owners of one topic's sorted queues."""
        if not self._extras:
            return dict.fromkeys(queues)
        share, rest = divmod(len(queues), len(self._extras))
        held: dict[str, list[MessageQueue]] = defaultdict(list)
        for queue in queues:
            known = before.find(queue)
            if known is not None and known.owner in self._extras:
                assert known.owner is not None
                held[known.owner].append(queue)
        extra = self._choose(rest, [member for member, own in held.items() if len(own) > share])
        owners: dict[MessageQueue, str | None] = dict.fromkeys(queues)
        wanting: list[str] = []
        for member in self._extras if share else sorted(extra):
            room = share + (member in extra)
            kept = held[member][:room] if member in held else []
            owners.update(dict.fromkeys(kept, member))
            wanting += [member] * (room - len(kept))
        free = (queue for queue, owner in owners.items() if owner is None)
        owners.update(zip(free, wanting, strict=True))
        return owners

    def _choose(self, count: int, holders: Iterable[str]) -> set[str]:
        """Choose the members that get one queue more than the others, and count the extra."""
        first = sorted(holders, key=lambda member: (self._extras[member], member))[:count]
        chosen = set(first)
        for _, member in self._fewest:
            if len(chosen) == count:
                break
            chosen.add(member)
        if len(chosen) != count:
            raise InvariantError(
                f"{count} members should get one more queue, but only {len(self._extras)} may have one"
            )
        for member in chosen:
            number = self._extras[member]
            self._fewest.remove((number, member))
            self._fewest.add((number + 1, member))
            self._extras[member] = number + 1
        return chosen


# Explaining


def explain(plan: GroupPlan) -> dict[MessageQueue, str]:
    """The reason for every queue's place, in a sentence."""
    active = sum(one.standing is AdmissionStatus.ACTIVE for one in plan.members)
    standings = {one.client_id: one for one in plan.members}
    totals: dict[str, int] = defaultdict(int)
    had: dict[tuple[str, str | None], int] = defaultdict(int)
    for one in plan.queues:
        totals[one.queue.topic] += 1
        had[one.queue.topic, one.previous] += 1
    found = {}
    for one in plan.queues:
        topic, total = one.queue.topic, totals[one.queue.topic]
        share = _share_text(total, active)
        if one.why is Why.KEPT:
            text = f"stays with {one.owner}; {share}"
        elif one.why is Why.NEW:
            text = f"had no owner; {share}"
        elif one.why is Why.OWNER_LEFT:
            text = f"{one.previous} left the group; {share}"
        elif one.why is Why.OWNER_NOT_ADMITTED:
            assert one.previous is not None
            standing = standings[one.previous]
            text = f"{one.previous} is {standing.standing.value} ({standing.reason}); {share}"
        elif one.why is Why.SHARED:
            text = f"{one.previous} had {had[topic, one.previous]} of {total}; {share}"
        else:
            text = "no member is allowed to have queues" if plan.members else "the group has no members"
        found[one.queue] = text
    return found


def _share_text(total: int, active: int) -> str:
    """Number of queues of a topic that each of `active` members gets; 0 if there are none."""
    if not active:
        return ""
    share, rest = divmod(total, active)
    return f"each of {active} has {share} to {share + 1}" if rest else f"each of {active} has {share}"
