"""Writes the tables of `docs/settings.md` from `core/settings/servers.py`; the words around them stay.

    python scripts/generate_settings.py            write the page
    python scripts/generate_settings.py --check    say (exit status 1) whether it is stale

A table stands between `<!-- table: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

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

TARGET = Path(__file__).resolve().parent.parent / "docs" / "settings.md"
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


TABLES: dict[str, Callable[[], str]] = {
    "broker": lambda: settings_table(BrokerSettings),
    "nameserver": lambda: settings_table(NameServerSettings),
    "coordinator": lambda: settings_table(CoordinatorSettings),
    "proxy": lambda: settings_table(ProxySettings),
    "later": later_table,
    "broker_idle": lambda: names_list(BrokerSettings),
    "nameserver_idle": lambda: names_list(NameServerSettings),
}


def render(text: str) -> str:
    """The page with its tables made anew. Raises KeyError for a table that is not known."""
    return BLOCK.sub(lambda match: f"{match[1]}\n{TABLES[match[2]]()}\n{match[3]}", text)


def main() -> int:
    """Write or check the page; the exit status."""
    text = TARGET.read_text()
    fresh = render(text)
    if "--check" in sys.argv[1:]:
        same = text == fresh and set(TABLES) == {name for _, name, _ in BLOCK.findall(text)}
        sys.stdout.write("fresh\n" if same else f"{TARGET} is stale: run scripts/generate_settings.py\n")
        return 0 if same else 1
    TARGET.write_text(fresh)
    return 0


if __name__ == "__main__":
    sys.exit(main())
