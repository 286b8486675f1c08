"""The tables that most handlers read, as one argument."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparrowmq.broker.tables.clients import ClientTable
    from sparrowmq.broker.tables.groups import GroupTable
    from sparrowmq.broker.tables.proxied import ProxiedClients
    from sparrowmq.broker.tables.topics import TopicTable
    from sparrowmq.store.tables.consumer_offsets import ConsumerOffsets


@dataclass(frozen=True, slots=True)
class SharedTables:
    """The tables of one broker: topics, consumer groups, connected clients, the groups' offsets, consumers
    at proxies.
    """

    topics: TopicTable
    groups: GroupTable
    clients: ClientTable
    offsets: ConsumerOffsets
    proxied: ProxiedClients
