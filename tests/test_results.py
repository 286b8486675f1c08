"""Answers are used: a call that says whether something happened, or what is left, is not thrown away.

A function that returns a `bool` or a list in all of its definitions answers a question. A statement that
only calls it drops the answer: a member that is never missed, a request that is never answered. Calls that
may drop it are in `ALLOWED`, with the reason.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import pytest

SOURCE: Final = Path(__file__).parent.parent / "src" / "sparrowmq"
ALLOWED: Final[dict[tuple[str, str], str]] = {
    ("broker/admin/admin.py", "put_soon"): "a topic that is as asked is a success, too",
    ("broker/admin/queries.py", "catch_up"): "what is indexed so far is answered",
    ("broker/parts.py", "restore_recent_groups"): "logged there",
    ("broker/parts.py", "restore_recent_topics"): "logged there",
    ("broker/pop/waiting.py", "charge"): "releases; only charging can be refused",
    ("broker/pull/held_pulls.py", "charge"): "releases; only charging can be refused",
    ("broker/replication/recent_topics.py", "put_soon"): "only topics that are not there",
    ("broker/tables/topics.py", "put_soon"): "only topics that are not there and not being deleted",
    ("broker/tables/topics.py", "ensure_soon"): "the topic is looked up again",
    ("client/admin/name_servers.py", "_at_each"): "raises where one refuses; the answers are empty",
    ("client/cluster/instance.py", "_heartbeat_to"): "the periodic heartbeat asks again",
    ("client/consumer/statistics.py", "failing"): "called to forget queues without recent failures",
    ("client/pull/polling.py", "_commit_handled"): "the queues are for callers who wait for their commits",
    ("client/sync/sync_base.py", "settle_from_thread"): "a message that timed out is on its way to a retry",
    ("client/push/member.py", "persist_all"): "what was not taken is sent with the next period",
    ("client/push/member.py", "tidy"): "the next round restarts these queues",
    ("coordinator/services/brokers/drains.py", "_need_known"): "raises if there is none",
    ("coordinator/services/groups/rebalance.py", "take_news"): "everything is written down then",
    ("store/base/segments.py", "remove_from"): "the files that went are for those who report them",
    ("store/cut.py", "remove_from"): "the files that went are for those who report them",
    ("store/offline/settle.py", "clamp"): "warnings of a copy that is checked as a whole later",
    ("store/queues/consume_queue.py", "remove_from"): "the files that went are for those who report them",
    ("store/recovery/recovery.py", "remove_from"): "the files that went are for those who report them",
    ("torture/processes.py", "_signal"): "a process that ended needs no SIGCONT",
    ("transport/client_connection.py", "resolve"): "an answer that nobody waits for is late",
    ("transport/connection.py", "resolve"): "an answer that nobody waits for is late",
}


def is_answer(returns: str) -> bool:
    """Whether an annotation is that of an answer."""
    return returns == "bool" or returns.startswith("list[")


def answers(trees: Iterable[ast.Module]) -> set[str]:
    """Names of functions that answer, whichever of them is called, but not those of Python's containers."""
    found: dict[str, set[str]] = defaultdict(set)
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found[node.name].add(ast.unparse(node.returns) if node.returns else "None")
    names = {name for name, returns in found.items() if all(is_answer(one) for one in returns)}
    return names - {name for kind in (dict, list, set) for name in dir(kind)}


def dropped(tree: ast.Module, names: set[str]) -> Iterator[tuple[int, str]]:
    """(line, name) of statements that only call one of these functions."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Expr):
            continue
        call = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(call, ast.Call):
            called = call.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name in names:
                yield node.lineno, name


def sources() -> Iterator[tuple[str, ast.Module]]:
    """The modules of the package with their paths. To keep all trees takes longer than to parse twice."""
    for path in sorted(SOURCE.rglob("*.py")):
        yield str(path.relative_to(SOURCE)), ast.parse(path.read_text())


def test_no_answer_is_dropped() -> None:
    names = answers(tree for _, tree in sources())
    found = {(module, name): line for module, tree in sources() for line, name in dropped(tree, names)}
    wrong = [
        f"{module}:{line}: {name}" for (module, name), line in found.items() if (module, name) not in ALLOWED
    ]
    assert not wrong, "use the answer, or say in ALLOWED why it does not matter:\n" + "\n".join(wrong)
    assert not ALLOWED.keys() - found.keys(), "these drop nothing any more"


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("def f() -> bool: ...\nf()", [2]),
        ("async def f() -> list[int]: ...\nasync def g() -> None:\n    await x.f()", [3]),
        ("def f() -> bool: ...\nx = f()\nif f(): pass", []),
        ("def f() -> None: ...\nf()", []),
        ("def f() -> bool: ...\nclass A:\n    def f(self) -> None: ...\nf()", []),
        ("g()", []),
    ],
)
def test_the_rule(source: str, lines: list[int]) -> None:
    tree = ast.parse(source)
    assert [line for line, _ in dropped(tree, answers([tree]))] == lines
