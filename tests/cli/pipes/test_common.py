"""Shared by the pipelines' commands."""

from __future__ import annotations

import importlib
import io
import logging
import os
import tempfile
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from rich.console import Console
from tests.support import about

from sparrowmq.cli.base.common import UsageError
from sparrowmq.cli.pipes.common import (
    PLAIN_SECONDS,
    Bars,
    need_spark,
    pairs,
    session,
)
from sparrowmq.core.errors import SparrowError
from sparrowmq.spark.pipelines.common.watch import Progress, TopicLag


def test_pairs() -> None:
    assert pairs(["a=b=c", "d="], "--conf") == {"a": "b=c", "d": ""}
    assert pairs(None, "--conf") == {}
    for text in ("a", "=b", ""):
        with pytest.raises(UsageError, check=about(what="--conf", value=text)):
            pairs([text], "--conf")


def test_a_missing_package_gives_the_line_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    need_spark()
    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(UsageError, check=about(what="pyspark")):
        need_spark()


def test_without_a_terminal_there_is_a_line_now_and_then() -> None:
    out, clock = io.StringIO(), [0.0]
    with Bars(Console(file=out), now=lambda: clock[0]) as bars:
        bars(Progress("archive", rows=1))
        clock[0] = PLAIN_SECONDS
        bars(Progress("archive"))  # nothing is known yet: nothing to say
        bars(Progress("archive", rows=1500))
        bars(Progress("archive", rows=1600))
        clock[0] = 2 * PLAIN_SECONDS
        bars(Progress("archive", rows=2000, lag=30))
        clock[0] = 3 * PLAIN_SECONDS
        lags = (TopicLag("S", 10, 3.2), TopicLag("T", 1, 1234.4), TopicLag("U", 19), TopicLag("V", 0, 0.0))
        bars(Progress("mirror", rows=3000, lag=30, topics=lags))
    assert out.getvalue().splitlines() == [
        "archive: 1,500 rows, lag not known",
        "archive: 2,000 rows, lag 30",
        "mirror: 3,000 rows, lag 30, T by 1,234 s",
    ]


def test_a_terminal_gets_a_bar() -> None:
    out = io.StringIO()
    with Bars(Console(file=out, force_terminal=True, width=120)) as bars:
        bars(Progress("archive", rows=10, lag=None))
        bars(Progress("archive", rows=30, lag=70))
    assert "30 rows, lag 70" in out.getvalue()
    assert out.getvalue().rstrip("\x1b[?25h").endswith("\n"), "it stays"


def test_the_bar_of_a_query_goes_when_its_result_comes() -> None:
    out = io.StringIO()
    with Bars(Console(file=out, force_terminal=True, width=120), fleeting=True) as bars:
        bars(Progress("sql", rows=30, lag=70))
        shown = out.getvalue()
    assert out.getvalue()[len(shown) :].endswith("\x1b[2K"), "the line is erased"


@dataclass
class Builder:
    """In place of Spark's: says something on standard error when it starts."""

    settings: dict[str, str] = field(default_factory=dict)
    stops: int = 0

    def config(self, name: str, value: str) -> Builder:
        self.settings[name] = value
        return self

    def getOrCreate(self) -> Builder:
        os.write(2, b"from the JVM\n")
        return self

    def stop(self) -> None:
        self.stops += 1


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Builder:
    made = Builder()
    monkeypatch.setattr("sparrowmq.spark.sessions.builder", lambda app, master: made)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return made


def test_a_session_is_quiet_and_leaves_nothing(
    builder: Builder, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with session("archive", "spark://host:7077", ["a.b=c"]):
        assert builder.settings["a.b"] == "c"
        with zipfile.ZipFile(builder.settings["spark.submit.pyFiles"]) as shipped:
            assert {"pyspark_rocketmq.py", "sparrowmq/__init__.py"} <= set(shipped.namelist())
    assert (builder.stops, list(tmp_path.iterdir())) == (1, [])
    with session("archive", "local[2]", []):
        os.write(2, b"from us\n")
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr().err == "from us\n"


def test_a_traceback_of_ctrl_c_is_not_shown(builder: Builder, caplog: pytest.LogCaptureFixture) -> None:
    with session("sql", "local[2]", []):
        logging.error("KeyboardInterrupt while sending command.")
        logging.error("something else")
    assert [record.getMessage() for record in caplog.records] == ["something else"]


def test_what_spark_said_is_kept_when_something_fails(
    builder: Builder, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    failing = pytest.raises(SparrowError, match=r"^offsets 1 to 2 are gone$")
    with failing, session("archive", "local[2]", []):
        raise PySparkException("x\nsparrowmq.core.errors.SettingsError: offsets 1 to 2 are gone\nat y")
    (log,) = tmp_path.iterdir()
    assert log.read_text() == "from the JVM\n"
    assert str(log) in capfd.readouterr().err
    assert builder.stops == 1
