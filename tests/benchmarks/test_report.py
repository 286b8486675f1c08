"""The report: medians, ratios and the verdicts that `--check` is made of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.peers import APACHE, KAFKA, OURS
from benchmarks.report import LEAST, MOST, Floor, Report, alternate


def _report() -> Report:
    report = Report()
    for ours, apache in ((30.0, 10.0), (10.0, 12.0), (20.0, 8.0)):
        report.add("rate", "msg/s", OURS, ours)
        report.add("rate", "msg/s", APACHE, apache)
    report.add("start", "s", OURS, 0.5)
    return report


def test_medians_and_ratio() -> None:
    series = _report().series["rate"]
    assert (series.median(OURS), series.median(APACHE), series.ratio) == (20.0, 10.0, 2.0)
    assert series.shown(OURS) == "20.0 msg/s (10.0…30.0)"
    assert _report().series["start"].ratio is None
    assert _report().series["start"].shown(APACHE) == "–"


@pytest.mark.parametrize(
    ("floor", "held"),
    [
        (Floor("rate", LEAST, 2.0), True),
        (Floor("rate", LEAST, 2.01), False),
        (Floor("rate", MOST, 2.0), True),
        (Floor("rate", MOST, 1.99), False),
        (Floor("start", MOST, 1.0, absolute=True), True),
        (Floor("start", MOST, 0.4, absolute=True), False),
        (Floor("start", MOST, 1.0), False),
        (Floor("never measured", LEAST, 1.0), False),
    ],
)
def test_floors(floor: Floor, held: bool) -> None:
    assert floor.judge(_report())[0] is held


def test_goals_are_told_and_never_missed() -> None:
    report = _report()
    assert Floor("rate", LEAST, 1.5, goal=2.0).judge(report) == (
        True,
        "rate: at least 1.5 × Apache: 2; the goal of 2 is reached",
    )
    assert (
        Floor("start", MOST, 1.0, absolute=True, goal=0.4)
        .judge(report)[1]
        .endswith("the goal of 0.4 is not reached")
    )
    assert Floor("start", MOST, 0.4, absolute=True, only_goal=True).judge(report) == (
        True,
        "start: at most 0.4: 0.5; a goal, not reached",
    )


def test_without_apache_kafka_is_the_rival() -> None:
    report = Report()
    for name, value in ((OURS, 6.0), (KAFKA, 4.0), ("file", 8.0)):
        report.add("read", "rows/s", name, value)
    assert report.series["read"].ratio == 1.5
    assert Floor("read", LEAST, 1.4).judge(report) == (True, "read: at least 1.4 × Kafka: 1.5")


def test_every_peer_and_ceiling_has_a_column(capsys: pytest.CaptureFixture[str]) -> None:
    report = _report()
    report.add("read", "rows/s", "file", 8.0)
    report.show()
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first.split() == ["ours", "Apache", "RocketMQ", "file", "ratio"]
    assert last.split() == ["read", "–", "–", "8", "rows/s"]


def test_check_prints_each_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    floors = [Floor("rate", LEAST, 2.0), Floor("unknown", MOST, 1.0)]
    assert not _report().check(floors)
    assert capsys.readouterr().out == (
        "ok    rate: at least 2 × Apache: 2\nMISS  unknown: at most 1 × Apache: not measured\n"
    )
    assert _report().check(floors[:1])


def test_the_table_and_the_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    _report().show()
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["rate", "20.0", "msg/s", "(10.0…30.0)", "10.0", "msg/s", "(8…12.0)", "2.00"]
    _report().save(tmp_path / "values.json")
    saved = json.loads((tmp_path / "values.json").read_text())
    assert saved["series"][0]["values"] == {OURS: [30.0, 10.0, 20.0], APACHE: [10.0, 12.0, 8.0]}


def test_peers_take_turns_and_swap() -> None:
    turns: list[str] = []
    alternate(3, [OURS, APACHE], turns.append)
    assert turns == [OURS, APACHE, APACHE, OURS, OURS, APACHE]
