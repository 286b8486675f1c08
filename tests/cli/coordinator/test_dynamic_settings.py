"""`sparrow setting …`, `sparrow group pause` and `resume` against a coordinator."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import AsyncMock

import pytest
from tests.coordinator.running import Running, running
from tests.support import sqlite_url
from typer.testing import CliRunner

from sparrowmq.cli.coordinator import dynamic_settings
from sparrowmq.cli.main import app
from sparrowmq.coordinator.api.told import offsets
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.groups import resets

if TYPE_CHECKING:
    from tests.cli.conftest import Outcome

Call = Callable[..., "Outcome"]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("settings") / "c.db"


@pytest.fixture(scope="module")
def server(path: Path) -> Iterator[Running]:
    with running(database_url=sqlite_url(path)) as found:
        yield found


@pytest.fixture
def sparrow(server: Running, monkeypatch: pytest.MonkeyPatch) -> Call:
    from tests.cli.conftest import Outcome

    monkeypatch.setenv("SPARROW_COORDINATOR_URL", server.url)
    monkeypatch.setenv("SPARROW_TOKEN", server.token)

    def call(*arguments: str, status: int = 0) -> Outcome:
        result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})
        outcome = Outcome(result.exit_code, result.stdout, result.stderr)
        assert outcome.status == status, f"{outcome}\n{result.exception!r}"
        return outcome

    return call


def test_dynamic_settings_are_listed_with_their_ranges(sparrow: Call) -> None:
    out = sparrow("setting", "list").out
    assert "threads" in out
    assert "1 to 1000 handlers" in out
    (pause,) = [
        one for one in map(json.loads, sparrow("setting", "list", "--json").out.splitlines())
        if one["name"] == "pause"
    ]  # fmt: skip
    assert pause["obeyed_by"] == "brokers"


def test_a_setting_is_set_shown_and_unset(sparrow: Call) -> None:
    assert (
        sparrow("setting", "set", "a", "threads", "8", "--reason", "slow day").out
        == "threads of a set to 8\n"
    )
    sparrow("setting", "set", "a", "deny", "10.0.0.5,10.1.0.0/16", "--minutes", "5")
    sparrow("setting", "set", "a", "tags", "TagA || TagB", "--place", "Orders")
    out = sparrow("setting", "show", "a").out
    for text in ("a: revision 3", "slow day", "10.0.0.5/32, 10.1.0.0/16", "TagA || TagB", "admin"):
        assert text in out
    shown = json.loads(sparrow("setting", "show", "a", "--json").out)
    assert [one["setting"] for one in shown["settings"]] == ["deny", "tags", "threads"]
    assert "slow day" in sparrow("setting", "show").out
    assert any(
        json.loads(line)["group"] == "a" for line in sparrow("setting", "show", "--json").out.splitlines()
    )
    err = sparrow("setting", "unset", "a", "threads", "--if-revision", "2", status=1).err
    assert "group a has changed in the meantime: it is at revision 3, you saw 2" in err
    out = sparrow("setting", "unset", "a", "tags", "--place", "Orders", "--if-revision", "3").out
    assert out == "tags of a unset for Orders\n"
    assert "threads is not set for *" in sparrow("setting", "unset", "b", "threads", status=1).err
    out = sparrow("audit", "--object", "a").out
    assert "setting.set" in out
    assert "slow day" in out


def test_the_old_command_still_works_and_names_the_new_one(sparrow: Call) -> None:
    assert sparrow("knob", "set", "old", "threads", "8", "--reason", "slow day").err.startswith(
        "sparrow knob is deprecated: use sparrow setting"
    )
    assert sparrow("knob", "show", "old").out == sparrow("setting", "show", "old").out
    assert "deprecated" not in sparrow("setting", "show", "old").err
    assert "knob" not in sparrow("--help").out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("threads", "0"), "threads=0 is out of range: must be a whole number, 1 to 1000 handlers"),
        (("threads", "many"), "threads='many' is out of range"),
        (("thread", "5"), "there is no dynamic setting 'thread'; there are threads"),
        (("threads", "5", "--place", "Orders"), "threads cannot be set for Orders"),
        (("threads", "5", "--if-revision", "7"), "has changed in the meantime"),
    ],
)
def test_what_cannot_be_is_refused_in_words(sparrow: Call, arguments: tuple[str, ...], text: str) -> None:
    assert text in sparrow("setting", "set", "c", *arguments, status=1).err
    assert json.loads(sparrow("setting", "show", "c", "--json").out)["settings"] == []


def test_groups_topics_and_queues_are_paused_and_resumed(sparrow: Call) -> None:
    assert sparrow("group", "pause", "d", "--reason", "ledger").out == "d paused\n"
    assert sparrow("group", "pause", "d", "Orders/3", "--minutes", "5").out == "d Orders/3 paused for 5 min\n"
    shown = json.loads(sparrow("setting", "show", "d", "--json").out)["settings"]
    assert [(one["place"], one["until_ms"] is None) for one in shown] == [("*", True), ("Orders/3", False)]
    assert sparrow("group", "resume", "d", "Orders/3").out == "d Orders/3 resumed\n"
    assert sparrow("group", "resume", "d").out == "d resumed\n"
    assert "pause is not set" in sparrow("group", "resume", "d", status=1).err


def test_a_time_below_a_second_is_not_taken_as_unlimited(sparrow: Call) -> None:
    out = sparrow("setting", "set", "h", "threads", "8", "--minutes", "0.001")
    assert "group h has no known members now" in out.err
    (shown,) = json.loads(sparrow("setting", "show", "h", "--json").out)["settings"] or [{"until_ms": 1}]
    assert shown["until_ms"] is not None


def carried_out(path: Path, **how: object) -> Callable[[float], None]:
    """In place of waiting: the leader carries out what waits."""

    def sleep(seconds: float) -> None:
        database = Database(sqlite_url(path))
        try:
            with database.write() as connection:
                for wish in resets.waiting(connection):
                    resets.end(connection, wish, **how)  # type: ignore[arg-type]
        finally:
            database.close()

    return sleep


def test_a_group_goes_on_elsewhere(sparrow: Call, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = carried_out(path, before={"Orders/b/0": 9}, after={"Orders/b/0": 2})
    monkeypatch.setattr(time, "sleep", done)
    out = sparrow("setting", "offset", "e", "Orders/0", "--number", "2", "--reason", "again").out
    assert "Orders/b/0" in out
    assert ("9" in out, "2" in out) == (True, True)
    for to in ("first", "2024-05-01T12:30", "1714566600000"):
        found = json.loads(sparrow("setting", "offset", "e", "Orders", "--to", to, "--json").out)
        assert found["state"] == "done"
    monkeypatch.setattr(time, "sleep", carried_out(path, problem="no such topic"))
    assert "no such topic" in sparrow("setting", "offset", "e", "Orders", "--to", "last", status=1).err
    out = sparrow("setting", "offsets", "e").out
    assert "no such topic" in out
    assert len(sparrow("setting", "offsets", "e", "--json").out.splitlines()) == 5


def test_last_move_is_undone_and_shown_before(
    sparrow: Call, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "no reset of group u was carried out" in sparrow("setting", "undo", "u", status=1).err
    step = {"broker": "b", "queue": 0, "before": None, "after": 9, "again": None, "never": None}
    monkeypatch.setattr(offsets, "reset_steps", AsyncMock(return_value=[step]))
    done = carried_out(path, before={"Orders/b/0": 9}, after={"Orders/b/0": 2})
    monkeypatch.setattr(time, "sleep", done)
    sparrow("setting", "offset", "u", "Orders/0", "--number", "2")
    out = sparrow("setting", "undo", "u", "--dry-run").out
    assert "Orders/0 to offset:2, would be undone" in out and "Orders/b/0" in out and "unknown" in out
    steps = json.loads(sparrow("setting", "undo", "u", "--dry-run", "--json").out)["steps"]
    assert steps == [step]
    assert "Orders/b/0" in sparrow("setting", "undo", "u", "--reason", "too early").out
    newest = json.loads(sparrow("setting", "offsets", "u", "--json").out.splitlines()[0])
    assert newest["to"].startswith("undo:") and newest["reason"] == "too early"


def test_a_place_to_go_to_is_said_once(sparrow: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "give a target" in sparrow("setting", "offset", "f", "Orders", status=1).err
    both = ("--to", "last", "--number", "1")
    assert "give a target" in sparrow("setting", "offset", "f", "Orders", *both, status=1).err
    assert (
        "is not a valid target" in sparrow("setting", "offset", "f", "Orders", "--to", "soon", status=1).err
    )
    monkeypatch.setattr(dynamic_settings, "WAIT_SECONDS", 0.0)
    assert "it is still waiting" in sparrow("setting", "offset", "f", "Orders", "--to", "last", status=1).err


def test_all_entries_of_the_audit_log_are_read_page_by_page(
    sparrow: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparrowmq.cli.coordinator.watching.ENTRIES_MAX", 2)
    for value in range(1, 6):
        sparrow("setting", "set", "paged", "threads", str(value))
    found = [one["after"] for one in sparrow("audit", "--object", "paged", "--all", "--json").values]
    assert len(found) == 5
    assert "add --json" in sparrow("audit", "--all", status=1).err
