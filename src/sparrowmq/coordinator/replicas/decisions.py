"""Who is master of a group of brokers, and which copies are in sync. Pure: no clock, no database, no I/O.

A change is written to the database before it is sent to the brokers, so a broker never knows more than the
database. Three rules keep every acknowledged message:

- A master acknowledges a message when all brokers of the in-sync set have it, including those that it
  proposes to add. It may stop waiting for a broker only after it received a set without it.
- A new master comes from the in-sync set in the database. Only a person may choose another broker.
- A master accepts messages only while its lease lasts. A new one is elected when every lease that the old one
  may have is over, or when the old one has confirmed that it accepts nothing until then.

Times are seconds of the leader's monotonic clock, durations milliseconds, positions bytes of the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

MASTER: Final = "MASTER"
SLAVE: Final = "SLAVE"
CHANGING: Final = "CHANGING"
"""The state of a broker whose role is about to change: its proposals belong to the previous reign."""
LEASE_MS: Final = 3000
PAUSE_MS_MAX: Final = 60_000
"""The longest pause that a broker accepts; with longer leases, a planned election waits for them."""
SERVING: Final = "SERVING"
"""The state of a master that accepts messages."""


@dataclass(frozen=True, slots=True)
class ElectionTimes:
    """`lease_ms`: how long a master may accept messages after it answered. `margin_ms`: how much longer the
    leader waits, because clocks differ in speed. `poll_ms`: how often brokers are asked. An answer is valid
    for `fresh_ms`. A person's request that cannot be fulfilled ends after `wish_ms`.
    """

    lease_ms: int = LEASE_MS
    margin_ms: int = 500
    poll_ms: int = 500
    fresh_ms: int = 1500
    wish_ms: int = 60_000


@dataclass(frozen=True, slots=True)
class ReplicaMember:
    """A broker of a group as the database has it.

    `store` identifies its log: after its disk was replaced, the broker at this address is another copy.
    `broker_id` is its broker id while it is a slave.
    """

    address: str
    store: str
    ha_address: str
    broker_id: int


@dataclass(frozen=True, slots=True)
class ReplicaGroup:
    """A group as the database has it. `name` is its `brokerName`.

    `epoch` numbers the reigns; 0: there was no master yet. `number` grows with each change of the in-sync
    set. `run` and `store` are those of the master when this reign began: if its process restarts, it needs a
    new epoch. `is_settled`: the master serves, or was not elected; until then it waits for the whole set.
    """

    name: str
    cluster: str = ""
    epoch: int = 0
    number: int = 0
    master: str = ""
    run: str = ""
    store: str = ""
    in_sync: tuple[str, ...] = ()
    is_settled: bool = True
    members: Mapping[str, ReplicaMember] = field(default_factory=dict)
    lease_ms: int = LEASE_MS


@dataclass(frozen=True, slots=True)
class Heard:
    """What a broker answered. `at`: when the answer arrived. `log_epoch`, `end`: the last epoch in its log,
    and where the log ends. `wanted`: the in-sync set that a master proposes, None from a slave. `slaves`: the
    stores of the brokers that are connected to it, by address. `is_damaged`: its log has a damaged part.
    `paused_ms`: for how long after `stamp` it takes nothing, because it was told so.
    """

    address: str
    at: float
    store: str
    run: str
    stamp: int
    role: str
    state: str
    epoch: int
    number: int
    log_epoch: int
    end: int
    confirmed: int
    cluster: str = ""
    ha_address: str = ""
    master_address: str = ""
    wanted: tuple[str, ...] | None = None
    slaves: Mapping[str, str] = field(default_factory=dict)
    is_managed: bool = True
    is_sync: bool = False
    is_damaged: bool = False
    paused_ms: int = 0
    trouble: str = ""


class WishKind(StrEnum):
    """What a person asked for."""

    ELECT = "elect"
    """Make a broker of the in-sync set the master."""
    UNCLEAN = "unclean"
    """Make any broker the master, although messages may be lost."""
    RELEASE = "release"
    """Stop managing the group: its master no longer needs a lease."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A person's request. `since`: when the leader first saw it."""

    kind: WishKind
    target: str
    since: float


@dataclass(frozen=True, slots=True)
class View:
    """What the leader knows at one moment. `lease_over_at`: the time when every lease that the master may
    have is over, with the margin.
    """

    now: float
    heard: Mapping[str, Heard]
    lease_over_at: float
    wish: Wish | None = None


