"""What a request needs under 5.x access control: resources and actions (remoting:7.3).

They come from its row in `rights`. RocketMQ checks nothing for a request without an annotated header. This
broker requires an action on the cluster: Get for reading, Update for everything else.
"""

from __future__ import annotations

from typing import NamedTuple

from sparrowmq.broker.access.rights import RIGHTS
from sparrowmq.core.names import INNER_TOPICS
from sparrowmq.core.rights import GET, PUB, SUB, SUB_GET, UPDATE, resource
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.pop.receipts import REVIVE_PREFIX


class Need(NamedTuple):
    """A resource and a set of actions, one of which must be granted."""

    kind: str
    name: str
    actions: frozenset[str]


def needs(command: Command, cluster: str) -> list[Need]:
    """What the request needs at a broker of `cluster`; nothing for requests that every known user may make.

    Raises the `ProtocolError` family for an unreadable body.
    """
    right = RIGHTS.get(command.code)
    if right is None:
        return [Need("Cluster", cluster, UPDATE)]
    resources = right.resources(command.ext, command.body)
    inner = GET if "Get" in right.actions and command.code != RequestCode.QUERY_MESSAGE else UPDATE
    named = [_need(kind, name, right.actions, cluster, inner) for kind, name in resources if name]
    if named:
        return named
    return [] if right.free else [Need("Cluster", cluster, GET if right.actions == GET else UPDATE)]


def topic_need(code: int, topic: str, cluster: str) -> Need:
    """The right to a stored message's original topic that a request about it needs; see `by_position`."""
    right = RIGHTS.get(code)
    kind, name = resource("Topic", topic)
    placed = SUB_GET if right is None or kind == "Group" else right.placed
    return _need(kind, name, placed, cluster, UPDATE)


def _need(kind: str, name: str, actions: frozenset[str], cluster: str, inner: frozenset[str]) -> Need:
    """`inner` is the need for the broker's own topics: they contain messages of every topic, which users who
    may only read counters and tables must not see.
    """
    if kind == "Topic" and (name in INNER_TOPICS or name.startswith(REVIVE_PREFIX)):
        return Need("Cluster", cluster, inner)
    # Consumers of a group may send its messages back.
    return Need(kind, name, SUB if kind == "Group" and actions == PUB else actions)
