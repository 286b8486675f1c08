"""Replicas of a broker on the wire, a SparrowMQ extension: their state (90401), orders about their roles
(90402), and a slave that introduces itself to its master (90403).

A replica's identity is its address for clients, because its broker id changes with its role: a master has 0.
Positions are bytes of the log. An epoch is the number of a master's reign.
"""

from __future__ import annotations

from typing import Final

from msgspec import field

from sparrowmq.protocol.bodies.base import Body, Int32, Int64

MASTER: Final = "MASTER"
SLAVE: Final = "SLAVE"

SERVING: Final = "SERVING"
"""A master that takes messages."""
FENCED: Final = "FENCED"
"""A managed master without a lease: it takes and acknowledges nothing, and does not register."""
CHANGING: Final = "CHANGING"
"""Its role is about to change; its connections are closed meanwhile."""
FOLLOWING: Final = "FOLLOWING"
"""A slave that is connected to its master."""
WAITING: Final = "WAITING"
"""A slave that is not; `ReplicaState.trouble` says why."""

IMPLICIT_EPOCH: Final = 0
"""The epoch of a log, or of its beginning, that was written before there were epochs."""
REPLICAS_MAX: Final = 64
"""Maximum replicas in one set."""


class EpochStart(Body, frozen=True):
    """One line of an epoch table: the reign that began at this position of the log."""

    epoch: Int32
    start_offset: Int64


class SlaveState(Body, frozen=True):
    """A slave that is connected to a master. `address` is empty for one that did not introduce itself.

    `behind` is how many bytes it lacks, `store` the text of the store that it said it has: its connection may
    outlive a disk that was replaced.
    """

    address: str
    position: Int64
    behind: Int64
    store: str = ""


class ReplicaState(Body, frozen=True, kw_only=True):
    """The answer to GET_REPLICA_STATE (90401) and SET_REPLICA_ROLE (90402).

    `epoch` is the highest whose orders this broker obeys, -1 if it never got any. `confirmed_offset` is the
    position up to which the whole in-sync set has the log; at a slave, the end of its log. `readable_offset`
    is the position up to which consumers may read, -1 if it is not known. `wanted` is the
    in-sync set that a master proposes; None at a slave. `stamp` is milliseconds of the broker's own clock,
    which goes on while its process is frozen; `run` is another text after each start, `store` after the store
    was emptied, or because the log of a slave is damaged. `damaged_offset` is the first position of the log
    that is known to be damaged, -1 without any. `paused_left_ms` is how long the master still takes nothing
    because of `ReplicaOrders.pause_ms`. `tables` is another text after each change of topics, groups or
    request modes in one `run`; empty if unknown.
    """

    cluster_name: str
    broker_name: str
    broker_id: Int64
    address: str
    ha_address: str
    role: str
    state: str
    trouble: str = ""
    is_sync: bool = False
    is_managed: bool = False
    epoch: Int32 = -1
    epochs: list[EpochStart] = field(default_factory=list)
    min_offset: Int64 = 0
    max_offset: Int64 = 0
    flushed_offset: Int64 = 0
    confirmed_offset: Int64 = 0
    readable_offset: Int64 = -1
    master_address: str = ""
    in_sync: list[str] = field(default_factory=list)
    in_sync_number: Int32 = 0
    wanted: list[str] | None = None
    slaves: list[SlaveState] = field(default_factory=list)
    lease_left_ms: Int64 = 0
    paused_left_ms: Int64 = 0
    damaged_offset: Int64 = -1
    tables: str = ""
    store: str = ""
    run: str = ""
    stamp: Int64 = 0

    @property
    def log_epoch(self) -> int:
        """The epoch of the last byte of its log."""
        return max(
            (one.epoch for one in self.epochs if one.start_offset < self.max_offset), default=IMPLICIT_EPOCH
        )

    @property
    def completeness(self) -> tuple[int, int]:
        """Orders replicas by what they have: of two logs, the one with the larger value is to be kept."""
        return self.log_epoch, self.max_offset


class ReplicaOrders(Body, frozen=True, kw_only=True):
    """The body of SET_REPLICA_ROLE (90402).

    With a higher epoch than before the role changes; with the same one and the same role, the lease and the
    in-sync set are renewed. The lease ends `lease_ms` after `lease_from`, a stamp that this `run` of the
    broker gave before; 0 means a role without a lease, given by hand, which a managed broker takes only with
    `force`. `unclean` is logged: somebody accepts that acknowledged messages may be lost. With `store`, only
    the broker that has this store obeys. With `pause_ms`, a master of this epoch takes nothing for so long;
    nothing else changes.
    """

    cluster_name: str
    broker_name: str
    epoch: Int32
    role: str
    broker_id: Int64
    master_address: str = ""
    master_ha_address: str = ""
    in_sync: list[str] = field(default_factory=list)
    in_sync_number: Int32 = 0
    lease_ms: Int64 = 0
    lease_from: Int64 = 0
    store: str = ""
    run: str = ""
    unclean: bool = False
    force: bool = False
    pause_ms: Int64 = 0


class FollowRequest(Body, frozen=True, kw_only=True):
    """The body of FOLLOW_MASTER (90403): what a slave has, and from where on it wants the log; -1 for the
    oldest file. `last_record` is where its last record begins, -1 if unknown."""

    cluster_name: str
    broker_name: str
    address: str
    epochs: list[EpochStart] = field(default_factory=list)
    epoch: Int32 = -1
    max_offset: Int64 = 0
    position: Int64 = 0
    last_record: Int64 = -1
    store: str = ""


class FollowAnswer(Body, frozen=True, kw_only=True):
    """The answer to FOLLOW_MASTER (90403): what the master has, and the key by which the slave introduces
    itself at the HA port. It is negative, and good for one connection soon."""

    cluster_name: str
    broker_name: str
    broker_role: str
    epochs: list[EpochStart]
    epoch: Int32
    ha_address: str
    file_bytes: Int64
    min_offset: Int64
    max_offset: Int64
    key: Int64


class EpochSpan(Body, frozen=True):
    """One reign in that answer; `end_offset` of the last one is `Long.MAX_VALUE`."""

    epoch: Int32
    start_offset: Int64
    end_offset: Int64


class EpochCache(Body, frozen=True, kw_only=True):
    """The answer to GET_BROKER_EPOCH_CACHE (1007), as RocketMQ's tools read it."""

    cluster_name: str
    broker_name: str
    broker_id: Int64
    epoch_list: list[EpochSpan] = field(default_factory=list)
    max_offset: Int64 = 0
