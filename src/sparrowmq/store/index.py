"""The key index: which records have a key, a unique key or a tag (broker:4).

It follows the commit log in slices, whenever its owner has time for one: a message costs as much here as its
storing does, so it is not done while senders wait. `position` tells how far it has come. Records are only
read; what a crash takes away is filed again.
"""

from __future__ import annotations

import logging
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrowmq.core.errors import RecordError
from sparrowmq.protocol.properties import find
from sparrowmq.protocol.record import BLANK_MAGIC, RECORD_FIXED_BYTES, RECORD_MAGIC_V1, decode_record
from sparrowmq.protocol.sysflag import HOST_V6_MASK, TRANSACTION_MASK, TRANSACTION_ROLLBACK
from sparrowmq.store import disk
from sparrowmq.store.index_file import FIRST, Header, IndexFile, Key, file_bytes
from sparrowmq.store.key_hash import KeyHashes, TagHashes, index_hash
from sparrowmq.store.scan import next_record

if TYPE_CHECKING:
    from sparrowmq.core.clock import Clock
    from sparrowmq.store.commit_log import CommitLog
    from sparrowmq.store.segments import Segment
    from sparrowmq.store.settings import StoreSettings

log = logging.getLogger("sparrowmq.store")
DIRECTORY: Final = "index"
KEY: Final = "K"
UNIQUE: Final = "U"
TAG: Final = "T"
TOPICS_KEPT: Final = 10_000

_RECORD: Final = struct.Struct(">iI20xqi16xq20xi")
"""Size, magic, physical offset, sysFlag, store time, length of the body."""
_SPECIAL: Final = HOST_V6_MASK | TRANSACTION_MASK
_BODY_AT: Final = 88
_unpack = _RECORD.unpack_from


class IndexPlace(NamedTuple):
    """How far the index has come: newest file, number of its next entry, position in the log.

    `end_timestamp` and `end_offset` are those of the newest record filed.
    """

    file: str = ""
    next_entry: int = FIRST
    position: int = 0
    end_timestamp: int = 0
    end_offset: int = 0


