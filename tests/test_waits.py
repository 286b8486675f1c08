"""Tests wait for conditions, not for a time, and none is judged by the clock on the wall.

A sleep makes a test slow on a quick machine and wrong on a slow one; `tests.support.until` waits for what the
test needs. Sleeps that are no waits stand in `SLEEPS`: slow handlers, rates of sends, pauses between looks.
What has to be quick is measured by benchmarks.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).parent
CLOCKS: Final = {"monotonic", "perf_counter", "time", "time_ns", "monotonic_ns", "perf_counter_ns"}
SLEEPS: Final[dict[str, int]] = {
    "broker/access/test_gate.py": 1,
    "broker/admin/test_deletions.py": 1,
    "broker/base/test_long_answers.py": 1,
    "broker/pop/test_wakes.py": 1,
    "broker/replication/test_promotion.py": 1,
    "broker/tables/test_changes.py": 1,
    "broker/test_chunk.py": 2,
    "broker/test_growth.py": 1,
    "broker/test_rights_matrix.py": 1,
    "broker/test_server.py": 1,
    "cli/cluster/test_stalls.py": 2,
    "cli/cluster/test_top.py": 1,
    "cli/messages/test_consume.py": 1,
    "client/base/test_tasks.py": 3,
    "client/churn.py": 6,
    "client/cluster/test_instance.py": 1,
    "client/consumer/test_dynamic_settings.py": 4,
    "client/consumer/test_pull_loop.py": 2,
    "client/pull/test_offset_pulls.py": 4,
    "client/push/test_assigned_queues.py": 1,
    "client/push/test_member.py": 1,
    "client/push/test_ordered.py": 7,
    "client/push/test_popped_queues.py": 1,
    "client/push/test_push_consumer.py": 2,
    "client/push/test_workers.py": 1,
    "client/send/test_attempts.py": 1,
    "client/send/test_topic_routes.py": 1,
    "client/simple/test_simple_consumer.py": 1,
    "client/sync/test_sync_base.py": 1,
    "client/test_intervals.py": 1,
    "client/test_slaves.py": 1,
    "coordinator/alarms/test_senders.py": 1,
    "coordinator/cluster/test_explorer.py": 1,
    "coordinator/database/test_connect.py": 1,
    "coordinator/groups/members/test_members_input.py": 1,
    "coordinator/groups/members/test_members_ordered.py": 1,
    "coordinator/groups/settings/test_running_settings_pull.py": 2,
    "coordinator/replicas/test_group_watch.py": 1,
    "coordinator/test_drain.py": 1,
    "crash/broker/test_take_over.py": 3,
    "crash/churn_member.py": 1,
    "crash/managed_child.py": 1,
    "crash/member_child.py": 3,
    "crash/test_faults_clients.py": 1,
    "crash/test_group_churn.py": 3,
    "databases/lease_child.py": 1,
    "hostile/wire.py": 2,
    "httpd/test_serving.py": 1,
    "interop/apache.py": 2,
    "interop/client5/test_shared_requests.py": 1,
    "loops/test_loop_thread.py": 4,
    "memory/client.py": 1,
    "proxy/cluster/test_batches.py": 1,
    "proxy/http2/test_guards.py": 1,
    "proxy/test_accounts.py": 1,
    "proxy/test_bad_input.py": 3,
    "proxy/test_members.py": 2,
    "proxy/test_receives.py": 1,
    "runtime/test_brokers.py": 1,
    "runtime/test_child.py": 1,
    "runtime/test_interpreter.py": 2,
    "simulation/test_probes.py": 6,
    "simulation/whole/acts.py": 2,
    "simulation/whole/members.py": 2,
    "simulation/whole/network.py": 1,
    "simulation/whole/retention.py": 2,
    "simulation/whole/walk.py": 2,
    "spark/bodies/registry/rig.py": 1,
    "spark/cluster_child.py": 1,
    "spark/counted.py": 1,
    "spark/counted_child.py": 1,
    "spark/matrix/rounds.py": 3,
    "spark/pipelines/query/test_history.py": 1,
    "spark/read/test_driver.py": 1,
    "support.py": 2,
    "transport/test_dispatch.py": 1,
    "transport/test_server.py": 2,
    "transport/test_slices.py": 2,
    "transport/test_stall_watch.py": 10,
    "transport/test_turns.py": 2,
}
"""How many calls of a sleep a module has; fewer are better."""
CLOCKED: Final[dict[str, int]] = {
    "coordinator/alarms/test_senders.py": 1,
    "coordinator/database/test_connect.py": 1,
    "spark/counted_child.py": 1,
    "terminal.py": 1,
    "transport/test_stall_watch.py": 1,
}
"""How many assertions of a module compare with a real clock."""


def called(node: ast.AST) -> str:
    """`module.name` of what a node calls, or an empty text."""
    if not isinstance(node, ast.Call):
        return ""
    function = node.func
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        return f"{function.value.id}.{function.attr}"
    return ""


def sleeps(tree: ast.AST) -> int:
    """Calls of a sleep that takes time: `asyncio.sleep(0)` only lets others run."""
    found = [node for node in ast.walk(tree) if called(node) in ("time.sleep", "asyncio.sleep")]
    return sum(not (isinstance(one, ast.Call) and ast.unparse(one.args[0]) == "0") for one in found)


def reads_clock(node: ast.AST) -> bool:
    """Whether an expression asks a real clock."""
    names = (called(one).split(".") for one in ast.walk(node) if called(one).startswith("time."))
    return any(name in CLOCKS for _, name in names)


def clocked(tree: ast.AST) -> Iterator[int]:
    """Lines of assertions that say that little time has passed on a real clock."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        spans = {
            target.id
            for node in ast.walk(function)
            if isinstance(node, ast.Assign)
            and isinstance(node.value, ast.BinOp)
            and isinstance(node.value.op, ast.Sub)
            and reads_clock(node.value)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(function):
            if isinstance(node, ast.Assert) and any(_is_span(one, spans) for one in ast.walk(node.test)):
                yield node.lineno


