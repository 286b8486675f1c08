"""Whether a slave may follow a master, judged by what both report. Pure.

The HA protocol does not identify its peers: a master sends its log to anyone who asks, and RocketMQ's master
waits silently for a slave whose log is longer. So a slave asks its master by ordinary requests before it
connects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sparrowmq.core.errors import StoreError
from sparrowmq.store.tables.epochs import NOTHING_COMMON, EpochTable


class CannotFollowError(StoreError):
    """This broker's log cannot be continued from that master's."""


class MasterDamagedError(CannotFollowError):
    """The master's log is damaged where this broker's ends; only a person can change that."""


class MasterFacts(NamedTuple):
    """A master's description of itself; None for values that it did not report. Positions are bytes of the
    log.
    """

    cluster: str | None = None
    name: str | None = None
    role: str | None = None
    file_bytes: int | None = None
    start: int | None = None
    end: int | None = None

    @classmethod
    def of(cls, config: Mapping[str, str], runtime: Mapping[str, str]) -> MasterFacts:
        """From its settings (26) and its runtime information (28)."""
        return cls(
            config.get("brokerClusterName"),
            config.get("brokerName"),
            config.get("brokerRole"),
            _number(config.get("mappedFileSizeCommitLog")),
            _number(runtime.get("commitLogMinOffset")),
            _number(runtime.get("commitLogMaxOffset")),
        )


class SlaveFacts(NamedTuple):
    """The slave's description of itself."""

    cluster: str
    name: str
    file_bytes: int
    end: int
    is_empty: bool


def check(slave: SlaveFacts, master: MasterFacts) -> None:
    """Raise `CannotFollowError` if the slave must not copy this master's log."""
    if master.role == "SLAVE":
        raise CannotFollowError("it is a slave itself; follow its master", what="brokerRole")
    if master.cluster is not None and master.cluster != slave.cluster:
        raise CannotFollowError(
            f"it belongs to cluster {master.cluster}, this broker to {slave.cluster}: correct "
            "brokerClusterName or haMasterAddress",
            what="brokerClusterName",
        )
    if master.name is not None and master.name != slave.name:
        raise CannotFollowError(
            f"its brokerName is {master.name}, this broker's is {slave.name}: a slave has its master's name",
            what="brokerName",
        )
    if master.file_bytes is not None and master.file_bytes != slave.file_bytes:
        raise CannotFollowError(
            f"its mappedFileSizeCommitLog is {master.file_bytes}, this broker's is {slave.file_bytes}: set "
            "it to the master's value, with an empty store",
            what="mappedFileSizeCommitLog",
        )
    if slave.is_empty:
        return
    if master.end is not None and slave.end > master.end:
        raise CannotFollowError(
            f"its log ends at {master.end} and this broker's at {slave.end}: this broker has "
            f"{slave.end - master.end} bytes that the master lacks. Compare their messages; then either make "
            "this broker the master, or empty its store, so that it copies the log again",
            what="end",
            value=slave.end,
            limit=master.end,
        )
    if master.start is not None and slave.end < master.start:
        raise CannotFollowError(
            f"its log begins at {master.start} and this broker's ends at {slave.end}: this broker was away "
            "for longer than the master keeps its log. Empty its store, so that it copies the log again",
            what="start",
            value=slave.end,
            limit=master.start,
        )


def check_same_record(position: int, own: bytes, of_master: bytes | None) -> None:
    """Raise `CannotFollowError` if both logs have different records at a position; None if the master has no
    record that begins there."""
    if own != of_master:
        raise CannotFollowError(
            f"the record at {position}, this broker's last one, is different there: their logs have "
            f"diverged. Compare their messages; then empty this broker's store, so that it copies the log "
            f"again",
            what="record",
            value=position,
        )


class OwnLog(NamedTuple):
    """A slave's log with its reigns. `epoch` is that of the orders it obeys, -1 without any."""

    epochs: EpochTable
    epoch: int
    start: int
    end: int


class MastersLog(NamedTuple):
    """The same of a master that reports its reigns."""

    epochs: EpochTable
    epoch: int
    start: int
    end: int


def where_to_continue(own: OwnLog, master: MastersLog) -> int:
    """The position up to which a slave's log is its master's: its end, or where it has to be cut.

    Raises `CannotFollowError` for a master of an earlier reign, for logs that never had the same master, and
    when the slave has more messages although no later master was elected, so that it is undecided whose
    messages count.
    """
    if master.epoch < own.epoch:
        raise CannotFollowError(
            f"its epoch is {master.epoch}, this broker obeys epoch {own.epoch}: its term is over"
        )
    newest = own.epochs.log_epoch(own.end)
    if master.epochs.last < newest:
        raise CannotFollowError(
            f"its newest epoch is {master.epochs.last}, but this broker's log has messages of epoch {newest}:"
            " its term is over, or it lost its store"
        )
    common = own.epochs.common_end(own.end, master.epochs, master.end)
    if common == own.end:
        return common
    text = (
        f"its log ends at {master.end} and this broker's at {own.end}: this broker has "
        f"{own.end - max(common, 0)} bytes that the master lacks"
    )
    if master.epochs.last == newest:
        raise CannotFollowError(
            f"{text}, and both have epoch {newest}. Compare their messages; then make one of them the master "
            "by `sparrow broker promote`, and the other one follows"
        )
    if common == NOTHING_COMMON or common <= own.start or common < master.start:
        raise CannotFollowError(
            f"{text}, and no earlier part is the same in both. Compare their messages; then empty this "
            f"broker's store, so that it copies the log again"
        )
    return common


def where_damaged(damaged: int, start: int, end: int, master_start: int) -> int | None:
    """Where to cut a log that is damaged at `damaged`, so that it is copied again from there; None if there
    is nothing to cut, or if its master no longer has that part."""
    return damaged if max(start, master_start) <= damaged < end else None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and len(text) < 20 else None
