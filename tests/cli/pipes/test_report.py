"""`sparrow pipe report` where no Spark is needed."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as parquet
import pytest

import sparrowmq as mq
from sparrowmq.cli.pipes.report import date_of
from sparrowmq.testing import LocalCluster

if TYPE_CHECKING:
    from tests.cli.conftest import Sparrow


@pytest.fixture(scope="module", autouse=True)
def topic(cluster: LocalCluster) -> str:
    cluster.create_topic("Reported", queues=2)
    with mq.Producer("reported", namesrv=cluster.namesrv) as producer:
        queue = producer.send_batch([mq.Message("Reported", b"x") for _ in range(7)]).queue
    with mq.Admin(cluster.namesrv) as admin:
        admin.groups.create("readers_of_reports")
        admin.groups.commit("readers_of_reports", queue, 3)
    return "Reported"


def test_a_plan(sparrow: Sparrow, tmp_path: Path) -> None:
    where = tmp_path / "report"
    shown = sparrow("pipe", "report", "Reported", "--day", "today", "--to", str(where), "--plan").out
    assert shown.startswith("report: 3 steps, 7 messages wait\n")
    assert f"replace {where}/report-{datetime.now(UTC).date()}.html" in shown
    (value,) = sparrow("pipe", "report", "Reported", "--days", "2", "--plan", "--json").values
    assert [step["action"] for step in value["steps"]] == ["take a snapshot"] + ["read", "replace"] * 2
    assert not where.exists()


def test_a_snapshot(sparrow: Sparrow, tmp_path: Path) -> None:
    done = sparrow("pipe", "report", "Reported", "--to", str(tmp_path), "--snapshot").out
    rows = [row for row in parquet.read_table(done.strip()).to_pylist() if row["end_offset"] == 7]
    (row,) = (row for row in rows if row["group"] == "readers_of_reports")
    assert row["committed"] == 3 and row["waits_since"] > 0


def test_dates() -> None:
    assert date_of("yesterday", "UTC") is None
    assert date_of("2026-11-21", "UTC") == date(2026, 11, 21)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["Reported", "--day", "monday"], "--day 'monday': give a date such as"),
        (["Reported", "--day", "2999-01-01"], "day=2999-01-01 is in the future"),
        (["Reported", "--day", "today", "--time-zone", "Nowhere"], "'Nowhere' is not a time zone"),
        (["Reported", "--no-live"], "an archive is needed"),
        (["Nowhere", "--plan"], "Nowhere"),
    ],
)
def test_what_is_wrong_is_said(sparrow: Sparrow, tmp_path: Path, arguments: list[str], text: str) -> None:
    command = ["pipe", "report", *arguments, "--to", str(tmp_path / "r")]
    done = sparrow(*command, *([] if "--plan" in arguments else ["--plan"]), status=1)
    assert text in done.err
    assert done.err.startswith("sparrow: ")
