"""An instance's tables about brokers: routes by topic, addresses by broker name, versions by address.

No I/O; `ClientInstance` sends the requests (client:A.6, A.7).
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from sparrowmq.core.route import MASTER_ID, BrokerData, TopicRoute


class RouteTable:
    """Routes and broker addresses of one client instance."""

    def __init__(self) -> None:
        self._routes: dict[str, TopicRoute] = {}
        self._brokers: dict[str, dict[int, str]] = {}
        self._kept: tuple[str, ...] = ()
        """Addresses that are known without a route."""

    def __repr__(self) -> str:
        return f"<RouteTable topics={len(self._routes)} brokers={sorted(self._brokers)}>"

    def get(self, topic: str) -> TopicRoute | None:
        """The stored route of `topic`."""
        return self._routes.get(topic)

    def store(self, topic: str, route: TopicRoute) -> bool:
        """Store a route and its addresses. Returns whether it differs from the stored one (client:A-44,
        A-45).
        """
        for broker in route.brokers:
            self._brokers[broker.broker_name] = dict(broker.addresses)
        if _comparable(self._routes.get(topic)) == _comparable(route):
            return False
        self._routes[topic] = route
        return True

    def keep(self, brokers: Iterable[BrokerData]) -> None:
        """Know these brokers whether a route contains them or not, instead of those of an earlier call."""
        tables = {broker.broker_name: dict(broker.addresses) for broker in brokers}
        self._brokers |= tables
        self._kept = tuple(address for table in tables.values() for address in table.values())

    def forget(self, topic: str) -> None:
        """Drop the route of `topic`; `drop_offline` removes the addresses."""
        self._routes.pop(topic, None)

    def master(self, broker_name: str) -> str | None:
        """The master's address (client:A-52)."""
        return self._brokers.get(broker_name, {}).get(MASTER_ID)

    def slave(self, broker_name: str) -> str | None:
        """The address of the slave with the lowest id, or None."""
        slaves = [item for item in self._brokers.get(broker_name, {}).items() if item[0] != MASTER_ID]
        return min(slaves)[1] if slaves else None

    def readable(self, broker_name: str, broker_id: int = MASTER_ID) -> str | None:
        """An address to pull from: the wanted id, or else the next id of a slave, or else any
        (client:A-53).
        """
        addresses = self._brokers.get(broker_name)
        if not addresses:
            return None
        wanted = addresses.get(broker_id)
        if wanted is None and broker_id != MASTER_ID:
            wanted = addresses.get(broker_id + 1)
        return wanted or next(iter(addresses.values()))

    def is_slave(self, broker_name: str, address: str) -> bool:
        """Whether `address` is a slave of `broker_name`."""
        return self.master(broker_name) != address

    def any_broker(self, topic: str, rng: random.Random) -> str | None:
        """A random broker of the topic's route: its master, or else one of its slaves (client:A-54)."""
        route = self._routes.get(topic)
        if route is None or not route.brokers:
            return None
        broker = rng.choice(route.brokers)
        return broker.master or next(iter(broker.addresses.values()), None)

    def masters(self) -> list[str]:
        """Addresses of all known masters."""
        return [table[MASTER_ID] for table in self._brokers.values() if MASTER_ID in table]

    def all_addresses(self) -> list[str]:
        """All known broker addresses, without duplicates."""
        return list(dict.fromkeys(a for table in self._brokers.values() for a in table.values()))

    def drop_offline(self) -> list[str]:
        """Forget and return the addresses that no stored route contains and that are not kept
        (client:A-51)."""
        mentioned = {
            a for route in self._routes.values() for b in route.brokers for a in b.addresses.values()
        }
        mentioned.update(self._kept)
        gone = [a for a in self.all_addresses() if a not in mentioned]
        for name, table in list(self._brokers.items()):
            kept = {number: a for number, a in table.items() if a in mentioned}
            if kept:
                self._brokers[name] = kept
            else:
                del self._brokers[name]
        return gone


def _comparable(route: TopicRoute | None) -> object:
    if route is None:
        return None
    brokers: Iterable[object] = sorted(
        (b.cluster, b.broker_name, tuple(sorted(b.addresses.items()))) for b in route.brokers
    )
    queues = sorted(
        (q.broker_name, q.read_queue_nums, q.write_queue_nums, q.perm, q.topic_sys_flag) for q in route.queues
    )
    return list(brokers), queues, route.order_topic_conf
