"""The benchmark of coordination: its quantiles, its fenced pulls, its coordinator that counts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from benchmarks.coordination import quantile
from benchmarks.coordinator import coordinator
from benchmarks.load import LoadError
from benchmarks.members import _burst
from benchmarks.options import quick
from benchmarks.report import Report
from tests.support import run

from benchmarks import fencing
from sparrowmq.testing import LocalCluster


@pytest.mark.parametrize(
    ("values", "share", "value"),
    [
        ([3.0], 0.5, 3.0),
        ([4.0, 1.0, 3.0, 2.0], 0.5, 2.0),
        ([*map(float, range(1, 101))], 0.99, 99.0),
        ([1.0, 2.0], 0.99, 2.0),
    ],
)
def test_quantiles_are_values_that_were_measured(values: list[float], share: float, value: float) -> None:
    assert quantile(values, share) == value


def test_fenced_pulls_bring_messages_under_their_generation_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fencing, "PAIRS", 4)
    report = Report()
    run(fencing._measure(quick(["ours"]), report, tmp_path))
    assert len(report.series[fencing.TITLE].values["ours"]) == 4

    async def unfenced() -> None:
        async with fencing.two_rigs(tmp_path / "again") as (free, fenced):
            assert await fencing._used(free, fencing.pulls(None)) > 0
            with pytest.raises(LoadError, match="an answer is an error"):
                await fencing._used(fenced, fencing.pulls(None))

    asyncio.run(unfenced())


def test_a_burst_is_found_whole_and_statements_are_counted(sparrow_cluster: LocalCluster) -> None:
    report = Report()
    with coordinator(sparrow_cluster.namesrv) as counted:
        before = counted.counts()
        _burst(counted, 16, report)
        after = counted.counts()
    assert report.series["an audit burst: entries stored of 10,000"].values["ours"] == [10_000.0]
    assert after.statements - before.statements >= 3 * 16
    assert after.requests == before.requests == 0