class ChangeKind(StrEnum):
    """What a change is about; part of the audit entry's action."""

    MEMBERS = "members"
    FIRST = "first-master"
    IN_SYNC = "in-sync"
    ELECTED = "elected"
    UNCLEAN = "elected-unclean"
    WISH_OVER = "wish-over"


@dataclass(frozen=True, slots=True)
class GroupChange:
    """A change that is written to the database before any broker receives it. `text` is the reason."""

    kind: ChangeKind
    group: ReplicaGroup
    text: str
    ends_wish: bool = False


@dataclass(frozen=True, slots=True)
class RoleOrders:
    """Orders for a broker. `lease_from` and `run` are from its last answer. A lease counts from there, so
    orders that arrive late give no extra time. With `pause_ms`, a master accepts nothing for that time, and
    gets no lease.
    """

    epoch: int
    role: str
    master: ReplicaMember
    broker_id: int
    store: str
    in_sync: tuple[str, ...]
    number: int
    lease_ms: int
    lease_from: int
    run: str
    pause_ms: int = 0


def decide(group: ReplicaGroup, view: View, times: ElectionTimes) -> GroupChange | None:
    """The next change of a group, or None. Call again after the change was written."""
    for rule in (_meet, _first_master, _fulfil, _settle, _accept, _replace):
        change = rule(group, view, times)
        if change is not None:
            return change
    return None


def orders(group: ReplicaGroup, one: Heard, view: View, times: ElectionTimes) -> RoleOrders | None:
    """The orders for a broker after it has answered; None if it needs none.

    The master gets orders in each round, which extends its lease, but not while another broker is about to
    become master.
    """
    member, master = group.members.get(one.address), group.members.get(group.master)
    if member is None or master is None or member.store != one.store:
        return None
    is_master = one.address == group.master
    if is_master and one.run != group.run:
        return None
    if is_master and _withheld(group, view, times):
        return _pause(group, one, view.wish, times)
    known = (one.epoch, one.number, one.master_address) == (group.epoch, group.number, group.master)
    if not is_master and known and one.is_managed:
        return None
    return RoleOrders(
        group.epoch,
        MASTER if is_master else SLAVE,
        master,
        0 if is_master else member.broker_id,
        member.store,
        group.in_sync,
        group.number,
        group.lease_ms,
        one.stamp,
        one.run,
    )


def _pause(group: ReplicaGroup, one: Heard, wish: Wish | None, times: ElectionTimes) -> RoleOrders | None:
    """A planned election: tell the old master to take nothing until its lease is over. None if it is not
    planned, or is told already."""
    if wish is None or wish.kind is not WishKind.ELECT or wish.target == group.master:
        return None
    master = group.members[group.master]
    if one.role != MASTER or one.epoch != group.epoch or one.paused_ms >= group.lease_ms:
        return None
    until = min(2 * group.lease_ms + times.margin_ms, PAUSE_MS_MAX)
    kept = (master.store, group.in_sync, group.number)
    return RoleOrders(group.epoch, MASTER, master, 0, *kept, 0, one.stamp, one.run, pause_ms=until)


def farewell(group: ReplicaGroup, one: Heard) -> RoleOrders | None:
    """The orders for a broker whose group is released: it keeps its role, without a lease."""
    member, master = group.members.get(one.address), group.members.get(group.master)
    if member is None or master is None or member.store != one.store:
        return None
    is_master = one.address == group.master
    role, broker_id = (MASTER, 0) if is_master else (SLAVE, member.broker_id)
    kept = (member.store, group.in_sync, group.number)
    return RoleOrders(group.epoch, role, master, broker_id, *kept, 0, one.stamp, one.run)


def lease_end(one: Heard, told: RoleOrders, times: ElectionTimes) -> float:
    """When a lease that was granted in reply to `one` ends at the latest, with the margin."""
    return one.at + (told.lease_ms + times.margin_ms) / 1000


def fresh(heard: Iterable[Heard], now: float, times: ElectionTimes) -> dict[str, Heard]:
    """The brokers that answered recently, by address."""
    return {one.address: one for one in heard if now - one.at <= times.fresh_ms / 1000}


# Rules of `decide`


