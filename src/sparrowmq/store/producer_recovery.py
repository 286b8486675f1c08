"""Bringing the table of idempotent producers up to date when a store is opened: file, then log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sparrowmq.core.errors import RecordError
from sparrowmq.protocol.producer_mark import MARK_START
from sparrowmq.protocol.record import decode_record, find_properties
from sparrowmq.protocol.sysflag import TRANSACTION_PREPARED
from sparrowmq.store import producer_state
from sparrowmq.store.commit_log import CommitLog, Progress
from sparrowmq.store.producer_state import ProducerTable, StateFile
from sparrowmq.store.scan import scan
from sparrowmq.store.settings import StoreSettings

if TYPE_CHECKING:
    from sparrowmq.store.recovery import RecoveryReport
    from sparrowmq.store.safe_point import SafePoint

log = logging.getLogger("sparrowmq.store")


def read_producers(
    settings: StoreSettings, commit_log: CommitLog, safe: SafePoint, recovery: RecoveryReport, now_ms: int
) -> ProducerTable:
    """The table as the recovered log has it. Raises the `StoreError` family."""
    table = ProducerTable(
        producers_max=settings.producers_max,
        expire_ms=settings.producer_expire_hours * producer_state.HOUR_MS,
    )
    files, end = commit_log.files, commit_log.position
    file = producer_state.load(settings.root)
    if file.position is not None and file.position > end:
        log.warning("the log ends at %d, before the state of idempotent producers at %d", end, file.position)
        file = StateFile(damaged=True)
    try:
        table.restore(_kept(file, safe))
    except (ValueError, TypeError) as error:
        log.warning("the state of idempotent producers is damaged, the whole log is read instead: %s", error)
        table.clear()
        file = StateFile(damaged=True)
    if file.damaged or (file.position is None and safe.producers is not None):
        table.changes += 1  # the file must be written anew whatever the log has
    start = producer_state.scan_start(
        file, safe.producers, log_start=files.start, log_end=end, recovered_from=recovery.start
    )
    if start < end:
        _replay(table, commit_log, safe, start)
    table.expire(now_ms)
    return table


def _kept(file: StateFile, safe: SafePoint) -> Iterator[Any]:
    """The rows of the file, without those of topics that were deleted after it was written."""
    for row in file.rows:
        if file.position is not None and file.position <= safe.deleted.get(row[1], -1):
            continue
        yield row


def _replay(table: ProducerTable, commit_log: CommitLog, safe: SafePoint, start: int) -> None:
    def visit(view: memoryview, at: int, position: int, size: int) -> None:
        try:
            if MARK_START not in find_properties(view, at):
                return
        except RecordError:
            return
        record = decode_record(view, at)
        if record.sys_flag & TRANSACTION_PREPARED or position < safe.deleted.get(record.topic, 0):
            return
        table.replay(
            record.topic, record.queue_id, record.properties, record.queue_offset, record.store_timestamp
        )

    scan(commit_log.files, Progress(start, -1, 0), visit)
