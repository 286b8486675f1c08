"""Appending: records are packed one by one into a chunk, and a chunk is written at once.

This is the hot path of a broker. Per message: one CRC, one pack, two list operations, no system call. Per
chunk: one write to the log, then the queue entries through mappings with blocks reserved beforehand, so that
nothing can fail once the log is written.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate, chain, repeat
from typing import TYPE_CHECKING, Final, NoReturn

from sparrowmq.core.errors import RecordError, StoreBrokenError, StoreError
from sparrowmq.core.message import PROPERTIES_BYTES_MAX
from sparrowmq.protocol.crc import CRC_MASK, crc32
from sparrowmq.protocol.record import (
    BLANK_BYTES_MIN,
    BLANK_MAGIC,
    HEAD,
    RECORD_FIXED_BYTES,
    RECORD_MAGIC_V1,
    encode_record,
)
from sparrowmq.store.base.settings import ENTRY_BYTES, StoreSettings
from sparrowmq.store.log.commit_log import CommitLog, LogEnd
from sparrowmq.store.log.proof import ROOM, SECTOR_BYTES, looks_torn, seal, with_room, with_room_once
from sparrowmq.store.packing import alike_batch, pack_alike, pack_entries
from sparrowmq.store.queues.consume_queue import ENTRY

if TYPE_CHECKING:
    from pathlib import Path

    from sparrowmq.protocol.batch import AlikeBatch
    from sparrowmq.store.base.stats import StoreStats
    from sparrowmq.store.queues.consume_queue import ConsumeQueue

RECORD_EXTRA_BYTES: Final = 65_536
"""A record may exceed the largest body by this much (broker:2.4)."""

_IPV4_BYTES: Final = 8
_LONGER_HOSTS_BYTES: Final = 24
"""Additional size of two IPv6 hosts instead of IPv4 ones."""

_WITHOUT_ENTRY: Final = 0x04
"""This bit is set in the transaction types prepared and rollback, which get neither offset nor entry."""
_HOST_BITS: Final = 0x30
_BLANK: Final = struct.Struct(">iI")
_pack_head = HEAD.pack
_BATCH_HEAD: Final = struct.Struct(">iIIiiqq48si")
_BATCH_COMMON: Final = struct.Struct(">iq8sq8siq")
"""The head of a record with the shared fields of a batch packed once: system flag to prepared offset."""
_pack_size = struct.Struct(">h").pack
_pack_entry = ENTRY.pack_into


Parts = tuple[bytes, ...]
ChunkItem = tuple[int, bytes, bytes, int]
"""A message of a batch: flag, body, properties, tag code."""


class ChunkWriter:
    """Collects records and commits them; see `append` and `commit`."""

    __slots__ = (
        "_end",
        "_entries",
        "_failure",
        "_file_bytes",
        "_file_end",
        "_last_start",
        "_log",
        "_may_write",
        "_parts",
        "_queue_file_bytes",
        "_record_bytes_max",
        "_runs",
        "_spans",
        "_start",
        "_stats",
        "_store_host",
        "_store_host_is_v4",
        "_sync",
        "_timestamp",
    )

    def __init__(self, settings: StoreSettings, log: CommitLog, store_host: bytes, stats: StoreStats) -> None:
        self._log = log
        self._stats = stats
        self._may_write = settings.may_write
        self._store_host = store_host
        self._store_host_is_v4 = len(store_host) == _IPV4_BYTES
        self._sync = settings.sync_flush
        self._file_bytes = settings.mapped_file_size_commit_log
        self._queue_file_bytes = settings.consume_queue_file_bytes
        self._record_bytes_max = min(
            settings.max_message_size + RECORD_EXTRA_BYTES, self._file_bytes - BLANK_BYTES_MIN
        )
        self._entries: list[tuple[ConsumeQueue, int, int, int, int]] = []
        self._runs: list[tuple[int, ConsumeQueue, int, bytes]] = []  # number of entries before, queue, offset
        self._begin()

    def _begin(self) -> None:
        """Start an empty chunk at the end of the log."""
        progress = self._log.progress
        self._last_start, self._timestamp = progress.last_record, progress.timestamp
        self._end = position = progress.position
        self._file_end = position - position % self._file_bytes + self._file_bytes
        self._failure: StoreError | None = None
        self._clear()

    def _clear(self) -> None:
        """Start an empty chunk at the end of the last one."""
        self._start = self._end
        self._parts: list[bytes] = []
        self._spans: list[tuple[int, list[bytes]]] = []
        self._entries.clear()
        self._runs.clear()

    @property
    def is_empty(self) -> bool:
        """Whether no message waits for `commit`."""
        return self._end == self._log.position

    def append(
        self,
        queue: ConsumeQueue,
        body: bytes,
        properties: bytes,
        *,
        flag: int,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        reconsume_times: int,
        prepared_offset: int,
        tags_code: int,
        now_ms: int,
        is_own: bool = False,
    ) -> int:
        """Add one message to the chunk; returns its future physical offset. `commit` stores it.

        Its queue offset is `queue.next_offset` before the call; messages prepared or rolled back in a
        transaction get none. Hosts are packed, times epoch ms; `now_ms` becomes the store time. With `is_own`
        maxMessageSize does not apply. Raises `RecordError`, and adds nothing, for values that do not fit.
        """
        body_bytes, properties_bytes = len(body), len(properties)
        plain = self._store_host_is_v4 and queue.is_v1 and len(born_host) == _IPV4_BYTES
        if properties_bytes >= SECTOR_BYTES and looks_torn(properties):
            properties = with_room_once(properties)
            properties_bytes, plain = len(properties), False
        size = queue.fixed_bytes + body_bytes + properties_bytes
        if not plain:
            size += len(born_host) + len(self._store_host) - 2 * _IPV4_BYTES
        if size > self._record_bytes_max or properties_bytes > PROPERTIES_BYTES_MAX:
            self._check_size(size, properties_bytes, is_own=is_own)
        start = self._end
        if start + size + BLANK_BYTES_MIN > self._file_end:
            start = self._file_end
        offset = 0 if sys_flag & _WITHOUT_ENTRY else queue.next_offset
        if plain:
            try:
                head = _pack_head(
                    size, RECORD_MAGIC_V1, crc32(body) & CRC_MASK, queue.queue_id, flag, offset, start,
                    sys_flag & ~_HOST_BITS, born_timestamp, born_host, now_ms, self._store_host,
                    reconsume_times, prepared_offset, body_bytes,
                )  # fmt: skip
            except struct.error as error:
                raise RecordError(f"a value does not fit its field of a record: {error}") from None
            record: Parts = (head, body, queue.topic_field, _pack_size(properties_bytes), properties)
        else:
            fields = (flag, sys_flag, born_timestamp, born_host, now_ms, reconsume_times, prepared_offset)
            record = (self._whole(queue, (offset, start), body, properties, fields),)
        if start != self._end:
            self._roll()
        self._timestamp, self._last_start = now_ms, start
        self._parts += record
        self._end = start + size
        if not sys_flag & _WITHOUT_ENTRY:
            if offset >= queue.writable_until:
                self._make_writable(queue, offset)
            self._entries.append((queue, offset, start, size, tags_code))
            queue.next_offset = offset + 1
        return start

    def _whole(
        self,
        queue: ConsumeQueue,
        place: tuple[int, int],
        body: bytes,
        properties: bytes,
        fields: tuple[int, int, int, bytes, int, int, int],
    ) -> bytes:
        """The rest of `append`: packs a record that is not plain; `place` is its place in queue and log."""
        flag, sys_flag, born_timestamp, born_host, now_ms, reconsume_times, prepared_offset = fields
        whole = encode_record(
            topic=queue.topic_bytes, queue_id=queue.queue_id, queue_offset=place[0], physical_offset=place[1],
            body=body, properties=properties, flag=flag, sys_flag=sys_flag,
            born_timestamp=born_timestamp, born_host=born_host,
            store_timestamp=now_ms, store_host=self._store_host,
            reconsume_times=reconsume_times, prepared_offset=prepared_offset,
        )  # fmt: skip
        return seal(whole) if properties.endswith(ROOM) else whole

    def append_batch(
        self,
        queue: ConsumeQueue,
        items: Sequence[ChunkItem],
        added: bytes,
        *,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        reconsume_times: int,
        now_ms: int,
    ) -> list[int]:
        """Add the messages of one request to the chunk, back to back; returns their future physical offsets.

        They go into one file (broker:2.3) unless they are larger than a file. `added` is appended to the
        properties of each. Otherwise as `append` for each.
        """
        fields = (sys_flag & ~_HOST_BITS, born_timestamp, born_host)
        total = sum([len(body) + len(own) for _, body, own, _ in items])
        total += (queue.fixed_bytes + len(added) + _LONGER_HOSTS_BYTES) * len(items)
        self.reserve(total)
        if (
            sys_flag & _WITHOUT_ENTRY
            or not (self._store_host_is_v4 and queue.is_v1 and len(born_host) == _IPV4_BYTES)
            or self._end + total + BLANK_BYTES_MIN > self._file_end
        ):
            fields = (sys_flag, born_timestamp, born_host)
            return self._append_each(queue, items, added, fields, reconsume_times, now_ms)
        alike = alike_batch(items)
        if alike is not None:
            batch, codes = alike
            starts = self.append_alike(
                queue,
                batch,
                codes,
                added,
                sys_flag=sys_flag,
                born_timestamp=born_timestamp,
                born_host=born_host,
                reconsume_times=reconsume_times,
                now_ms=now_ms,
            )
            if starts is not None:
                return list(starts)
        return self._pack_batch(queue, items, added, fields, reconsume_times, now_ms)

    def _append_each(
        self,
        queue: ConsumeQueue,
        items: Sequence[ChunkItem],
        added: bytes,
        fields: tuple[int, int, bytes],
        reconsume_times: int,
        now_ms: int,
    ) -> list[int]:
        """The rest of `append_batch`: records that are not plain, or that need several files."""
        sys_flag, born_timestamp, born_host = fields
        fixed = queue.fixed_bytes + len(born_host) + len(self._store_host) - 2 * _IPV4_BYTES
        texts = [own + added for _, _, own, _ in items]
        for index, text in enumerate(texts):
            if len(text) >= SECTOR_BYTES and looks_torn(text):
                texts[index] = with_room(text)
        for (_, body, _, _), text in zip(items, texts, strict=True):  # all or none
            self._check_size(fixed + len(body) + len(text), len(text))
        return [
            self.append(
                queue,
                body,
                text,
                flag=flag,
                sys_flag=sys_flag,
                born_timestamp=born_timestamp,
                born_host=born_host,
                reconsume_times=reconsume_times,
                prepared_offset=0,
                tags_code=code,
                now_ms=now_ms,
            )
            for (flag, body, _, code), text in zip(items, texts, strict=True)
        ]

    def append_alike(
        self,
        queue: ConsumeQueue,
        batch: AlikeBatch,
        codes: Sequence[int],
        added: bytes,
        *,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        reconsume_times: int,
        now_ms: int,
    ) -> range | None:
        """Like `append_batch`, for messages with equal flags and lengths; returns their future physical
        offsets.

        Adds nothing and returns None for cases that need `append_batch`: messages too large for a record or
        for the rest of the file, hosts that are not IPv4, messages of a transaction, zeros that look torn.
        """
        count, start = len(batch.bodies), self._end
        properties_bytes = len(batch.properties[0]) + len(added)
        size = queue.fixed_bytes + len(batch.bodies[0]) + properties_bytes
        if (
            sys_flag & _WITHOUT_ENTRY
            or not (self._store_host_is_v4 and queue.is_v1 and len(born_host) == _IPV4_BYTES)
            or size > self._record_bytes_max
            or properties_bytes > PROPERTIES_BYTES_MAX
            or start + count * size + BLANK_BYTES_MIN > self._file_end
            or (properties_bytes >= SECTOR_BYTES and any(map(looks_torn, batch.properties)))
        ):
            return None
        offset = queue.next_offset
        starts = range(start, start + count * size, size)
        fields = (sys_flag & ~_HOST_BITS, born_timestamp, born_host, now_ms)
        try:
            common = _BATCH_COMMON.pack(*fields, self._store_host, reconsume_times, 0)
            records = pack_alike(
                batch,
                added,
                topic_field=queue.topic_field,
                queue_id=queue.queue_id,
                offset=offset,
                starts=starts,
                common=common,
            )
            entries = pack_entries(starts, repeat(size), codes)
        except struct.error as error:
            raise RecordError(f"a value does not fit its field of a record: {error}") from None
        self._timestamp = now_ms
        self._make_room(queue, count)
        self._add_run(queue, records, starts[-1], starts.stop, entries, count)
        return starts

    def _make_room(self, queue: ConsumeQueue, count: int) -> None:
        """Reserve room for the entries of the queue's next `count` messages."""
        end = queue.next_offset + count
        while queue.writable_until < end and self._failure is None:
            self._make_writable(queue, max(queue.next_offset, queue.writable_until))

    def _pack_batch(
        self,
        queue: ConsumeQueue,
        items: Sequence[ChunkItem],
        added: bytes,
        fields: tuple[int, int, bytes],
        reconsume_times: int,
        now_ms: int,
    ) -> list[int]:
        """The rest of `append_batch`: plain records that fit the file."""
        flags, bodies, owns, codes = zip(*items, strict=True)
        fixed, added_bytes, limit = queue.fixed_bytes, len(added), self._record_bytes_max
        properties_sizes = [len(own) + added_bytes for own in owns]
        sizes = [fixed + len(body) + own for body, own in zip(bodies, properties_sizes, strict=True)]
        properties_most = max(properties_sizes)
        if properties_most >= SECTOR_BYTES and any(map(looks_torn, owns)):
            return self._append_each(queue, items, added, fields, reconsume_times, now_ms)
        if max(sizes) > limit or properties_most > PROPERTIES_BYTES_MAX:
            for size, own_size in zip(sizes, properties_sizes, strict=True):
                self._check_size(size, own_size)
        starts = list(accumulate(sizes, initial=self._end))
        end = starts.pop()
        sys_flag, born_timestamp, born_host = fields
        try:
            common = _BATCH_COMMON.pack(
                sys_flag, born_timestamp, born_host, now_ms, self._store_host, reconsume_times, 0
            )
            heads = map(
                _BATCH_HEAD.pack,
                sizes,
                repeat(RECORD_MAGIC_V1),
                [crc32(body) & CRC_MASK for body in bodies],
                repeat(queue.queue_id),
                flags,
                range(queue.next_offset, queue.next_offset + len(items)),
                starts,
                repeat(common),
                map(len, bodies),
            )
            middles = map(queue.topic_field.__add__, map(_pack_size, properties_sizes))
            parts = list(chain.from_iterable(zip(heads, bodies, middles, owns, repeat(added))))
            entries = pack_entries(starts, sizes, codes)
        except struct.error as error:
            raise RecordError(f"a value does not fit its field of a record: {error}") from None
        self._timestamp = now_ms
        self._make_room(queue, len(items))
        self._add_run(queue, parts, starts[-1], end, entries, len(items))
        return starts

    def _add_run(
        self, queue: ConsumeQueue, parts: list[bytes], last: int, end: int, entries: bytes, count: int
    ) -> None:
        """Add packed records of one queue, the last of which starts at `last`, and their packed entries."""
        self._parts += parts
        self._runs.append((len(self._entries), queue, queue.next_offset, entries))
        self._last_start, self._end = last, end
        queue.next_offset += count

    def _check_size(self, size: int, properties_bytes: int, *, is_own: bool = False) -> None:
        """Raise `RecordError` for a record that is too large."""
        if properties_bytes > PROPERTIES_BYTES_MAX:
            raise RecordError(
                f"properties of {properties_bytes} bytes do not fit a record, the limit is "
                f"{PROPERTIES_BYTES_MAX}"
            )
        limit = self._file_bytes - BLANK_BYTES_MIN if is_own else self._record_bytes_max
        if size > limit:
            settings = "mappedFileSizeCommitLog allows"
            if not is_own:
                settings = "maxMessageSize and mappedFileSizeCommitLog allow"
            text = f"a record of {size} bytes is larger than the {limit} that {settings}"
            raise RecordError(text, what="record", value=size, limit=limit)

    def _make_writable(self, queue: ConsumeQueue, offset: int) -> None:
        """Reserve room for the entry; errors are raised by `commit`, for the whole chunk."""
        if self._failure is None:
            try:
                queue.make_writable(offset)
            except StoreError as error:
                self._failure = error

    def _roll(self) -> None:
        """End the file with a blank; later records go to the next file (broker:2.3).

        Zeros cover the range that readers read as the head of a record. A hole must not be read through a
        mapping: a full in-memory file system has no page for it, and the kernel kills the reading process.
        """
        rest = self._file_end - self._end
        blank = _BLANK.pack(rest, BLANK_MAGIC)
        self._parts.append(blank.ljust(min(rest, RECORD_FIXED_BYTES), b"\0"))
        self._next_file()

    def _next_file(self) -> None:
        self._spans.append((self._start, self._parts))
        self._parts = []
        self._start = self._end = self._file_end
        self._file_end += self._file_bytes

    def copy(self, record: bytes, timestamp: int, queue: ConsumeQueue | None, tags_code: int) -> None:
        """Add an unchanged record of another store's log to the end of this one; `commit` stores it.

        `timestamp` is its store time. `queue` gets an entry; its next offset must be the record's.
        """
        start = self._end
        self._timestamp = timestamp
        self._parts.append(record)
        self._last_start, self._end = start, start + len(record)
        if queue is None:
            return
        offset = queue.next_offset
        if offset >= queue.writable_until:
            self._make_writable(queue, offset)
        self._entries.append((queue, offset, start, len(record), tags_code))
        queue.next_offset = offset + 1

    def copy_blank(self, blank: bytes) -> None:
        """Add the unchanged end of another log's file: a blank, without the zeros after it."""
        self._parts.append(blank)
        self._next_file()

    def begin_at(self, position: int) -> None:
        """Make an empty log begin at this position, the start of a file."""
        self._log.begin_at(LogEnd(position, -1, 0))
        self._begin()

    def reserve(self, total_bytes: int) -> None:
        """Make sure that the next `total_bytes` of records go into one file, as a batch must (broker:2.3).

        If the total is larger than a file, `append` places each record where it fits.
        """
        if total_bytes + BLANK_BYTES_MIN > self._file_end - self._end and self._end > self._file_start:
            self._roll()

    @property
    def _file_start(self) -> int:
        return self._file_end - self._file_bytes

    def commit(self) -> None:
        """Write the chunk to the log and its entries to the queues; after this the messages are stored.

        Raises `StoreFullError`, `StoreFencedError` or another `StoreError`; then no message of the chunk is
        stored and the queues' offsets are unchanged. Only after `StoreBrokenError` may the chunk be partly
        stored: then the store accepts no more messages, and the next start adds the missing entries.
        """
        log = self._log
        end = self._end
        if end == log.position:
            return
        self._spans.append((self._start, self._parts))
        try:
            failure = self._failure or log.failed
            if failure is not None:
                raise failure
            self._may_write()
            log.write(self._spans, LogEnd(end, self._last_start, self._timestamp))
        except BaseException as error:
            self.drop()
            if isinstance(error, StoreError) or not isinstance(error, Exception):
                raise
            raise StoreError(f"the messages could not be written: {error!r}") from error
        try:
            if self._runs:
                self._enter_all(end)
            else:
                self._stats.puts += len(self._entries)
                self._enter(self._entries, end)
        except BaseException as error:
            self.drop()
            raise log.broken(f"the queue entries of a chunk that ends at {end} were not made") from error
        self._stats.put_bytes += end - log.dispatched.position
        log.dispatched = log.progress
        self._clear()

    def _enter_all(self, end: int) -> None:
        """Write all entries of the chunk; `end` is its end in the log."""
        stats = self._stats
        stats.puts += len(self._entries)
        done = 0
        for before, queue, offset, entries in self._runs:
            if before > done:
                self._enter(self._entries[done:before], end)
            if offset != queue.committed:
                raise _not_next(queue, offset)
            queue.write_run(offset, entries)
            count, done = len(entries) // ENTRY_BYTES, before
            if self._sync:
                queue.hold_back(offset, end, count)
            stats.puts += count
        self._enter(self._entries[done:], end)

    def _enter(self, entries: list[tuple[ConsumeQueue, int, int, int, int]], end: int) -> None:
        """Write entries to their queues; `end` is the end of the chunk in the log."""
        if not entries:
            return
        first = entries[0]
        if first[1] != first[0].committed:
            raise _not_next(first[0], first[1])
        file_bytes = self._queue_file_bytes
        for queue, offset, start, size, code in entries:
            at = offset * ENTRY_BYTES - queue.map_base
            if at >= file_bytes:
                at = queue.turn(offset)
            _pack_entry(queue.map, at, start, size, code)  # type: ignore[arg-type]  # mapped by append
            queue.committed = offset + 1
        if queue.committed > queue.next_offset:
            raise _not_next(queue, offset)
        if self._sync:
            for queue, offset, *_ in entries:
                queue.hold_back(offset, end)

    def drop(self) -> None:
        """Discard the chunk; the queues' next offsets return to the stored state."""
        for queue in {entry[0] for entry in self._entries} | {run[1] for run in self._runs}:
            queue.next_offset = queue.committed
        self._begin()


def _not_next(queue: ConsumeQueue, offset: int) -> StoreBrokenError:
    return StoreBrokenError(
        f"an entry for offset {offset} of {queue!r} is not its next one: {queue.committed} are written, "
        f"{queue.next_offset} are given out"
    )


class ReadOnlyWriter:
    """The writer of a store that is the copy of another one: refuses to append."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def append(self, *_: object, **__: object) -> NoReturn:
        """Raises `StoreError`."""
        text = f"the store {self._root} is a slave's copy of its master's; write at the master"
        raise StoreError(text, what="copy", value=self._root)

    append_batch = append_alike = append
