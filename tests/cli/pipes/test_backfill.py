"""`sparrow pipe backfill` where no Spark is needed; tests/spark/commands/test_pipe_backfill.py runs it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support import about

import sparrowmq as mq
from sparrowmq.cli.pipes.backfill import named, seconds
from sparrowmq.core.errors import SparrowError
from sparrowmq.testing import LocalCluster

if TYPE_CHECKING:
    from tests.cli.conftest import Sparrow


@pytest.fixture(scope="module", autouse=True)
def topic(cluster: LocalCluster) -> str:
    cluster.create_topic("Past", queues=2)
    with mq.Producer("past", namesrv=cluster.namesrv) as producer:
        producer.send_batch([mq.Message("Past", b"x") for _ in range(7)])
    return "Past"


def test_a_plan(sparrow: Sparrow, tmp_path: Path) -> None:
    out = tmp_path / "out"
    asked = ["pipe", "backfill", "Past", "--to", str(out), "--plan"]
    shown = sparrow(*asked, "--window-rows", "3", "--parallel", "5").out
    assert shown.startswith("backfill: 2 steps, 7 messages wait\n")
    assert "windows: 3, of which 0 are done" in shown
    assert "at once: 5" in shown
    (value,) = sparrow(*asked, "--window", "1d", "--where", "tags is null", "--json").values
    assert [step["action"] for step in value["steps"]] == ["read", "write"]
    assert value["rows"] == 7
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "needs either topics or a pattern"),
        (["Past", "--window", "6"], "--window '6': give a whole number and s, m, h or d, such as 6h"),
        (["Past", "--window", "1d", "--window-rows", "5"], "divided either by time or by rows"),
        (["Past", "--parallel", "0"], "parallel=0: must be 1 or more"),
        (["Past", "--since", "now"], "'now' is not a time"),
        (["Past", "--function", "write"], "--function 'write': give MODULE:NAME, such as prices:write"),
        (["Past", "--function", "nowhere:write"], "No module named 'nowhere'"),
        (["Past", "--function", "json:nothing"], "has no attribute 'nothing'"),
        (["Past", "--function", "json:__doc__"], "__doc__ is a str, not a function"),
        (["Nowhere", "--plan"], "Nowhere"),
    ],
)
def test_what_is_wrong_is_said(sparrow: Sparrow, tmp_path: Path, arguments: list[str], text: str) -> None:
    done = sparrow("pipe", "backfill", *arguments, "--to", str(tmp_path / "out"), status=1)
    assert text in done.err
    assert done.err.startswith("sparrow: ")
    assert not (tmp_path / "out").exists()


def test_spans_of_time_are_read() -> None:
    assert [seconds(text) for text in ("90s", "30m", "6h", "1d")] == [90, 1800, 21_600, 86_400]
    for text in ("", "h", "0h", "-1h", "1.5h", "1w"):
        with pytest.raises(SparrowError, check=about(what="--window", value=text)):
            seconds(text)


def test_a_function_is_found_in_this_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "prices_here.py").write_text("def write(rows, window):\n    return 5\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [path for path in __import__("sys").path if path != str(tmp_path)])
    assert named("prices_here:write")(None, None) == 5  # type: ignore[arg-type]
