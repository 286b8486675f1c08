"""Addresses by default, and tables that are never cut when they are not shown in a terminal."""

from __future__ import annotations

import pytest

from sparrowmq.cli.common import DEFAULT_NAMESRV, complain, namesrv_or_default, print_json, print_table


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


def test_json_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": "ü\n", "b": [1, None]})
    assert capsys.readouterr().out == '{"a":"ü\\n","b":[1,null]}\n'


def test_complaints_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    complain("no")
    assert capsys.readouterr() == ("", "sparrow: no\n")
