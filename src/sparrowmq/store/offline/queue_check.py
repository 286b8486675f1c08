"""Compares the log with the consume queues in both directions, with one pass over each.

The pass over the log looks up the entry of every record and counts those that match. The pass over a queue
counts the entries that point into the log. If both numbers are equal, every entry leads to its own record;
otherwise the entries are checked one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from sparrowmq.core.delay import DELAY_MS_MAX, DelayLevels
from sparrowmq.core.errors import RecordError
from sparrowmq.core.names import SCHEDULE_TOPIC
from sparrowmq.protocol.record import HEAD, RECORD_MAGIC_V1, StoredRecord, decode_record
from sparrowmq.protocol.sysflag import HOST_V6_MASK, TRANSACTION_PREPARED
from sparrowmq.store.base.settings import ENTRY_BYTES
from sparrowmq.store.log.proof import PROOF_BYTES, ROOM, is_proven
from sparrowmq.store.offline.queue_files import QueueFiles, first_nonzero
from sparrowmq.store.queues.consume_queue import CORRUPT_CODE, DUMMY_SIZE, TAG_CODE_MIN, QueueEntry
from sparrowmq.store.recovery.dispatch import hash_of_tags, tags_code_of

if TYPE_CHECKING:
    from sparrowmq.store.offline.directory import LogScan, Progress, StoreDirectory
    from sparrowmq.store.offline.findings import Findings

ORPHANS_MAX: Final = 100_000
"""Number of queues without files whose records are counted separately; records of further ones are counted
together.
"""
_OTHERS: Final = "(others)"
_PROOF_NAME: Final = ROOM[: PROOF_BYTES - 11]


class CheckedQueue:
    """The state of the check of one queue. `matched` counts the records whose entries are right."""

    __slots__ = ("born", "due", "files", "is_schedule", "lost", "matched", "missing", "superseded")

    def __init__(self, files: QueueFiles) -> None:
        self.files = files
        self.matched = self.superseded = self.missing = self.lost = 0
        self.is_schedule = files.topic == SCHEDULE_TOPIC
        self.due: Counter[int] = Counter()
        """In the delay topic: delays that match no level, and how many messages have each."""
        first = files.entry(0) if files.files.start == 0 else None
        self.born = 0 if first is None or first.size == DUMMY_SIZE else first.physical_offset
        """Records before this position belong to a deleted topic of the same name."""


class QueueCheck:
    """Compares records and queues. Call `visit` for each record in order, then `finish`."""

    def __init__(
        self,
        directory: StoreDirectory,
        findings: Findings,
        levels: DelayLevels,
        topics: frozenset[str] | None,
    ) -> None:
        self._directory = directory
        self._findings = findings
        self._levels = levels
        self._topics = topics
        self._deleted: Mapping[str, int] = directory.safe_point.deleted
        self._queues: dict[tuple[bytes, int], CheckedQueue] = {
            (topic.encode("utf-8", "surrogateescape"), queue_id): CheckedQueue(files)
            for (topic, queue_id), files in directory.queues.items()
        }
        self._born: dict[bytes, int] = {}
        """Where each topic's oldest queue begins. Earlier records belong to a deleted topic of
        the same name.
        """
        for (topic, _), queue in self._queues.items():
            self._born[topic] = min(queue.born, self._born.get(topic, queue.born))
        self._orphans: Counter[tuple[str, int]] = Counter()
        self.entries = self.halves = self.old = 0
        self.damaged: dict[tuple[str, int], None] = {}
        """Queues whose files must be rebuilt from the log."""
        self.gone: dict[str, None] = {}
        """Topics that have records, but neither queues nor a row in `topics.json`."""

    def visit(self, view: memoryview, at: int, position: int, size: int) -> tuple[bytes, bytes]:
        """Check one valid record; returns its topic and properties."""
        head = HEAD.unpack_from(view, at)
        sys_flag, queue_id, offset = head[7], head[3], head[5]
        if head[1] == RECORD_MAGIC_V1 and not sys_flag & HOST_V6_MASK:
            topic_at = at + HEAD.size + head[14] + 1
            properties_at = topic_at + view[topic_at - 1] + 2
            topic = bytes(view[topic_at : properties_at - 2])
            properties = bytes(view[properties_at : at + size])
        else:
            record = decode_record(view, at)
            topic, properties = record.topic.encode(), record.properties
        if properties[-PROOF_BYTES:].startswith(_PROOF_NAME) and not is_proven(view[at : at + size]):
            self._findings.damage(
                "log", "records with a wrong checksum of the whole record", _place(topic, position)
            )
        if sys_flag & TRANSACTION_PREPARED:
            self.halves += 1
            return topic, properties
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            self._orphan(topic, queue_id, position)
            return topic, properties
        entry = queue.files.entry(offset)
        if entry is None or entry.physical_offset != position or entry.size != size:
            self._unmatched(queue, entry, offset, position)
            return topic, properties
        queue.matched += 1
        code = entry.tags_code
        if queue.is_schedule or code != hash_of_tags(properties):
            self._check_code(queue, entry, decode_record(view, at))
        return topic, properties

    def _damage(self, files: QueueFiles, what: str, text: str) -> None:
        """Add damage of a queue's own files."""
        self.damaged[files.topic, files.queue_id] = None
        self._findings.damage("queues", what, text)

    def _check_code(self, queue: CheckedQueue, entry: QueueEntry, record: StoredRecord) -> None:
        code = entry.tags_code
        if code == tags_code_of(record, self._levels) or code == CORRUPT_CODE:
            queue.lost += code == CORRUPT_CODE
            return
        where = f"{queue.files.name} offset {record.queue_offset}"
        if queue.is_schedule:
            wait = code - record.store_timestamp
            if abs(wait) > DELAY_MS_MAX:
                self._damage(queue.files, "impossible due times", f"{where}: {code}")
            else:
                queue.due[wait] += 1
        elif code >= TAG_CODE_MIN or not self._directory.has_filter_bits:
            self._damage(queue.files, "entries with a wrong tags code", f"{where}: {code}")

    def _orphan(self, topic: bytes, queue_id: int, position: int) -> None:
        name = topic.decode("utf-8", "replace")
        key = name, queue_id
        if position < max(self._deleted.get(name, 0), self._born.get(topic, 0)):
            self.old += 1
            return
        if key not in self._orphans and len(self._orphans) >= ORPHANS_MAX:
            key = _OTHERS, 0
        self._orphans[key] += 1

    def _unmatched(self, queue: CheckedQueue, entry: QueueEntry | None, offset: int, position: int) -> None:
        files, name = queue.files, queue.files.topic
        if position < queue.born or position < self._deleted.get(name, 0):
            queue.superseded += 1
            return
        if entry is not None and entry.physical_offset > position and self._leads(files, offset, entry):
            queue.superseded += 1
            return
        where = f"{files.name} offset {offset}: the record at {position}"
        if offset >= files.end and not self._directory.is_settled:
            self._findings.note("queues", "the last records have no queue entry yet", where)
        elif entry is not None and entry.is_hole:
            self._findings.note("queues", "records marked as damaged by an earlier start", where)
        else:
            queue.missing += 1
            self._damage(files, "records without their queue entry", where)

    def _leads(self, files: QueueFiles, offset: int, entry: QueueEntry) -> bool:
        """Whether an entry leads to the record of its queue and offset."""
        segment = self._directory.log.at(entry.physical_offset) if entry.physical_offset >= 0 else None
        if segment is None:
            return False
        try:
            record = decode_record(segment.view(), entry.physical_offset - segment.base)
        except RecordError:
            return False
        found = record.topic, record.queue_id, record.queue_offset, record.physical_offset, record.size
        return found == (files.topic, files.queue_id, offset, entry.physical_offset, entry.size)

    # After the log

    def finish(self, scanned: LogScan, progress: Progress) -> None:
        """Check the queues' files, after the log was read."""
        self._tell_orphans()
        queues = list(self._queues.values())
        total = sum((queue.files.end - queue.files.first) * ENTRY_BYTES for queue in queues)
        done = 0
        for queue in queues:
            self._finish_queue(queue, scanned)
            done += (queue.files.end - queue.files.first) * ENTRY_BYTES
            progress("queues", done, total)
            self._directory.pool.trim()

    def _tell_orphans(self) -> None:
        for (topic, queue_id), count in self._orphans.items():
            text = f"{topic}/{queue_id}: {count} records"
            if self._topics is not None and topic in self._topics and self._directory.is_settled:
                self.damaged[topic, queue_id] = None
                self._findings.damage("queues", "queues without their files", text)
            else:
                if self._topics is not None and topic not in self._topics:
                    self.gone[topic] = None
                self._findings.note("queues", "records of deleted topics", text)

    def _finish_queue(self, queue: CheckedQueue, scanned: LogScan) -> None:
        files, findings = queue.files, self._findings
        self.old += queue.superseded
        self._check_files(files)
        live, last = 0, -1
        for offset, entry in files.entries(files.first, files.end):
            if entry.size == DUMMY_SIZE:
                queue.lost += 1
                continue
            place = entry.physical_offset
            if place < last:
                self._damage(files, "entries out of order", f"{files.name} offset {offset}: {entry}")
            last = place
            live += scanned.start <= place < scanned.end
            if entry.end > scanned.end and place < 2**62:
                self._beyond(files, offset, entry)
            elif place < 0 or place >= 2**62:
                self._damage(files, "entries that point nowhere", f"{files.name} offset {offset}: {entry}")
        self.entries += files.end - files.first
        if live != queue.matched:
            self._look_closer(queue, scanned)
        if queue.lost:
            findings.note("queues", "messages known to be damaged", f"{files.name}: {queue.lost}", queue.lost)
        self._check_due_times(queue)

    def _beyond(self, files: QueueFiles, offset: int, entry: QueueEntry) -> None:
        text = f"{files.name} offset {offset}: {entry}"
        if self._directory.is_settled:
            self._damage(files, "entries that point beyond the end of the log", text)
        else:
            self._findings.note("queues", "entries of records after the end that was read", text)

    def _check_files(self, files: QueueFiles) -> None:
        for problem in files.problems:
            self._damage(files, "files", problem)
        per_file = files.files.file_bytes // ENTRY_BYTES
        for segment in files.files:
            start = segment.base // ENTRY_BYTES
            used = max(0, min(per_file, files.end - start)) * ENTRY_BYTES
            stray = first_nonzero(segment, used, segment.size)
            if stray is not None:
                text = f"{segment.path} byte {stray}"
                if self._directory.is_settled:
                    self._damage(files, "bytes after the end of a queue", text)
                else:
                    self._findings.note("queues", "bytes after the end of a queue", text)
        if self._directory.log.start == 0 and (files.files.start > 0 or files.first > 0) and files.end:
            self._findings.note(
                "queues",
                "queues whose first messages are missing although the log begins at 0",
                f"{files.name} at {files.first}",
            )

    def _look_closer(self, queue: CheckedQueue, scanned: LogScan) -> None:
        """Find the entries that do not lead to their records, because either the entry or the record is
        damaged.
        """
        files = queue.files
        for offset, entry in files.entries(files.first, files.end):
            if entry.is_hole or not scanned.start <= entry.physical_offset < scanned.end:
                continue
            if not self._leads(files, offset, entry):
                text = f"{files.name} offset {offset}: {entry}"
                if any(low <= entry.physical_offset < high for low, high in scanned.damaged):
                    self._findings.damage("queues", "messages whose record is damaged", text)
                else:
                    self._damage(files, "entries that do not lead to their record", text)
            self._directory.pool.trim()

    def _check_due_times(self, queue: CheckedQueue) -> None:
        """Several messages with the same unknown delay are right, because the broker may have had other
        levels. A delay of only one message is damage if other messages of the queue have known delays.
        """
        if not queue.due:
            return
        usual = queue.matched - sum(queue.due.values())
        for wait, count in queue.due.items():
            text = f"{queue.files.name}: {count} messages wait {wait} ms"
            if count == 1 and (usual or len(queue.due) > 1):
                self._damage(queue.files, "due times that match no delay level", text)
            else:
                self._findings.note("queues", "due times of other delay levels", text)


def _place(topic: bytes, position: int) -> str:
    return f"{topic.decode('utf-8', 'replace')} at {position}"
