"""Previews: the plan that would follow, of what is kept of a group."""

from __future__ import annotations

import pytest
from tests.coordinator.groups.test_table import FIRST

from sparrowmq.coordinator.groups.ledger import GroupRow, Kept, MemberRow, QueueRow
from sparrowmq.coordinator.groups.plan import Rules
from sparrowmq.coordinator.groups.preview import WhatIf, plan_values, preview
from sparrowmq.core.errors import RefusedError, SettingsError
from sparrowmq.core.message import MessageQueue

QUEUES = [MessageQueue("T", "a", number) for number in range(4)]


def kept(owners: dict[MessageQueue, str]) -> Kept:
    members = {
        f"{name}#1": MemberRow(name, f"10.0.0.{number}", "1.0", number, ("T",))
        for number, name in enumerate("pq", 1)
    }
    rows = {queue: QueueRow(owner, 5, "granted", owner, "") for queue, owner in owners.items()}
    return Kept(GroupRow(3, 5), members, rows)


HALVES = kept(dict(zip(QUEUES, ("p#1", "p#1", "q#1", "q#1"), strict=True)))


def test_the_plan_in_force_is_the_next_one_while_nothing_changes() -> None:
    found = preview("g", HALVES, Rules(), WhatIf())
    assert (found.generation, found.moved) == (5, [])
    assert [one.owner for one in found.queues] == ["p#1", "p#1", "q#1", "q#1"]


def test_rules_that_are_set_count_unless_others_are_given() -> None:
    only_q = Rules.parse(deny=["10.0.0.1"])
    found = plan_values(preview("g", HALVES, only_q, WhatIf()))
    assert [one["standing"] for one in found["members"]] == ["rejected", "active"]
    assert ({one["owner"] for one in found["queues"]}, found["moves"], found["given"]) == ({"q#1"}, 2, 0)
    other = plan_values(preview("g", HALVES, only_q, WhatIf(deny=("10.9.9.9",))))
    assert [one["standing"] for one in other["members"]] == ["active", "active"]
    one = plan_values(preview("g", HALVES, Rules(), WhatIf(maximum=1)))
    assert [one["standing"] for one in one["members"]] == ["active", "standby"]
    both = plan_values(preview("g", HALVES, Rules(maximum=1), WhatIf(maximum=0)))
    assert [one["standing"] for one in both["members"]] == ["active", "active"]


def test_members_may_be_thought_of_and_thought_away() -> None:
    more = preview("g", HALVES, Rules(), WhatIf(join=2))
    assert [one.client_id for one in more.members] == ["p#1", "q#1", "new-1", "new-2"]
    assert sorted(one.owner or "" for one in more.queues) == ["new-1", "new-2", "p#1", "q#1"]
    for gone in ("p", "p#1"):
        fewer = preview("g", HALVES, Rules(), WhatIf(without=(gone,)))
        assert {one.owner for one in fewer.queues} == {"q#1"}
    with pytest.raises(RefusedError, match="'nobody' is no member of g"):
        preview("g", HALVES, Rules(), WhatIf(without=("nobody",)))
    nobody = plan_values(preview("g", HALVES, Rules(), WhatIf(without=("p", "q"))))
    assert {one["owner"] for one in nobody["queues"]} == {None}


def test_queues_of_nobody_are_given_and_those_on_their_way_are_where_they_go() -> None:
    assert plan_values(preview("g", FIRST, Rules(maximum=1), WhatIf()))["given"] == 1
    on_its_way = Kept(
        HALVES.group, HALVES.members, {**HALVES.queues, QUEUES[0]: QueueRow("q#1", 4, "revoking", "p#1", "")}
    )
    assert preview("g", on_its_way, Rules(), WhatIf()).moved == []


def test_rules_that_are_none_are_refused() -> None:
    with pytest.raises(SettingsError, match="neither an address nor a network"):
        preview("g", HALVES, Rules(), WhatIf(allow=("10.0.0",)))
