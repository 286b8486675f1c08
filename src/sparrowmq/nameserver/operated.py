"""What an operator sees of a name server: its figures, its faults, and whether it is ready."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sparrowmq.core.figures.bounds import Bound, add_bounds
from sparrowmq.core.figures.exposition import Exposition, labels
from sparrowmq.core.settings.text import parse_labels
from sparrowmq.nameserver.registry import BROKERS_MAX, Registry
from sparrowmq.transport.figures import add_server_figures

if TYPE_CHECKING:
    from sparrowmq.nameserver.registry import Registry
    from sparrowmq.transport.server import Server


def registry_bounds(registry: Registry) -> list[Bound]:
    """The bounds of what brokers registered."""
    return [
        Bound("brokers", registry.broker_count, BROKERS_MAX),
        Bound("topics", registry.topic_count, registry.topics_max),
        Bound("routes", registry.route_count, registry.routes_max),
    ]


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
        add_bounds(into, self._node, registry_bounds(self._registry))
        yield
        add_server_figures(into, self._node, self._server)

    def faults(self) -> list[str]:
        """None: it stores nothing that could fail."""
        return []

    def lacks(self) -> list[str]:
        """None: even without routes, it must be there for brokers to register."""
        return []
