"""The Spark guide's tables are the code's."""

from __future__ import annotations

import pytest
from tests.pages import ROOT, Page

from sparrowmq.columnar.schema import DEFAULT_COLUMNS
from sparrowmq.spark.bodies.schema import SINK_COLUMNS, SOURCE_COLUMNS
from sparrowmq.spark.options.table import ReadOptions, WriteOptions, known_options

PAGE = Page(ROOT / "docs" / "spark.md")


def rows(text: str, first: str) -> list[list[str]]:
    """The rows of the table whose first row starts with `first`."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| `{first}`"))
    found = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        found.append(
            [cell.strip().replace("`", "") for cell in line.replace("\\|", "").strip("|").split("|")]
        )
    return found


def test_columns_of_reads() -> None:
    table = rows(PAGE.prose, "topic")
    assert {row[0]: row[1] for row in table} == dict(SOURCE_COLUMNS)
    extra = {row[0] for row in table if "only with a schema" in row[2]}
    assert extra == set(SOURCE_COLUMNS) - set(DEFAULT_COLUMNS)


def test_columns_of_writes() -> None:
    found: dict[str, str] = {}
    text = PAGE.prose[PAGE.prose.index("## Writing") :]
    for names, kinds, note in rows(text, "body"):
        if " is another name for it" in note:
            found[note.split(" is another name")[0].split()[-1]] = kinds
        pairs = zip(names.split(", "), kinds.split(", ") if ", " in names else [kinds], strict=True)
        found.update(pairs)
    assert found == {name: " or ".join(kinds) for name, kinds in SINK_COLUMNS.items()}


@pytest.mark.parametrize(("heading", "kind"), [("### Options", ReadOptions), ("## Writing", WriteOptions)])
def test_options(heading: str, kind: type) -> None:
    text = PAGE.prose[PAGE.prose.index(heading) :]
    names = [name for row in rows(text, "nameServer") for name in row[0].split(", ")]
    assert sorted(names) == sorted(option.name for option in known_options(kind).values())
    assert len(set(names)) == len(names)


def test_defaults_that_are_numbers() -> None:
    for heading, kind in (("### Options", ReadOptions), ("## Writing", WriteOptions)):
        table = rows(PAGE.prose[PAGE.prose.index(heading) :], "nameServer")
        defaults = {name: row[1] for row in table for name in row[0].split(", ")}
        for field, option in known_options(kind).items():
            text = defaults[option.name]
            if text.isdecimal():
                assert option.parse(option.name, text) == getattr(kind(), field), option.name


def test_what_stops_a_query_is_shown_by_tests_that_are_there() -> None:
    for what, _, tests in PAGE.table("## What stops a query, what does not"):
        shown = [found.strip("`").split("::") for found in tests.split("<br>")]
        assert shown, what
        for file, name in shown:
            assert f"\ndef {name}(" in (ROOT / "tests" / file).read_text(), (file, name)
