"""Which broker becomes master, which in-sync sets are accepted, which orders brokers get."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.coordinator.replicas.groups import GROUP, LONG_AGO, NOW, TIMES, heard, view

from sparrowmq.coordinator.replicas.decisions import (
    ChangeKind,
    GroupChange,
    Heard,
    ReplicaGroup,
    View,
    Wish,
    WishKind,
    decide,
    farewell,
    lease_end,
    orders,
)

OVER = NOW - 0.001
A, B, C = heard("a"), heard("b"), heard("c")
SILENT_A = replace(A, at=LONG_AGO, wanted=None)
ELECT_B = Wish(WishKind.ELECT, "b", NOW - 1)
UNCLEAN_C = Wish(WishKind.UNCLEAN, "c", NOW - 1)


def decided(seen: View, group: ReplicaGroup = GROUP) -> GroupChange:
    change = decide(group, seen, TIMES)
    assert change is not None
    return change


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (view(A, B, C), "all is well"),
        (view(SILENT_A, B, C), "the lease of a silent master may last"),
        (view(A, B, C, over=OVER), "a master that answers goes on, though its lease is over"),
        (view(SILENT_A, C, over=OVER), "nobody in sync answers"),
        (view(SILENT_A, replace(B, at=LONG_AGO), over=OVER), "what is known of b is old"),
        (view(replace(A, wanted=("a", "b", "z"), slaves={"b": "", "z": "z"}), B), "an unknown broker"),
        (view(replace(A, wanted=("a",), number=6), B), "the proposal is for an earlier set"),
        (view(replace(A, wanted=("a",), epoch=3), B), "the proposal is of an earlier epoch"),
        (view(replace(A, wanted=("a",), state="CHANGING"), B), "the proposal is of the reign before"),
        (view(replace(A, wanted=("b",)), B), "a proposal leaves the master out"),
        (view(SILENT_A, replace(B, wanted=("b",), role="MASTER"), C), "who is not master proposes"),
        (view(A, B, C, over=OVER + 5, wish=ELECT_B), "a person's wish waits for the lease"),
        (view(SILENT_A, replace(B, epoch=5), over=OVER), "a broker has later orders than the database"),
        (view(A, B, over=OVER, wish=replace(ELECT_B, target="c")), "the wanted broker is not in sync"),
        (view(A, B, over=OVER, wish=UNCLEAN_C), "the wanted broker does not answer"),
    ],
)
def test_nothing_changes_without_a_reason(seen: View, why: str) -> None:
    assert decide(GROUP, seen, TIMES) is None, why


def test_longest_in_sync_log_takes_over_when_every_lease_has_expired() -> None:
    group = replace(GROUP, in_sync=("a", "b", "c"))
    longer = replace(C, end=1200)
    change = decided(view(SILENT_A, B, longer, over=OVER), group)
    made = change.group
    assert (change.kind, made.master, made.run, made.epoch) == (ChangeKind.ELECTED, "c", "run-c", 5)
    assert (made.in_sync, made.number, made.is_settled) == (("c", "a", "b"), 8, False)
    assert change.text == "c is the master: a does not answer"
    later_epoch = replace(B, log_epoch=4)
    earlier = replace(longer, log_epoch=3)
    assert decided(view(SILENT_A, later_epoch, earlier, over=OVER), group).group.master == "b"


def test_silent_broker_stays_in_sync_until_the_new_master_serves() -> None:
    """If the new master is lost before it serves, the old one still has every message."""
    made = decided(view(SILENT_A, B, C, over=OVER)).group
    assert (made.master, made.in_sync) == ("b", ("b", "a"))
    serves = replace(B, role="MASTER", state="SERVING", epoch=5, number=8, wanted=("b", "a"))
    assert decide(made, view(SILENT_A, replace(serves, state="CHANGING"), C), TIMES) is None
    settled = decided(view(SILENT_A, serves, C), made).group
    assert (settled.in_sync, settled.number, settled.is_settled) == (("b",), 9, True)
    never_served = view(replace(A, role="SLAVE", wanted=None), replace(B, at=LONG_AGO), over=OVER)
    assert decided(never_served, made).group.master == "a"


def test_restarted_master_gets_a_new_epoch_at_once() -> None:
    again = replace(A, run="run-2", state="FENCED")
    made = decided(view(again, B, C)).group
    assert (made.master, made.run, made.epoch, made.in_sync) == ("a", "run-2", 5, ("a", "b"))


def test_master_that_lost_records_in_a_power_failure_follows_the_broker_with_more() -> None:
    again = replace(A, run="run-2", end=900)
    assert decided(view(again, B, C)).group.master == "b"


def test_replaced_disk_at_a_members_address_is_not_in_sync() -> None:
    change = decided(view(A, replace(B, store="new")))
    assert (change.kind, change.group.in_sync, change.group.number) == (ChangeKind.MEMBERS, ("a",), 8)
    assert change.group.members["b"].store == "new"
    assert decide(change.group, view(SILENT_A, replace(B, store="new"), over=OVER), TIMES) is None


def test_replaced_disk_at_the_masters_address_does_not_prove_that_the_old_one_stopped() -> None:
    change = decided(view(replace(A, store="new", run="run-2"), B))
    seen = view(replace(A, store="new", run="run-2"), B)
    assert decide(change.group, seen, TIMES) is None
    assert decided(replace(seen, lease_over_at=OVER), change.group).group.master == "b"


def test_proposals_of_the_master_are_accepted() -> None:
    change = decided(view(replace(A, wanted=("a", "b", "c")), B, C))
    assert (change.kind, change.group.in_sync, change.group.number) == (
        ChangeKind.IN_SYNC,
        ("a", "b", "c"),
        8,
    )
    assert decided(view(replace(A, wanted=("a",)), B)).group.in_sync == ("a",)
    assert change.group.epoch == 4


def test_replaced_disk_behind_an_old_connection_is_not_in_sync() -> None:
    """The master's connection to `c` is that of the old disk; it ends after some seconds of silence."""
    proposal = replace(A, wanted=("a", "b", "c"), slaves={"b": "store-b", "c": "old"})
    assert decide(GROUP, view(proposal, B, C), TIMES) is None


