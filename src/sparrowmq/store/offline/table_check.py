"""Compares the tables with log and queues: topics, offsets, delays, checkpoints, producers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sparrowmq.core.errors import JavaJsonError, StoreError
from sparrowmq.core.names import SCHEDULE_TOPIC
from sparrowmq.files import disk
from sparrowmq.protocol import java_json
from sparrowmq.store.base.number_file import FILE_BYTES
from sparrowmq.store.log.scan import end_behind
from sparrowmq.store.recovery.checkpoint import Checkpoint
from sparrowmq.store.recovery.safe_point import FILE_NAME as SAFE_POINT
from sparrowmq.store.tables import producer_state

if TYPE_CHECKING:
    from sparrowmq.store.offline.directory import LogScan, StoreDirectory
    from sparrowmq.store.offline.findings import Findings

TOPICS: Final = "topics.json"
OFFSETS: Final = "consumerOffset.json"
DELAYS: Final = "delayOffset.json"


def read_table(path: Path) -> dict[str, Any] | None:
    """A file of `config/`; None when it is missing or empty. Raises `JavaJsonError` or OSError."""
    try:
        data = disk.read(path)
    except FileNotFoundError:
        return None
    if not data.strip():
        return None
    value = java_json.loads(data)
    if not isinstance(value, dict):
        raise JavaJsonError(f"an object was expected, not {type(value).__name__}")
    return value


def topic_names(root: Path) -> frozenset[str] | None:
    """The topics of `topics.json` or its backup; None when neither can be read."""
    for name in (TOPICS, f"{TOPICS}.bak"):
        try:
            table = read_table(root / "config" / name)
        except (JavaJsonError, OSError):
            continue
        found = table and table.get("topicConfigTable")
        if isinstance(found, dict):
            return frozenset(found)
    return None


class TableCheck:
    """Checks every table of a directory; `scanned` is the scan of its log, `newest_ms` the latest
    store time.
    """

    def __init__(
        self, directory: StoreDirectory, findings: Findings, scanned: LogScan, newest_ms: int
    ) -> None:
        self._newest_ms = newest_ms
        self._directory = directory
        self._findings = findings
        self._scanned = scanned
        self.read: list[str] = []
        """Files that were read."""

    def run(self) -> None:
        """Check all tables. Raises OSError."""
        tables = dict(self._config())
        self._topics(tables.get(TOPICS))
        self._offsets(tables.get(OFFSETS))
        self._delays(tables.get(DELAYS))
        self._checkpoint()
        self._safe_point()
        self._producers()

    def _damage(self, what: str, text: str) -> None:
        self._findings.damage("tables", what, text)

    def _config(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The tables of `config/`. A broken table is damage even if its backup is readable."""
        directory = self._directory.root / "config"
        if not disk.exists(directory):
            return
        for entry in disk.entries(directory):
            if not entry.is_file or not entry.name.endswith((".json", ".json.bak")):
                continue
            try:
                table = read_table(entry.path)
            except JavaJsonError as error:
                self._damage("tables that cannot be read", f"{entry.path}: {error}")
                continue
            self.read.append(entry.name)
            if table is not None:
                yield entry.name, table

    def _topics(self, table: dict[str, Any] | None) -> None:
        topics = None if table is None else table.get("topicConfigTable")
        named = {topic for topic, _ in self._directory.queues}
        if not isinstance(topics, dict):
            if named:
                self._damage("no table of topics", f"there are queues of {len(named)} topics")
            return
        for topic in sorted(named - topics.keys()):
            self._findings.note("tables", "topics that have queues and are not in topics.json", topic)
        for topic, queue_id in self._directory.queues:
            row = topics.get(topic)
            if not isinstance(row, dict):
                continue
            counts = [row.get("readQueueNums", 0), row.get("writeQueueNums", 0)]
            if all(isinstance(count, int) for count in counts) and queue_id >= max(counts):
                self._findings.note(
                    "tables", "queues beyond the number in topics.json", f"{topic}/{queue_id}"
                )

    def _offsets(self, table: dict[str, Any] | None) -> None:
        offsets = (table or {}).get("offsetTable") or {}
        for key, queues in offsets.items() if isinstance(offsets, dict) else ():
            topic, _, group = key.partition("@")
            for queue_id, offset in queues.items() if isinstance(queues, dict) else ():
                self._offset(OFFSETS, f"group {group}", topic, queue_id, offset)

    def _delays(self, table: dict[str, Any] | None) -> None:
        offsets = (table or {}).get("offsetTable") or {}
        for level, offset in offsets.items() if isinstance(offsets, dict) else ():
            if str(level).isdecimal() and int(level) > 0:
                self._offset(DELAYS, f"level {level}", SCHEDULE_TOPIC, int(level) - 1, offset)
            else:
                self._damage("impossible delay levels", f"{DELAYS}: level {level}")

    def _offset(self, file: str, who: str, topic: str, queue_id: Any, offset: Any) -> None:
        where = f"{file}: {who} in {topic}/{queue_id}: {offset}"
        if not str(queue_id).isdecimal() or not isinstance(offset, int) or offset < 0:
            self._damage("impossible offsets", where)
            return
        queue = self._directory.queues.get((topic, int(queue_id)))
        if queue is None:
            if offset > 0:
                self._findings.note("tables", "offsets in queues that have no files", where)
        elif offset > queue.end:
            text = f"{where}, and the queue ends at {queue.end}"
            if self._directory.in_use:
                self._findings.note("tables", "offsets beyond the end of the queue that was read", text)
            else:
                self._damage("offsets beyond the end of the queue", text)

    def _checkpoint(self) -> None:
        path = self._directory.root / "checkpoint"
        if not disk.exists(path):
            self._findings.note("tables", "no checkpoint", "the next start reads more of the log")
            return
        self.read.append("checkpoint")
        data = disk.read(path)
        if len(data) != FILE_BYTES:
            self._damage("checkpoint", f"{path} has {len(data)} bytes instead of {FILE_BYTES}")
            return
        checkpoint, end, newest = Checkpoint.load(path), self._scanned.end, self._newest_ms
        if data[48:].strip(b"\0"):
            self._findings.note("tables", "the checkpoint has unknown fields", str(path))
        if self._directory.in_use:
            return
        for name, time in (
            ("log", checkpoint.physic),
            ("queues", checkpoint.logics),
            ("index", checkpoint.index),
        ):
            if time < 0 or time > newest:
                self._damage(
                    "checkpoint", f"the time of the {name} is {time}, later than the newest record ({newest})"
                )
        if not 0 <= checkpoint.logics_physical <= end:
            self._damage(
                "checkpoint", f"the queues' position is {checkpoint.logics_physical}, the log ends at {end}"
            )

    def _safe_point(self) -> None:
        path, point = self._directory.root / SAFE_POINT, self._directory.safe_point
        if not disk.exists(path):
            return
        self.read.append(SAFE_POINT)
        try:
            json.loads(disk.read(path))
        except ValueError as error:
            self._damage("safe point", f"{path}: {error}")
            return
        if self._directory.in_use:
            return
        if point.record >= 0 and end_behind(self._directory.log, point.record, point.position) is None:
            size = point.position - point.record
            self._damage("safe point", f"there is no record of {size} bytes at {point.record}")
        for topic, queues in point.queues.items():
            for queue_id, end in queues.items():
                queue = self._directory.queues.get((topic, queue_id))
                have = 0 if queue is None else queue.end
                if have < end:
                    self._damage("safe point", f"{topic}/{queue_id} had {end} entries and now has {have}")

    def _producers(self) -> None:
        path = self._directory.root / producer_state.FILE_NAME
        if not disk.exists(path):
            return
        self.read.append(producer_state.FILE_NAME)
        try:
            file = producer_state.load(self._directory.root)
        except StoreError as error:
            self._damage("producers", str(error))
            return
        if file.damaged:
            self._damage("producers", f"{path} cannot be read; the next start rebuilds it from the log")
        elif file.position is not None and file.position > self._scanned.end and not self._directory.in_use:
            self._damage("producers", f"{path} is of {file.position}, the log ends at {self._scanned.end}")
