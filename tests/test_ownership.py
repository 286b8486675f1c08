"""State belongs to one object: nobody sets another object's attributes from outside.

A part gets what it needs when it is made; later changes go through a method of the object that has the state.
The check reads the text: an assignment to `x.name`, where `x` is not `self` and no class of the module has
`name`. What may stay is listed, each with its reason. `tests/test_wiring.py` has a stricter rule for the
client and Spark.
"""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path
from typing import Final

ROOT = Path(__file__).parent.parent / "src" / "sparrowmq"
ELSEWHERE: Final = {"client", "spark"}
"""Packages that `tests/test_wiring.py` checks."""
FILLED_IN: Final = {
    "proxy/base/converting.py",
    "proxy/calls/receiving.py",
    "proxy/calls/sending.py",
    "proxy/calls/settings.py",
    "proxy/definition/reader.py",
}
"""Modules that make protobuf messages, which are filled in by assignment."""

MADE: Final = "a record that this module is making or filling in before it is given away"
LIBRARY: Final = "an object of a library, which is set up this way"
OWNED: Final = "a record that this module alone owns and changes"
OF_SESSION: Final = "a connection, its session and its calls are one object in three modules"
HOT: Final = "the hot path: a call per chunk or message is measurable; the class of the attribute says so"

ALLOWED: Final[dict[str, dict[str, str]]] = {
    "broker/access/gate.py": {"conn.authenticated": "a property; its setter belongs to the connection"},
    "broker/admin/client_calls.py": {
        "request.client_id": MADE,
        "request.broker_name": MADE,
        "request.topic_sys_flag": MADE,
        "request.group_sys_flag": MADE,
    },
    "broker/delay/send_back.py": {
        "message.properties": MADE,
        "message.reconsume_times": MADE,
        "message.prepared_offset": MADE,
        "message.tags_code": MADE,
    },
    "broker/delay/timer.py": {"message.properties": MADE},
    "broker/members/subscription_query.py": {"member.asked": OWNED},
    "broker/pop/pop_path.py": {
        "pop.count": OWNED,
        "pop.is_missed": OWNED,
        "pop.rest": OWNED,
        "pop.size": OWNED,
    },
    "broker/pop/revive.py": {
        "message.born_host": MADE,
        "message.prepared_offset": MADE,
        "message.properties": MADE,
        "message.reconsume_times": MADE,
    },
    "broker/pull/pull_path.py": {"held.scanned": OWNED},
    "broker/send/replies.py": {"request.queue_id": MADE},
    "broker/transactions/end_transaction.py": {
        "message.topic": MADE,
        "message.queue_id": MADE,
        "message.properties": MADE,
        "message.tags_code": MADE,
    },
    "broker/transactions/half_messages.py": {"message.properties": MADE},
    "cli/pipes/common.py": {"PySparkLogger.getLogger(logger).disabled": LIBRARY},
    "cli/pipes/shared.py": {"made.__annotations__": MADE, "made.__signature__": MADE},
    "console/app.py": {"app.router.redirect_slashes": LIBRARY},
    "console/rendering.py": {"made.globals": LIBRARY},
    "coordinator/api/app.py": {"app.state.context": LIBRARY, "app.openapi": LIBRARY},
    "coordinator/api/description.py": {"app.openapi_schema": LIBRARY},
    "coordinator/cluster/waiting.py": {"one.body": MADE},
    "coordinator/database/connect.py": {"connection.isolation_level": LIBRARY},
    "coordinator/server.py": {
        "current_default_thread_limiter().total_tokens": LIBRARY,
        "self._server.should_exit": LIBRARY,
    },
    "httpd/operators.py": {"self._server.should_exit": LIBRARY},
    "otel/contexts.py": {"context.data": "the place that a context has for values of hooks"},
    "proxy/http2/certificate.py": {"context.options": LIBRARY},
    "proxy/http2/connection.py": {
        "call.age": OF_SESSION,
        "self.session.begun": OF_SESSION,
        "self.session.leaving": OF_SESSION,
        "self._turns.spent": HOT,
        "watch.running": HOT,
    },
    "proxy/http2/session.py": {
        "call.cutter": OF_SESSION,
        "call.ends_at": OF_SESSION,
        "call.room": OF_SESSION,
        "call.task": OF_SESSION,
        "call.timed_out": OF_SESSION,
        "call.timer": OF_SESSION,
        "call.ungranted": OF_SESSION,
        "call.window": OF_SESSION,
    },
    "runtime/logs.py": {"record.message": LIBRARY},
    "store/message_store.py": {
        "stats.found": HOT,
        "stats.missed": HOT,
        "stats.put_failures": HOT,
        "stats.quick": HOT,
        "stats.transferred": HOT,
    },
    "store/queue_flush.py": {
        "self._checkpoint.index": OWNED,
        "checkpoint.physic": OWNED,
        "checkpoint.logics": OWNED,
        "checkpoint.logics_physical": OWNED,
    },
    "store/recovery/repair.py": {"result.passed": MADE},
    "store/writer.py": {
        "log.dispatched": HOT,
        "queue.committed": HOT,
        "queue.next_offset": HOT,
        "self._stats.put_bytes": HOT,
        "self._stats.puts": HOT,
        "stats.puts": HOT,
    },
    "torture/rounds.py": {"log.propagate": LIBRARY},
    "transport/client.py": {"command.flag": MADE, "command.opaque": MADE},
    "transport/connection.py": {
        "command.flag": MADE,
        "command.opaque": MADE,
        "turns.spent": HOT,
        "watch.frames": HOT,
        "watch.running": HOT,
    },
    "transport/dispatch.py": {"answer.flag": MADE, "answer.opaque": MADE},
    "transport/signing.py": {"command.ext": MADE, "command.version": MADE},
    "transport/tls.py": {
        "context.check_hostname": LIBRARY,
        "context.maximum_version": LIBRARY,
        "context.minimum_version": LIBRARY,
        "context.options": LIBRARY,
        "context.verify_mode": LIBRARY,
    },
}
"""What may be set from outside, by module, and why."""


def own_names(tree: ast.Module) -> set[str]:
    """The attributes that the classes of a module have."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            names |= {
                one.target.id
                for one in node.body
                if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
            }
            names |= {
                one.attr
                for one in ast.walk(node)
                if isinstance(one, ast.Attribute) and _is_set(one) and _is_self(one)
            }
    return names


def _is_set(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del)


def _is_self(node: ast.AST) -> bool:
    assert isinstance(node, ast.Attribute)
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


def set_from_outside(text: str) -> set[str]:
    """What a module's text sets of objects whose class is elsewhere."""
    tree = ast.parse(text)
    own = own_names(tree)
    return {
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and _is_set(node) and not _is_self(node) and node.attr not in own
    }


def test_nobody_sets_attributes_of_others() -> None:
    found = {
        path.relative_to(ROOT).as_posix(): set_from_outside(path.read_text())
        for path in ROOT.rglob("*.py")
        if path.relative_to(ROOT).parts[0] not in ELSEWHERE
        and path.relative_to(ROOT).as_posix() not in FILLED_IN
    }
    assert {name: names for name, names in found.items() if names} == {
        name: set(rows) for name, rows in ALLOWED.items()
    }


def test_the_check_itself() -> None:
    text = """
        class Mine:
            size: int = 0

            def __init__(self, other):
                self.count = 0
                other.changed = self.count
                other.count = 1

        def wire(part, mine):
            part.sending.is_full, mine.size = 1, 2
            del part.gone
    """
    assert set_from_outside(textwrap.dedent(text)) == {"other.changed", "part.sending.is_full", "part.gone"}
