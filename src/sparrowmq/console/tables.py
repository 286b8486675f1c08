"""Tables of the pages: searched, filtered and sorted by the URL's parameters, with pages, and as CSV. Pure.

A table `groups` uses the parameters `groups.q`, `groups.sort` (`lag` or `-lag`), `groups.page` and
`groups.is.COLUMN`, so that a shared URL shows the same rows.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Any, Final
from urllib.parse import urlencode

from sparrowmq.console import shown
from sparrowmq.console.texts import Words
from sparrowmq.core.outside import cell

Row = Mapping[str, Any]
PAGE_ROWS: Final = 50
SEARCH_CHARS_MAX: Final = 200
CHOICES_MAX: Final = 200
"""Maximum number of values that a filter offers; the search finds the rows with others."""
NUMBERS: Final = frozenset({"number", "bytes", "rate", "span"})


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `key` is a row's member and the name of its title in the catalogue; `kind` how values are
    shown: text, long (a text that is never clipped), number, bytes, rate, span, time, due (a time, or none),
    state, list, or pick (a box to tick).
    `link` gives the address of a row's page.
    """

    key: str
    kind: str = "text"
    link: Callable[[Row], str] | None = None
    filtered: bool = False
    """Whether users can filter by its values."""

    @property
    def is_number(self) -> bool:
        """Whether it is aligned to the right."""
        return self.kind in NUMBERS


@dataclass(frozen=True)
class Table:
    """The displayed rows, and the number of matching rows and of all rows.

    `matching` are all matching rows, which only its CSV needs: an open page keeps what it showed last, and
    would keep all of them.
    """

    name: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    found: int
    total: int
    page: int
    pages: int
    search: str
    sort: str
    picked: Mapping[str, str]
    choices: Mapping[str, Sequence[str]]
    query: Mapping[str, str]
    path: str
    empty: str = ""
    """The key of the advice that an empty table shows."""
    older: int | None = None
    """For a table that is read in pages: where the next page begins."""
    matching: Sequence[Row] = ()

    def sorted_by(self, key: str) -> str:
        """The sort order of a column, as a value of `aria-sort`."""
        if self.sort.lstrip("-") != key:
            return "none"
        return "descending" if self.sort.startswith("-") else "ascending"

    def sort_link(self, key: str) -> str:
        """The address that sorts by a column, or reverses the order if it is already sorted by it."""
        turned = f"-{key}" if self.sort == key else key
        return self.link(sort=turned, page=None)

    def page_link(self, page: int) -> str:
        """The address of another page."""
        return self.link(page=str(page))

    @property
    def csv_link(self) -> str:
        """The address of all matching rows as CSV."""
        return f"{self.path}?{urlencode({**self.query, '_csv': self.name})}"

    def link(self, **changes: str | None) -> str:
        """The address with some fields of this table changed."""
        fields = dict(self.query)
        for name, value in changes.items():
            fields.pop(f"{self.name}.{name}", None)
            if value is not None:
                fields[f"{self.name}.{name}"] = value
        return f"{self.path}?{urlencode(fields)}" if fields else self.path

    @property
    def others(self) -> Mapping[str, str]:
        """The fields of the address that a search keeps."""
        mine = (f"{self.name}.q", f"{self.name}.page", f"{self.name}.is.", f"{self.name}.before")
        return {name: value for name, value in self.query.items() if not name.startswith(mine)}


@dataclass(frozen=True)
class TableQuery:
    """The page of a table, and the parameters of its address. `is_whole` asks for all matching rows."""

    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    is_whole: bool = False


def make_table(
    name: str,
    columns: Sequence[Column],
    rows: Sequence[Row],
    wanted: TableQuery,
    *,
    sort: str = "",
    empty: str = "",
) -> Table:
    """A table of all `rows` according to the parameters; `sort` is the default order."""
    query = wanted.query
    search = query.get(f"{name}.q", "")[:SEARCH_CHARS_MAX]
    keys = {one.key for one in columns}
    asked = query.get(f"{name}.sort", "")
    order = asked if asked.lstrip("-") in keys and not asked.startswith("--") else sort
    filters = [one.key for one in columns if one.filtered]
    picked = {key: query[f"{name}.is.{key}"] for key in filters if query.get(f"{name}.is.{key}")}
    choices = {key: _choices(rows, key, picked.get(key, "")) for key in filters}
    matching = _matching(rows, columns, search, picked)
    if order:
        matching = in_order(matching, order)
    pages = max(1, -(-len(matching) // PAGE_ROWS))
    page = min(_positive(query.get(f"{name}.page", "1")), pages)
    first = (page - 1) * PAGE_ROWS
    return Table(
        name, columns, matching[first : first + PAGE_ROWS], len(matching), len(rows), page, pages,
        search, order, picked, choices, query, wanted.path, empty,
        matching=matching if wanted.is_whole else (),
    )  # fmt: skip


def in_order(rows: Sequence[Row], order: str) -> list[Row]:
    """Rows sorted by a column; unknown values always come last. Pure."""
    key = order.lstrip("-")
    known = [row for row in rows if row.get(key) is not None]
    unknown = [row for row in rows if row.get(key) is None]
    return [*sorted(known, key=lambda row: _rank(row[key]), reverse=order.startswith("-")), *unknown]


def _choices(rows: Sequence[Row], key: str, picked: str) -> list[str]:
    """The values of a column that its filter offers: the first ones, and the one that is picked."""
    found = {text_of(row.get(key)) for row in rows}
    if len(found) <= CHOICES_MAX:
        return sorted(found)
    return sorted({*nsmallest(CHOICES_MAX, found), *({picked} & found)})


def text_of(value: Any) -> str:
    """A value as searches and filters see it. Pure."""
    if type(value) is str:
        return value
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return str(value)


def as_csv(table: Table, words: Words) -> str:
    """All matching rows of a table. Times are in UTC, numbers are not formatted; no text begins a formula."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow([one.key for one in table.columns])
    for row in table.matching:
        writer.writerow([_cell(one, row.get(one.key), words) for one in table.columns])
    return out.getvalue()


def _cell(column: Column, value: Any, words: Words) -> str:
    if value is None:
        return words("word.unknown")
    if isinstance(value, bool | int | float):
        return shown.iso(int(value)) if column.kind in ("time", "due") and value else str(value)
    return cell(text_of(value))


def _matching(
    rows: Sequence[Row], columns: Sequence[Column], search: str, picked: Mapping[str, str]
) -> Sequence[Row]:
    """The rows with the picked values that have each word of the search in some column."""
    for key, value in picked.items():
        rows = [row for row in rows if text_of(row.get(key)) == value]
    wanted = search.casefold().split()
    if not wanted:
        return rows
    keys = [one.key for one in columns if one.kind != "time"]

    def has_all(row: Row) -> bool:
        text = "\n".join([text_of(row.get(key)) for key in keys]).casefold()
        return all(one in text for one in wanted)

    return [row for row in rows if has_all(row)]


def _rank(value: Any) -> tuple[int, Any]:
    """Numbers before texts, so that a column with both has an order."""
    if type(value) is str:
        return 1, value.casefold()
    if isinstance(value, bool | int | float):
        return 0, value
    return 1, text_of(value).casefold()


def _positive(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and 0 < len(text) <= 9 and int(text) else 1
