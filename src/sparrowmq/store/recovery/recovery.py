"""Reconciliation of log and queues when a store is opened (broker:2.8 to 2.11, 3.5, 18).

The log is the source of truth. Recovery finds its end, truncates a torn tail, adds missing queue entries and
removes entries without a record. It goes further than RocketMQ: the bytes of dropped entries are zeroed,
queues that lost entries are rebuilt completely regardless of the checkpoint, damage in the middle of the log
affects only the damaged records, and the number of log files does not matter.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Final

from sparrowmq.core.errors import StoreBrokenError, StoreCorruptError
from sparrowmq.files import disk
from sparrowmq.store.base.settings import ENTRY_BYTES
from sparrowmq.store.log.commit_log import CommitLog, LogEnd, store_timestamp
from sparrowmq.store.log.scan import EVERYTHING, Scanned, end_behind, scan, valid_record
from sparrowmq.store.queues.consume_queue import CORRUPT_CODE, DUMMY_SIZE, ENTRY, ConsumeQueue
from sparrowmq.store.recovery.dispatch import REPORTS_MAX, EntriesMissing, EntryDispatcher
from sparrowmq.store.recovery.repair import find_entry
from sparrowmq.store.recovery.safe_point import FILE_NAME

if TYPE_CHECKING:
    from sparrowmq.store.base.progress import OpeningProgress
    from sparrowmq.store.index.index import MessageIndex
    from sparrowmq.store.queues.queue_table import QueueTable
    from sparrowmq.store.recovery.checkpoint import Checkpoint
    from sparrowmq.store.recovery.safe_point import SafePoint
    from sparrowmq.store.tables.producer_state import ProducerStates

log = logging.getLogger("sparrowmq.store")
NOTHING_KNOWN: Final = -1


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """Findings and actions of opening the store. Positions are bytes in the log.

    The scan covered `start` to `end` and found `records` valid records; `added` and `replaced` queue entries
    were written, `dropped` removed; `damaged` ranges are inside the log, `cut` bytes after its end were
    zeroed. Records that end at or before `on_disk` were known to be on disk, see `scan`. `commits` are the
    physical offsets of the half messages whose commits were read last. `first_marked` is the physical
    offset of the first message of an idempotent producer, None if there is none in the scanned part.
    """

    clean: bool
    start: int = 0
    end: int = 0
    records: int = 0
    added: int = 0
    replaced: int = 0
    refused: int = 0
    dropped: int = 0
    cut: int = 0
    damaged: tuple[tuple[int, int], ...] = ()
    lost_queues: tuple[str, ...] = field(default=())
    on_disk: int = 0
    commits: tuple[int, ...] = field(default=(), repr=False)
    first_marked: int | None = None
    seconds: float = field(default=0.0, compare=False)
    """How long it took, without the indexes and tables."""


@dataclass(frozen=True, slots=True)
class RecoveredStore:
    """What opening a store found on disk, and what recovery made of it."""

    index: MessageIndex
    checkpoint: Checkpoint
    safe_point: SafePoint
    report: RecoveryReport
    producers: ProducerStates


def recover(
    commit_log: CommitLog,
    queues: QueueTable,
    checkpoint: Checkpoint,
    safe: SafePoint,
    progress: OpeningProgress,
    *,
    clean: bool,
) -> RecoveryReport:
    """Reconcile the loaded log and queues; `clean` means that the last owner closed the store.

    Afterwards the log's position and the queues' offsets are set. Raises the `StoreError` family.
    """
    began = perf_counter()
    files = commit_log.files
    _finish_deletions(queues, safe)
    if not len(files):
        _begin_empty(commit_log, queues, safe)
        return RecoveryReport(clean)
    on_disk = EVERYTHING if clean else safe.position
    lost = lost_queues(safe, queues, files.start)
    start = choose_start(commit_log, queues, checkpoint, safe, clean=clean, lost=bool(lost))
    try:
        scanned, dispatcher = _scan_from(commit_log, queues, safe, start, on_disk, progress)
    except EntriesMissing as error:
        log.warning("queue entries are missing (%s): all queues are checked against the whole log", error)
        start = LogEnd(files.start, NOTHING_KNOWN, 0)
        scanned, dispatcher = _scan_from(commit_log, queues, safe, start, on_disk, progress)
    end = scanned.progress.position
    cut = _cut(commit_log, end)
    for damaged in scanned.damaged:
        _mark_damaged(queues, damaged)
    commit_log.begin_at(scanned.progress)
    dropped = sum(
        _drop_stale(commit_log, queue, start.position, dispatcher.seen.get(queue, 0))
        for queue in progress.until_stopped(queues.each())
    )
    if not clean:
        _force(commit_log, queues, start.position, safe.position, progress)
    for queue in progress.until_stopped(queues.each()):
        queue.find_min()
    report = RecoveryReport(
        clean=clean,
        start=start.position,
        end=end,
        records=scanned.records,
        added=dispatcher.added,
        replaced=dispatcher.replaced,
        refused=dispatcher.refused,
        dropped=dropped,
        cut=cut,
        damaged=tuple(scanned.damaged),
        lost_queues=tuple(lost),
        on_disk=on_disk,
        commits=() if clean else tuple(dispatcher.commits),
        first_marked=dispatcher.first_marked,
        seconds=perf_counter() - began,
    )
    _tell(report, commit_log)
    return report


def _begin_empty(commit_log: CommitLog, queues: QueueTable, safe: SafePoint) -> None:
    """Begin a log without files. Raise `StoreCorruptError` if there was a log: without its files, the queues
    would be deleted and all groups would start again at 0.
    """
    directory = commit_log.files.directory
    if safe.position > 0:
        raise StoreCorruptError(
            f"{directory} has no file of the log, but {safe.position} bytes of it were written, as "
            f"{FILE_NAME} says: mount the disk, set storePathCommitLog, or restore a backup; to start empty, "
            "use another directory",
            what="log",
            value=safe.position,
        )
    for topic in queues.topics():
        queues.delete(topic)
    commit_log.begin_at(LogEnd(0, NOTHING_KNOWN, 0))


def _finish_deletions(queues: QueueTable, safe: SafePoint) -> None:
    """Remove the remains of topics whose deletion was interrupted by a crash."""
    for topic, position in safe.deleted.items():
        last = [entry for queue in queues.of_topic(topic) if (entry := queue.last_entry()) is not None]
        if all(entry.end <= position for entry in last):
            queues.delete(topic)


def lost_queues(safe: SafePoint, queues: QueueTable, log_start: int) -> list[str]:
    """Queues that must have had entries but have lost them.

    These are queues with fewer entries than the safe point recorded and, if no log file was ever deleted,
    queues that do not begin with a message.
    """
    lost = []
    if log_start == 0:
        lost += [f"{queue.topic}/{queue.queue_id}" for queue in queues.each() if _begins_late(queue)]
    for topic, offsets in safe.queues.items():
        for queue_id, offset in offsets.items():
            queue = queues.find(topic, queue_id)
            if (0 if queue is None else queue.committed) < offset:
                lost.append(f"{topic}/{queue_id}")
    return lost


def _begins_late(queue: ConsumeQueue) -> bool:
    if not queue.committed:
        return False
    first = queue.entry(queue.files.start // ENTRY_BYTES)
    return queue.files.start > 0 or (first is not None and first.size == DUMMY_SIZE)


def choose_start(
    commit_log: CommitLog,
    queues: QueueTable,
    checkpoint: Checkpoint,
    safe: SafePoint,
    *,
    clean: bool,
    lost: bool,
) -> LogEnd:
    """Where the scan of the log begins.

    The whole log is scanned when queues lost entries or there are no queues. After a clean stop, the scan
    begins after the last record that a queue points to. After a crash, it begins at the safe point, otherwise
    at the last file whose first record is safe by the checkpoint, without the reference's limit of ten files
    (broker:2.9).
    """
    files = commit_log.files
    whole = LogEnd(files.start, NOTHING_KNOWN, 0)
    if lost or not any(queue.committed for queue in queues.all()):
        return whole
    if clean:
        entries = (entry for queue in queues.each() if (entry := queue.last_entry()) is not None)
        newest = max(entries, key=lambda entry: entry.end, default=None)
        if newest is not None:
            start = end_behind(files, newest.physical_offset, newest.end)
            if start is not None:
                return start
    else:
        start = end_behind(files, safe.record, safe.position)
        if start is not None:
            return start
    for segment in reversed(list(files)):
        if segment.base > checkpoint.logics_physical > 0:  # times are unreliable if the clock was set back
            continue
        queues.trim()
        view = segment.view()
        if not valid_record(view, 0, segment.base):
            continue
        if 0 < store_timestamp(view, 0) <= checkpoint.safe_timestamp:
            return LogEnd(segment.base, NOTHING_KNOWN, 0)
    return whole


def _scan_from(
    commit_log: CommitLog,
    queues: QueueTable,
    safe: SafePoint,
    start: LogEnd,
    on_disk: int,
    progress: OpeningProgress,
) -> tuple[Scanned, EntryDispatcher]:
    whole = start.position == commit_log.files.start
    dispatcher = EntryDispatcher(
        queues, commit_log.files, safe.deleted, whole=whole, delay_levels=commit_log.delay_levels
    )
    visit = progress.reading(commit_log.files, start.position, dispatcher.visit)
    return scan(commit_log.files, start, visit, on_disk), dispatcher


def _cut(commit_log: CommitLog, end: int) -> int:
    """Zero the bytes after the end of the log, so that they never look like records; returns how many."""
    files = commit_log.files
    segment = files.at(end)
    cut = 0
    if segment is not None:
        cut = files.clear(end, segment.end)
    files.remove_from(end + 1 if end == files.start else end)
    return cut


def _first_behind(queue: ConsumeQueue, position: int) -> int:
    """The first offset whose record starts at or after a log position; the queue's end if there is none."""

    def starts_behind(offset: int) -> bool:
        entry = queue.entry(offset)
        return entry is not None and entry.physical_offset >= position

    first = queue.files.start // ENTRY_BYTES
    return bisect_left(range(queue.committed), True, lo=min(first, queue.committed), key=starts_behind)