class _Topic:
    """What is kept of a topic: hashes of its keys and of its tags."""

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

    @property
    def behind(self) -> int:
        """Bytes of the log that are not filed yet; 0 when it is switched off."""
        return max(0, self._log.dispatched.position - self.place.position) if self.enabled else 0

    @property
    def files(self) -> list[IndexFile]:
        """The files, oldest first."""
        return list(self._files)

    # Following the log

    def follow(self, records: int) -> int:
        """File the keys of up to so many records; how many bytes of the log are left to do.

        Raises `StoreError` when the disk refuses; what was filed before stays, and the next call goes on.
        """
        if not self.enabled:
            return 0
        end = self._log.dispatched.position
        position = max(self.place.position, self._log.min_position)
        keys: list[Key] = []
        while records > 0 and position < end:
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
        """Collect the keys of records within one file; where it got to and how many records may follow."""
        data, base, topics, put = segment.map(), segment.base, self._topics, keys.append
        last = end - RECORD_FIXED_BYTES
        while position <= last and records > 0:
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
        """What is kept of a topic, given with the byte of its length in front."""
        if len(self._topics) >= TOPICS_KEPT:
            self._topics.clear()
        found = self._topics[name] = _Topic(name[1:])
        return found

    def _odd(self, segment: Segment, position: int, end: int, keys: list[Key]) -> int:
        """Collect the keys of an unusual record, or pass over what is none; where to go on."""
        view, at = segment.view(), position - segment.base
        if _unpack(view, at)[1] == BLANK_MAGIC:
            return segment.end
        try:
            record = decode_record(view, at)
            if record.physical_offset != position:
                raise RecordError("it is not the record of its place")
        except RecordError:
            following = next_record(self._log.files, segment, position, 0)
            return end if following is None else min(end, following)
        if record.sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK:
            topic = self._topic(b"\0" + record.topic.encode())
            for value in _hashes(topic, record.properties, 0):
                keys.append((value, position, record.store_timestamp))
        return position + record.size

    def _put(self, keys: list[Key]) -> None:
        """File keys, in as many files as they need; those of one record may go to two (broker:4.2)."""
        while keys:
            newest = self._files[-1] if self._files else None
            if newest is None or newest.is_full:
                newest = self._next_file(newest)
            keys = keys[newest.put(keys) :]

    def _next_file(self, full: IndexFile | None) -> IndexFile:
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self.directory / self._name(full)
        made = IndexFile.create(path, self._slots, self._entries, full)
        self._files.append(made)
        if full is not None:
            full.save_header()
            full.unmap()
        return made

    def _name(self, full: IndexFile | None) -> str:
        """A file's name: the local time it is made, later than that of the file before it (broker:1.1)."""
        now_ms = self._clock.now_ms()
        name = time.strftime("%Y%m%d%H%M%S", time.localtime(now_ms / 1000)) + f"{now_ms % 1000:03d}"
        if full is not None and int(name) <= int(full.path.name):
            name = f"{int(full.path.name) + 1:017d}"
        return name

    def _settle(self, position: int) -> None:
        """Write down how far it came."""
        newest = self._files[-1] if self._files else None
        if newest is None:
            self.place = IndexPlace(position=position)
            return
        head = newest.header
        if (newest.path.name, head.count) != self.place[:2]:
            newest.save_header()
        self.place = IndexPlace(newest.path.name, head.count, position, head.end_timestamp, head.end_offset)

    # Looking up

    def query(self, topic: str, key: str, count: int, begin: int, end: int, kind: str = KEY) -> list[int]:
        """Physical offsets of up to `count` records with the key, ascending; the newest if there are more.

        `begin` and `end` are store times in epoch ms, compared by whole seconds of a file's own. `kind` is
        `KEY`, `UNIQUE` or `TAG`. Other keys with the same hash are found as well (broker:4.3). Raises
        `StoreError`.
        """
        value = index_hash(f"{topic}#{TAG}#{key}" if kind == TAG else f"{topic}#{key}")
        found: dict[int, None] = {}
        newest = self._files[-1] if self._files else None
        try:
            for file in reversed(self._files):
                if len(found) >= count:
                    break
                if file.overlaps(begin, end):
                    for physical in file.find(value, begin, end):
                        found[physical] = None
                        if len(found) >= count:
                            break
                    if file is not newest:
                        file.unmap()
                if file.header.begin_timestamp < begin:
                    break
        except OSError as error:
            raise disk.store_error("cannot read the index in", self.directory, error) from error
        return sorted(found)

    # Keeping

    def sync(self, place: IndexPlace) -> None:
        """Force what was filed up to `place` to disk. Any thread; raises OSError."""
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
        """Forget files, except the newest, with records before `position` only; they are to be deleted."""
        gone = []
        while len(self._files) > 1 and self._files[0].header.end_offset < position:
            file = self._files.pop(0)
            file.unmap()
            gone.append(file.path)
        return gone

    def close(self) -> None:
        """Let go of the files."""
        for file in self._files:
            file.unmap()

    # Opening

    def load(self, known: IndexPlace | None, *, clean: bool, trusted_until: int) -> None:
        """Find the files and where to go on; `known` is what the safe point says, if anything.

        After a clean stop everything is taken as it is. After a crash the files are taken back to the safe
        point; without one, those that hold messages stored after `trusted_until` are deleted, as the
        reference does (broker:1.5). What is missing is filed again by `follow`. Raises OSError.
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
        head = newest.header if newest else Header()
        position = max(position, self._log.min_position)
        self.place = IndexPlace(name, count, position, head.end_timestamp, head.end_offset)
        self._synced = self.place if clean else IndexPlace()

    def _found(self) -> list[IndexFile]:
        try:
            paths = sorted(path for path in self.directory.iterdir() if path.is_file())
        except FileNotFoundError:
            return []
        paths = [path for path in paths if path.name.isascii() and path.name.isdigit()]
        size = file_bytes(self._slots, self._entries)
        odd = [path for path in paths if path.stat().st_size != size]
        if odd:
            log.warning(
                "%s has %d bytes, but maxHashSlotNum and maxIndexNum make %d: the index is built anew",
                odd[0],
                odd[0].stat().st_size,
                size,
            )
            for path in paths:
                path.unlink()
            return []
        return [IndexFile.load(path, self._slots, self._entries) for path in paths]

    def _take_back(self, known: IndexPlace | None, trusted_until: int) -> None:
        if known is None:
            while self._files:
                # Times of 0: the header never reached the disk; one that is older than its slots is cut to.
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
        file.path.unlink(missing_ok=True)
        log.info("%s is built anew: %s", file.path, why)

    def _newest_record(self, *, behind: bool) -> int:
        """Where the newest record that was filed starts, or ends; the start of the log when there is none.

        Some keys of that record may stand in a file that was deleted.
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
    """The value of a property, empty without it."""
    return find(text[start:], name) or b""
