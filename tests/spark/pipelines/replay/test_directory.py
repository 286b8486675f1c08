"""A replay's notes: parts that cover everything once, whoever dies in between; another replay is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spark.pipelines.stored_files import MemoryFiles
from tests.support import about

from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.offsets.offsets import Span
from sparrowmq.spark.pipelines.replay.directory import (
    Part,
    Place,
    RemoteNotes,
    Replay,
    ReplayDirectory,
    ReplayError,
)

QUEUES = [MessageQueue(topic, "b", number) for topic in ("T", "U") for number in range(3)]
TARGET = {"T": (MessageQueue("Out", "b", 0),), "U": (MessageQueue("Out", "b", 0),)}


def replay(*spans: Span, **asked: Any) -> Replay:
    return Replay("0123456789abcdef", {"to": "Out", **asked}, tuple(sorted(spans)), TARGET)


@st.composite
def many_spans(draw: st.DrawFn) -> list[Span]:
    """Spans with gaps, several of a queue."""
    found = []
    for queue in draw(st.lists(st.sampled_from(QUEUES), unique=True)):
        position = 0
        for gap, length in draw(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 30)), max_size=3)):
            found.append(Span(queue, position + gap, position + gap + length))
            position += gap + length + 1
    return found


@given(many_spans(), st.integers(1, 40), st.integers(1, 5))
def test_parts_cover_every_offset_once_and_each_has_one_topic(
    spans: list[Span], rows: int, tasks: int
) -> None:
    one, place = replay(*spans), Place()
    seen: list[tuple[MessageQueue, int]] = []
    number = 0
    while (part := place.next_part(one, rows, tasks)) is not None:
        assert (part.number, part.tasks) == (number, tasks)
        assert 0 < len(part) <= rows
        assert {span.queue.topic for span in part.spans} == {part.topic}
        assert len({span.queue for span in part.spans}) == len(part.spans)
        seen += [(span.queue, offset) for span in part.spans for offset in range(span.start, span.end)]
        place = Place.from_json(json.loads(json.dumps(place.begin(part).to_json())))
        assert place.part == part
        place = Place.from_json(json.loads(json.dumps(place.end(len(part), 10).to_json())))
        number += 1
    assert sorted(seen) == sorted((s.queue, offset) for s in spans for offset in range(s.start, s.end))
    assert (place.read, place.sent, place.bytes_sent, place.parts) == (
        len(seen),
        len(seen),
        10 * number,
        number,
    )
    assert place.left(one) == []
    for queue in QUEUES:
        offsets = [offset for known, offset in seen if known == queue]
        assert offsets == sorted(offsets), "in the order they are stored"


def test_what_is_settled_stays(tmp_path: Path) -> None:
    home = ReplayDirectory(tmp_path / "home")
    one = replay(Span(QUEUES[0], 5, 9), where="tags = 'x'")
    with home.locked():
        assert home.replay() is None
        assert home.place() == Place()
        home.begin(one)
        assert home.replay() == one
        assert one.size == 4
        part = one.size and home.place().next_part(one, 3, 2)
        assert part == Part(0, (Span(QUEUES[0], 5, 8),), 2)
        home.save(home.place().begin(part))
    with ReplayDirectory(tmp_path / "home").locked():
        assert home.place().part == part
        assert home.place().left(one) == [Span(QUEUES[0], 5, 9)]
    one.check({"to": "Out", "where": "tags = 'x'"}, home.root)
    with pytest.raises(ReplayError, check=about(setting="to", value="Other", limit="Out")):
        one.check({"to": "Other"}, home.root)


@pytest.mark.parametrize("name", ["replay.json", "progress.json"])
@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{", "file"),
        ("[]", "note"),
        ('{"version": 1}', "note"),
        ('{"version": 2}', "version"),
    ],
)
def test_notes_that_cannot_be_read(tmp_path: Path, name: str, text: str, what: str) -> None:
    (tmp_path / name).write_text(text)
    home = ReplayDirectory(tmp_path)
    with pytest.raises(ReplayError, check=about(what=what)):
        home.replay() if name == "replay.json" else home.place()


def test_a_home_without_what_was_settled(tmp_path: Path) -> None:
    ReplayDirectory(tmp_path).save(Place())
    with pytest.raises(ReplayError, check=about(what="missing", value=tmp_path / "replay.json")):
        ReplayDirectory(tmp_path).replay()


def test_notes_where_nothing_can_be_renamed() -> None:
    """Progress is a row of numbered files: torn ones are passed over, the later of two runs goes on."""
    files = MemoryFiles("mem:/replay")
    notes = RemoteNotes(files)
    with pytest.raises(ReplayError, check=about(what="missing", value="mem:/replay/settled")):
        notes.note({"n": 0})
        notes.settled()
    notes.settle({"what": 1})
    assert RemoteNotes(files).settled()["what"] == 1
    with notes.locked():
        notes.note({"n": 1})
        files.faults.add("torn")
        with pytest.raises(ReplayError, check=about(what="run")):
            notes.note({"n": 2})
        assert RemoteNotes(files).progress()["n"] == 1
    other = RemoteNotes(files)
    with notes.locked():
        notes.note({"n": 3})
        with other.locked():
            assert other.progress()["n"] == 3
            with pytest.raises(ReplayError, check=about(what="run")):
                notes.note({"n": 4})
            for number in range(30):
                other.note({"n": number})
    assert RemoteNotes(files).progress()["n"] == 29
    assert len(files.names("progress")) < 10