def test_proposed_broker_that_disappeared_is_no_longer_awaited() -> None:
    proposal = replace(A, wanted=("a", "b", "c"), slaves={"b": "store-b"})
    change = decided(view(proposal, B))
    assert (change.group.in_sync, change.group.number) == (("a", "b"), 8)


def test_replaced_disk_ends_earlier_proposals() -> None:
    change = decided(view(A, B, replace(C, store="new")))
    assert (change.group.in_sync, change.group.number) == (("a", "b"), 8)


def test_new_group_keeps_its_master() -> None:
    new = ReplicaGroup("g")
    seen = view(replace(A, epoch=0, number=0, is_managed=False), replace(B, epoch=0, number=0))
    group = new
    while (change := decide(group, seen, TIMES)) is not None:
        group = change.group
    assert (group.master, group.epoch, group.number, group.in_sync) == ("a", 1, 1, ("a",))
    assert {one.address: one.broker_id for one in group.members.values()} == {"a": 1, "b": 2}
    assert group.cluster == "cluster"


def test_new_group_with_two_masters_or_none_waits() -> None:
    for role in ("MASTER", "SLAVE"):
        group, seen = ReplicaGroup("g"), view(replace(A, role=role), replace(B, role=role))
        while (change := decide(group, seen, TIMES)) is not None:
            assert change.kind is ChangeKind.MEMBERS
            group = change.group
        assert group.epoch == 0


def test_new_group_begins_above_the_epochs_of_its_brokers() -> None:
    group = replace(GROUP, epoch=0, number=0, in_sync=(), master="", run="")
    made = decided(view(replace(A, epoch=9, number=3), replace(B, epoch=11, number=2)), group).group
    assert (made.epoch, made.number) == (12, 4)