def _mark_damaged(queues: QueueTable, damaged: tuple[int, int]) -> None:
    """Ensure that entries pointing into a damaged range are never served."""
    low, high = damaged
    marked = 0
    for queue in queues.each():
        offset = _first_behind(queue, low)
        while (entry := queue.entry(offset)) is not None and entry.physical_offset < high:
            if not entry.is_hole:
                queue.restore(offset, ENTRY.pack(entry.physical_offset, entry.size, CORRUPT_CODE))
                marked += 1
                if marked <= REPORTS_MAX:
                    where = entry.physical_offset
                    log.error(
                        "%s/%d offset %d: its record at %d is damaged",
                        queue.topic,
                        queue.queue_id,
                        offset,
                        where,
                    )
            offset += 1


def _drop_stale(commit_log: CommitLog, queue: ConsumeQueue, start: int, known: int) -> int:
    """Drop entries at the queue's end that do not point to a record of the queue; returns how many.

    They point into the scanned part or beyond the log; entries before offset `known` were verified by the
    scan. An entry that is only damaged is rewritten, because its offset must not be reused. Raises
    `StoreBrokenError` if afterwards the queue still points beyond the end of the log.
    """
    keep, end = queue.committed, commit_log.position
    while keep > known:
        entry = queue.entry(keep - 1)
        if entry is None:
            break
        is_behind = entry.size != DUMMY_SIZE and entry.end > end
        if not is_behind and (entry.physical_offset < start or entry.tags_code == CORRUPT_CODE):
            break
        keep -= 1
    while keep < queue.committed and (found := find_entry(commit_log, queue, keep)) is not None:
        text = "%s/%d offset %d: rebuilt its damaged queue entry: %s"
        log.error(text, queue.topic, queue.queue_id, keep, found)
        queue.restore(keep, ENTRY.pack(*found))
        keep += 1
    dropped = queue.committed - keep
    if dropped:
        queue.truncate(keep)
    last = queue.last_entry()
    if last is not None and last.end > end:
        raise StoreBrokenError(
            f"{queue!r} ends with {last}, but the log ends at {end}: an internal error; remove the "
            f"directory {queue.files.directory}, the queue is then rebuilt from the log"
        )
    return dropped


