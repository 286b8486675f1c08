"""Commits of an archive: whichever is the newest says everything, with one base at most."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import about

from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.offsets.offsets import Span
from sparrowmq.spark.pipelines.archive.ledger import ArchiveError, ArchiveUnit, merged
from sparrowmq.spark.pipelines.archive.state import CHANGES, ArchiveState, base_of, from_commit, to_commit

QUEUE = MessageQueue("T", "broker-a", 0)


def unit(number: int) -> ArchiveUnit:
    return ArchiveUnit(number=number, spans=(Span(QUEUE, number, number + 1),), rows=1, size=10)


@given(st.lists(st.integers(0, 6), max_size=120))
def test_a_state_survives_its_commits(steps: list[int]) -> None:
    """Each step adds a unit; a step of 2 or more merges so many of the last ones first."""
    state, base = ArchiveState(), None
    commits: list[dict[str, object]] = []
    for number, step in enumerate(steps):
        group = [one.unit for one in state.kept.values()][-step:]
        if step >= 2 and len(group) == step:
            one = merged(group, size=20, columns={})
            state = state.with_merged(group, one, f"merged-{number}")
        state = state.with_unit(unit(number), f"folder-{number}")
        commit = json.loads(json.dumps(to_commit(state, base)))
        commits.append(commit)
        if commit["base"] is None:
            base = (number, state)
        needed = base_of(commit, "here")
        whole = ArchiveState() if needed is None else from_commit(commits[needed], ArchiveState(), "here")
        found = from_commit(commit, whole, "here")
        assert found == state
        assert len(commit["add"]) <= max(CHANGES, len(state.kept))
        assert found.ledger.rows == number + 1


def test_a_base_is_made_when_there_is_much_to_tell() -> None:
    state, base, bases = ArchiveState(), None, 0
    for number in range(5 * CHANGES):
        state = state.with_unit(unit(number), f"f{number}")
        commit = to_commit(state, base)
        if commit["base"] is None:
            base, bases = (number, state), bases + 1
    assert bases == 5


def test_what_is_no_commit_is_named() -> None:
    with pytest.raises(ArchiveError, check=about(what="version", value=2, limit=1)):
        base_of({"version": 2}, "here")
    with pytest.raises(ArchiveError, check=about(what="", value="here")):
        base_of({}, "here")
    for wrong in ({}, {"add": 1, "remove": [], "dropped": []}, {"add": [{}], "remove": [], "dropped": []}):
        with pytest.raises(ArchiveError, check=about(what="", value="here")):
            from_commit(wrong, ArchiveState(), "here")
