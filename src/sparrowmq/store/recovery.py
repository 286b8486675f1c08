"""Making log and queues agree when a store is opened (broker:2.8 to 2.11, 3.5, 18).

The log is the truth. Recovery finds its end, cuts a torn tail, gives every record its queue entry and removes
entries that point to nothing. It goes further than the reference: the bytes of dropped entries are zeroed,
queues that lost entries are rebuilt whole whatever the checkpoint says, damage in the middle of the log costs
only the damaged records, and how many log files there are does not matter.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from sparrowmq.store import disk
from sparrowmq.store.commit_log import CommitLog, Progress, store_timestamp
from sparrowmq.store.consume_queue import CORRUPT_CODE, DUMMY_SIZE, ENTRY, ConsumeQueue
from sparrowmq.store.dispatch import REPORTS_MAX, Dispatcher, EntriesMissing
from sparrowmq.store.scan import Scanned, scan, valid_record
from sparrowmq.store.settings import ENTRY_BYTES

if TYPE_CHECKING:
    from sparrowmq.store.checkpoint import Checkpoint
    from sparrowmq.store.queue_table import QueueTable
    from sparrowmq.store.safe_point import SafePoint

log = logging.getLogger("sparrowmq.store")
NOTHING_KNOWN: Final = -1


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What opening the store found and did. Positions are bytes in the log.

    `start` to `end` was scanned, `records` valid ones were met; `added` and `replaced` queue entries were
    written, `dropped` removed; `damaged` ranges are inside the log, `cut` bytes behind its end were zeroed.
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


def recover(
    commit_log: CommitLog, queues: QueueTable, checkpoint: Checkpoint, safe: SafePoint, *, clean: bool
) -> RecoveryReport:
    """Bring the loaded log and queues into agreement; `clean` says that the last owner closed the store.

    Afterwards the log's position and the queues' offsets are set. Raises the `StoreError` family.
    """
    files = commit_log.files
    _finish_deletions(queues, safe)
    if not len(files):
        for topic in queues.topics():
            queues.delete(topic)
        commit_log.begin_at(Progress(0, NOTHING_KNOWN, 0))
        return RecoveryReport(clean)
    lost = lost_queues(safe, queues, files.start)
    start = choose_start(commit_log, queues, checkpoint, safe, clean=clean, lost=bool(lost))
    try:
        scanned, dispatcher = _scan_from(commit_log, queues, safe, start)
    except EntriesMissing as error:
        log.warning("queue entries are missing (%s): all queues are checked against the whole log", error)
        start = Progress(files.start, NOTHING_KNOWN, 0)
        scanned, dispatcher = _scan_from(commit_log, queues, safe, start)
    end = scanned.progress.position
    cut = _cut(commit_log, end)
    for damaged in scanned.damaged:
        _mark_damaged(queues, damaged)
    dropped = sum(_drop_stale(queue, start.position, dispatcher.seen) for queue in queues.each())
    if not clean:
        _sync_log(commit_log, start.position, end)
    commit_log.begin_at(scanned.progress)
    for queue in queues.each():
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
    )
    _tell(report, commit_log)
    return report


def _finish_deletions(queues: QueueTable, safe: SafePoint) -> None:
    """Remove what is left of topics whose deletion a crash cut short."""
    for topic, position in safe.deleted.items():
        last = [entry for queue in queues.of_topic(topic) if (entry := queue.last_entry()) is not None]
        if all(entry.end <= position for entry in last):
            queues.delete(topic)


def lost_queues(safe: SafePoint, queues: QueueTable, log_start: int) -> list[str]:
    """Queues without entries that they must have had.

    Those with fewer than the safe point says were on disk; and, in a log from which no file was ever cleaned
    away, those that do not begin with a message.
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
) -> Progress:
    """Where the scan of the log begins.

    The whole log when queues lost entries or there are none. After a clean stop: behind the last record that
    a queue knows. After a crash: at the safe point, else at the last file whose first record the checkpoint
    calls safe, without the reference's limit of ten files (broker:2.9).
    """
    files = commit_log.files
    whole = Progress(files.start, NOTHING_KNOWN, 0)
    if lost or not any(queue.committed for queue in queues.all()):
        return whole
    if clean:
        entries = (entry for queue in queues.each() if (entry := queue.last_entry()) is not None)
        newest = max(entries, key=lambda entry: entry.end, default=None)
        if newest is not None:
            start = _behind(commit_log, newest.physical_offset, newest.end)
            if start is not None:
                return start
    else:
        start = _behind(commit_log, safe.record, safe.position)
        if start is not None:
            return start
    for segment in reversed(list(files)):
        queues.trim()
        view = segment.view()
        if not valid_record(view, 0, segment.base):
            continue
        if 0 < store_timestamp(view, 0) <= checkpoint.safe_timestamp:
            return Progress(segment.base, NOTHING_KNOWN, 0)
    return whole


