"""`sparrow sql`: its input and its output; tests/spark runs queries."""

from __future__ import annotations

import datetime
import io
from contextlib import nullcontext
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from sparrowmq.cli.pipes.shared import Shared
from sparrowmq.cli.pipes.sql import Console, _show, _show_columns, _value, statements
from sparrowmq.core.errors import SparrowError
from sparrowmq.spark.pipelines.query import sql as pipeline

if TYPE_CHECKING:
    from tests.cli.conftest import Sparrow


def typed(text: str) -> list[str]:
    return list(statements(io.StringIO(text).readline))


def test_queries_end_with_a_semicolon_or_the_input() -> None:
    assert typed("select 1;\nselect\n  2\n;\n\\t\n;\nselect 3") == [
        "select 1",
        "select\n  2",
        "\\t",
        "select 3",
    ]
    assert typed("") == typed("\n\n") == typed(";;\n") == []
    assert typed("select \\x\n\\q;") == ["select \\x\n\\q"]
    assert typed("select 1; select 2;  -- done;\nselect ';' -- it's\n;\n-- end\n\\t\n") == [
        "select 1",
        "select 2",
        "select ';' -- it's",
        "\\t",
    ]


def test_values() -> None:
    assert _value(b"a\xff") == "a�"
    assert _value(datetime.date(2026, 1, 2)) == "2026-01-02"
    assert [_value(value) for value in (None, 1, True, 1.5, "x")] == [None, 1, True, 1.5, "x"]
    assert _value(float("nan")) == "NaN"
    assert [_value(sign * float("inf")) for sign in (1, -1)] == ["Infinity", "-Infinity"]


def test_nested_values_are_json(capsys: pytest.CaptureFixture[str]) -> None:
    at = datetime.datetime(2026, 1, 2, 3, 4, 5)
    nested = [{"t": at, "b": [bytearray(b"x")]}, {7: Decimal("1.50"), None: float("nan")}]
    _show(("a", "b"), [nested], 1, True)
    assert capsys.readouterr().out == (
        '{"a":{"t":"2026-01-02 03:04:05","b":["x"]},"b":{"7":"1.50","None":"NaN"}}\n'
    )


def rows(count: int) -> list[list[Any]]:
    return [[number, b"x"] for number in range(count)]


def test_rows_are_shown_up_to_a_limit(capsys: pytest.CaptureFixture[str]) -> None:
    _show(("a", "b"), rows(3), 2, True)
    shown = capsys.readouterr()
    assert shown.out == '{"a":0,"b":"x"}\n{"a":1,"b":"x"}\n'
    assert "only the first 2 rows are shown" in shown.err
    _show(("a", "b"), rows(5), 5, False)
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 7
    assert shown.err == ""


def test_the_columns_of_a_result(capsys: pytest.CaptureFixture[str]) -> None:
    columns = [("tags", "string"), ("n", "bigint")]
    _show_columns(columns, True)
    assert capsys.readouterr().out.splitlines()[1] == '{"column":"n","type":"bigint"}'
    _show_columns(columns, False)
    assert capsys.readouterr().out.splitlines()[-1].split() == ["n", "bigint"]


def test_a_wrong_query_does_not_end_the_prompt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from pyspark.errors import AnalysisException

    def refuse(*_: object) -> None:
        raise AnalysisException("[TABLE_OR_VIEW_NOT_FOUND] The table `x` cannot be found.\nlong text")

    monkeypatch.setattr(pipeline, "plan_sql", refuse)
    monkeypatch.setattr(pipeline, "tables_of", lambda settings: ["Orders"])
    console = Console(None, pipeline.SqlSettings(name_server="h:1"), 10, Shared())  # type: ignore[arg-type]
    assert not console.failed
    assert console.run("select * from x")
    assert console.failed
    assert "The table `x` cannot be found." in capsys.readouterr().err
    assert console.run("\\t")
    assert "Orders" in capsys.readouterr().out
    assert console.run("\\x")
    assert "\\x is not a command" in capsys.readouterr().err
    assert not console.run("\\q")


def test_a_script_with_a_failed_query_ends_with_status_1(
    sparrow: Sparrow, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    def query(console: Console, text: str, tables: object = None) -> None:
        ran.append(text)
        if "wrong" in text:
            raise SparrowError("column wrong is unknown")

    monkeypatch.setattr(Console, "query", query)
    monkeypatch.setattr("sparrowmq.cli.pipes.sql.session", lambda *_: nullcontext())
    assert "column wrong is unknown" in sparrow("sql", stdin="select wrong; select 2;", status=1).err
    assert ran == ["select wrong", "select 2"]
    sparrow("sql", stdin="select 3")
    sparrow("sql", "select 4; select 5 -- the last;")
    assert ran[2:] == ["select 3", "select 4", "select 5 -- the last;"]


def test_what_is_wrong_is_said_before_spark_starts(sparrow: Sparrow) -> None:
    assert "needs an archive" in sparrow("sql", "select 1", "--archive-only", status=1).err
    assert "does not contain an archive" in sparrow("sql", "select 1", "--archive", "/nowhere", status=1).err
    assert "--plan needs a query" in sparrow("sql", "--plan", status=1).err
    assert "--rows 0: must be 1 or more" in sparrow("sql", "select 1", "--rows", "0", status=1).err
