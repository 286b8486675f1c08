"""Numbered notes: the newest whole one holds, and of two writers one must end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spark.pipelines.stored_files import MemoryFiles

from sparrowmq.spark.pipelines.common.commits import Commits, TakenError


def test_the_newest_note_holds() -> None:
    commits = Commits(MemoryFiles())
    assert commits.newest() is None
    for number in (0, 1, 5):
        commits.add(number, {"n": number})
    found = commits.newest()
    assert found is not None
    assert (found[0], found[1]["n"], commits.numbers()) == (5, 5, [0, 1, 5])
    commits.forget(5)
    assert commits.numbers() == [5]


def test_a_number_is_given_once() -> None:
    files = MemoryFiles()
    Commits(files).add(3, {"by": "first"})
    with pytest.raises(TakenError) as caught:
        Commits(files).add(3, {"by": "second"})
    assert caught.value.by is not None
    assert caught.value.by["by"] == "first"
    with pytest.raises(TakenError):
        Commits(files).add(
            2, {"by": "second"}
        )  # a later number is used up: it would be the last word of nobody


def test_a_note_that_was_cut_short_is_none() -> None:
    files = MemoryFiles()
    commits = Commits(files)
    commits.add(0, {"n": 0})
    files.faults.add("torn")
    with pytest.raises(TakenError):
        commits.add(1, {"n": 1})
    found = commits.newest()
    assert found is not None and found[0] == 0
    assert commits.numbers() == [0, 1]
    commits.add(2, {"n": 2})
    files.store["mem:/archive/000000000009.json"] = "[]"
    found = commits.newest()
    assert found is not None and found[1]["n"] == 2


def test_a_lost_response_is_not_mistaken_for_another_writer() -> None:
    files = MemoryFiles()
    files.faults.add("lost")
    Commits(files).add(0, {"n": 0})
    assert Commits(files).numbers() == [0]


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=40))
def test_every_note_was_made_by_one_who_knew_the_one_before(steps: list[tuple[int, bool]]) -> None:
    """Three writers that start and stop as they like: the chain of notes never forks."""
    files = MemoryFiles()
    commits = Commits(files)
    known: dict[int, tuple[int, int]] = {}  # writer -> number and count that it goes on from
    for writer, starts in steps:
        if starts or writer not in known:
            found = commits.newest()
            used = commits.numbers()
            known[writer] = (used[-1] if used else -1, 0 if found is None else found[1]["count"])
        number, count = known[writer]
        try:
            commits.add(number + 1, {"count": count + 1, "after": number})
            known[writer] = (number + 1, count + 1)
        except TakenError:
            del known[writer]
    notes = [commits.read(number) for number in commits.numbers()]
    assert [note["count"] for note in notes if note] == list(range(1, len(notes) + 1))
