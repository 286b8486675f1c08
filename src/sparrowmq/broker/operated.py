"""What an operator sees of a broker: all its figures, its faults, and whether it is ready."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sparrowmq.broker.metrics.clients import ClientFigures
from sparrowmq.broker.metrics.lag import LagFigures
from sparrowmq.broker.metrics.pop import PopFigures
from sparrowmq.broker.metrics.replication import ReplicationFigures
from sparrowmq.broker.metrics.storage import StorageFigures
from sparrowmq.broker.metrics.traffic import TrafficFigures
from sparrowmq.broker.metrics.transactions import collect_transactions
from sparrowmq.core.figures.bounds import Bound, add_bounds
from sparrowmq.core.figures.exposition import Aside, Exposition, labels
from sparrowmq.core.route import PERM_READ, PERM_WRITE
from sparrowmq.core.settings.text import parse_labels
from sparrowmq.transport.figures import add_server_figures

if TYPE_CHECKING:
    from sparrowmq.broker.parts import BrokerParts
    from sparrowmq.transport.server import Server


def broker_bounds(parts: BrokerParts) -> list[Bound]:
    """Those of its tables and of the requests that wait; the listener has its own."""
    settings = parts.settings
    return [
        Bound("topics", len(parts.topics.configs), settings.topics_max),
        Bound("queues", parts.topics.queue_count, settings.queues_max),
        Bound("groups", len(parts.groups.configs), settings.groups_max),
        Bound("consumer_offsets", parts.offsets.entries, settings.consumer_offsets_max),
        Bound("producer_states", len(parts.store.producers), settings.max_producer_states),
        Bound("open_transactions", parts.exchange.transactions.open_count, settings.open_transactions_max),
        Bound("members", parts.clients.count, settings.members_max),
        Bound("held_pulls", parts.pulling.held, settings.held_pulls_max),
    ]


class OperatedBroker:
    """A running broker behind its listener, see `core.figures.exposition.Operated`."""

    def __init__(self, parts: BrokerParts, server: Server) -> None:
        self._parts = parts
        self._server = server
        settings = parts.settings
        self._node = labels(
            cluster=settings.broker_cluster_name,
            node_type="broker",
            node_id=settings.broker_name,
            **parse_labels(settings.metrics_label),
        )
        stats = parts.upkeep.stats
        self._traffic = TrafficFigures(stats, parts.topics, parts.groups)
        self._lag = LagFigures(
            parts.store,
            parts.offsets,
            stats,
            parts.pop,
            parts.clock,
            parts.upkeep.unread,
            by_queue=settings.metrics_lag_by_queue,
        )
        self._pop = PopFigures(parts.pop, parts.clock)
        self._replication = ReplicationFigures(
            parts.slaves, parts.following, parts.clock, lambda: parts.reign.record.damaged
        )
        self._storage = StorageFigures(
            parts.store, parts.flusher, parts.delayed, parts.upkeep.holds, parts.clock
        )
        self._clients = ClientFigures(parts.clients)

    @property
    def node(self) -> str:
        """Its kind and name."""
        return f"broker {self._parts.settings.broker_name}"

    def collect(self, into: Exposition) -> Iterator[Aside | None]:
        """Add all figures, in steps.

        What grows with the topics and groups is done in another thread. It copies a table in one step of
        Python, and reads single values of what the loop changes.
        """
        node = self._node
        yield from self._traffic.collect(into, node)
        yield from self._lag.collect(into, node)
        yield Aside(self._clients.collect(into, node))
        yield from self._storage.collect(into, node)
        yield from self._parts.requests.collect(into, node)
        yield from self._pop.collect(into, node)
        self._replication.collect(into, node)
        yield from collect_transactions(into, node, self._parts.exchange.transactions)
        self._add_state(into, node)
        yield None
        add_bounds(into, node, broker_bounds(self._parts))
        add_server_figures(into, node, self._server)

    def _add_state(self, into: Exposition, node: str) -> None:
        parts = self._parts
        allowed = into.gauge("rocketmq_broker_permission", "4 read, 2 write, 6 both.")
        allowed.add(node, parts.settings.broker_permission)
        into.gauge("rocketmq_topic_number", "Topics.").add(node, len(parts.topics.configs))
        into.gauge("rocketmq_consumer_group_number", "Consumer groups.").add(node, len(parts.groups.configs))
        watermark = into.gauge("rocketmq_processor_watermark", "Requests that wait, by kind.")
        for processor, waiting in (
            ("pull", parts.pulling.held),
            ("admin", parts.general.running),
            ("send", parts.flusher.waiting),
        ):
            watermark.add(labels(node, processor=processor), waiting)
        fenced = into.counter("sparrow_fenced_total", "Refused requests of members whose grant had ended.")
        fenced.add(node, parts.fence.refused)
        into.gauge("sparrow_managed_groups", "Groups with a policy.").add(node, len(parts.fence.groups))
        registered = into.gauge("sparrow_registered", "1 if all name servers know the broker.")
        registered.add(node, int(not parts.registration.silent))

    def faults(self) -> list[str]:
        """A failed disk stays failed until the broker is restarted."""
        parts = self._parts
        found = []
        failed = parts.store.failed or parts.flusher.failed
        if failed is not None:
            found.append(f"the disk failed; nothing is stored until a restart: {failed}")
        return found

    def lacks(self) -> list[str]:
        """Why clients should not use it now."""
        parts = self._parts
        found = []
        if parts.store.full is not None:
            found.append(f"sends are refused: {parts.store.full}")
        permission = parts.settings.broker_permission
        if not permission & PERM_WRITE:
            found.append(f"brokerPermission={permission}: sends are refused")
        if not permission & PERM_READ:
            found.append(f"brokerPermission={permission}: pulls are refused")
        for address, why in parts.registration.silent.items():
            found.append(f"name server {address} did not accept its registration: {why}")
        return found
