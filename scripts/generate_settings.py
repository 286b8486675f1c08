"""Writes the tables of `docs/settings.md` from `core/settings/servers.py`, and those of `docs/client.md` from
`client/base/settings.py`; the words around them stay.

    python -m scripts.generate_settings            write the pages
    python -m scripts.generate_settings --check    say (exit status 1) whether one is stale

A table stands between `<!-- table: NAME -->` and `<!-- end -->`. What the settings of clients mean is written
in their tables, where the script leaves it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

from sparrowmq.client.base.setting_types import choices_of, declared
from sparrowmq.client.base.settings import ClientSettings, ConsumerSettings, ProducerSettings, PullSettings
from sparrowmq.core.settings.servers import (
    BrokerSettings,
    CoordinatorSettings,
    NameServerSettings,
    ProxySettings,
    Setting,
    table,
    without_effect,
)
from sparrowmq.core.settings.without_effect import LATER

DOCS = Path(__file__).resolve().parent.parent / "docs"
BLOCK = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
TYPES = {"int": "whole number", "bool": "true or false", "str": "text", "Path": "path", "Path | None": "path"}


def default_text(value: Any) -> str:
    """A default as it is written in a file; a dash for none."""
    if value is None or value == "":
        return "–"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def range_text(row: Setting) -> str:
    """What values are allowed; a dash when the type says it all."""
    if row.choices:
        return ", ".join(f"`{choice}`" for choice in row.choices)
    return f"{row.low} to {row.high}" if row.kind == "int" else "–"


def markdown(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def settings_table(settings_class: type) -> str:
    """Every setting of a server that is in force."""
    return markdown(
        ("name", "type", "range", "default", "meaning"),
        (
            (f"`{row.name}`", TYPES[row.kind], range_text(row), default_text(row.default), row.help)
            for row in table(settings_class).values()
        ),
    )


def later_table() -> str:
    """The names of which only the value that leaves a feature off is accepted."""
    return markdown(
        ("name", "accepted", "would turn on"),
        (
            (f"`{name}`", f"`{later.accepted}`" if later.accepted else "(empty)", later.feature)
            for name, later in sorted(LATER.items())
        ),
    )


def names_list(settings_class: type) -> str:
    """The names RocketMQ knows that change nothing here."""
    return " ".join(f"`{name}`" for name in sorted(without_effect(settings_class))) + "\n"


def client_table(settings_class: type, before: str) -> str:
    """The settings that a class of clients adds. `before` is the table as it is, with their meanings. Raises
    KeyError for a setting without meaning.
    """
    meanings = dict(re.findall(r"^\| `(\w+)` \|.*\| (.+?) \|$", before, re.MULTILINE))
    shared = {item.name for item in fields(ClientSettings)} if settings_class is not ClientSettings else set()
    rows = []
    for item in fields(settings_class):
        if item.name not in shared:
            hint, span = declared(settings_class)[item.name]
            values = ", ".join(f'`"{choice}"`' for choice in choices_of(hint)) or "–"
            allowed = values if span is None else f"{span.low:.15g} to {span.high:.15g}"
            default = f"`{item.default!r}`".replace("'", '"')
            rows.append((f"`{item.name}`", allowed, default, meanings[item.name].replace("\\|", "|")))
    return markdown(("name", "values", "default", "meaning"), rows)


Table = Callable[[str], str]
"""Makes a table from what it was before."""

TABLES: dict[str, dict[str, Table]] = {
    "settings.md": {
        "broker": lambda before: settings_table(BrokerSettings),
        "nameserver": lambda before: settings_table(NameServerSettings),
        "coordinator": lambda before: settings_table(CoordinatorSettings),
        "proxy": lambda before: settings_table(ProxySettings),
        "later": lambda before: later_table(),
        "broker_idle": lambda before: names_list(BrokerSettings),
        "nameserver_idle": lambda before: names_list(NameServerSettings),
    },
    "client.md": {
        "client": lambda before: client_table(ClientSettings, before),
        "producer": lambda before: client_table(ProducerSettings, before),
        "consumer": lambda before: client_table(ConsumerSettings, before),
        "pull": lambda before: client_table(PullSettings, before),
    },
}


def render(text: str, tables: dict[str, Table]) -> str:
    """The page with its tables made anew. Raises KeyError for a table that is not known."""
    return BLOCK.sub(lambda match: f"{match[1]}\n{tables[match[2]](match[0])}\n{match[3]}", text)


def main() -> int:
    """Write or check the pages; the exit status."""
    for name, tables in TABLES.items():
        text = (DOCS / name).read_text()
        fresh = render(text, tables)
        if "--check" not in sys.argv[1:]:
            (DOCS / name).write_text(fresh)
        elif text != fresh or set(tables) != {table for _, table, _ in BLOCK.findall(text)}:
            sys.stdout.write(f"docs/{name} is stale: run scripts/generate_settings.py\n")
            return 1
    sys.stdout.write("fresh\n" if "--check" in sys.argv[1:] else "")
    return 0


if __name__ == "__main__":
    sys.exit(main())
