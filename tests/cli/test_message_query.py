from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Sparrow


@pytest.mark.proves("client:E-50", "client:E-52")
def test_a_message_by_its_ids(sparrow: Sparrow) -> None:
    (sent,) = sparrow("send", "LookUp", "hello", "--tags", "a", "--keys", "k1 k2", "--json").values
    for message_id in (sent["message_id"], sent["offset_message_id"]):
        (found,) = sparrow("message", "get", "LookUp", message_id, "--json").values
        assert (found["body"], found["keys"], found["tags"]) == ("hello", ["k1", "k2"], "a")
        assert (found["broker"], found["queue"], found["offset"]) == (
            "broker-a",
            sent["queue"],
            sent["offset"],
        )
        assert found["message_id"] == sent["message_id"]
        assert found["offset_message_id"] == sent["offset_message_id"]
    lines = sparrow("message", "get", "LookUp", sent["message_id"]).lines
    assert "hello" in lines
    assert ["keys", "k1", "k2"] in [line.split() for line in lines]
    missing = sparrow("message", "get", "LookUp", "0" * 32, status=1)
    assert "has no message with id" in missing.err
    other = sparrow("message", "get", "Progress2", sent["offset_message_id"], status=1)
    assert "no broker serves topic" in other.err


@pytest.mark.proves("client:E-51")
def test_messages_by_key(sparrow: Sparrow) -> None:
    for number in range(5):
        sparrow("send", "ByKey", f"m{number}", "--keys", f"own{number} common")
    assert [row["body"] for row in sparrow("message", "query", "ByKey", "own3", "--json").values] == ["m3"]
    everything = sparrow("message", "query", "ByKey", "common", "--json").values
    assert sorted(row["body"] for row in everything) == [f"m{number}" for number in range(5)]
    assert len(sparrow("message", "query", "ByKey", "common", "--count", "2", "--json").values) == 2
    later = sparrow("message", "query", "ByKey", "common", "--begin", "2099-01-01", "--json")
    earlier = sparrow("message", "query", "ByKey", "common", "--end", "2001-01-01", "--json")
    assert later.values == earlier.values == []
    assert sparrow("message", "query", "ByKey", "nothing").lines == [
        "no message of ByKey has the key nothing"
    ]
    assert "m3" in sparrow("message", "query", "ByKey", "own3").lines


def test_a_blank_key_is_refused(sparrow: Sparrow) -> None:
    sparrow("send", "Blank", "x")
    for key in ("", " "):
        err = sparrow("message", "query", "Blank", key, status=1).err
        assert err == "sparrow: the key to look for is blank; messages have none such\n"