def _is_span(node: ast.AST, spans: set[str]) -> bool:
    """Whether a comparison sets a limit to a time that passed."""
    if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], ast.Lt | ast.LtE):
        return False
    return reads_clock(node.left) or (isinstance(node.left, ast.Name) and node.left.id in spans)


def modules(word: str) -> Iterator[tuple[str, ast.Module]]:
    """The modules of tests that have this word, by their paths; to parse all of them takes long."""
    for path in sorted(TESTS.rglob("*.py")):
        if word in (text := path.read_text()):
            yield path.relative_to(TESTS).as_posix(), ast.parse(text)


def test_no_test_sleeps_instead_of_waiting() -> None:
    found = Counter({name: number for name, tree in modules("sleep") if (number := sleeps(tree))})
    more = {name: number for name, number in found.items() if number > SLEEPS.get(name, 0)}
    assert not more, "wait with tests.support.until; a sleep that is no wait is counted in SLEEPS"
    assert {name for name in SLEEPS if found[name] < SLEEPS[name]} == set(), "these have fewer now: say so"


def test_no_test_is_judged_by_the_clock_on_the_wall() -> None:
    clocks = ((name, len([*clocked(tree)])) for name, tree in modules("time."))
    found = Counter({name: number for name, number in clocks if number})
    more = {name: number for name, number in found.items() if number > CLOCKED.get(name, 0)}
    assert not more, "measure it in benchmarks, or judge the processor time of a thread (time.thread_time)"
    assert {name for name in CLOCKED if found[name] < CLOCKED[name]} == set(), "these have fewer now: say so"


@pytest.mark.parametrize(
    ("source", "number"),
    [
        ("time.sleep(1)", 1),
        ("await asyncio.sleep(x)", 1),
        ("await asyncio.sleep(0)", 0),
        ("clock.sleep(1)", 0),
    ],
)
def test_what_a_sleep_is(source: str, number: int) -> None:
    assert sleeps(ast.parse(source)) == number


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("def f():\n    assert time.monotonic() - began < 1", [2]),
        ("def f():\n    took = time.monotonic() - began\n    assert took <= 1", [3]),
        ("def f():\n    took = time.thread_time() - began\n    assert took <= 1", []),
        ("def f():\n    assert time.monotonic() - began > 1", []),
        ("def f():\n    assert x < 1", []),
    ],
)
def test_what_is_judged_by_a_clock(source: str, lines: list[int]) -> None:
    assert [*clocked(ast.parse(source))] == lines
