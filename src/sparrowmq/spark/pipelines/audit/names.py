"""Names in traces: topics and groups without their namespaces (client:B-123).

So one name in a trace may mean topics of several namespaces. The topic that stores the message shows which
one a send was for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from sparrowmq.core.names import namespace_of, without_namespace
from sparrowmq.spark.pipelines.common import reading
from sparrowmq.spark.pipelines.query import stored

if TYPE_CHECKING:
    from pyspark.sql import Column


def bare(name: str) -> str:
    """A topic or group as it appears in traces."""
    return without_namespace(namespace_of(name), name)


def bare_column(name: Column) -> Column:
    """The same for a column: some clients include the namespace in traces."""
    from pyspark.sql import functions as F

    return F.regexp_replace(name, "^[^%]+%", "")


def within_reach(group: str, topics: Iterable[str]) -> list[str]:
    """The topics that a group may consume: a group with a namespace those of it, other groups all."""
    space = namespace_of(group)
    return [topic for topic in topics if space is None or namespace_of(topic) == space]


def namesakes(audited: Iterable[str], known: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Maps each name in traces to the topics that it may mean: the audited ones and others that exist."""
    found: dict[str, set[str]] = {}
    for topic in audited:
        found.setdefault(bare(topic), set()).add(topic)
    for topic in known:
        if bare(topic) in found:
            found[bare(topic)].add(topic)
    return {name: tuple(sorted(topics)) for name, topics in found.items()}


def known_topics(where: stored.Stored) -> set[str]:
    """Every topic of the archive and, when it is read, of the cluster."""
    known = {queue.topic for queue in where.ledger.queues}
    if where.live:
        with reading.admin(where.source_options) as admin:
            known.update(admin.topics.list())
    return known


def shared(names: Mapping[str, tuple[str, ...]]) -> list[str]:
    """The topics whose name means more than one."""
    return sorted(topic for topics in names.values() if len(topics) > 1 for topic in topics)
