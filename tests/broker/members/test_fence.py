"""Decisions about managed groups: which requests pass, which policies replace others, which members are
listed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sparrowmq.broker.members.fence import NOBODY, PAUSES_MAX, ManagedGroup, highest_gone, judge
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.managed import GroupPolicy, PauseRule, QueueGrant


def grant(queue_id: int, owner: str = "p", generation: int = 3, **more: Any) -> QueueGrant:
    return QueueGrant(
        **{"topic": "T", "broker_name": "b"} | more, queue_id=queue_id, owner=owner, generation=generation
    )


def policy(*queues: QueueGrant, **more: Any) -> GroupPolicy:
    return GroupPolicy("g", queues=list(queues), **more)


def managed(*queues: QueueGrant, **more: Any) -> ManagedGroup:
    return ManagedGroup(policy(*queues, **more), "b")


@pytest.mark.parametrize(
    ("generation", "fenced", "why"),
    [
        (3, True, ""),
        (3, False, ""),
        (None, False, ""),
        (2, True, "generation 2 of T/b/0 for group g is not accepted: p has it under generation 3"),
        (2, False, "generation 2 of T/b/0 for group g is not accepted: p has it under generation 3"),
        (4, True, "generation 4 of T/b/0 for group g is not accepted: p has it under generation 3"),
        (None, True, "no generation of T/b/0 for group g is not accepted: p has it under generation 3"),
    ],
)
def test_only_the_granted_generation_passes(generation: int | None, fenced: bool, why: str) -> None:
    group = managed(grant(0, fenced=fenced))
    assert group.refusal("T", 0, generation) == why


def test_unassigned_and_unplanned_queues_are_decided() -> None:
    group = managed(grant(0, owner=""), grant(1, broker_name="other"))
    assert "nobody has it under generation 3" in group.refusal("T", 0, 2)
    assert group.refusal("T", 5, None) == ""
    assert group.refusal("T", 5, 3) == "generation 3 of T/b/5 for group g was not granted here"
    assert "was not granted here" in group.refusal("T", 1, 3), "another broker's queue"


def test_members_are_listed_in_order_up_to_the_maximum_and_never_empty() -> None:
    assert managed().listed(["q", "p"]) == ["q", "p"]
    assert managed(maximum=1).listed(["q", "p"]) == ["q"]
    assert managed(members=["p", "q", "r"]).listed(["r", "q", "x"]) == ["q", "r"]
    assert managed(members=["p", "q", "r"], maximum=1).listed(["r", "q"]) == ["q"]
    assert managed(members=[]).listed(["p"]) == [NOBODY]


def test_assignments_cover_all_brokers() -> None:
    group = managed(grant(0), grant(1, broker_name="c"), grant(2, owner="q"), grant(0, topic="U"))
    assert group.assigned("T", "p") == [MessageQueue("T", "b", 0), MessageQueue("T", "c", 1)]
    assert group.assigned("T", "stranger") == []
    assert managed(maximum=1).assigned("T", "p") is None


@pytest.mark.parametrize(
    ("rules", "place", "until"),
    [
        ([], ("T", 0), None),
        ([PauseRule()], ("T", 0), 0),
        ([PauseRule("T")], ("T", 1), 0),
        ([PauseRule("T")], ("U", 1), None),
        ([PauseRule("T", 1)], ("T", 1), 0),
        ([PauseRule("T", 1)], ("T", 0), None),
        ([PauseRule("T", until=999)], ("T", 0), None),
        ([PauseRule("T", until=1000)], ("T", 0), None),
        ([PauseRule("T", until=1001)], ("T", 0), 1001),
        ([PauseRule("T", until=1001), PauseRule(until=2000)], ("T", 0), 2000),
        ([PauseRule("T", until=1001), PauseRule()], ("T", 0), 0),
    ],
)
def test_pauses_apply_to_groups_topics_and_queues_and_expire(
    rules: list[PauseRule], place: tuple[str, int], until: int | None
) -> None:
    assert managed(pauses=rules).paused_until(*place, 1000) == until


def test_queues_with_a_newer_generation_have_moved() -> None:
    before = managed(grant(0), grant(1), grant(2))
    after = managed(grant(0), grant(1, "q", 4), grant(3, "q", 4), grant(4, broker_name="c"))
    assert after.moved(before) == [MessageQueue("T", "b", 1), MessageQueue("T", "b", 3)]
    assert before.moved(None) == [MessageQueue("T", "b", number) for number in range(3)]


OLD = policy(grant(0), grant(1), epoch=5, revision=7)


@pytest.mark.parametrize(
    ("new", "text"),
    [
        (replace(OLD, revision=8), None),
        (replace(OLD, epoch=6, revision=1), None),
        (OLD, None),
        (replace(OLD, revision=8, queues=[grant(0, "q", 4), grant(1)]), None),
        (replace(OLD, revision=8, queues=[grant(0, fenced=False), grant(1)]), None),
        (replace(OLD, revision=8, queues=[grant(0)]), None),
        (replace(OLD, revision=8, queues=[*OLD.queues, grant(2, generation=3)]), None),
        (replace(OLD, revision=8, queues=[*OLD.queues, grant(2, "q", 1, broker_name="c")]), None),
        (replace(OLD, revision=6), "policy 5.6 of group g is not later than 5.7, which is in force"),
        (replace(OLD, epoch=4, revision=9), "policy 4.9 of group g is not later than 5.7"),
        (replace(OLD, maximum=1), "policy 5.7 of group g is not later than 5.7"),
        (replace(OLD, revision=8, queues=[grant(0, "q"), grant(1)]), "is granted to p"),
        (replace(OLD, revision=8, queues=[grant(0, "q", 2), grant(1)]), "2 of T/b/0 for group g is older"),
        (
            replace(OLD, revision=8, queues=[*OLD.queues, grant(2, generation=2)]),
            "generation 2 of T/b/2 for group g is older than 3",
        ),
    ],
)  # fmt: skip
def test_policy_replaces_only_older_ones_and_generations_never_decrease(
    new: GroupPolicy, text: str | None
) -> None:
    found = judge(new, OLD, 2, "b")
    if text is None:
        assert found is None
    else:
        assert found is not None
        assert found.code is ResponseCode.POLICY_OUTDATED
        assert text in found.text


def test_grants_of_another_brokers_queues_may_be_withdrawn() -> None:
    """The other broker never received them: a later leader finds the queue there unchanged."""
    told = replace(OLD, queues=[*OLD.queues, grant(0, "q", 9, broker_name="c")])
    for one in (grant(0, "p", 8, broker_name="c"), grant(0, "p", 9, broker_name="c")):
        assert judge(replace(told, epoch=6, queues=[*OLD.queues, one]), told, 9, "b") is None
        assert judge(replace(told, epoch=6, queues=[*OLD.queues, one]), told, 9, "c") is not None


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (policy(grant(0), grant(0, "q")), "the policy of g names a queue twice"),
        (policy(grant(0, generation=0)), "T/b/0: generation 0 is out of range (1 to 281474976710656)"),
        (policy(grant(-1)), "T/b/-1: generation 3 is out of range"),
        (policy(maximum=-1), r"maximum=-1 is out of range: 0 (no limit) to 10000 members"),
        (policy(grant(0, generation=2**62)), "generation 4611686018427387904 is out of range"),
        (policy(epoch=-1), "epoch -1 and revision 1 of group g are out of range: 0 to 2147483648"),
        (policy(epoch=2**62), "epoch 4611686018427387904 and revision 1 of group g are out of range"),
        (policy(revision=2**62), "revision 4611686018427387904 of group g are out of range"),
        (policy(revision=0), "epoch 0 and revision 0 of group g are out of range"),
        (policy(pauses=[PauseRule()] * (PAUSES_MAX + 1)), "has 1001 pauses, the limit is 1000"),
        (GroupPolicy("no group name"), "no group name"),
    ],
)
def test_invalid_policies_are_refused(wrong: GroupPolicy, text: str) -> None:
    found = judge(wrong, None, 0, "b")
    assert found is not None
    assert found.code is ResponseCode.INVALID_PARAMETER
    assert text in found.text


def test_generation_of_removed_queues_is_remembered() -> None:
    assert highest_gone(OLD, None) == 3
    assert highest_gone(OLD, policy(grant(0))) == 3
    assert highest_gone(OLD, OLD) == 0
    assert highest_gone(policy(), None) == 0


policies = st.builds(
    policy,
    *[st.builds(grant, st.integers(0, 2), st.sampled_from(["", "p", "q"]), st.integers(1, 5))],
    epoch=st.integers(0, 2),
    revision=st.integers(1, 3),
)


@given(st.lists(policies, max_size=12))
def test_generations_never_decrease_whatever_policies_arrive(
    wanted: list[GroupPolicy],
) -> None:
    """Whatever coordinators do: the generation of a queue only rises, and its owner changes with it."""
    current: GroupPolicy | None = None
    retired = 0
    highest: dict[MessageQueue, tuple[int, str]] = {}
    for new in wanted:
        if judge(new, current, retired, "b") is not None:
            continue
        if current is not None:
            assert new.age >= current.age
            retired = max(retired, highest_gone(current, new))
        current = new
        for one in new.queues:
            before = highest.get(one.queue, (0, ""))
            assert one.generation > before[0] or (one.generation, one.owner) == before
            highest[one.queue] = (one.generation, one.owner)