def _behind(commit_log: CommitLog, record: int, end: int) -> Progress | None:
    """The place behind a record, if a valid one really lies there."""
    segment = commit_log.files.at(record) if record >= 0 else None
    if segment is None:
        return None
    view, at = segment.view(), record - segment.base
    if valid_record(view, at, record) != end - record:
        return None
    return Progress(end, record, store_timestamp(view, at))


def _scan_from(
    commit_log: CommitLog, queues: QueueTable, safe: SafePoint, start: Progress
) -> tuple[Scanned, Dispatcher]:
    whole = start.position == commit_log.files.start
    dispatcher = Dispatcher(
        queues, commit_log.files, safe.deleted, whole=whole, delay_levels=commit_log.delay_levels
    )
    return scan(commit_log.files, start, dispatcher.visit), dispatcher


def _cut(commit_log: CommitLog, end: int) -> int:
    """Zero what lies behind the end of the log, so that it is never taken for records; how much it was."""
    files = commit_log.files
    segment = files.at(end)
    cut = 0
    if segment is not None:
        cut = files.clear(end, segment.end)
    files.remove_from(end + 1 if end == files.start else end)
    return cut


def _mark_damaged(queues: QueueTable, damaged: tuple[int, int]) -> None:
    """Make sure that entries which point into a damaged range are never served."""
    low, high = damaged
    marked = 0
    for queue in queues.each():
        first = queue.files.start // ENTRY_BYTES

        def starts_behind(offset: int, queue: ConsumeQueue = queue) -> bool:
            entry = queue.entry(offset)
            return entry is not None and entry.physical_offset >= low

        offset = bisect_left(range(queue.committed), True, lo=first, key=starts_behind)
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


def _drop_stale(queue: ConsumeQueue, start: int, seen: dict[ConsumeQueue, int]) -> int:
    """Drop entries at the queue's end that point into the scanned part, but to no record of the queue."""
    keep = queue.committed
    known = seen.get(queue, 0)
    while keep > known:
        entry = queue.entry(keep - 1)
        if entry is None or entry.physical_offset < start or entry.tags_code == CORRUPT_CODE:
            break
        keep -= 1
    dropped = queue.committed - keep
    if dropped:
        queue.truncate(keep)
    return dropped


def _sync_log(commit_log: CommitLog, start: int, end: int) -> None:
    """Force the scanned part to disk: the crash may have left it with the system only."""
    files = commit_log.files
    try:
        for segment in files:
            if segment.base < end and segment.end > start:
                disk.sync_file(segment.path)
        disk.sync_directory(files.directory)
    except OSError as error:
        raise disk.store_error("cannot flush the commit log in", files.directory, error) from error


def _tell(report: RecoveryReport, commit_log: CommitLog) -> None:
    directory = commit_log.files.directory
    for low, high in report.damaged:
        log.error("%s: %d bytes at %d are damaged, their messages are lost", directory, high - low, low)
    if report.cut:
        log.warning(
            "%s: %d bytes of an unfinished write behind %d are cut", directory, report.cut, report.end
        )
    if report.lost_queues:
        log.warning("queues without their entries were rebuilt: %s", ", ".join(report.lost_queues[:20]))
    log.info("opened %s after a %s: %s", directory, "clean stop" if report.clean else "crash", report)
