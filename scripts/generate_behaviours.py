"""Writes build/behaviours.md: behaviours and facts, the functions that do them, the tests that prove them.

The page is for maintainers and is made on demand; it is not part of the repository.

    python -m scripts.generate_behaviours            write the page; take proven facts off the pending list
    python -m scripts.generate_behaviours --check    say (exit status 1) what is wrong, without writing

`tests/behaviours.toml` has the texts and functions. Tests say what they prove with
`@pytest.mark.proves("client:C-01")`; they are found in their syntax trees, nothing is imported. A fact with a
number after it (`D.2-1`) is one step; its section (`D.2`) is proven by tests of the section or of a step.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "behaviours.toml"
PAGE = ROOT / "build" / "behaviours.md"
FACTS_MAX = 5
"""Facts one test may prove."""
SHOWN_MAX = 3
"""Tests named for one fact on the page."""
_SKIPS = frozenset({"skip", "skipif", "xfail"})
_SKIP_CALLS = frozenset({"pytest.skip", "pytest.xfail", "pytest.importorskip"})


@dataclass
class Proof:
    """One test with its `proves` marks."""

    test: str
    facts: tuple[str, ...]
    skipped: bool


@dataclass
class Behaviours:
    """What the data file says."""

    rows: dict[str, tuple[str, list[str]]]
    facts: dict[str, tuple[str, str]]
    pending: list[str]
    differences: list[dict[str, Any]] = field(default_factory=list)


def read_data(text: str) -> Behaviours:
    """The data file's content."""
    data = tomllib.loads(text)
    return Behaviours(
        {name: (row[0], row[1]) for name, row in data["rows"].items()},
        {name: (fact[0], fact[1]) for name, fact in data["facts"].items()},
        data["pending"],
        data["differences"],
    )


# Tests


def _mark_name(node: ast.expr) -> str:
    """`proves` of `pytest.mark.proves(...)`, with or without a call; empty for anything else."""
    target = node.func if isinstance(node, ast.Call) else node
    text = ast.unparse(target)
    return text.removeprefix("pytest.mark.") if text.startswith("pytest.mark.") else ""


def _facts_of(nodes: Iterable[ast.expr], where: str) -> tuple[str, ...]:
    found: list[str] = []
    for node in nodes:
        if _mark_name(node) == "proves":
            assert isinstance(node, ast.Call), f"{where}: proves needs facts"
            for argument in node.args:
                written = argument.value if isinstance(argument, ast.Constant) else None
                assert isinstance(written, str), f"{where}: facts are written out, not computed"
                found.append(written)
    return tuple(dict.fromkeys(found))


def _param_marks(function: ast.FunctionDef) -> list[ast.expr]:
    """Marks inside `pytest.param(..., marks=...)` of the decorators."""
    found: list[ast.expr] = []
    for decorator in function.decorator_list:
        for node in ast.walk(decorator):
            if isinstance(node, ast.keyword) and node.arg == "marks":
                found += node.value.elts if isinstance(node.value, ast.List | ast.Tuple) else [node.value]
    return found


def _calls_skip(part: ast.stmt) -> bool:
    return any(
        isinstance(node, ast.Call) and ast.unparse(node.func) in _SKIP_CALLS for node in ast.walk(part)
    )


def _skips_module(body: list[ast.stmt]) -> bool:
    """Whether a module may leave itself out when it is imported."""
    definitions = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return any(_calls_skip(node) for node in body if not isinstance(node, definitions))


def _module_marks(body: list[ast.stmt]) -> list[ast.expr]:
    for node in body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            value = node.value
            return list(value.elts) if isinstance(value, ast.List | ast.Tuple) else [value]
    return []


def proofs_in(source: str, path: str) -> Iterator[Proof]:
    """The marked tests of one module."""
    return (test for test in tests_in(source, path) if test.facts)


def tests_in(source: str, path: str) -> Iterator[Proof]:
    """All tests of one module, marked or not."""

    def walk(body: list[ast.stmt], marks: list[ast.expr], prefix: str) -> Iterator[Proof]:
        for node in body:
            if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
                yield from walk(node.body, [*marks, *node.decorator_list], f"{prefix}{node.name}::")
            elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                name = f"{path}::{prefix}{node.name}"
                every = [*marks, *node.decorator_list, *_param_marks(node)]
                facts = _facts_of(every, name)
                skipped = (
                    all_skipped or any(_mark_name(mark) in _SKIPS for mark in every) or _calls_skip(node)
                )
                yield Proof(name, facts, skipped)

    tree = ast.parse(source)
    all_skipped = _skips_module(tree.body)
    yield from walk(tree.body, _module_marks(tree.body), "")


def read_proofs(root: Path = ROOT) -> list[Proof]:
    """Every marked test below `tests`."""
    found: list[Proof] = []
    for path in sorted((root / "tests").rglob("test_*.py")):
        source = path.read_text()
        if "proves" in source:
            found += proofs_in(source, path.relative_to(root).as_posix())
    return found


def tests_by_fact(proofs: Iterable[Proof]) -> dict[str, list[str]]:
    """Tests of each fact; those of a step count for its section as well."""
    table: dict[str, list[str]] = defaultdict(list)
    for proof in proofs:
        if proof.skipped:
            continue
        names = [fact.removeprefix("client:") for fact in proof.facts]
        sections = [match[1] for name in names if (match := re.fullmatch(r"([A-Z]\.[\d.]+)-\d+", name))]
        for name in dict.fromkeys([*names, *sections]):
            table[name].append(proof.test)
    return dict(table)


