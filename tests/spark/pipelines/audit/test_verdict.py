"""Promises, what may break them, and what cannot be judged."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support import about

from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.pipelines.audit.comparison import Kind
from sparrowmq.spark.pipelines.audit.verdict import (
    DEFAULT_ALLOWED,
    NO_LIMIT,
    GroupResult,
    Promise,
    Range,
    Status,
    Verdict,
    allowed_of,
    promises,
)


def made(**more: Any) -> tuple[Promise, ...]:
    values: dict[str, Any] = {
        "sends": {},
        "groups": [],
        "allowed": DEFAULT_ALLOWED,
        "with_sent": True,
        **more,
    }
    return promises(values.pop("sends"), values.pop("groups"), values.pop("allowed"), **values)


def verdict(found: tuple[Promise, ...]) -> Verdict:
    return Verdict(
        since=1,
        until=2,
        now=3,
        topics=("T",),
        sources={"stored": "the live log"},
        sent=5,
        stored=4,
        consumed={"g": 4},
        found={},
        promises=found,
    )


def holds(found: tuple[Promise, ...]) -> dict[tuple[str, str | None], bool | None]:
    return {(promise.kind, promise.group): promise.holds for promise in found}


def test_nothing_found_is_whole() -> None:
    found = made(groups=[GroupResult("g", True, {})])
    assert len(found) == 8 and set(holds(found).values()) == {True}
    assert verdict(found).status is Status.WHOLE == 0


def test_a_loss_breaks_its_promise_alone() -> None:
    found = made(sends={Kind.LOST: 2}, groups=[GroupResult("g", True, {Kind.LATE: 5})])
    assert [promise.kind for promise in found if promise.holds is False] == ["lost"]
    assert verdict(found).status is Status.BROKEN == 1
    allowed = allowed_of({"lost": 2, "late": 4})
    found = made(sends={Kind.LOST: 2}, groups=[GroupResult("g", True, {Kind.LATE: 5})], allowed=allowed)
    assert [promise.kind for promise in found if promise.holds is False] == ["late"]


def test_what_may_be_deleted_is_no_loss() -> None:
    found = made(sends={Kind.LOST: 2, Kind.STORED_TWICE: 0}, stored_doubts=["deleted"])
    assert holds(found) == {
        ("lost", None): None,
        ("stored_twice", None): None,
        ("unknown", None): True,
    }
    assert verdict(found).status is Status.NOT_JUDGED == 2
    assert verdict(made(sends={Kind.STORED_TWICE: 1}, stored_doubts=["x"])).status is Status.BROKEN


def test_known_losses_count_even_if_more_may_have_been_sent() -> None:
    assert verdict(made(sends={Kind.LOST: 1}, sent_doubts=["not all traced"])).status is Status.BROKEN
    assert verdict(made(sent_doubts=["not all traced"])).status is Status.NOT_JUDGED
    strict = allowed_of({"unknown": 0})
    assert holds(made(sends={Kind.UNKNOWN: 9}, sent_doubts=["x"], allowed=strict))["unknown", None] is None
    assert holds(made(sends={Kind.UNKNOWN: 9}, allowed=strict))["unknown", None] is False


def test_groups() -> None:
    found = made(
        with_sent=False,
        groups=[
            GroupResult("traced", True, {Kind.MISSED: 1}),
            GroupResult("doubtful", True, {Kind.MISSED: 1, Kind.CONSUMED_TWICE: 1}, ("half of it",)),
            GroupResult("offsets", False, {Kind.MISSED: 0}),
        ],
    )
    seen = holds(found)
    assert seen["missed", "traced"] is False and seen["missed", "doubtful"] is None
    assert seen["consumed_twice", "doubtful"] is False
    assert [kind for kind, group in seen if group == "offsets"] == ["missed", "failed"]
    assert [kind for kind, group in seen if group is None] == ["stored_twice"]


def test_as_json_and_as_text() -> None:
    found = made(sends={Kind.LOST: 1200}, groups=[GroupResult("g", True, {}, ("no traces",))])
    whole = replace(
        verdict(found),
        found={"lost": 1200, "undecided": 2},
        ranges=(Range("T", "b", 0, 5, 9, 5),),
        shown=[{"kind": "lost", "id": "A"}],
    )
    value = whole.to_json()
    assert (value["version"], value["status"], value["verdict"]) == (1, 1, "broken")
    assert value["counts"] == {"sent": 5, "stored": 4, "consumed": {"g": 4}}
    assert value["findings"] == {
        "total": 1202,
        "kinds": {"lost": 1200, "undecided": 2},
        "shown": [{"kind": "lost", "id": "A"}],
        "all": "findings",
    }
    assert value["ranges"] == [
        {"topic": "T", "broker": "b", "queue_id": 0, "first": 5, "last": 9, "messages": 5}
    ]
    assert value["promises"][0] == {
        "text": "every message that was acknowledged is stored",
        "kind": "lost",
        "group": None,
        "found": 1200,
        "allowed": 0,
        "doubts": [],
        "holds": False,
    }
    lines = whole.lines()
    assert lines[0] == "5 sent, 4 stored, 4 consumed by g"
    assert "BROKEN: every message that was acknowledged is stored (1,200 lost)" in lines
    assert "not checked: every message reached group g: no traces" in lines
    assert lines[-1] == "undecided yet: 2"
    some = verdict(made(groups=[GroupResult("g", True, {Kind.LATE: 7})]))
    assert some.lines()[-1] == "allowed: no message was late in group g (7 late)"


def test_allowed() -> None:
    assert allowed_of({}) == dict(DEFAULT_ALLOWED)
    assert allowed_of({"lost": NO_LIMIT})[Kind.LOST] == NO_LIMIT
    with pytest.raises(SettingsError, check=about(setting="allow", value="losst")):
        allowed_of({"losst": 1})
    with pytest.raises(SettingsError, check=about(setting="allow", value=-2)):
        allowed_of({"lost": -2})
