"""`sparrow message entries` against a running cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrowmq.core.hashing import java_hash

if TYPE_CHECKING:
    from tests.cli.conftest import Sparrow


def test_entries_of_a_queue(sparrow: Sparrow) -> None:
    sparrow("topic", "create", "Entered", "--queues", "1")
    for body in ("one", "two", "three"):
        sparrow("send", "Entered", body, "--tags", "TagA")
    rows = sparrow("message", "entries", "Entered", "broker-a", "0", "--json").values
    assert [row["offset"] for row in rows] == [0, 1, 2]
    assert {row["tags_code"] for row in rows} == {java_hash("TagA")}
    places = [row["physical_offset"] for row in rows]
    assert places == sorted(set(places))
    assert rows[1]["physical_offset"] >= rows[0]["physical_offset"] + rows[0]["size"]
    part = sparrow("message", "entries", "Entered", "broker-a", "0", "--from", "1", "--count", "1", "--json")
    assert part.values == rows[1:2]
    assert "physical offset" in sparrow("message", "entries", "Entered", "broker-a", "0").lines[0]
    assert "is not exist" in sparrow("message", "entries", "Entered", "broker-a", "9", status=1).err
