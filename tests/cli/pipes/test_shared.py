"""Options that commands share: they are the command's own, and reach it as one value."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, fields
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import pytest
import typer
from tests.support import about
from typer.testing import CliRunner

from sparrowmq.cli.base.common import UsageError
from sparrowmq.cli.main import app
from sparrowmq.cli.pipes.common import Show
from sparrowmq.cli.pipes.shared import Shared, with_options
from sparrowmq.cli.pipes.zones import SETTING


@dataclass(frozen=True, slots=True, kw_only=True)
class Sized:
    """Options of one command."""

    least: Annotated[int, typer.Option(help="At least.")] = 1
    most: Annotated[int, typer.Option(help="At most.")] = 9


def made(seen: list[tuple[list[str], int, Shared]]) -> typer.Typer:
    small = typer.Typer()

    @small.command()
    @with_options
    def work(
        topics: Annotated[list[str], typer.Argument(help="Topics.")],
        many: Annotated[int, typer.Option(help="How many.")] = 3,
        *,
        shared: Shared,
    ) -> None:
        """Does it."""
        seen.append((topics, many, shared))

    return small


def test_a_command_gets_them_all_as_one() -> None:
    seen: list[tuple[list[str], int, Shared]] = []
    assert CliRunner().invoke(made(seen), ["A", "B"]).exit_code == 0
    given = [
        "A",
        "--many",
        "4",
        "--namesrv",
        "h:1",
        "--master",
        "local[3]",
        "--conf",
        "a=b",
        "--option",
        "x=y",
    ]
    given += ["--plan", "--dry-run", "--progress", "json", "--metrics", "h:2", "--json"]
    assert CliRunner().invoke(made(seen), given).exit_code == 0
    assert seen[0] == (["A", "B"], 3, Shared())
    topics, many, shared = seen[1]
    assert (topics, many, shared.plan, shared.dry_run, shared.as_json) == (["A"], 4, True, True, True)
    assert shared.source == {"name_server": "h:1", "options": {"x": "y"}}
    assert shared.cluster == {"x": "y", "nameServer": "h:1"}
    assert (shared.master, shared.spark_conf) == ("local[3]", (f"{SETTING}=UTC", "a=b"))
    assert (shared.show, shared.metrics) == (Show.JSON, "h:2")


def test_a_command_has_groups_of_its_own_and_their_options_stand_where_the_group_does() -> None:
    seen: list[tuple[str, Sized, Shared]] = []
    small = typer.Typer()

    @small.command()
    @with_options
    def work(
        topic: Annotated[str, typer.Argument(help="A topic.")] = "T", *, sized: Sized, shared: Shared
    ) -> None:
        """Does it."""
        seen.append((topic, sized, shared))

    assert CliRunner().invoke(small, ["--most", "4", "--json"]).exit_code == 0
    assert CliRunner().invoke(small, ["U"]).exit_code == 0
    assert seen == [("T", Sized(most=4), Shared(as_json=True)), ("U", Sized(), Shared())]
    command: Any = typer.main.get_command(small)
    assert [one.name for one in command.params][:3] == ["topic", "least", "most"]


def test_there_is_one_time_zone() -> None:
    given = Shared(time_zone="Asia/Tokyo", conf=["a=b"])
    assert given.spark_conf == (f"{SETTING}=Asia/Tokyo", "a=b")
    assert given.zone == ZoneInfo("Asia/Tokyo")
    with pytest.raises(UsageError, check=about(what="zone", value="Nowhere")):
        Shared(time_zone="Nowhere")
    with pytest.raises(UsageError, check=about(what="--conf", value=SETTING)):
        Shared(conf=[f"{SETTING}=Asia/Tokyo"])


def test_wrong_and_missing_ones_are_told() -> None:
    seen: list[tuple[list[str], int, Shared]] = []
    wrong = CliRunner().invoke(made(seen), ["A", "--progress", "loud"])
    assert wrong.exit_code == 2 and "'loud'" in wrong.output
    assert CliRunner().invoke(made(seen), []).exit_code == 2
    assert not seen


@pytest.mark.parametrize(
    "name", ["archive", "audit", "backfill", "history", "mirror", "replay", "report", "store", "sql"]
)
def test_every_pipeline_has_them(name: str) -> None:
    group: Any = typer.main.get_command(app)
    command = group.commands[name] if name == "sql" else group.commands["pipe"].commands[name]
    names = [one.name for one in command.params]
    expected = [one.name for one in fields(Shared) if (name, one.name) != ("store", "namesrv")]
    assert names[-len(expected) :] == expected
    assert "shared" not in names
    assert ("namesrv" in names) == (name != "store"), "a store is read without a cluster"
    assert command.help and inspect.cleandoc(command.help)
