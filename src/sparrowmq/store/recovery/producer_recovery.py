"""Recovery of the table of idempotent producers when a store is opened: first the file, then the log."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from sparrowmq.core.errors import RecordError
from sparrowmq.core.names import PRODUCER_ENDS_TOPIC
from sparrowmq.protocol.producer_mark import MARK_START, find_end
from sparrowmq.protocol.record import StoredRecord, decode_record, find_properties
from sparrowmq.protocol.sysflag import TRANSACTION_PREPARED
from sparrowmq.store.base.settings import StoreSettings
from sparrowmq.store.log.commit_log import CommitLog, LogEnd
from sparrowmq.store.log.scan import scan
from sparrowmq.store.tables import producer_state
from sparrowmq.store.tables.producer_state import ProducerStates, StateFile

if TYPE_CHECKING:
    from sparrowmq.store.base.progress import OpeningProgress
    from sparrowmq.store.recovery.recovery import RecoveryReport
    from sparrowmq.store.recovery.safe_point import SafePoint

log = logging.getLogger("sparrowmq.store")


def read_producers(
    settings: StoreSettings,
    commit_log: CommitLog,
    safe: SafePoint,
    recovery: RecoveryReport,
    progress: OpeningProgress,
    now_ms: int,
) -> ProducerStates:
    """The table of producers that matches the recovered log. Raises the `StoreError` family."""
    table = ProducerStates(
        producers_max=settings.producers_max,
        expire_ms=settings.producer_expire_hours * producer_state.HOUR_MS,
    )
    files, end = commit_log.files, commit_log.position
    file = producer_state.load(settings.root)
    if file.position is not None and file.position > end:
        log.warning("the log ends at %d, before the state of idempotent producers at %d", end, file.position)
        file = StateFile(damaged=True)
    try:
        table.restore(_kept(file, safe, file.rows), _kept(file, safe, file.ended))
    except (ValueError, TypeError, LookupError) as error:
        log.warning("the state of idempotent producers is damaged; reading the whole log instead: %s", error)
        table.clear()
        file = StateFile(damaged=True)
    if file.damaged or (file.position is None and safe.producers is not None):
        table.mark_changed()
    start = producer_state.scan_start(
        file, safe.producers, log_start=files.start, log_end=end, recovered_from=recovery.start
    )
    if start >= recovery.start:  # recovery has read this part
        start = end if recovery.first_marked is None else max(start, recovery.first_marked)
    if start < end:
        _replay(table, commit_log, safe, start, recovery.on_disk, progress)
    table.expire(now_ms)
    return table


def _kept(file: StateFile, safe: SafePoint, rows: Iterable[Any]) -> Iterator[Any]:
    """The rows of the file, except those of topics deleted after it was written."""
    for row in rows:
        if file.position is not None and file.position <= safe.deleted.get(row[1], -1):
            continue
        yield row


def _replay(
    table: ProducerStates,
    commit_log: CommitLog,
    safe: SafePoint,
    start: int,
    on_disk: int,
    progress: OpeningProgress,
) -> None:
    def visit(view: memoryview, at: int, position: int, size: int) -> None:
        try:
            if MARK_START not in find_properties(view, at):
                return
        except RecordError:
            return
        record = decode_record(view, at)
        if record.sys_flag & TRANSACTION_PREPARED or position < safe.deleted.get(_subject(record), 0):
            return
        table.replay(
            record.topic, record.queue_id, record.properties, record.queue_offset, record.store_timestamp
        )

    files = commit_log.files
    scan(files, LogEnd(start, -1, 0), progress.reading(files, start, visit), on_disk)


def _subject(record: StoredRecord) -> str:
    """The topic that a record is about: for the end of producers, that in which they wrote."""
    if record.topic != PRODUCER_ENDS_TOPIC:
        return record.topic
    try:
        return find_end(record.properties).topic
    except RecordError:
        return record.topic