def test_user_selects_another_in_sync_master() -> None:
    change = decided(view(A, B, C, over=OVER, wish=ELECT_B))
    assert (change.kind, change.group.master, change.ends_wish) == (ChangeKind.ELECTED, "b", True)
    assert change.group.in_sync == ("b", "a")
    assert decided(view(A, B, wish=replace(ELECT_B, target="a"))).kind is ChangeKind.WISH_OVER


def test_user_may_accept_the_loss_of_messages() -> None:
    change = decided(view(SILENT_A, C, over=OVER, wish=UNCLEAN_C))
    assert (change.kind, change.group.master, change.group.in_sync) == (ChangeKind.UNCLEAN, "c", ("c",))
    assert "messages may be lost" in change.text


def test_impossible_request_ends() -> None:
    old = replace(UNCLEAN_C, since=NOW - 61)
    change = decided(view(A, B, wish=old))
    assert (change.kind, change.group, change.ends_wish) == (ChangeKind.WISH_OVER, GROUP, True)


# Orders


def test_master_gets_orders_in_every_round_and_its_lease_counts_from_its_own_stamp() -> None:
    told = orders(GROUP, A, view(A, B), TIMES)
    assert told is not None
    assert (told.role, told.epoch, told.number, told.in_sync) == ("MASTER", 4, 7, ("a", "b"))
    assert (told.lease_ms, told.lease_from, told.run, told.broker_id) == (3000, 5000, "run-a", 0)
    assert lease_end(A, told, TIMES) == NOW + 3.5


def test_slaves_get_only_new_orders() -> None:
    assert orders(GROUP, B, view(A, B), TIMES) is None
    told = orders(GROUP, replace(B, epoch=3), view(A, B), TIMES)
    assert told is not None
    assert (told.role, told.master.address, told.master.ha_address) == ("SLAVE", "a", "a-ha")
    assert told.broker_id == 2
    assert orders(GROUP, replace(B, is_managed=False), view(A, B), TIMES) is not None
    assert orders(GROUP, replace(B, master_address="x"), view(A, B), TIMES) is not None


@pytest.mark.parametrize(
    ("answer", "wish"),
    [
        (replace(A, run="run-2"), None),
        (replace(A, store="new"), None),
        (replace(A, paused_ms=3000), ELECT_B),
        (A, UNCLEAN_C),
        (A, Wish(WishKind.RELEASE, "", NOW)),
        (heard("z"), None),
    ],
)
def test_no_lease_is_granted_in_these_cases(answer: Heard, wish: Wish | None) -> None:
    assert orders(GROUP, answer, view(A, B, C, wish=wish), TIMES) is None


def test_planned_election_does_not_wait_for_an_unused_lease() -> None:
    told = orders(GROUP, A, view(A, B, wish=ELECT_B), TIMES)
    assert told is not None
    assert (told.role, told.lease_ms, told.pause_ms) == ("MASTER", 0, 6500)
    paused = replace(A, paused_ms=6490)
    change = decided(view(paused, B, wish=ELECT_B))
    assert (change.kind, change.group.master, change.ends_wish) == (ChangeKind.ELECTED, "b", True)


@pytest.mark.parametrize(
    "answers",
    [
        (A, B),
        (replace(A, paused_ms=2999), B),
        (replace(A, paused_ms=6000, epoch=3), B),
        (replace(A, paused_ms=6000, at=NOW - 2), B),
        (replace(A, paused_ms=6000), replace(B, end=999)),
    ],
    ids=["not paused", "too short", "another reign", "no fresh answer", "lacks messages"],
)
def test_planned_election_waits_while_the_master_may_accept_records_the_next_one_lacks(
    answers: tuple[Heard, ...],
) -> None:
    found = decide(GROUP, view(*answers, wish=ELECT_B), TIMES)
    assert found is None or found.group.master == "a"


