"""Makes a clean store from copied files, by opening and closing it with the store's own recovery.

Recovery makes the queues match the log and builds the index. Progress that is ahead of the log is lowered
here. Afterwards the directory is clean, as after a broker's stop.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from sparrowmq.core.clock import Clock
from sparrowmq.core.ids import pack_host
from sparrowmq.core.names import HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from sparrowmq.files import disk
from sparrowmq.store.base.settings import StoreSettings
from sparrowmq.store.message_store import INDEX_RECORDS, MessageStore
from sparrowmq.store.offline.directory import Progress, StoreDirectory, silent
from sparrowmq.store.offline.handed_out import Place
from sparrowmq.store.offline.timer_check import CHECK, LOG, WHEEL
from sparrowmq.store.offline.verify import VerifyReport, verify
from sparrowmq.store.recovery.checkpoint import Checkpoint
from sparrowmq.store.recovery.safe_point import SafePoint
from sparrowmq.store.tables.config_file import ConfigFile
from sparrowmq.store.tables.consumer_offsets import ConsumerOffsets
from sparrowmq.store.tables.delay_offsets import DelayOffsets
from sparrowmq.store.tables.epochs import ROLE_FILE
from sparrowmq.store.tables.producer_state import FILE_NAME as PRODUCERS
from sparrowmq.store.timers.timer_check import TimerCheck
from sparrowmq.store.timers.timer_wheel import PRECISION_MS
from sparrowmq.store.timers.timers import Timers

STORE_HOST: Final = pack_host("127.0.0.1", 10911)
"""Any value will do, because no record is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSizes:
    """The sizes of a directory's files; for the index, 0 means the default."""

    log_file_bytes: int
    queue_file_bytes: int
    index_slots: int = 0
    index_entries: int = 0

    def settings(self, root: Path, commit_log: Path | None = None) -> StoreSettings:
        """The settings of a store with such files; `commit_log` if its log is in another directory."""
        usual = StoreSettings(root=root)
        return StoreSettings(
            root=root,
            commit_log_path=commit_log,
            mapped_file_size_commit_log=self.log_file_bytes,
            mapped_file_size_consume_queue=self.queue_file_bytes,
            max_hash_slot_num=self.index_slots or usual.max_hash_slot_num,
            max_index_num=self.index_entries or usual.max_index_num,
            disk_space_warning_level_ratio=100,
        )


def settle(
    root: Path,
    sizes: FileSizes,
    clock: Clock,
    *,
    deleted: Mapping[str, int],
    redeliver_ms: int | None = None,
    handed_out: Mapping[Place, int] = MappingProxyType({}),
    progress: Progress = silent,
) -> VerifyReport:
    """Make the files below `root` a clean store, and check it.

    `deleted` maps each deleted topic to the end of the log at its deletion. `redeliver_ms` is given if the
    log was cut: messages that became due within this time before its last record, or later, are delivered
    (again), and `handed_out` says where hand-outs of POP began whose check points are cut off. Raises
    `StoreError` and its subclasses.
    """
    try:
        producers = 0 if disk.exists(root / PRODUCERS) or redeliver_ms is not None else None
        SafePoint(deleted=dict(deleted), producers=producers).save(root)
        Checkpoint().save(root / "checkpoint", sync=True)
        if redeliver_ms is not None:
            for path in (root / PRODUCERS, root / WHEEL):
                disk.unlink(path, missing_ok=True)
    except OSError as error:
        raise disk.store_error("cannot write", Path(error.filename or root), error) from error
    store = MessageStore.open(sizes.settings(root), clock, store_host=STORE_HOST)
    try:
        total = max(1, store.position - store.min_position)
        while left := store.follow_index(INDEX_RECORDS):
            progress("index", total - left, total)
        due_from = None if redeliver_ms is None else store.timestamp - redeliver_ms
        _take_back_offsets(root, store, clock, due_from, handed_out)
        if due_from is not None:
            _take_back_timers(root, store, due_from)
    except BaseException:
        store.abandon()
        raise
    store.close()
    _settle_timers(root, clock)
    _settle_role(root)
    directory = StoreDirectory.open(root)
    try:
        return verify(directory, progress=progress)
    finally:
        directory.close()


def _take_back_offsets(
    root: Path, store: MessageStore, clock: Clock, due_from: int | None, handed_out: Mapping[Place, int]
) -> None:
    """Lower the offsets of groups and delay levels that are ahead of their queues, or of what the log says
    about their messages."""
    file = ConfigFile(root / "config" / "consumerOffset.json")
    if disk.exists(file.path):
        offsets = ConsumerOffsets.load(file, clock)
        offsets.clamp(store, absent=False)  # offsets of deleted topics are restored, too
        for place, begin in handed_out.items():
            if begin < (offsets.query(*place) or 0):
                offsets.commit(*place, begin, always=True)
        if due_from is not None:
            # The end of a transaction may be cut off: a broker that checks all half messages finds those.
            offsets.forget_topic(HALF_TOPIC)
            offsets.forget_topic(OP_HALF_TOPIC)
            if offsets.saved_at is not None:
                offsets.copied(min(offsets.saved_at, store.position))
        offsets.save()
    file = ConfigFile(root / "config" / "delayOffset.json")
    if not disk.exists(file.path):
        return
    delays = DelayOffsets.load(file, clock)
    for queue in store.queues(SCHEDULE_TOPIC):
        level, offset = queue.queue_id + 1, min(delays.get(queue.queue_id + 1), queue.max_offset)
        while due_from is not None and offset > queue.min_offset:
            entry = queue.entry(offset - 1)
            if entry is not None and not entry.is_hole and entry.tags_code < due_from:
                break
            offset -= 1
        if offset != delays.get(level):
            delays.set(level, offset)
    delays.save()


def _take_back_timers(root: Path, store: MessageStore, due_from: int) -> None:
    """Make the broker plan all timers again, and deliver those due from `due_from` on.

    When the timer log is shorter than its checkpoint says, a broker plans all messages of the timer topic
    again. It skips those due before `read_time`, because they were delivered.
    """
    path = root / "config" / CHECK
    check = TimerCheck.load(path)
    if not check.read_time:
        return
    for entry in disk.entries(root / LOG) if disk.exists(root / LOG) else ():
        disk.unlink(entry.path)
    queue = store.find_queue(TIMER_TOPIC, 0)
    planned = min(check.queue_offset, 0 if queue is None else queue.max_offset)
    slot = min(check.read_time, max(PRECISION_MS, due_from - due_from % PRECISION_MS))
    TimerCheck(read_time=slot, flush_position=1, queue_offset=planned, master_queue_offset=planned).save(path)


def _settle_timers(root: Path, clock: Clock) -> None:
    """Build the timer wheel from the timer log, because Apache's broker needs one."""
    sizes = [disk.stat(e.path).st_size for e in disk.entries(root / LOG)] if disk.exists(root / LOG) else []
    if any(sizes):
        Timers.open(root, max(sizes), clock).close()


def _settle_role(root: Path) -> None:
    """Give the store another text than that of the one it was copied from: a coordinator knows by it which
    messages a replica has, and this one may lack some."""
    file = ConfigFile(root / "config" / ROLE_FILE)
    role = file.load()
    if role:
        file.save({**role, "store": secrets.token_hex(8)})
