"""Tests that pages, tables and docstrings cite exist: `tests/a/test_b.py::test_c`, `test_b.py`, `test_c`."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest
from tests.repository.test_citations import ROOT, sources

TESTS = ROOT / "tests"
EXAMPLES = {
    *(
        "test_behaviours.py",
        "test_checks.py",
        "test_check_runs.py",
        "test_cited_tests.py",
        "test_coordination.py",
    ),
    *("test_reports.py", "test_second_look.py", "test_stall_guard.py", "test_tiers.py"),
}
"""Modules that cite tests which do not exist, on purpose."""

_BY_MODULE = re.compile(r"(?<![\w/])((?:\w+/)*\w+\.py)::(\w+(?:::\w+)*)")
_BY_NAME = re.compile(r"`((?:\w+/)*test_\w+(?:\.py)?)`")
_NAMES = re.compile(r"^ *(?:async def|def|class) ([Tt]est\w*)|^(test_\w+) =", re.MULTILINE)


@cache
def names_by_module() -> dict[str, set[str]]:
    """The tests and classes of tests of each module, by its path from `tests` and by its file name."""
    found = defaultdict[str, set[str]](set)
    for path in TESTS.rglob("*.py"):
        names = {name for pair in _NAMES.findall(path.read_text()) for name in pair if name}
        found[path.relative_to(TESTS).as_posix()] = names
        found[path.name] |= names
    return found


@cache
def names() -> set[str]:
    """What may be cited without `::`: tests, and modules with and without `.py`."""
    modules = names_by_module()
    return {*modules, *(Path(module).stem for module in modules)}.union(*modules.values())


def unknown(text: str) -> list[str]:
    """The tests that a text cites and that do not exist."""
    found = []
    for module, cited in _BY_MODULE.findall(text) if ".py::" in text else ():
        known = names_by_module().get(module.removeprefix("tests/"), set[str]())
        if not known.issuperset(cited.split("::")):
            found.append(f"{module}::{cited}")
    return found + [name for name in _BY_NAME.findall(text) if name.removeprefix("tests/") not in names()]


def test_every_cited_test_exists() -> None:
    wrong, count = [], 0
    for path in [*sources(), ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]:
        if path.parent.name in ("repository", "scripts") and path.name in EXAMPLES:
            continue
        text = path.read_text(errors="replace")
        count += text.count(".py::test_")
        wrong += [f"{path.relative_to(ROOT)} cites {one}" for one in unknown(text)]
    assert wrong == []
    assert count > 500, "the pattern finds what there is"


HERE = "repository/test_cited_tests.py"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (f"| `tests/{HERE}::test_every_cited_test_exists` | `{HERE}::test_cited` |", [f"{HERE}::test_cited"]),
        ("test_bounds.py::TestNothing::test_a", ["test_bounds.py::TestNothing::test_a"]),
        ("`tests/test_docs.py`, `test_docs.py`, `test_docs`, `test_commands_exist`, `test_walks.txt`", []),
        ("`test_no.py`, `tests/a/test_no.py`, `test_no`", ["test_no.py", "tests/a/test_no.py", "test_no"]),
        ("test_in_prose and `sparrow test`", []),
    ],
)
def test_cited_test_that_does_not_exist_is_found(text: str, wrong: list[str]) -> None:
    assert unknown(text) == wrong