# Functions


def has_name(place: str, root: Path = ROOT) -> bool:
    """Whether `module:Class.method` below sparrowmq exists."""
    module, _, name = place.partition(":")
    path = root / "src" / "sparrowmq" / Path(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if not name or not path.exists():
        return False
    body: list[ast.stmt] = ast.parse(path.read_text()).body
    for part in name.split("."):
        for node in body:
            if _defines(node, part):
                body = node.body if isinstance(node, ast.ClassDef) else []
                break
        else:
            return False
    return True


def _defines(node: ast.stmt, name: str) -> bool:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return node.name == name
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Name) and target.id == name for target in node.targets)
    return isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name


# Check and page


def problems(data: Behaviours, proofs: list[Proof], root: Path = ROOT) -> list[str]:
    """What is wrong, one sentence each."""
    found = [
        f"{proof.test} proves {len(proof.facts)} facts; {FACTS_MAX} is the most"
        for proof in proofs
        if len(proof.facts) > FACTS_MAX
    ]
    found += [
        f"{proof.test} proves {', '.join(proof.facts)} but may be skipped"
        for proof in proofs
        if proof.skipped
    ]
    tests = tests_by_fact(proofs)
    pending = set(data.pending)
    found += [f"{name} is pending but is no fact" for name in data.pending if name not in data.facts]
    for name, (_, place) in data.facts.items():
        if name in tests:
            if name in pending:
                found.append(f"{name} is pending but {tests[name][0]} proves it: run this script")
            if not place:
                found.append(f"{name} is proven but names no function")
        elif name not in pending:
            found.append(f"{name} has no test")
        if place and not has_name(place, root):
            found.append(f"{name} names {place}, which does not exist")
    for row, (_, facts) in data.rows.items():
        found += [f"{row} names {fact}, which is no fact" for fact in facts if fact not in data.facts]
        if row not in tests and not facts:
            found.append(f"{row} has no test")
    for difference in data.differences:
        found += [f"a difference names {fact}" for fact in difference["facts"] if fact not in data.facts]
    return found


def render(data: Behaviours, proofs: list[Proof]) -> str:
    """The page."""
    tests = tests_by_fact(proofs)
    lines = [HEADER.format(rows=len(data.rows), facts=len(data.facts), open=len(data.pending)).strip(), ""]
    for row, (text, facts) in data.rows.items():
        lines += [f"## {row}", "", f"{text}.", ""]
        shown = [(row, "the whole", "", tests[row])] if row in tests else []
        for fact in facts:
            shown.append((fact, *data.facts[fact], tests.get(fact, [])))
        lines += ["| fact | what | done by | proven by |", "| --- | --- | --- | --- |"]
        lines += [_table_row(*one) for one in shown]
        lines.append("")
    lines += [DIFFERENCES.strip(), "", "| one reads that | here | facts |", "| --- | --- | --- |"]
    for difference in data.differences:
        lines.append(f"| {difference['said']} | {difference['done']} | {', '.join(difference['facts'])} |")
    return "\n".join(lines) + "\n"


def _table_row(name: str, text: str, place: str, tests: list[str]) -> str:
    shown = "<br>".join(f"`{test.removeprefix('tests/')}`" for test in tests[:SHOWN_MAX]) or "not yet"
    return f"| {name} | {text} | {f'`{place}`' if place else ''} | {shown} |"


def with_pending(text: str, pending: list[str]) -> str:
    """The data file's text with this pending list."""
    lines = "".join(f'    "{name}",\n' for name in pending)
    return re.sub(r"^pending = \[\n(?:    .*\n)*\]$", f"pending = [\n{lines}]", text, flags=re.MULTILINE)


HEADER = """
# Behaviours

What RocketMQ's producers and consumers do, {rows} behaviours made of {facts} facts, with the function that
does it here and tests that prove it. A fact has up to three of its tests named; paths are below `tests`,
functions below `sparrowmq`. Names of facts are those of the `proves` marks (`client:C-01`). Not proven yet:
{open}; they are the list `pending` of `tests/behaviours.toml`, which a check lets only get shorter.
`docs/reference/client.md` has each fact in full.

Made by `scripts/generate_behaviours.py`; do not edit.
"""
DIFFERENCES = """
## Where descriptions and RocketMQ's own code differ

Walkthroughs of RocketMQ that are read widely and its code do not always agree. Where they differ:
"""


def main() -> int:
    """Write or check the page; the exit status."""
    text = DATA.read_text()
    data, proofs = read_data(text), read_proofs()
    if "--check" not in sys.argv[1:]:
        tests = tests_by_fact(proofs)
        keep = [name for name in data.pending if name not in tests]
        if "--start" in sys.argv[1:]:
            keep = [name for name in data.facts if name not in tests]
        text = with_pending(text, keep)
        DATA.write_text(text)
        data = read_data(text)
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(render(data, proofs))
        sys.stdout.write(f"{PAGE.relative_to(ROOT)} is written\n")
    found = problems(data, proofs)
    sys.stdout.write("".join(f"{one}\n" for one in found) or "no problems\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
