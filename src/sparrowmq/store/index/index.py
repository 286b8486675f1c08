"""The key index: which records have a key, a unique key or a tag (broker:4).

It indexes the commit log in slices, when its owner has time for one: indexing a message costs as much as
storing it, so it is not done while senders wait. `position` is its progress. Records are only read; entries
that a crash lost are added again.
"""

from __future__ import annotations

import logging
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrowmq.core.errors import RecordError
from sparrowmq.files import disk
from sparrowmq.protocol.properties import find
from sparrowmq.protocol.record import BLANK_MAGIC, RECORD_FIXED_BYTES, RECORD_MAGIC_V1, decode_record
from sparrowmq.protocol.sysflag import HOST_V6_MASK, TRANSACTION_MASK, TRANSACTION_ROLLBACK
from sparrowmq.store.index.index_file import (
    FIRST,
    LOOK_ENTRIES,
    IndexFile,
    IndexHeader,
    Key,
    before_step_back,
    file_bytes,
)
from sparrowmq.store.index.key_hash import KeyHashes, TagHashes, index_hash
from sparrowmq.store.log.scan import EVERYTHING, next_record

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from sparrowmq.core.clock import Clock
    from sparrowmq.protocol.record import StoredRecord
    from sparrowmq.store.base.segments import Segment
    from sparrowmq.store.base.settings import StoreSettings
    from sparrowmq.store.log.commit_log import CommitLog

log = logging.getLogger("sparrowmq.store")
DIRECTORY: Final = "index"
KEY: Final = "K"
UNIQUE: Final = "U"
TAG: Final = "T"
TOPICS_KEPT: Final = 10_000
KEYS_MAX: Final = 2000
"""Maximum number of keys indexed at once: a record may have thousands, and other work waits meanwhile."""
LOOKED_MAX: Final = 2_000_000
"""Maximum number of entries one search examines; this takes a second, in slices."""
STRANGERS_MAX: Final = 1000
"""Maximum number of records with other keys but the same hash that one search examines."""

_RECORD: Final = struct.Struct(">iI20xqi16xq20xi")
"""Size, magic, physical offset, sysFlag, store time, length of the body."""
_SPECIAL: Final = HOST_V6_MASK | TRANSACTION_MASK
_BODY_AT: Final = 88
_unpack = _RECORD.unpack_from


class RecordKeys:
    """The hashes under which records are indexed, with caches for the topics seen last."""

    def __init__(self) -> None:
        self._topics: dict[bytes, _Topic] = {}

    def of(self, topic: bytes, properties: bytes) -> list[int]:
        """The hashes of a record's unique key, keys and tag, in this order."""
        found = self._topics.get(topic)
        if found is None:
            if len(self._topics) >= TOPICS_KEPT:
                self._topics.clear()
            found = self._topics[topic] = _Topic(topic)
        return _hashes(found, properties, 0)


class IndexPlace(NamedTuple):
    """Progress of the index: newest file, number of its next entry, position in the log.

    `end_timestamp` and `end_offset` are those of the newest indexed record.
    """

    file: str = ""
    next_entry: int = FIRST
    position: int = 0
    end_timestamp: int = 0
    end_offset: int = 0


class IndexResult(NamedTuple):
    """Physical offsets, ascending; `whole` unless the search ended early."""

    offsets: list[int]
    whole: bool


class _Topic:
    """Cached hashes of a topic's keys and tags."""

    __slots__ = ("keys", "tags")

    def __init__(self, topic: bytes) -> None:
        name = topic.decode("utf-8", "replace")
        self.keys = KeyHashes(f"{name}#")
        self.tags = TagHashes(f"{name}#{TAG}#")


