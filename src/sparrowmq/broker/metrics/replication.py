"""Replication: how far slaves are behind, and whether a slave follows its master."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrowmq.core.figures.exposition import Exposition, labels

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrowmq.broker.replication.following import Following
    from sparrowmq.broker.replication.master import Master
    from sparrowmq.core.clock import Clock


class ReplicationFigures:
    """The slaves of a master, or the master of a slave; one of both is None. `damaged` tells the first
    position of the log that is known to be damaged, -1 without any."""

    def __init__(
        self, master: Master | None, following: Following | None, clock: Clock, damaged: Callable[[], int]
    ) -> None:
        self._master = master
        self._following = following
        self._clock = clock
        self._damaged = damaged

    def collect(self, into: Exposition, node: str) -> None:
        """Add the figures; `node` has the labels of the broker."""
        about = "1 if the log is known to be damaged, so that this broker lacks messages of its group."
        into.gauge("sparrow_replication_log_damaged", about).add(node, int(self._damaged() >= 0))
        if self._master is not None:
            self._add_master(self._master, into, node)
        if self._following is not None:
            self._add_slave(self._following, into, node)

    def _add_master(self, master: Master, into: Exposition, node: str) -> None:
        end, replicas = master.log.end, master.replicas
        slaves = into.gauge("sparrow_replication_slaves", "Connected slaves.")
        slaves.add(node, len(replicas.all))
        about = "Brokers that have the log up to its end, or nearly; the master is one of them."
        into.gauge("sparrow_replication_in_sync", about).add(node, replicas.in_sync(end))
        about = "Chunks of messages whose senders wait for slaves."
        into.gauge("sparrow_replication_waiting_chunks", about).add(node, replicas.waiting)
        lacking = into.gauge("sparrow_replication_behind_bytes", "Bytes of the log that a slave lacks.")
        about = "Age of the first message that a slave lacks; 0 when it lacks none."
        late = into.gauge("sparrow_replication_behind_seconds", about)
        for replica in replicas.all:
            if replica.position < 0:  # it has not reported its position
                continue
            label = labels(node, slave=replica.address)
            lacking.add(label, end - replica.position)
            seconds = self._behind_seconds(master, replica.position)
            if seconds is not None:
                late.add(label, seconds)

    def _behind_seconds(self, master: Master, position: int) -> float | None:
        """None when it is unknown: a slave may have a part of a record."""
        if position >= master.log.end:
            return 0.0
        stored = master.log.stored_ms(position)
        return None if stored is None else max(0, self._clock.now_ms() - stored) / 1000

    def _add_slave(self, following: Following, into: Exposition, node: str) -> None:
        link = following.follower.link
        connected = into.gauge("sparrow_replication_connected", "1 if the slave is connected to its master.")
        connected.add(node, int(link is not None))
        if link is not None:
            silent = into.gauge(
                "sparrow_replication_silent_seconds",
                "Time since the master sent something; it is never silent.",
            )
            silent.add(node, max(0, self._clock.now_ms() - link.last_read_ms) / 1000)