def _meet(group: ReplicaGroup, view: View, times: ElectionTimes) -> GroupChange | None:
    """A broker of the group is new, or its log or addresses have changed."""
    for one in fresh(view.heard.values(), view.now, times).values():
        known = group.members.get(one.address)
        if known is not None and (known.store, known.ha_address) == (one.store, one.ha_address):
            continue
        broker_id = _free_id(group) if known is None else known.broker_id
        member = ReplicaMember(one.address, one.store, one.ha_address, broker_id)
        met = replace(
            group, cluster=group.cluster or one.cluster, members={**group.members, one.address: member}
        )
        if known is None:
            return GroupChange(ChangeKind.MEMBERS, met, f"{one.address} belongs to the group")
        if known.store == one.store:
            return GroupChange(ChangeKind.MEMBERS, met, f"{one.address} has the HA address {one.ha_address}")
        text = f"{one.address} has another store than before: it counts as a new copy"
        others = tuple(address for address in group.in_sync if address != one.address)
        return GroupChange(ChangeKind.MEMBERS, replace(met, in_sync=others, number=group.number + 1), text)
    return None


def _first_master(group: ReplicaGroup, view: View, times: ElectionTimes) -> GroupChange | None:
    """A group that is new here keeps the master that it has."""
    if group.epoch:
        return None
    masters = [one for one in fresh(view.heard.values(), view.now, times).values() if one.role == MASTER]
    if len(masters) != 1:
        return None
    (one,) = masters
    text = f"{one.address} is the master, as before"
    return GroupChange(ChangeKind.FIRST, _reign(group, one, view, (one.address,)), text)


def _fulfil(group: ReplicaGroup, view: View, times: ElectionTimes) -> GroupChange | None:
    """A person asked for a master."""
    wish = view.wish
    if wish is None or wish.kind is WishKind.RELEASE:
        return None
    if view.now - wish.since > times.wish_ms / 1000:
        text = f"{wish.target} could not be made the master within {times.wish_ms / 1000:g} s"
        return GroupChange(ChangeKind.WISH_OVER, group, text, ends_wish=True)
    if wish.kind is WishKind.ELECT and wish.target == group.master and not _restarted(group, view, times):
        return GroupChange(ChangeKind.WISH_OVER, group, f"{wish.target} is the master", ends_wish=True)
    one = _target(group, view, times)
    if one is None or not (_lease_is_over(group, view, times) or _handed_over(group, one, view, times)):
        return None
    if wish.kind is WishKind.ELECT:
        if ahead(group, view, times):
            return None
        text = f"{one.address} is the master, as a person requested"
        return GroupChange(ChangeKind.ELECTED, _elected(group, one, view), text, ends_wish=True)
    text = f"{one.address} is the master, as a person requested; messages may be lost"
    made = _reign(group, one, view, (one.address,))
    return GroupChange(ChangeKind.UNCLEAN, made, text, ends_wish=True)


def _settle(group: ReplicaGroup, view: View, times: ElectionTimes) -> GroupChange | None:
    """The elected master serves: it no longer waits for brokers that do not answer."""
    answering = fresh(view.heard.values(), view.now, times)
    one = answering.get(group.master)
    if group.is_settled or one is None or one.state != SERVING:
        return None
    if (one.epoch, one.number, one.run) != (group.epoch, group.number, group.run):
        return None
    there = tuple(
        address for address in group.in_sync if address in answering and _is_same(group, answering[address])
    )
    made = replace(group, in_sync=there, number=group.number + 1, is_settled=True)
    return GroupChange(ChangeKind.IN_SYNC, made, f"{one.address} serves, in sync are {', '.join(there)}")


def _accept(group: ReplicaGroup, view: View, times: ElectionTimes) -> GroupChange | None:
    """The master proposes another in-sync set.

    It waits for brokers that it proposed, even if they have disconnected since; a set with a higher number
    ends this.
    """
    one = fresh(view.heard.values(), view.now, times).get(group.master)
    if one is None or one.wanted is None or one.role != MASTER or group.master not in one.wanted:
        return None
    if one.state == CHANGING:
        return None
    if (one.epoch, one.number, one.run) != (group.epoch, group.number, group.run):
        return None
    wanted = tuple(
        address for address in one.wanted if address in group.in_sync or _is_connected(group, one, address)
    )
    given_up = [address for address in one.wanted if address not in {*wanted, *one.slaves}]
    if set(wanted) == set(group.in_sync) and not given_up:
        return None
    text = f"in sync are {', '.join(wanted)}, before {', '.join(group.in_sync)}"
    return GroupChange(ChangeKind.IN_SYNC, replace(group, in_sync=wanted, number=group.number + 1), text)


