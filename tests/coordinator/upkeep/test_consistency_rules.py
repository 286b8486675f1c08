"""Each invariant is broken once and found, with its repair; a consistent cluster has no findings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.coordinator.upkeep.lands import NAMES, broker, group, land, topic

from sparrowmq.coordinator.records.findings import Finding
from sparrowmq.coordinator.upkeep.consistency_rules import look, plain
from sparrowmq.coordinator.upkeep.landscape import Landscape

TWO = [topic("T"), topic("%RETRY%g", 1)], [group("g")]


def only(found: list[Finding]) -> Finding:
    (one,) = found
    return one


def repair(one: Finding) -> tuple[str, dict[str, Any], dict[str, Any]]:
    assert one.repair is not None
    return one.repair.action, dict(one.repair.arguments), dict(one.repair.before)


def test_consistent_cluster_has_no_findings() -> None:
    system = [
        topic("TBW102", 8, 7),
        topic("rmq_sys_x"),
        topic("RMQ_SYS_TRACE_TOPIC"),
        topic("C_REPLY_TOPIC", 1),
    ]
    a = broker("a", [*TWO[0], *system, topic("a", 1)], [*TWO[1], group("TOOLS_CONSUMER")], {("g", "T", 0): 5})
    b = broker("b", [*TWO[0], topic("only-b")], TWO[1], {("g", "T", 0): 9, ("g", "rmq_sys_x", 0): 1})
    ends = {("T", "a", 0): (5, 5), ("T", "b", 0): (0, 10)}
    other = broker("other", [topic("T", 2)], [], cluster="D")
    seen = land(a, b, other, ends=ends)
    assert look(seen, {("topic", "T", "ann"), ("group", "g", "bob")}, {("g", "*")}) == []


def test_differing_topic_is_repaired_to_the_majority_and_never_narrower() -> None:
    three = [broker(name, [topic("T", count)], []) for name, count in (("a", 8), ("b", 8), ("c", 4))]
    one = only(look(land(*three)))
    assert (one.kind, one.key, one.topic) == ("topic-differs", "T c", "T")
    assert "readQueueNums=4 instead of 8" in one.text
    wanted = {"topic": "T", "broker": "c", "config": plain(topic("T", 8))}
    assert repair(one) == ("set-topic", wanted, {"config": plain(topic("T", 4))})
    wide = [broker(name, [topic("T", count)], []) for name, count in (("a", 4), ("b", 4), ("c", 16))]
    assert [found.key for found in look(land(*wide))] == ["T a", "T b"]
    rights = [broker("a", [topic("T", 4, perm=6)], []), broker("b", [topic("T", 4, perm=4)], [])]
    assert repair(only(look(land(*rights))))[1]["config"]["perm"] == 6


def test_static_topics_and_retry_topics_may_differ() -> None:
    a = broker("a", [topic("S", 8), topic("%RETRY%g", 1)], [], {("g", "S", 0): 99}, static=("S",))
    b = broker("b", [topic("S", 2), topic("%RETRY%g", 4)], [])
    assert look(land(a, b, ends={("S", "a", 0): (0, 1)})) == []


def test_missing_or_differing_group_is_repaired_to_the_majority() -> None:
    three = [broker("a", [], [group("g")]), broker("b", [], [group("g")]), broker("c", [], [])]
    one = only(look(land(*three)))
    assert (one.kind, one.key, one.group) == ("group-missing", "g c", "g")
    assert repair(one) == (
        "set-group",
        {"group": "g", "broker": "c", "config": plain(group("g"))},
        {"config": None},
    )
    three[2] = broker("c", [], [group("g", 3)])
    one = only(look(land(*three)))
    assert (one.kind, "retryMaxTimes=3 instead of 16" in one.text) == ("group-differs", True)
    assert repair(one)[2] == {"config": plain(group("g", 3))}


def test_topic_without_a_broker_is_unlisted() -> None:
    seen = land(broker("a", [topic("T")], []), listed={"n1": {"T", "gone"}, "n2": {"T", "gone", "C"}})
    one = only(look(seen))
    assert (one.kind, one.key) == ("topic-of-no-broker", "gone")
    assert repair(one) == ("unlist-topic", {"topic": "gone"}, {"listed": ["n1", "n2"]})
    assert look(replace(seen, failed={"b": "is away"})) == [], "the broker that is away may have it"


def test_name_server_that_does_not_list_a_topic_is_named() -> None:
    one = only(look(land(broker("a", [topic("T")], []), listed={"n1": {"T"}, "n2": set()})))
    assert (one.kind, one.repair) == ("topic-not-listed", None)
    assert one.text.startswith("n2 does not list the topic T")


def test_offsets_of_a_missing_topic_are_deleted() -> None:
    offsets = {("g", "gone", 0): 5, ("g", "gone", 1): 6, ("h", "gone", 0): 7}
    one = only(look(land(broker("a", [], [], offsets))))
    assert (one.kind, one.key, one.group, one.topic) == ("offsets-of-no-topic", "gone a", "", "gone")
    assert "offsets of g, h on the topic gone" in one.text
    assert repair(one) == (
        "clear-topic",
        {"topic": "gone", "broker": "a"},
        {"offsets": {"g": {"0": 5, "1": 6}, "h": {"0": 7}}},
    )


@pytest.mark.parametrize(
    ("offset", "kind", "to"),
    [
        (9, "offset-below", 10),
        (-1, "offset-below", 10),
        (10, None, None),
        (20, None, None),
        (21, "offset-beyond", 20),
    ],
)
def test_offsets_outside_their_queue_are_set_to_its_end(
    offset: int, kind: str | None, to: int | None
) -> None:
    seen = land(
        broker("a", [topic("T")], [group("g")], {("g", "T", 3): offset, ("g", "T", 4): 10**6}),
        ends={("T", "a", 3): (10, 20)},
    )
    found = look(seen)
    if kind is None:
        assert found == []
        return
    one = only(found)
    assert (one.kind, one.key, one.group, one.topic) == (kind, "g T a 3", "g", "T")
    arguments = {"group": "g", "topic": "T", "broker": "a", "queue_id": 3, "offset": to}
    assert repair(one) == ("set-offset", arguments, {"offset": offset})


def test_owners_and_limits_of_missing_objects_are_deleted() -> None:
    seen = land(broker("a", [topic("T")], [group("g")]))
    roles = {("topic", "T", "ann"), ("topic", "old", "ann"), ("group", "left", "bob")}
    limits = {("g", "*"), ("left", "T")}
    found = look(seen, roles, limits)
    assert [(one.kind, one.key) for one in found] == [
        ("role-of-nothing", "group left bob"),
        ("role-of-nothing", "topic old ann"),
        ("limit-of-nothing", "left T"),
    ]
    assert [repair(one)[0] for one in found] == ["drop-role", "drop-role", "drop-limit"]
    assert look(replace(seen, failed={"b": "is away"}), roles, limits) == []


def test_many_names_are_counted() -> None:
    offsets = {(f"g{number}", "gone", 0): 1 for number in range(8)}
    assert "g0, g1, g2, g3, g4 and 3 more" in only(look(land(broker("a", [], [], offsets)))).text


def test_empty_cluster_is_consistent() -> None:
    assert look(Landscape()) == []
    assert look(land(listed={NAMES: set()})) == []
