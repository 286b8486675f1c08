"""The table of bounds in docs/architecture.md says what the code has."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from sparrowmq.core.settings.proxy import ProxySettings
from sparrowmq.core.settings.servers import BrokerSettings, NameServerSettings, table

PAGE = Path(__file__).parent.parent / "docs" / "architecture.md"
MIB = 1024 * 1024
SERVERS: dict[str, type] = {"": BrokerSettings, "name server": NameServerSettings, "proxy": ProxySettings}


def rows() -> list[tuple[str, str, str, list[str]]]:
    """What is bounded, the bound as the page says it, its reason, and the names of settings and constants."""
    text = PAGE.read_text().split("## Back-pressure and bounds", 1)[1].split("\n## ", 1)[0]
    found = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return [
        (what.strip(), bound, why.strip(), re.findall(r"`([^`]+`(?: \((?:name server|proxy)\))?)", names))
        for what, bound, why, _, names in found[2:]
    ]


def value(name: str) -> int | float:
    """The default of a setting, or a constant's value."""
    name, _, where = name.partition("`")
    if "." not in name:
        found = table(SERVERS[where.strip(" ()")])[name].default
    else:
        module, _, constant = name.rpartition(".")
        found = getattr(importlib.import_module(f"sparrowmq.{module}"), constant)
    assert isinstance(found, int | float), name
    return found


def spellings(number: float) -> list[str]:
    """How the page may write a value."""
    found = [f"{number:,.0f}", f"{number:.0f}"] if number >= 1 else [f"{number:g}"]
    for unit, size in (("KiB", 1024), ("MiB", MIB)):
        if number and number % size == 0:
            found.append(f"{number // size:.0f} {unit}")
    return found


@pytest.mark.parametrize(("what", "bound", "why", "names"), rows(), ids=lambda part: str(part)[:40])
def test_a_bound_is_what_the_code_says(what: str, bound: str, why: str, names: list[str]) -> None:
    assert why, f"{what}: the page does not say why it is {bound.strip()!r}"
    for name in names:
        number = value(name)
        assert any(
            re.search(rf"(?<![\d,.]){re.escape(text)}(?![\d,]*\d)", bound) for text in spellings(number)
        ), f"{what}: the page says {bound.strip()!r}, {name} is {number}"


def test_the_table_names_what_it_says() -> None:
    unnamed = [what for what, bound, _, names in rows() if not names and re.search(r"\d", bound)]
    assert unnamed == []


@pytest.mark.parametrize(
    ("number", "text"),
    [(16 * MIB, "16 MiB"), (8192, "8 KiB"), (0.005, "0.005"), (10_000, "10,000"), (120.0, "120"), (4, "4")],
)
def test_the_check_itself(number: float, text: str) -> None:
    assert text in spellings(number)
