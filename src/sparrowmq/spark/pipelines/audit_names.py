"""Names as traces tell them: topics and groups without their name spaces (client:B-123).

So one name in a trace may stand for topics of several name spaces. Which one a send was for is found out by
where its message is stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from sparrowmq.core.names import namespace_of, without_namespace
from sparrowmq.spark.pipelines import stored

if TYPE_CHECKING:
    from pyspark.sql import Column


def bare(name: str) -> str:
    """A topic or group as traces name it."""
    return without_namespace(namespace_of(name), name)


def bare_column(name: Column) -> Column:
    """The same of a column: some clients tell the name space in traces."""
    from pyspark.sql import functions as F

    return F.regexp_replace(name, "^[^%]+%", "")


def within_reach(group: str, topics: Iterable[str]) -> list[str]:
    """The topics that a group may consume: one of a name space those of it, others all."""
    space = namespace_of(group)
    return [topic for topic in topics if space is None or namespace_of(topic) == space]


def namesakes(audited: Iterable[str], known: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """For each name that traces tell, the topics it may stand for: the audited ones and others that exist."""
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
        with stored.admin_of(where.source_options) as admin:
            known.update(admin.topic_list())
    return known


def shared(names: Mapping[str, tuple[str, ...]]) -> list[str]:
    """The topics of names that stand for more than one."""
    return sorted(topic for topics in names.values() if len(topics) > 1 for topic in topics)