class MessageIndex:
    """The index files of one store. Belongs to the store's loop, except `sync`.

    `place` is replaced as a whole when a slice is done, so any thread may read it.
    """

    def __init__(self, settings: StoreSettings, commit_log: CommitLog, clock: Clock) -> None:
        self.enabled = settings.message_index_enable
        """Whether keys are indexed."""
        self.directory = settings.root / DIRECTORY
        self.place = IndexPlace()
        self._slots = settings.max_hash_slot_num
        self._entries = settings.max_index_num
        self._log = commit_log
        self._clock = clock
        self._files: list[IndexFile] = []
        self._synced = IndexPlace()
        self._topics: dict[bytes, _Topic] = {}

    def __repr__(self) -> str:
        return f"<MessageIndex {len(self._files)} files, {self.behind} bytes behind>"

    def switch(self, *, on: bool) -> None:
        """Turn indexing on or off."""
        self.enabled = on

    @property
    def behind(self) -> int:
        """Bytes of the log that are not indexed yet; 0 when indexing is off."""
        return max(0, self._log.dispatched.position - self.place.position) if self.enabled else 0

    @property
    def files(self) -> list[IndexFile]:
        """The files, oldest first."""
        return list(self._files)

    # Following the log

    def follow(self, records: int) -> int:
        """Index the keys of up to `records` records, fewer when they have many keys; returns how many bytes
        remain.

        Raises `StoreError` when the disk fails; keys indexed before stay, and the next call continues.
        """
        if not self.enabled:
            return 0
        end = self._log.dispatched.position
        position = max(self.place.position, self._log.min_position)
        keys: list[Key] = []
        while records > 0 and position < end and len(keys) < KEYS_MAX:
            segment = self._log.files.at(position)
            if segment is None:
                position = end
                break
            position, records = self._follow_in(segment, position, min(end, segment.end), records, keys)
        try:
            self._put(keys)
        except OSError as error:
            raise disk.store_error("cannot extend the index in", self.directory, error) from error
        self._settle(position)
        return max(0, end - position)

    def _follow_in(
        self, segment: Segment, position: int, end: int, records: int, keys: list[Key]
    ) -> tuple[int, int]:
        """Collect the keys of records within one file; returns the position reached and how many may
        follow."""
        data, base, topics, put = segment.map(), segment.base, self._topics, keys.append
        last = end - RECORD_FIXED_BYTES
        while position <= last and records > 0 and len(keys) < KEYS_MAX:
            at = position - base
            size, magic, place, sys_flag, stored, body = _unpack(data, at)
            records -= 1
            if (
                magic != RECORD_MAGIC_V1
                or place != position
                or sys_flag & _SPECIAL
                or not 0 <= body <= size - RECORD_FIXED_BYTES <= last - position
            ):
                position = self._odd(segment, position, end, keys)
                continue
            topic_at = at + _BODY_AT + body + 1
            text = data[topic_at - 1 : at + size]
            length = text[0] + 1
            topic = topics.get(text[:length]) or self._topic(text[:length])
            for value in _hashes(topic, text, length + 2):
                put((value, position, stored))
            position += size
        return (segment.end if position > last and end == segment.end else position), records

    def _topic(self, name: bytes) -> _Topic:
        """The cached hashes of a topic, given with its leading length byte."""
        if len(self._topics) >= TOPICS_KEPT:
            self._topics.clear()
        found = self._topics[name] = _Topic(name[1:])
        return found

    def _odd(self, segment: Segment, position: int, end: int, keys: list[Key]) -> int:
        """Collect the keys of an unusual record, or skip other bytes; returns where to continue."""
        view, at = segment.view(), position - segment.base
        if _unpack(view, at)[1] == BLANK_MAGIC:
            return segment.end
        try:
            record = decode_record(view, at)
            if record.physical_offset != position:
                raise RecordError("it is not the record of its place")
        except RecordError:
            following = next_record(self._log.files, segment, position, 0, EVERYTHING)
            return end if following is None else min(end, following)
        if record.sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK:
            topic = self._topic(b"\0" + record.topic.encode())
            for value in _hashes(topic, record.properties, 0):
                keys.append((value, position, record.store_timestamp))
        return position + record.size

    def _put(self, keys: list[Key]) -> None:
        """Write keys to as many files as needed; the keys of one record may go into two files (broker:4.2).

        Files are searched by their times, so a new file begins when the clock was set back.
        """
        while keys:
            newest = self._files[-1] if self._files else None
            if newest is None or newest.is_full or newest.is_ahead_of(keys[0][2]):
                newest = self._next_file(newest)
            keys = keys[newest.put(keys[: before_step_back(keys)]) :]

    def _next_file(self, full: IndexFile | None) -> IndexFile:
        disk.make_directory(self.directory, durable=False)
        path = self.directory / self._name(full)
        made = IndexFile.create(path, self._slots, self._entries, full)
        self._files.append(made)
        if full is not None:
            full.save_header()
            full.unmap()
        return made

    def _name(self, full: IndexFile | None) -> str:
        """A file's name: the local time of its creation, later than the previous file's (broker:1.1)."""
        now_ms = self._clock.now_ms()
        name = time.strftime("%Y%m%d%H%M%S", time.localtime(now_ms / 1000)) + f"{now_ms % 1000:03d}"
        if full is not None and int(name) <= int(full.path.name):
            name = f"{int(full.path.name) + 1:017d}"
        return name

    def _settle(self, position: int) -> None:
        """Record the progress."""
        newest = self._files[-1] if self._files else None
        if newest is None:
            self.place = IndexPlace(position=position)
            return
        head = newest.header
        if (newest.path.name, head.count) != self.place[:2]:
            newest.save_header()
        self.place = IndexPlace(newest.path.name, head.count, position, head.end_timestamp, head.end_offset)

    # Looking up

    def query(
        self,
        topic: str,
        key: str,
        count: int,
        begin: int,
        end: int,
        kind: str = KEY,
        *,
        accept: Callable[[int], bool] = lambda physical: True,
    ) -> Generator[None, None, IndexResult]:
        """Search in steps for the physical offsets of up to `count` records with the key, the newest if there
        are more.

        `begin` and `end` are store times in epoch ms, compared in whole seconds relative to the start of a
        file. `kind` is `KEY`, `UNIQUE` or `TAG`. Other keys with the same hash share the slot (broker:4.3):
        `accept` distinguishes them. The search ends after `STRANGERS_MAX` of them or `LOOKED_MAX` entries.
        Raises `StoreError`.
        """
        value = index_hash(f"{topic}#{TAG}#{key}" if kind == TAG else f"{topic}#{key}")
        found: dict[int, None] = {}
        strangers = looked = 0
        yield
        if count <= 0:
            return IndexResult([], whole=True)
        try:
            for file in reversed(self.files):
                if file.overlaps(begin, end) and file in self._files:
                    for physical in file.find(value, begin, end):
                        yield
                        if physical is None:
                            looked += LOOK_ENTRIES
                        elif accept(physical):
                            found[physical] = None
                        else:
                            strangers += 1
                        if len(found) >= count:
                            return IndexResult(sorted(found), whole=True)
                        if strangers >= STRANGERS_MAX or looked >= LOOKED_MAX:
                            return IndexResult(sorted(found), whole=False)
                    if file is not self._files[-1]:
                        file.unmap()
        except FileNotFoundError:  # deleted, together with all older files
            pass
        except OSError as error:
            raise disk.store_error("cannot read the index in", self.directory, error) from error
        return IndexResult(sorted(found), whole=True)

    # Keeping

    def sync(self, place: IndexPlace) -> None:
        """Force entries written up to `place` to disk. Any thread; raises OSError."""
        if place == self._synced or not place.file:
            return
        first = self._synced.file
        for file in list(self._files):
            if first <= file.path.name <= place.file:
                try:
                    disk.sync_file(file.path)
                except FileNotFoundError:
                    if file in self._files:
                        raise
        if first != place.file:
            disk.sync_directory(self.directory)
            disk.sync_directory(self.directory.parent)
        self._synced = place

    def drop_before(self, position: int) -> list[Path]:
        """Drop files, except the newest, whose records are all before `position`; the caller deletes them."""
        gone = []
        while len(self._files) > 1 and self._files[0].header.end_offset < position:
            file = self._files.pop(0)
            file.unmap()
            gone.append(file.path)
        return gone

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.unmap()

    # Opening

    def load(self, known: IndexPlace | None, *, clean: bool, trusted_until: int) -> None:
        """Find the files and the position to continue from; `known` is the place in the safe point, if any.

        After a clean stop the files are used unchanged. After a crash they are truncated to the safe point;
        without one, files with messages stored after `trusted_until` are deleted, as the reference does
        (broker:1.5). `follow` indexes the missing records again. Raises OSError.
        """
        self._files = self._found()
        found = len(self._files)
        end = self._log.position
        if not clean:
            self._take_back(known, trusted_until)
        while self._files and self._files[-1].header.end_offset >= end:
            self._delete_newest("the log ends before its last record")
        newest = self._files[-1] if self._files else None
        name, count = (newest.path.name, newest.header.count) if newest else ("", FIRST)
        if known is not None and (known.file, known.next_entry) == (name, count) and known.position <= end:
            position = known.position
        else:
            position = self._newest_record(behind=len(self._files) == found)
        head = newest.header if newest else IndexHeader()
        position = max(position, self._log.min_position)
        self.place = IndexPlace(name, count, position, head.end_timestamp, head.end_offset)
        self._synced = self.place if clean else IndexPlace()

    def _found(self) -> list[IndexFile]:
        try:
            paths = [entry.path for entry in disk.entries(self.directory) if entry.is_file]
        except FileNotFoundError:
            return []
        paths = [path for path in paths if path.name.isascii() and path.name.isdigit()]
        size = file_bytes(self._slots, self._entries)
        while paths and disk.stat(paths[-1]).st_size == 0:  # a crash while the file was created
            disk.unlink(paths.pop())
        odd = [path for path in paths if disk.stat(path).st_size != size]
        if odd:
            log.warning(
                "%s has %d bytes, but maxHashSlotNum and maxIndexNum make %d: rebuilding the index",
                odd[0],
                disk.stat(odd[0]).st_size,
                size,
            )
            for path in paths:
                disk.unlink(path)
            return []
        return [IndexFile.load(path, self._slots, self._entries) for path in paths]

    def _take_back(self, known: IndexPlace | None, trusted_until: int) -> None:
        if known is None:
            while self._files:
                # Times of 0: the header never reached the disk. If it is older than the slots, they are cut
                # to it.
                last, head = self._files[-1], self._files[-1].header
                trusted = 0 < head.end_timestamp <= trusted_until
                if trusted and last.cut(head.count, head.end_offset, head.end_timestamp):
                    return
                self._delete_newest("the last stop was not clean")
            return
        while self._files and self._files[-1].path.name > known.file:
            self._delete_newest("the last stop was not clean")
        newest = self._files[-1] if self._files else None
        if newest is None or newest.path.name != known.file:
            return
        if not newest.cut(known.next_entry, known.end_offset, known.end_timestamp):
            self._delete_newest("entries of its last seconds are lost")

    def _delete_newest(self, why: str) -> None:
        file = self._files.pop()
        file.unmap()
        disk.unlink(file.path, missing_ok=True)
        log.info("rebuilding %s: %s", file.path, why)

    def _newest_record(self, *, behind: bool) -> int:
        """Start or end of the newest indexed record; the start of the log when there is none.

        Some keys of that record may be in a deleted file.
        """
        start = self._log.min_position
        if not self._files:
            return start
        position = self._files[-1].header.end_offset
        segment = self._log.files.at(position)
        if segment is None or position < start:
            return start
        if not behind:
            return position
        try:
            return position + decode_record(segment.view(), position - segment.base).size
        except RecordError:
            return position


