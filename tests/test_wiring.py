"""Parts get what they need when they are made: nobody assigns an attribute of a finished object from outside,
and clocks and sleeps are arguments.

An assignment `thing.name = ...` is allowed for `self`, and for records that a module keeps for itself: `name`
is an attribute of another class of the same module, and `thing` is no part of `self` (`self.part.name`). What
else assigns is named in `ALLOWED`, with the reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "sparrowmq"

MESSAGE: Final = {
    *("queue", "queue_offset", "physical_offset", "topic", "body", "flag", "sys_flag", "properties"),
    *("born_timestamp", "born_host", "store_timestamp", "store_host", "store_size", "reconsume_times"),
    *("offset_message_id", "prepared_transaction_offset", "started_ms"),
    *("_raw", "_bounds", "_store_host", "_properties", "_offset_id"),
}
ALLOWED: Final[dict[str, set[str]]] = {
    # Values on their way through several modules: requests and answers, messages, contexts of hooks.
    "client/admin/access.py": {"remark"},
    "client/cluster/namespaces.py": {"ext", "body", "queue", "topic"},
    "client/cluster/security.py": {"ext"},
    "client/producer/transaction.py": {"remark"},
    "client/consumer/decoding.py": MESSAGE,
    "client/push/direct_calls.py": {"topic"},
    "client/push/concurrent.py": {"reconsume_times", "context"},
    "client/push/ordered.py": {"reconsume_times"},
    "client/send/sender.py": {"body", "sys_flag"},
    "client/send/retry.py": {"code"},
    "client/send/attempts.py": {"result", "error"},
    "client/consumer/consume_hooks.py": {"success", "status", "elapsed_ms"},
    "client/tracing/dispatcher.py": {"data"},
    # The synchronous classes are made around finished asyncio objects.
    "client/sync/sync_base.py": {"context_consumer", "message_type"},
    # Objects of other libraries.
    "spark/bodies/registry/protobuf_schemas.py": {"name"},
    "spark/interpreter.py": {"pythonExec"},
}


def targets_of(node: ast.AST) -> Iterator[ast.Attribute]:
    """The attributes that a statement assigns or deletes."""
    found: list[ast.expr] = []
    if isinstance(node, ast.Assign | ast.Delete):
        found = list(node.targets)
    elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.For | ast.AsyncFor):
        found = [node.target]
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        found = [node.optional_vars]
    while found:
        one = found.pop()
        if isinstance(one, ast.Tuple | ast.List):
            found += one.elts
        elif isinstance(one, ast.Starred):
            found.append(one.value)
        elif isinstance(one, ast.Attribute):
            yield one


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def is_part_of_self(node: ast.expr) -> bool:
    """Whether it is `self.part`, or a part of that."""
    return isinstance(node, ast.Attribute) and (is_self(node.value) or is_part_of_self(node.value))


def attributes_of(definition: ast.ClassDef) -> set[str]:
    """The attributes that a class declares or its methods assign."""
    found: set[str] = set()
    for node in ast.walk(definition):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
        found |= {one.attr for one in targets_of(node) if is_self(one.value)}
    return found


def assigned_from_outside(source: str) -> list[tuple[int, str]]:
    """(line, `thing.name`) of the assignments that the rule does not allow."""
    tree = ast.parse(source)
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    attributes = {node: attributes_of(node) for node in classes}
    found = []
    for node in ast.walk(tree):
        for target in targets_of(node):
            if is_self(target.value) or target.attr == "__cause__":
                continue
            others = (
                declared
                for kind, declared in attributes.items()
                if not kind.lineno <= target.lineno <= (kind.end_lineno or kind.lineno)
            )
            own_record = any(target.attr in declared for declared in others)
            if not own_record or is_part_of_self(target.value):
                found.append((target.lineno, ast.unparse(target)))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setattr":
            found.append((node.lineno, ast.unparse(node)))
    return found


def modules() -> list[str]:
    return sorted(
        str(path.relative_to(SOURCE))
        for room in ("client", "spark")
        for path in (SOURCE / room).rglob("*.py")
    )


def test_nothing_is_assigned_into_finished_objects() -> None:
    wrong = [
        f"{module}:{line}: {text} = ... is assigned from outside; give it when the object is made, or call a "
        "method of it"
        for module in modules()
        for line, text in assigned_from_outside((SOURCE / module).read_text())
        if text.rpartition(".")[2] not in ALLOWED.get(module, ())
    ]
    assert not wrong, "\n".join(wrong)


def test_what_is_allowed_is_there() -> None:
    for module, names in ALLOWED.items():
        found = {text.rpartition(".")[2] for _, text in assigned_from_outside((SOURCE / module).read_text())}
        assert names <= found, f"{module} does not assign {names - found} any more: take it off the list"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("class A:\n def f(self, back):\n  back.x = 1", ["back.x"]),
        ("class A:\n def f(self):\n  self.part.x = 1", ["self.part.x"]),
        ("class A:\n def f(self, part):\n  self.x = part.x = 1", ["part.x"]),
        ("class A:\n def f(self, a, b):\n  a.x, (b.y, self.z) = 1, (2, 3)", ["b.y", "a.x"]),
        ("class A:\n def f(self, a):\n  a.x += 1\n  del a.y", ["a.x", "a.y"]),
        ("def f(a):\n setattr(a, 'x', 1)", ["setattr(a, 'x', 1)"]),
        ("class B:\n x: int\nclass A:\n def f(self, b):\n  b.x = 1", []),
        (
            "class B:\n def __init__(self):\n  self.x = 0\nclass A:\n def f(self):\n  self.b.x = 1",
            ["self.b.x"],
        ),
        ("class A:\n def f(self):\n  self.x = 1", []),
    ],
)
def test_the_rule(source: str, found: list[str]) -> None:
    assert [text for _, text in assigned_from_outside(source)] == found


# Time

STOPWATCHES: Final[dict[str, set[str]]] = {
    # How long a handler took, and when a thread got its message: read in threads, for each message.
    "client/push/workers.py": {"monotonic", "perf_counter", "time_ns"},
    "client/push/ordered.py": {"monotonic", "time_ns"},
    # What makes a client's id its own.
    "client/cluster/instance.py": {"perf_counter_ns"},
    # Of one message that a tool has consumed.
    "client/push/direct_calls.py": {"perf_counter"},
    "client/consumer/broker_requests.py": {"perf_counter"},
}
"""Modules of the client that read a clock of the machine: no decision hangs on it."""
SLEEPERS: Final = {"client/pull/pull_schedule.py"}
"""Modules that wait by asyncio's clock: they have no client's."""


def read_directly(source: str) -> list[tuple[int, str]]:
    """(line, `time.name` or `asyncio.sleep`) of calls that an argument should make; giving way is none."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        name = ast.unparse(node.func)
        gives_way = [ast.unparse(one) for one in node.args] == ["0"]
        if name.startswith("time.") or (name == "asyncio.sleep" and not gives_way):
            found.append((node.lineno, name))
    return sorted(found)