def _force(
    commit_log: CommitLog, queues: QueueTable, start: int, safe: int, progress: OpeningProgress
) -> None:
    """Force what was scanned to disk: after the crash, it may exist only in the page cache."""
    files, end = commit_log.files, commit_log.position
    try:
        for segment in progress.until_stopped(files):
            files.rewrite(max(start, safe, segment.base), min(end, segment.end))
            if segment.base < end and segment.end > start:
                disk.sync_file(segment.path)
        disk.sync_directory(files.directory)
    except OSError as error:
        raise disk.store_error("cannot flush the commit log in", files.directory, error) from error
    for queue in progress.until_stopped(queues.each()):
        queue.rewrite(_first_behind(queue, start))


def _tell(report: RecoveryReport, commit_log: CommitLog) -> None:
    directory = commit_log.files.directory
    for low, high in report.damaged:
        log.error("%s: %d bytes at %d are damaged, their messages are lost", directory, high - low, low)
    if report.cut:
        log.warning(
            "%s: %d bytes of an unfinished write after %d were cut", directory, report.cut, report.end
        )
    if report.replaced:
        log.warning("%d queue entries did not lead to their messages and were rebuilt", report.replaced)
    if report.lost_queues:
        log.warning("queues without their entries were rebuilt: %s", ", ".join(report.lost_queues[:20]))
    log.info("opened %s after a %s: %s", directory, "clean stop" if report.clean else "crash", report)