def is_filed(record: StoredRecord, topic: str, key: str, kind: str) -> bool:
    """Whether a record belongs to a topic and has this key, unique key or tag, by text instead of hash."""
    if record.topic != topic:
        return False

    def value(name: bytes) -> str:
        return (find(record.properties, name) or b"").decode("utf-8", "replace")

    if kind == TAG:
        return value(b"TAGS") == key
    return value(b"UNIQ_KEY") == key or key in value(b"KEYS").split(" ")


def _hashes(topic: _Topic, text: bytes, start: int) -> list[int]:
    """The hashes of a record's unique key, keys and tag, in this order; its properties begin at `start`."""
    hashes = []
    at = text.rfind(b"UNIQ_KEY\x01", start)
    if at >= 0:
        key = text[at + 9 : text.find(b"\x02", at)]
        if not key.isalnum() or (text[at - 1] != 2 and at != start) or text[-1] != 2:
            key = _value(text, start, b"UNIQ_KEY")
        if key:
            hashes.append(topic.keys.of(key))
    if text.rfind(b"KEYS\x01", start) >= 0:
        hashes += [topic.keys.of(key) for key in _value(text, start, b"KEYS").split(b" ") if key]
    at = text.rfind(b"TAGS\x01", start)
    if at >= 0:
        tag = text[at + 5 : text.find(b"\x02", at)]
        if not tag or (text[at - 1] != 2 and at != start) or text[-1] != 2:
            tag = _value(text, start, b"TAGS")
        if tag:
            hashes.append(topic.tags[tag])
    return hashes


def _value(text: bytes, start: int, name: bytes) -> bytes:
    """The value of a property; empty if it is missing."""
    return find(text[start:], name) or b""
