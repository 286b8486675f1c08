"""Previews: the next plan, from the stored data of a group."""

from __future__ import annotations

import pytest
from tests.coordinator.groups.storage.test_table import FIRST
from tests.support import about

from sparrowmq.coordinator.groups.group_metadata import GroupRow, KeptGroup, MemberRow, QueueRow
from sparrowmq.coordinator.groups.plan import AdmissionRules
from sparrowmq.coordinator.groups.preview import WhatIf, plan_values, preview
from sparrowmq.core.errors import RefusedError, SettingsError
from sparrowmq.core.message import MessageQueue

QUEUES = [MessageQueue("T", "a", number) for number in range(4)]


def kept(owners: dict[MessageQueue, str]) -> KeptGroup:
    members = {
        f"{name}#1": MemberRow(name, f"10.0.0.{number}", "1.0", number, ("T",))
        for number, name in enumerate("pq", 1)
    }
    rows = {queue: QueueRow(owner, 5, "granted", owner, "") for queue, owner in owners.items()}
    return KeptGroup(GroupRow(3, 5), members, rows)


HALVES = kept(dict(zip(QUEUES, ("p#1", "p#1", "q#1", "q#1"), strict=True)))


def test_current_plan_is_the_next_one_while_nothing_changes() -> None:
    found = preview("g", HALVES, AdmissionRules(), WhatIf())
    assert (found.generation, found.moved) == (5, [])
    assert [one.owner for one in found.queues] == ["p#1", "p#1", "q#1", "q#1"]


def test_current_rules_apply_unless_others_are_given() -> None:
    only_q = AdmissionRules.parse(deny=["10.0.0.1"])
    found = plan_values(preview("g", HALVES, only_q, WhatIf()))
    assert [one["standing"] for one in found["members"]] == ["rejected", "active"]
    assert ({one["owner"] for one in found["queues"]}, found["moves"], found["given"]) == ({"q#1"}, 2, 0)
    other = plan_values(preview("g", HALVES, only_q, WhatIf(deny=("10.9.9.9",))))
    assert [one["standing"] for one in other["members"]] == ["active", "active"]
    one = plan_values(preview("g", HALVES, AdmissionRules(), WhatIf(maximum=1)))
    assert [one["standing"] for one in one["members"]] == ["active", "standby"]
    both = plan_values(preview("g", HALVES, AdmissionRules(maximum=1), WhatIf(maximum=0)))
    assert [one["standing"] for one in both["members"]] == ["active", "active"]


def test_hypothetical_members_can_be_added_and_removed() -> None:
    more = preview("g", HALVES, AdmissionRules(), WhatIf(join=2))
    assert [one.client_id for one in more.members] == ["p#1", "q#1", "new-1", "new-2"]
    assert sorted(one.owner or "" for one in more.queues) == ["new-1", "new-2", "p#1", "q#1"]
    for gone in ("p", "p#1"):
        fewer = preview("g", HALVES, AdmissionRules(), WhatIf(without=(gone,)))
        assert {one.owner for one in fewer.queues} == {"q#1"}
    with pytest.raises(RefusedError, check=about(status=422, what="member", value="nobody")):
        preview("g", HALVES, AdmissionRules(), WhatIf(without=("nobody",)))
    nobody = plan_values(preview("g", HALVES, AdmissionRules(), WhatIf(without=("p", "q"))))
    assert {one["owner"] for one in nobody["queues"]} == {None}


def test_unowned_queues_are_assigned_and_moving_ones_count_for_their_target() -> None:
    assert plan_values(preview("g", FIRST, AdmissionRules(maximum=1), WhatIf()))["given"] == 1
    on_its_way = KeptGroup(
        HALVES.group, HALVES.members, {**HALVES.queues, QUEUES[0]: QueueRow("q#1", 4, "revoking", "p#1", "")}
    )
    assert preview("g", on_its_way, AdmissionRules(), WhatIf()).moved == []


def test_invalid_rules_are_refused() -> None:
    with pytest.raises(SettingsError, check=about(setting="allow", value="10.0.0")):
        preview("g", HALVES, AdmissionRules(), WhatIf(allow=("10.0.0",)))