def test_replica_with_a_damaged_log_takes_over_only_if_there_is_no_other() -> None:
    group = replace(GROUP, in_sync=("a", "b", "c"))
    damaged = replace(B, end=2000, is_damaged=True)
    assert decided(view(SILENT_A, damaged, C, over=OVER), group).group.master == "c"
    assert decided(view(SILENT_A, damaged, over=OVER), group).group.master == "b"


def test_impossible_request_does_not_stop_the_master() -> None:
    absent = view(A, B, wish=UNCLEAN_C)
    assert orders(GROUP, A, absent, TIMES) is not None


def test_released_brokers_keep_their_roles_without_a_lease() -> None:
    told, slave = farewell(GROUP, A), farewell(GROUP, B)
    assert told is not None and slave is not None
    assert (told.role, told.lease_ms, told.epoch) == ("MASTER", 0, 4)
    assert (slave.role, slave.lease_ms, slave.broker_id) == ("SLAVE", 0, 2)
    assert farewell(GROUP, heard("z")) is None


# Whatever the brokers say

NAMES = ("a", "b", "c")


@st.composite
def answers(draw: st.DrawFn, name: str) -> Heard:
    small = st.integers(0, 6)
    return heard(
        name,
        at=NOW - draw(st.sampled_from((0.0, 1.0, 2.0, 9.0))),
        store=draw(st.sampled_from((f"store-{name}", "new"))),
        run=draw(st.sampled_from((f"run-{name}", "run-2"))),
        role=draw(st.sampled_from(("MASTER", "SLAVE"))),
        epoch=draw(small),
        number=draw(st.integers(5, 9)),
        log_epoch=draw(small),
        end=draw(st.integers(0, 3)) * 500,
        slaves=draw(st.sampled_from(({}, {one: f"store-{one}" for one in NAMES}))),
        wanted=draw(st.none() | st.lists(st.sampled_from((*NAMES, "z")), unique=True).map(tuple)),
    )


@st.composite
def situations(draw: st.DrawFn) -> tuple[ReplicaGroup, View]:
    group = replace(
        GROUP,
        in_sync=tuple(draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=1))),
        master=(master := draw(st.sampled_from(NAMES))),
        run=f"run-{master}",
        store=f"store-{master}",
        epoch=draw(st.integers(0, 5)),
    )
    said = [draw(answers(name)) for name in draw(st.lists(st.sampled_from(NAMES), unique=True))]
    kinds = st.builds(Wish, st.sampled_from(WishKind), st.sampled_from(NAMES), st.just(NOW - 1))
    over = NOW + draw(st.sampled_from((-1.0, 2.0)))
    return group, view(*said, over=over, wish=draw(st.none() | kinds))


@given(situations())
def test_every_decision_follows_the_rules(situation: tuple[ReplicaGroup, View]) -> None:
    group, seen = situation
    for _ in range(20):
        change = decide(group, seen, TIMES)
        if change is None:
            break
        after, master = change.group, seen.heard.get(group.master)
        has_ended = seen.now >= seen.lease_over_at
        if master is not None and master.store == group.store:
            has_ended |= master.run != group.run
        assert (after.epoch, after.number) >= (group.epoch, group.number)
        if after.epoch > group.epoch:
            assert after.master in after.in_sync
            assert after.epoch > max(one.epoch for one in seen.heard.values())
            assert change.kind is ChangeKind.FIRST or has_ended
            if change.kind is ChangeKind.ELECTED:
                assert set(after.in_sync) <= set(group.in_sync)
                assert group.epoch > 0
        else:
            assert after.master == group.master
            added = set(after.in_sync) - set(group.in_sync)
            assert not added or (master is not None and added <= set(master.wanted or ()))
        if after.in_sync != group.in_sync:
            assert after.number > group.number
        if change.ends_wish:
            seen = replace(seen, wish=None)
        group = after
    else:
        raise AssertionError("it never ends")
