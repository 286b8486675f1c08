"""Addresses by default, and tables that are never cut when they are not shown in a terminal."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from sparrowmq.cli.base.common import (
    DEFAULT_NAMESRV,
    complain,
    fitted_widths,
    namesrv_or_default,
    print_json,
    print_table,
)


def test_the_name_server_is_found_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARROW_NAMESRV", raising=False)
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    assert namesrv_or_default(None) == DEFAULT_NAMESRV
    monkeypatch.setenv("NAMESRV_ADDR", "b:1")
    assert namesrv_or_default(None) == "b:1"
    monkeypatch.setenv("SPARROW_NAMESRV", "a:1")
    assert namesrv_or_default(None) == "a:1"
    assert namesrv_or_default("c:1") == "c:1"


def test_tables_keep_long_values_whole(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 500
    print_table(("name", "count"), [(long, 1), ("[b]y[/b]", 22)], right=("count",))
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split() == [long, "1"]
    assert lines[3].split() == ["[b]y[/b]", "22"]
    assert lines[2].rstrip().endswith(" 1")


SERVICES = [
    ("service", "leader", "last run", "outcome"),
    ("inactive-sweep", "host:3920", "2026-11-22 05:47:35", "done: brokers 1, and a few words more of it"),
    ("lag-alarm", "host:3920", "2026-11-22 05:47:35", "done"),
]


@pytest.mark.parametrize("room", [400, 84, 80, 60, 43])
def test_columns_share_a_terminal_and_words_stay_whole(room: int) -> None:
    widths = fitted_widths(SERVICES, room)
    assert sum(widths) <= room
    for place, width in enumerate(widths):
        assert width >= max(len(word) for row in SERVICES for word in row[place].split())
    if room > 84:
        assert widths == [max(len(row[place]) for row in SERVICES) for place in range(4)]


@given(st.data(), st.integers(1, 6), st.integers(0, 130))
def test_no_column_vanishes_and_no_room_is_left_that_one_needs(
    data: st.DataObject, columns: int, room: int
) -> None:
    texts = st.text("ab 漢-", max_size=60)
    rows = data.draw(st.lists(st.tuples(*[texts] * columns), min_size=1, max_size=4))
    widths = fitted_widths(rows, room)
    whole = [max(1, *map(cell_len, column)) for column in zip(*rows, strict=True)]
    assert all(1 <= width <= most for width, most in zip(widths, whole, strict=True))
    assert sum(widths) == max(columns, min(room, sum(whole)))


def test_a_narrow_terminal_breaks_the_longest_words_alone() -> None:
    assert fitted_widths([("id", "x" * 500)], 40) == [2, 38]


@pytest.mark.parametrize("columns", [80, 120])
def test_tables_are_as_wide_as_the_terminal_at_most(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(columns))
    long = ["a-name-of-twenty-five-char", "host:1", "a sentence of quite some words " * 5, 7]
    print_table(("name", "leader", "what", "count"), [long, long], right=("count",))
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in capsys.readouterr().out.splitlines()]
    assert all(len(line) <= columns for line in lines)
    assert sum("a-name-of-twenty-five-char" in line for line in lines) == 2
    print_table(("name", "leader"), [])
    assert capsys.readouterr().out.splitlines()[-1].startswith("none")


def test_a_terminal_too_narrow_for_columns_gets_one_line_a_value(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "60")
    columns = ("member", "address", "version", "standing", "queues", "joined", "lease ends")
    row = (
        "192.0.2.2@4561#75741496837608#2.1795330828023.1",
        "10.0.0.1",
        "0.1.0",
        "active",
        9,
        "07:00:28",
        "–",
    )
    print_table(columns, [row, row], right=("queues",))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"member      {row[0]}"
    assert lines[4] == "queues      9"
    assert lines[7:9] == ["", lines[0]]
    assert len(lines) == 15
    monkeypatch.setenv("COLUMNS", "120")
    print_table(columns, [row, row])
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_json_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": "ü\n", "b": [1, None]})
    assert capsys.readouterr().out == '{"a":"ü\\n","b":[1,null]}\n'


def test_complaints_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    complain("no")
    assert capsys.readouterr() == ("", "sparrow: no\n")
