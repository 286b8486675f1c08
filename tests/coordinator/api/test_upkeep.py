from __future__ import annotations

from typing import Any

import pytest
from tests.coordinator.running import Running
from tests.coordinator.upkeep.lands import broker, group, land, topic
from tests.support import until_sync

BAD = land(
    broker("a", [topic("T")], [group("mine"), group("theirs")], {("mine", "T", 0): 9, ("theirs", "T", 0): 9}),
    listed={"n1": {"T", "gone"}, "n2": {"gone"}},
    ends={("T", "a", 0): (0, 5)},
)


@pytest.fixture
def found(api: Running) -> dict[str, Any]:
    """The consistency check's findings on brokers and name servers, by group or topic."""
    api.survey.land = BAD
    api.survey.done.clear()

    def seen() -> list[Any]:
        api.call("POST", "/services/consistency/run", {})
        rows = api.get("/findings?service=consistency")
        return [one for one in rows if not one["kind"].endswith("-of-nothing")]

    rows = until_sync(lambda: len(it := seen()) == 4 and it)
    return {one["group"] or one["topic"]: one for one in rows}


def repair(api: Running, finding: Any, **options: Any) -> tuple[int, Any]:
    return api.call("POST", f"/findings/{finding['id']}/repair", {"reason": "asked for"}, **options)


def test_findings_are_shown_with_their_repairs(api: Running, found: dict[str, Any]) -> None:
    one = found["mine"]
    assert (one["kind"], one["object"], one["repair"]["action"]) == (
        "offset-beyond",
        "mine T a 0",
        "set-offset",
    )
    assert one["repair"]["before"] == {"offset": 9}
    assert one["repair"]["text"] == "commit offset 5 for mine on queue 0 of T on a"
    assert {**api.get(f"/findings/{one['id']}"), "seen_ms": 0} == {**one, "seen_ms": 0}  # it is seen again
    assert found["T"]["repair"] is None
    assert {row["id"] for row in api.get("/findings?repairs=true&kind=offset-beyond")} == {
        found["mine"]["id"],
        found["theirs"]["id"],
    }
    assert api.get("/findings?kind=%27%20OR%201%3D1%20--") == []
    assert api.call("GET", "/findings/987654")[0] == 404


def test_repairs_need_rights_and_are_recorded(api: Running, found: dict[str, Any]) -> None:
    viewer, operator, owner = api.person("sees"), api.person("mends", "operator"), api.person("has-mine")
    grant = {"name": "has-mine", "kind": "group", "object": "mine", "role": "owner"}
    assert api.call("POST", "/grants", grant)[0] == 200
    assert api.call("GET", "/findings", token=viewer)[0] == 200
    for name in ("mine", "gone"):
        assert repair(api, found[name], token=viewer)[0] == 403
    assert repair(api, found["theirs"], token=owner)[0] == 403
    status, answer = repair(api, found["T"], token=operator)
    assert (status, "has no repair" in answer["error"]) == (409, True)
    assert repair(api, found["mine"], token=owner) == (200, {"before": {"offset": 9}, "after": {"offset": 5}})
    assert repair(api, found["mine"], token=owner)[0] == 404
    assert repair(api, found["gone"], token=operator)[0] == 200
    assert api.survey.done == ["set_offset", "unlist_topic"]
    end, begin = api.get("/audit?kind=group&object=mine&actor=has-mine&count=2")
    assert (begin["action"], end["action"], end["reason"]) == ("repair.begin", "repair.done", "asked for")
    assert (end["before"], end["after"]) == ({"offset": 9}, {"offset": 5})
