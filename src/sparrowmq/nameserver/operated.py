"""What an operator sees of a name server: its figures, its faults, and whether it is ready."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sparrowmq.core.figures.exposition import Exposition, labels
from sparrowmq.core.settings.text import parse_labels
from sparrowmq.nameserver.registry import BROKERS_MAX, Registry
from sparrowmq.transport.figures import add_server_figures

if TYPE_CHECKING:
    from sparrowmq.nameserver.registry import Registry
    from sparrowmq.transport.server import Server


class OperatedNameServer:
    """A running name server, see `core.figures.exposition.Operated`.

    `metrics_label` is the setting of that name.
    """

    def __init__(self, registry: Registry, server: Server, metrics_label: str) -> None:
        self._registry = registry
        self._server = server
        self._node = labels(node_type="nameserver", node_id=server.address, **parse_labels(metrics_label))

    @property
    def node(self) -> str:
        """Its kind and address."""
        return f"nameserver {self._server.address}"

    def collect(self, into: Exposition) -> Iterator[None]:
        """Add all figures."""
        registry = self._registry
        used = into.gauge("sparrow_bound_used", "How much of a bound is used.")
        most = into.gauge("sparrow_bound_max", "The bound.")
        for name, value, limit in (
            ("brokers", registry.broker_count, BROKERS_MAX),
            ("topics", registry.topic_count, registry.topics_max),
            ("routes", registry.route_count, registry.routes_max),
        ):
            label = labels(self._node, bound=name)
            used.add(label, value)
            most.add(label, limit)
        yield
        add_server_figures(into, self._node, self._server)

    def faults(self) -> list[str]:
        """None: it stores nothing that could fail."""
        return []

    def lacks(self) -> list[str]:
        """None: even without routes, it must be there for brokers to register."""
        return []
