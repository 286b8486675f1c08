"""A cluster that is not there is told before Spark starts, by every pipeline in the same words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Sparrow

from sparrowmq.cli.pipes import pipeline, sql

NOBODY = "127.0.0.1:1"
MIRROR = ("--source", "paris", "--target", "tokyo")


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def started(*_: Any) -> None:
        raise AssertionError("Spark was started")

    for module in (pipeline, sql):
        monkeypatch.setattr(module, "session", started)


@pytest.mark.parametrize("more", [(), ("--plan",), ("--dry-run",)])
@pytest.mark.parametrize(
    "arguments",
    [
        ("archive", "T", "--to", "{there}"),
        ("archive", "T", "--to", "s3a://bucket/archive"),
        ("audit", "T", "--to", "{there}"),
        ("backfill", "T", "--to", "{there}"),
        ("history", "{there}"),
        ("mirror", "T", "--to", NOBODY, "--dir", "{there}", *MIRROR),
        ("replay", "T", "--to", "U", "--home", "{there}"),
        ("report", "T", "--to", "{there}"),
    ],
    ids=lambda given: " ".join(given[:1] + given[-1:]),
)
def test_a_name_server_that_does_not_answer_is_told_at_once(
    sparrow: Sparrow,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    arguments: tuple[str, ...],
    more: tuple[str, ...],
) -> None:
    given = [text.format(there=tmp_path / "there") for text in arguments]
    done = sparrow("pipe", *given, *more, "--namesrv", NOBODY, status=2 if given[0] == "audit" else 1)
    assert done.err.startswith(f"sparrow: the name server did not answer: no connection to {NOBODY}: ")
    assert "is retried" not in caplog.text
    assert not (tmp_path / "there").exists()


def test_a_target_that_does_not_answer_is_told_at_once(sparrow: Sparrow, tmp_path: Path) -> None:
    text = f"sparrow: the name server did not answer: no connection to {NOBODY}: "
    there = str(tmp_path / "there")
    mirror = sparrow("pipe", "mirror", "T", "--to", NOBODY, "--dir", there, *MIRROR, status=1)
    replay = sparrow("pipe", "replay", "T", "--to", "U", "--home", there, "--to-namesrv", NOBODY, status=1)
    assert mirror.err.startswith(text) and replay.err.startswith(text)


def test_a_cluster_that_is_not_needed_is_not_asked(sparrow: Sparrow, tmp_path: Path) -> None:
    nowhere = str(tmp_path / "nowhere")
    archived = ("--archive", nowhere, "--namesrv", NOBODY)
    for arguments, status in (
        (("audit", "T", "--no-live", *archived), 2),
        (("report", "T", "--no-live", *archived, "--plan"), 1),
        (("replay", "--to", "T", "--to-namesrv", sparrow.namesrv, *archived), 1),
    ):
        assert "does not contain an archive" in sparrow("pipe", *arguments, status=status).err


def test_a_query_has_no_tables_without_a_name_server(sparrow: Sparrow) -> None:
    done = sparrow("sql", "select 1", "--namesrv", NOBODY, status=1)
    assert done.err.startswith("sparrow: the name server did not answer: ")
