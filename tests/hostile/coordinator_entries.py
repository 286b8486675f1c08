"""The largest and most hostile requests that a coordinator accepts: of members, and of the API.

The operations of the API are those that it describes, one entry for each family of paths: a new operation is
asked without a change here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import quote, urlencode

from tests.coordinator.api.described import Operation, operations
from tests.hostile.companions import API, MEMBERS, ApiWorld
from tests.hostile.shapes import Entry, bombs, ext, filters
from tests.hostile.wire import Ask
from tests.hostile.world import World

from sparrowmq.coordinator.api.app import BODY_BYTES_MAX, BODY_VALUES_MAX, make_app
from sparrowmq.coordinator.api.description import describe
from sparrowmq.coordinator.groups.members import TOPICS_MAX
from sparrowmq.protocol.codes import RequestCode as Code
from sparrowmq.protocol.managed import JoinBody, JoinedBody, LeaveBody, NumberedQueue, ReportBody

PREFIX = "/api/v1"
LAST = ("logout",)
"""What would take the other operations' token away."""
BODY_ROOM = 100
"""Bytes of a body beside its longest text."""
TARGET_CHARS = 8000
"""A longer target is refused with its head."""


def topics(world: World, count: int) -> list[str]:
    """The widest topic and others that exist, and some that do not."""
    return ["Wide", *(f"T{number:05}" for number in range(count - 1))]


def joins(world: World) -> list[Ask]:
    """Members of a group that reads the widest topic, and of many topics."""
    return [
        Ask(ext(consumerGroup="joined"), JoinBody("joined", "c", topics(world, count)).encode())
        for count in (1, TOPICS_MAX, TOPICS_MAX + 1)
    ]


def member(world: World) -> str:
    """A new member's id."""
    with world.wire() as wire:
        joined = wire.ask(Code.JOIN_MANAGED_GROUP, ext(consumerGroup="joined"), joins(world)[0].body)
        return JoinedBody.decode(joined.body).member


def reports(world: World) -> list[Ask]:
    """What a member knows: few and many queues released, many topics, many settings that it cannot apply."""
    name = member(world)
    queues = [NumberedQueue("Wide", "broker-a", number, number + 1) for number in range(world.size.queues)]
    unable = {f"name{number}": "ordered" for number in range(world.size.names)}
    bodies = (
        ReportBody("joined", name, 1, 0, topics=["Wide"]),
        ReportBody("joined", name, 2, 1, queues[:1000], topics(world, TOPICS_MAX), unable=unable),
        ReportBody("joined", "nobody", 1, 0, queues),
    )
    return [Ask(ext(consumerGroup="joined"), body.encode()) for body in bodies]


def leaves(world: World) -> list[Ask]:
    """Members of the group, and others."""
    return [
        Ask(ext(consumerGroup="joined"), LeaveBody("joined", name).encode()) for name in ("x", member(world))
    ]


def member_entries() -> list[Entry]:
    """The requests of members."""
    return [
        Entry(MEMBERS, Code.JOIN_MANAGED_GROUP, "many members, many topics", joins, bombs=True),
        Entry(MEMBERS, Code.REPORT_MANAGED_MEMBER, "many queues and topics", reports, bombs=True),
        Entry(MEMBERS, Code.LEAVE_MANAGED_GROUP, "a member of a wide topic", leaves, bombs=True),
    ]


