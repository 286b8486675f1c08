"""A backfill's ledger: what is settled stays, notes say what is left, the run that came last goes on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support import about

from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.offsets.offsets import Span
from sparrowmq.spark.pipelines.backfill.ledger import BackfillError, BackfillLedger, Settled
from sparrowmq.spark.pipelines.backfill.windows import by_rows
from sparrowmq.spark.pipelines.common.files import files_of

QUEUE = MessageQueue("T", "b", 0)
ASKED = {"topics": ["T"], "where": ""}


def ledger(root: Path) -> BackfillLedger:
    return BackfillLedger(files_of(root, "backfill"))


def settled() -> Settled:
    return Settled.now(ASKED, by_rows([Span(QUEUE, 0, 10)], 4))


def test_a_ledger_says_what_is_left(tmp_path: Path) -> None:
    one, begun = ledger(tmp_path / "out"), settled()
    assert (one.settled(), one.done()) == (None, frozenset())
    with one.mine():
        one.begin(begun)
        one.note(begun.windows[1], rows=4)
    again = ledger(tmp_path / "out")
    found = again.settled()
    assert found is not None
    assert (found.id, found.asked) == (begun.id, begun.asked)
    assert [window.spans for window in found.windows] == [window.spans for window in begun.windows]
    assert again.done() == {1}
    assert [window.number for window in found.left(again.done())] == [0, 2]
    found.check(ASKED, "out")
    with pytest.raises(BackfillError, check=about(setting="where", value="x", limit="")):
        found.check({**ASKED, "where": "x"}, "out")


def test_of_two_runs_the_later_one_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, begun = ledger(tmp_path), ledger(tmp_path), settled()
    with first.mine():
        first.begin(begun)
        with pytest.raises(BackfillError, check=about(what="process", value=str(os.getpid()))), second.mine():
            pass  # of this machine: told at once
        first.check_run()
        # elsewhere, where nothing locks
        first.files.replace("_backfill/run.json", '{"token": "other", "host": "there", "process": 7}')
        with pytest.raises(BackfillError, check=about(what="run", value=7)):
            first.note(begun.windows[0], rows=1)
    assert first.done() == frozenset()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[]", "note"),
        ('{"version": 1}', "note"),
        ('{"version": 2}', "version"),
    ],
)
def test_notes_that_cannot_be_read(tmp_path: Path, text: str, what: str) -> None:
    (tmp_path / "_backfill").mkdir()
    (tmp_path / "_backfill" / "backfill.json").write_text(text)
    with pytest.raises(BackfillError, check=about(what=what)):
        ledger(tmp_path).settled()


def test_a_start_that_was_cut_short_is_none_and_a_lost_note_is_told(tmp_path: Path) -> None:
    notes = tmp_path / "_backfill"
    notes.mkdir()
    (notes / "backfill.json").write_text('{"version": 1, "wind')
    assert ledger(tmp_path).settled() is None
    (notes / "done").mkdir()
    (notes / "done" / "00000000").touch()
    with pytest.raises(BackfillError, check=about(what="note")):
        ledger(tmp_path).settled()
    (notes / "backfill.json").unlink()
    with pytest.raises(BackfillError, check=about(what="missing")):
        ledger(tmp_path).settled()