def _replace(group: ReplicaGroup, view: View, times: ElectionTimes) -> GroupChange | None:
    """The master does not answer: the broker of the in-sync set with the longest log continues."""
    if not group.epoch or ahead(group, view, times) or _withheld(group, view, times):
        return None
    answering = fresh(view.heard.values(), view.now, times)
    master = answering.get(group.master)
    if master is not None and (master.run, master.store) == (group.run, group.store):
        return None
    if not _lease_is_over(group, view, times):
        return None
    candidates = [one for one in answering.values() if _is_candidate(group, one)]
    if not candidates:
        return None
    one = max(candidates, key=lambda one: _merit(group, one))
    why = "started again" if _restarted(group, view, times) else "does not answer"
    text = f"{one.address} is the master: {group.master} {why}"
    return GroupChange(ChangeKind.ELECTED, _elected(group, one, view), text)


def ahead(group: ReplicaGroup, view: View, times: ElectionTimes) -> Heard | None:
    """A broker that knows a later epoch or set than the database: its orders came from elsewhere."""
    for one in fresh(view.heard.values(), view.now, times).values():
        if (one.epoch, one.number) > (group.epoch, group.number) and one.epoch > 0 and group.epoch:
            return one
    return None


# What the rules ask


def _reign(group: ReplicaGroup, one: Heard, view: View, in_sync: tuple[str, ...]) -> ReplicaGroup:
    """A new epoch with `one` as master, higher than any that the database or a broker knows."""
    return replace(
        group,
        epoch=max(group.epoch, *(heard.epoch for heard in view.heard.values())) + 1,
        number=max(group.number, *(heard.number for heard in view.heard.values())) + 1,
        master=one.address,
        run=one.run,
        store=one.store,
        in_sync=in_sync,
    )


def _elected(group: ReplicaGroup, one: Heard, view: View) -> ReplicaGroup:
    """The same after an election. The in-sync set stays until the new master serves: if that never happens,
    any other of its members can still be elected."""
    others = sorted(address for address in group.in_sync if address != one.address)
    return replace(_reign(group, one, view, (one.address, *others)), is_settled=False)


def _is_same(group: ReplicaGroup, one: Heard) -> bool:
    member = group.members.get(one.address)
    return member is not None and member.store == one.store


def _is_connected(group: ReplicaGroup, master: Heard, address: str) -> bool:
    """Whether the broker that the master knows at this address is the one in the database. A connection may
    outlive a disk that was replaced."""
    member = group.members.get(address)
    return member is not None and master.slaves.get(address) == member.store


def _is_candidate(group: ReplicaGroup, one: Heard) -> bool:
    return one.address in group.in_sync and _is_same(group, one)


def _merit(group: ReplicaGroup, one: Heard) -> tuple[bool, int, int, bool, str]:
    """Orders candidates: each has every acknowledged message, unless its log is damaged."""
    return (not one.is_damaged, one.log_epoch, one.end, one.address == group.master, one.address)


def _restarted(group: ReplicaGroup, view: View, times: ElectionTimes) -> bool:
    """Whether the master's process has restarted with the same store."""
    one = fresh(view.heard.values(), view.now, times).get(group.master)
    return one is not None and one.run != group.run and one.store == group.store


def _lease_is_over(group: ReplicaGroup, view: View, times: ElectionTimes) -> bool:
    """Whether the master certainly accepts no messages: its lease has expired, or its process has ended,
    because a store is open in one process only.
    """
    return view.now >= view.lease_over_at or _restarted(group, view, times)


def _handed_over(group: ReplicaGroup, target: Heard, view: View, times: ElectionTimes) -> bool:
    """Whether the master has stopped taking messages, for longer than any lease that it may have, and the
    next one has its whole log."""
    one = fresh(view.heard.values(), view.now, times).get(group.master)
    if one is None or (one.run, one.store, one.epoch) != (group.run, group.store, group.epoch):
        return False
    return one.role == MASTER and one.paused_ms >= group.lease_ms and target.end >= one.end


def _target(group: ReplicaGroup, view: View, times: ElectionTimes) -> Heard | None:
    """The broker that a person wants as master, if it may be and answers."""
    wish = view.wish
    if wish is None or wish.kind is WishKind.RELEASE:
        return None
    one = fresh(view.heard.values(), view.now, times).get(wish.target)
    if one is None or not _is_same(group, one):
        return None
    return one if wish.kind is WishKind.UNCLEAN or one.address in group.in_sync else None


def _withheld(group: ReplicaGroup, view: View, times: ElectionTimes) -> bool:
    """Whether the master's lease is no longer extended, so that another broker can become master."""
    if view.wish is not None and view.wish.kind is WishKind.RELEASE:
        return True
    return _target(group, view, times) is not None


def _free_id(group: ReplicaGroup) -> int:
    taken = {member.broker_id for member in group.members.values()}
    return next(number for number in range(1, len(taken) + 2) if number not in taken)
