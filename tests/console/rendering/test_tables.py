from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from sparrowmq.console.tables import (
    CHOICES_MAX,
    PAGE_ROWS,
    Column,
    Table,
    TableQuery,
    as_csv,
    in_order,
    make_table,
)
from sparrowmq.console.texts import words

COLUMNS = (
    Column("name", filtered=True),
    Column("lag", "number"),
    Column("at", "time"),
    Column("tags", "list"),
)
ROWS: list[dict[str, Any]] = [
    {"name": "beta", "lag": 5, "at": 1_000, "tags": ["x", "y"]},
    {"name": "Alpha", "lag": None, "at": 0, "tags": []},
    {"name": "gamma", "lag": 70, "at": 3_000, "tags": ["y"]},
]


def table(rows: list[dict[str, Any]] = ROWS, **query: str) -> Table:
    return make_table(
        "t",
        COLUMNS,
        rows,
        TableQuery("/p", {name.replace("__", "."): value for name, value in query.items()}, is_whole=True),
    )


def names(found: Table) -> list[str]:
    return [row["name"] for row in found.rows]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, ["beta", "Alpha", "gamma"]),
        ({"t__sort": "name"}, ["Alpha", "beta", "gamma"]),
        ({"t__sort": "-lag"}, ["gamma", "beta", "Alpha"]),
        ({"t__sort": "lag"}, ["beta", "gamma", "Alpha"]),
        ({"t__sort": "nothing"}, ["beta", "Alpha", "gamma"]),
        ({"t__sort": "--lag"}, ["beta", "Alpha", "gamma"]),
        ({"t__q": "ALPHA"}, ["Alpha"]),
        ({"t__q": "y 70"}, ["gamma"]),
        ({"t__q": "3000"}, []),
        ({"t__is.name": "beta"}, ["beta"]),
        ({"t__is.lag": "5"}, ["beta", "Alpha", "gamma"]),
        ({"other__q": "beta"}, ["beta", "Alpha", "gamma"]),
    ],
    ids=str,
)
def test_address_selects_rows_and_order(query: dict[str, str], expected: list[str]) -> None:
    assert names(table(**query)) == expected


def test_filter_offers_a_bounded_number_of_values_and_the_picked_one() -> None:
    rows = [{"name": f"n{number:05}"} for number in range(CHOICES_MAX + 50)]
    assert len(table(rows[:CHOICES_MAX]).choices["name"]) == CHOICES_MAX
    first = table(rows).choices["name"]
    assert (len(first), first[0], first[-1]) == (CHOICES_MAX, "n00000", f"n{CHOICES_MAX - 1:05}")
    last = rows[-1]["name"]
    found = table(rows, **{"t__is.name": last})
    assert names(found) == [last] and found.choices["name"] == [*first, last]
    assert table(rows, **{"t__is.name": "nothing"}).choices["name"] == first


def test_unknown_values_are_sorted_last_in_both_directions() -> None:
    assert [row["lag"] for row in in_order(ROWS, "lag")] == [5, 70, None]
    assert [row["lag"] for row in in_order(ROWS, "-lag")] == [70, 5, None]


def test_numbers_and_texts_in_one_column_are_sorted() -> None:
    mixed = [{"lag": "none"}, {"lag": 3}, {"lag": True}]
    assert [row["lag"] for row in in_order(mixed, "lag")] == [True, 3, "none"]


def test_rows_are_split_into_pages() -> None:
    many = [{"name": f"n{number:03}", "lag": number} for number in range(2 * PAGE_ROWS + 1)]
    found = table(many, t__page="3")
    assert (found.page, found.pages, names(found)) == (3, 3, ["n100"])
    assert table(many, t__page="99").page == 3
    for odd in ("0", "-1", "x", "9" * 30, ""):
        assert table(many, t__page=odd).page == 1
    assert found.page_link(2) == "/p?t.page=2"


def test_links_keep_the_other_fields_of_the_address() -> None:
    found = table(t__q="a&b", t__page="2", u__q="x", t__sort="lag")
    assert found.sort_link("lag") == "/p?t.q=a%26b&u.q=x&t.sort=-lag"
    assert found.sort_link("name") == "/p?t.q=a%26b&u.q=x&t.sort=name"
    assert found.others == {"u.q": "x", "t.sort": "lag"}
    assert found.csv_link.endswith("&_csv=t")
    assert (found.sorted_by("lag"), found.sorted_by("name")) == ("ascending", "none")


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\t", "\r", "\n"])
def test_exported_texts_never_begin_a_formula(begin: str) -> None:
    made = as_csv(
        table([{"name": f"{begin}1+1", "lag": -5, "at": 1_700_000_000_000, "tags": ["=x"]}]), words("en")
    )
    (_, row) = csv.reader(io.StringIO(made, newline=""))
    assert row == [f"'{begin}1+1", "-5", "2023-11-14T22:13:20.000Z", "'=x"]


def test_csv_has_every_matching_row_and_marks_unknown_values() -> None:
    many = [{"name": f"n{number}", "lag": None} for number in range(PAGE_ROWS + 1)]
    lines = as_csv(table(many), words("zh")).splitlines()
    assert len(lines) == PAGE_ROWS + 2 and lines[1] == "n0,未知,未知,未知"


def test_all_matching_rows_are_kept_for_csv_alone() -> None:
    found = make_table("t", COLUMNS, ROWS * 100, TableQuery("/p"))
    assert len(found.rows) == PAGE_ROWS and found.found == found.total == len(ROWS) * 100
    assert found.matching == (), "an open page keeps what it showed"
    whole = make_table("t", COLUMNS, ROWS * 100, TableQuery("/p", is_whole=True))
    assert len(whole.matching) == whole.found
