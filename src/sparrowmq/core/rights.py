"""The form of a table of rights: what a request needs, and what its answer or effect may concern.

Each server has a table of its own, with one row per request code. Pure: no state, no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from sparrowmq.core.names import RETRY_PREFIX

Fields = Mapping[str, str]


class Without(Enum):
    """Who may make the request at a server without access control."""

    EVERYBODY = "everybody"
    NOBODY = "not served"


class RightScope(Enum):
    """What the answer reveals and what the request changes."""

    BROKER = "the whole server, not single messages"
    NAMED = "what it names"
    PLACED = "the message at the given position"


Resource = tuple[str, str]
"""Kind and name of a topic or a consumer group; a retry topic counts as its group."""


class Named(NamedTuple):
    """A header field that names a topic or a group; `optional` if it may be missing."""

    kind: str
    field: str
    optional: bool = False


def actions(*names: str) -> frozenset[str]:
    """A set of actions."""
    return frozenset(names)


PUB: Final = actions("Pub")
SUB: Final = actions("Sub")
GET: Final = actions("Get")
UPDATE: Final = actions("Update")
CREATE: Final = actions("Create")
DELETE: Final = actions("Delete")
SUB_GET: Final = actions("Sub", "Get")


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """One row.

    One of the `actions` must be granted on each resource named, or on the cluster (Get where it only reads,
    else Update) when none is; with `free` none is needed in that case. `fields`, `body` and `stored` name the
    resources. `place` gives the physical offset of the message it is about, whose topic is checked as well.
    `client` gives the client id for which it acts. With `proof`, the
    request must carry the proof that its member of a managed group got. `without` is for a server without
    access control.
    """

    actions: frozenset[str]
    fields: tuple[Named, ...] = ()
    body: Callable[[bytes], Iterable[Resource]] | None = None
    stored: Callable[[Fields], Iterable[Resource]] | None = None
    free: bool = False
    place: Callable[[Fields], int] | None = None
    placed: frozenset[str] = SUB_GET
    client: Callable[[Fields, bytes], str | None] | None = None
    proof: bool = False
    without: Without = Without.EVERYBODY

    @property
    def scope(self) -> RightScope:
        """What the answer or the effect may concern."""
        if self.place is not None:
            return RightScope.PLACED
        return RightScope.NAMED if self.fields or self.body is not None else RightScope.BROKER

    def resources(self, ext: Fields, body: bytes) -> list[Resource]:
        """The resources named in a request, each once. A missing field that is not optional counts as an
        empty name.

        Raises the `ProtocolError` family for an unreadable body.
        """
        found = []
        for kind, field, optional in self.fields:
            name = ext.get(field, "")
            if name or not optional:
                found.append(resource(kind, name))
        if self.body is not None:
            found += self.body(body)
        if self.stored is not None:
            found += self.stored(ext)
        return list(dict.fromkeys(found)) if len(found) > 1 else found


def resource(kind: str, name: str) -> Resource:
    """A topic or group; a retry topic counts as its group. The bare prefix is an ordinary topic name."""
    if name.startswith(RETRY_PREFIX) and name != RETRY_PREFIX:
        return "Group", name[len(RETRY_PREFIX) :]
    return kind, name
