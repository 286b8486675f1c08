from __future__ import annotations

import json
from pathlib import Path
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
        assert err == "sparrow: the key is blank; no message has a blank key\n"


def test_messages_by_a_filter_and_as_a_file(sparrow: Sparrow, tmp_path: Path) -> None:
    for number in range(4):
        tag = "even" if number % 2 == 0 else "odd"
        sparrow("send", "Sought", f"m{number}", "--tags", tag, "--property", f"amount={number}")
    even = sparrow("message", "search", "Sought", "--tags", "even", "--json").values
    assert sorted(row["body"] for row in even) == ["m0", "m2"]
    (found,) = sparrow("message", "search", "Sought", "--sql", "amount > 2", "--json").values
    assert found["body"] == "m3"
    some = sparrow("message", "search", "Sought", "--count", "1", "--json")
    assert len(some.values) == 1 and "there may be more" in some.err
    late = sparrow("message", "search", "Sought", "--begin", "2099-01-01")
    assert late.lines == ["no message of Sought was found among 0"]
    wrong = sparrow("message", "search", "Sought", "--sql", "amount >", status=1).err
    assert "is wrong at column" in wrong
    out = tmp_path / "sought.jsonl"
    sparrow("message", "export", "Sought", "--out", str(out), "--tags", "odd")
    assert [json.loads(line)["tags"] for line in out.read_text().splitlines()] == ["odd", "odd"]
    assert "must end in .jsonl" in sparrow("message", "export", "Sought", "--out", "x.csv", status=1).err


def test_a_message_is_sent_again_and_has_a_life(sparrow: Sparrow) -> None:
    (sent,) = sparrow("send", "Again", "once", "--tags", "t", "--json").values
    (again,) = sparrow("message", "resend", "Again", sent["message_id"], "--json").values
    assert again["message_id"] != sent["message_id"]
    found = sparrow("message", "search", "Again", "--json").values
    assert [(row["body"], row["tags"]) for row in found] == [("once", "t")] * 2
    assert "no message with id" in sparrow("message", "resend", "Again", "0" * 32, status=1).err
    stages = sparrow("message", "life", "Again", sent["message_id"], "--json").values
    assert [row["what"] for row in stages if "what" in row] == ["born", "stored"]
    assert "has no message NOTHING" in sparrow("message", "life", "Again", "NOTHING", status=1).err


def test_messages_that_wait(sparrow: Sparrow) -> None:
    (sent,) = sparrow("send", "Waits", "later", "--delay-level", "18", "--json").values
    rows = sparrow("message", "delayed", "--json").values
    (mine,) = [row for row in rows if row["message_id"] == sent["message_id"]]
    assert (mine["topic"], mine["level"]) == ("Waits", 18)
    assert sent["message_id"] in sparrow("message", "delayed").out
    assert sparrow("message", "halves", "--json").values == []