@dataclass(frozen=True)
class ApiEntry(Entry):
    """The operations of one family of paths."""

    def asks(self, world: World) -> Iterator[list[Ask]]:
        """Each with its largest values, many at once, with overlong texts, and with hostile bodies."""
        assert isinstance(world, ApiWorld)
        for operation in families()[self.named]:
            first, *others = requests(world, operation)
            yield from ([ask] for ask in (first, *others))
            if operation.method == "GET":
                yield [first] * (world.size.many // 5)
            if operation.body:
                yield from ([Ask(first.ext, body)] for body in bodies())


def requests(world: ApiWorld, operation: Operation) -> Iterator[Ask]:
    """A request with the largest values, then ones with one overlong text each."""
    values = known(world)

    def simple(name: str, schema: Mapping[str, Any]) -> Any:
        first = schema.get("anyOf", [schema])[0]
        if "enum" in first:
            return first["enum"][0]
        usual = {
            "integer": first.get("maximum", 1),
            "boolean": True,
            "number": 1.0,
            "array": [],
            "object": {},
        }
        return values.get(name, usual.get(str(first.get("type")), "x"))

    inside = {name: simple(name, schema) for name, schema in operation.inside.items()}
    query = {name: simple(name, schema) for name, schema in operation.query.items()}
    body = {name: simple(name, schema) for name, schema in operation.body.items()}
    yield ask(world, operation, inside, query, body)
    for name, value in [*inside.items(), *query.items()]:
        if isinstance(value, str):
            long = "x" * TARGET_CHARS
            changed = [{**part, name: long} if name in part else part for part in (inside, query)]
            yield ask(world, operation, changed[0], changed[1], body)
    for name, value in body.items():
        if isinstance(value, str):
            yield ask(world, operation, inside, query, {**body, name: "x" * (BODY_BYTES_MAX - BODY_ROOM)})


def ask(
    world: ApiWorld,
    operation: Operation,
    inside: Mapping[str, Any],
    query: Mapping[str, Any],
    body: Mapping[str, Any],
) -> Ask:
    """One request."""
    target = operation.path
    for name, value in inside.items():
        target = target.replace(f"{{{name}}}", quote(str(value), safe=""))
    if query:
        target = f"{target}?{urlencode(query)}"
    return Ask(
        {"method": operation.method, "target": target, "token": world.token},
        json.dumps(body).encode() if operation.body else b"",
    )


def known(world: ApiWorld) -> dict[str, Any]:
    """Values of names: what exists, as much of it as there can be, and filters that match nothing."""
    return {
        **dict.fromkeys(("topic", "source"), "Tiny"),
        **dict.fromkeys(("group", "object"), "G00000"),
        **dict.fromkeys(("address", "broker"), world.cluster),
        **dict.fromkeys(("name", "user", "person"), "somebody"),
        **dict.fromkeys(("number", "before_id"), 10**6),
        "service": "lag",
        "sql": filters(world)[0][:TARGET_CHARS],
        "key": "same",
        "begin_ms": 0,
        "end_ms": 1 << 42,
        "offset": 0,
        "queue": 0,
    }


def bodies() -> Iterator[bytes]:
    """JSON that is costly to read, of the sizes that the API takes."""
    yield from bombs(BODY_BYTES_MAX - BODY_ROOM)
    yield b'{"name":[' + b"1," * (BODY_VALUES_MAX - 1) + b"1]}"
    yield b"{" + b",".join(b'"k%d":[]' % number for number in range(BODY_VALUES_MAX)) + b"}"


@cache
def families() -> dict[str, list[Operation]]:
    """The operations by the constant beginning of their paths, those that read first."""
    app = make_app(cast("Any", SimpleNamespace()))
    order = ("GET", "PUT", "POST", "PATCH", "DELETE")
    found: dict[str, list[Operation]] = {}
    for operation in sorted(operations(describe(app)), key=lambda one: order.index(one.method)):
        found.setdefault(family(operation.path), []).append(operation)
    return found


def family(path: str) -> str:
    """The constant beginning of a path: `/cluster/topics` of `/api/v1/cluster/topics/{topic}`."""
    return path.removeprefix(PREFIX).partition("/{")[0]


def api_entries() -> list[Entry]:
    """All operations of the API."""
    names = sorted(families(), key=lambda name: (name.strip("/") in LAST, name))
    return [
        ApiEntry(API, 0, "the largest values", lambda world: [], named=name, bombs=any_body(name))
        for name in names
    ]


def any_body(name: str) -> bool:
    """Whether an operation of the family has a body."""
    return any(operation.body for operation in families()[name])