def test_clocks_and_sleeps_are_arguments() -> None:
    wrong = [
        f"{path.relative_to(SOURCE)}:{line}: {name}() does not go by what the client was made with; use "
        "instance.clock or instance.sleep, or take them as arguments"
        for path in sorted((SOURCE / "client").rglob("*.py"))
        for line, name in read_directly(path.read_text())
        if name.removeprefix("time.") not in STOPWATCHES.get(str(path.relative_to(SOURCE)), ())
        and not (name == "asyncio.sleep" and str(path.relative_to(SOURCE)) in SLEEPERS)
    ]
    assert not wrong, "\n".join(wrong)


def test_what_reads_directly() -> None:
    source = "await asyncio.sleep(0)\nawait asyncio.sleep(x)\ntime.time()\nawait sleep(1)\nloop.time()"
    assert read_directly(source) == [(2, "asyncio.sleep"), (3, "time.time")]


# What a process remembers

KEPT: Final = {("spark/cluster/clients.py", "_of_loop")}
"""Variables of modules of Spark: clients belong to the loop they were started on, whichever that is."""


def variables_of(source: str) -> list[str]:
    """What a module keeps in variables, whose names are small letters; and what functions declare global."""
    tree = ast.parse(source)
    found = [name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names]
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            targets = [node.target]
        names = [one.id for one in targets if isinstance(one, ast.Name)]
        found += [name for name in names if name.strip("_").islower() and not name.endswith("__")]
    return found


def test_modules_of_spark_remember_nothing() -> None:
    wrong = [
        f"{path.relative_to(SOURCE)}: {name} belongs to nobody; give it to an object, or have the process' "
        "loop keep it: loop_thread().kept(...)"
        for path in sorted((SOURCE / "spark").rglob("*.py"))
        for name in variables_of(path.read_text())
        if name != "log" and (str(path.relative_to(SOURCE)), name) not in KEPT
    ]
    assert not wrong, "\n".join(wrong)


def test_what_is_a_variable() -> None:
    source = "__all__ = []\nA = _B = 1\n_c: set[str] = set()\nf = 3\nT: int\ndef g():\n global H"
    assert variables_of(source) == ["H", "_c", "f"]
