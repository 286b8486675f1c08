"""`sparrow store verify`: checks every checksum and every reference of a directory.

The log is read once, from its first record to its last. The same pass checks each record itself, its queue
entry and its entries of the key index. Then queues, index, tables and timers are compared with the log. In
RocketMQ's format, a CRC protects bodies, and most other fields must agree with a second place.
docs/store-tools.md lists the few bytes whose damage cannot be found.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sparrowmq.core.delay import DEFAULT_LEVELS, DelayLevels
from sparrowmq.files import disk
from sparrowmq.store.log.commit_log import store_timestamp
from sparrowmq.store.offline.directory import LogScan, Progress, StoreDirectory, silent
from sparrowmq.store.offline.findings import Findings
from sparrowmq.store.offline.index_check import IndexCheck
from sparrowmq.store.offline.queue_check import QueueCheck
from sparrowmq.store.offline.queue_files import first_nonzero
from sparrowmq.store.offline.table_check import TableCheck, topic_names
from sparrowmq.store.offline.timer_check import check_timers

_SYS_FLAG_AT: Final = 36


@dataclass(slots=True)
class VerifyReport:
    """What was checked, and what was found. `records` to `index_entries` are counts, positions
    are in bytes.
    """

    root: str
    in_use: bool
    is_clean: bool
    findings: Findings = field(default_factory=Findings)
    log_start: int = 0
    log_end: int = 0
    records: int = 0
    half_messages: int = 0
    old_records: int = 0
    queues: int = 0
    queue_entries: int = 0
    index_files: int = 0
    index_entries: int = 0
    timer_units: int = 0
    tables: list[str] = field(default_factory=list)
    not_read: list[str] = field(default_factory=list)
    damaged_queues: list[tuple[str, int]] = field(default_factory=list)
    gone_topics: list[str] = field(default_factory=list)

    @property
    def is_index_damaged(self) -> bool:
        """Whether damage was found in the key index."""
        return any(kind.is_damage and kind.part == "index" for kind in self.findings.kinds)

    @property
    def is_whole(self) -> bool:
        """Whether no damage was found."""
        return not self.findings.is_damaged

    def moved_to(self, root: Path) -> None:
        """Replace the directory's path after it was renamed."""
        self.root = str(root)

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON object."""
        return {
            "directory": self.root,
            "whole": self.is_whole,
            "in_use": self.in_use,
            "clean": self.is_clean,
            "log_start": self.log_start,
            "log_end": self.log_end,
            "records": self.records,
            "half_messages": self.half_messages,
            "old_records": self.old_records,
            "queues": self.queues,
            "queue_entries": self.queue_entries,
            "index_files": self.index_files,
            "index_entries": self.index_entries,
            "timer_units": self.timer_units,
            "tables": self.tables,
            "not_read": self.not_read,
            "findings": [kind.to_json() for kind in self.findings.kinds],
        }


def verify(
    directory: StoreDirectory, *, levels: DelayLevels = DEFAULT_LEVELS, progress: Progress = silent
) -> VerifyReport:
    """Check a directory; `levels` are the delay levels of the broker that wrote it. Raises `StoreError`.

    If the directory is in use or was not closed cleanly, whatever a broker repairs when it starts is a note.
    """
    report = VerifyReport(str(directory.root), directory.in_use, directory.is_clean)
    findings = report.findings
    try:
        for problem in directory.problems:
            findings.damage("files", "files of the log", problem)
        queues = QueueCheck(directory, findings, levels, topic_names(directory.root))
        index = IndexCheck(directory, findings)

        newest = 0

        def visit(view: memoryview, at: int, position: int, size: int) -> None:
            nonlocal newest
            topic, properties = queues.visit(view, at, position, size)
            sys_flag = int.from_bytes(view[at + _SYS_FLAG_AT : at + _SYS_FLAG_AT + 4], "big", signed=True)
            stored = store_timestamp(view, at)
            if stored > newest:
                newest = stored
            index.visit(position, sys_flag, stored, topic, properties)

        scanned = directory.read_log(visit, progress)
        _check_log(directory, findings, scanned)
        queues.finish(scanned, progress)
        index.finish(scanned, progress)
        tables = TableCheck(directory, findings, scanned, newest)
        tables.run()
        report.timer_units = check_timers(directory, findings, scanned, progress)
    except OSError as error:
        raise disk.store_error("cannot read", directory.root, error) from error
    report.log_start, report.log_end, report.records = scanned.start, scanned.end, scanned.records
    report.half_messages, report.old_records = queues.halves, queues.old
    report.queues, report.queue_entries = len(directory.queues), queues.entries
    report.index_files, report.index_entries = len(index.files), index.entries
    report.damaged_queues, report.gone_topics = list(queues.damaged), list(queues.gone)
    report.tables, report.not_read = tables.read, directory.not_read()
    return report


def _check_log(directory: StoreDirectory, findings: Findings, scanned: LogScan) -> None:
    """Report damaged ranges of the log, and bytes after its end."""
    for low, high in scanned.damaged:
        findings.damage("log", "damaged bytes", f"{high - low} bytes at {low}")
    for segment in directory.log:
        if segment.end <= scanned.end:
            continue
        start = max(0, scanned.end - segment.base)
        stray = first_nonzero(segment, start, segment.size)
        if stray is None:
            continue
        text = f"{segment.path} byte {stray}"
        if directory.is_settled:
            findings.damage("log", "bytes after the end of the log", text)
        else:
            findings.note("log", "an unfinished write after the end of the log", text)
