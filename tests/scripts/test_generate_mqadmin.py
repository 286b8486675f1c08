"""The page of `mqadmin`: made from what was recorded, which is what the table of cases expects."""

from __future__ import annotations

import pytest
from scripts.generate_mqadmin import PAGE, judged, markdown, page
from tests.interop.mqadmin.commands import CASES, COMMANDS, Case, Facts
from tests.interop.mqadmin.compare import Shown, differences, shown, surprises
from tests.interop.mqadmin.record import Seen, read

from sparrowmq.cli.main import app


def test_the_page_is_what_the_script_writes() -> None:
    text = PAGE.read_text()
    assert page(text, markdown(read())) == text, "run scripts/generate_mqadmin.py"


def test_each_case_was_seen_and_is_the_same_or_has_a_reason() -> None:
    seen = read()
    assert [row.case for row in seen] == [case.id for case in CASES]
    assert [case.id for case, row in zip(CASES, seen, strict=True) if row.same is bool(case.reason)] == []
    assert [case.id for case in CASES if bool(case.leaves_out) is not bool(case.apart)] == []


def test_each_command_named_beside_mqadmins_exists() -> None:
    import typer

    root = typer.main.get_command(app)
    for command in COMMANDS.values():
        for name in filter(None, command.sparrow.split(", ")):
            found = root
            for part in name.split():
                found = found.commands[part]  # type: ignore[attr-defined]


def test_a_row() -> None:
    row = Seen("topicList", [206], "0", "0, code 1", same=False)
    assert judged(Case(command="topicList", reason="because"), row) == "because"
    assert judged(Case(command="topicList", leaves_out=("x",), apart="x"), row) == "same, apart from x"


def show(*lines: str, status: int | None = 0, answers: dict[int, list[int]] | None = None) -> Shown:
    texts = [{"asked": code, "answered": one} for code, ones in (answers or {}).items() for one in ones]
    return shown(status, lines, texts, {"10.0.0.1:7": "BROKER"})


def test_what_differs_from_run_to_run_does_not_count() -> None:
    case = Case(command="x")
    ours = show(
        "at 10.0.0.1:7", "1795435238831 2026-11-23 12:00:01", "took 3 ms", "CODE: 1  DESC: one", "-----"
    )
    apache = show("CODE: 1  DESC: other", "at 10.0.0.1:7", "1795435238999 2026-11-23 12:00:02", "took 99 ms")
    assert differences(case, ours, apache) == []


def test_status_codes_and_lines_count() -> None:
    ours = show("same", "ours 1", answers={17: [0], 34: [0]})
    apache = show("same", "theirs 2", status=1, answers={17: [0, 1], 105: [0]})
    assert differences(Case(command="x"), ours, apache) == [
        "exit status: 0, Apache's 1",
        "request 17: 0, Apache's 0 and 1",
        "request 105: not asked, Apache's 0",
        "only ours: ours 1",
        "only Apache's: theirs 2",
    ]


@pytest.mark.parametrize(
    ("kind", "ours", "apache", "same"),
    [
        (Facts.NUMBERS, "rate 1.5", "rate 20", True),
        (Facts.NUMBERS, "rate 1.5", "speed 1.5", False),
        (Facts.NAMES, "a : 1\nb = 2", "a : 3", True),
        (Facts.NAMES, "a : 1", "a : 3\nb = 2", False),
        (Facts.STATUS, "a", "b", True),
    ],
)
def test_facts(kind: Facts, ours: str, apache: str, same: bool) -> None:
    assert (differences(Case(command="x", facts=kind), show(ours), show(apache)) == []) is same


def test_lines_that_are_left_out() -> None:
    case = Case(command="x", leaves_out=("^TPS",), apart="the rate")
    assert differences(case, show("TPS 1", "same"), show("TPS 2", "same")) == []


def test_an_expected_difference_must_be_there_and_be_told() -> None:
    case = Case(command="x", reason="no such thing", ours="not here")
    assert surprises(case, show("it is not here"), show("done")) == []
    assert surprises(case, show("done"), show("done")) == [
        "it is the same, and it was expected to differ: no such thing"
    ]
    assert surprises(case, show("crash"), show("done"))[0] == "ours does not tell 'not here'"
    assert surprises(Case(command="x"), show("a"), show("b")) == ["only ours: a", "only Apache's: b"]
