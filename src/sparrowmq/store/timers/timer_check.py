"""`config/timercheck`: how far the timer files were flushed and processed (broker:1.4).

RocketMQ writes 56 bytes and leaves the rest of the 4096 empty. A damaged time there would skip all waiting
messages, and a damaged position would cut the timer log. So the second half of the page has a copy, which
RocketMQ neither reads nor changes:

    offset  size  field
      2048     4  "SMQ1"
      2052     4  CRC-32 of what follows
      2056    56  the copy
      2112     8  messages that wait in the wheel, -1 if that is not known
"""

from __future__ import annotations

import logging
import struct
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import Final
from zlib import crc32

from sparrowmq.core.errors import ProtocolError
from sparrowmq.files import disk
from sparrowmq.store.base.number_file import FILE_BYTES, load_numbers, save_page

log = logging.getLogger("sparrowmq.store")
COPY_AT: Final = FILE_BYTES // 2
_COPY: Final = struct.Struct(">4sI")
_FIELDS: Final = struct.Struct(">7q")
_WAITING: Final = struct.Struct(">q")
_MAGIC: Final = b"SMQ1"
_FIELDS_MIN: Final = 4
_AWAY_MS_MAX: Final = 366 * 86_400_000
"""How long RocketMQ may have written the file since SparrowMQ did."""


@dataclass(frozen=True, slots=True)
class TimerCheck:
    """The fields in file order. Slots before `read_time` (epoch ms) have been processed.

    `flush_position` is the flushed end of the timer log; messages of the timer topic before `queue_offset`
    have units. A slave follows `master_queue_offset`; a master writes its own value there. `waiting` messages
    are in the slots of the wheel from `read_time` on; None if unknown. Only SparrowMQ writes it.
    """

    read_time: int = 0
    flush_position: int = 0
    queue_offset: int = 0
    master_queue_offset: int = 0
    state_version: int = 0
    version_timestamp: int = 0
    version_counter: int = 0
    waiting: int | None = field(default=None, compare=False)

    @classmethod
    def load(cls, path: Path) -> TimerCheck:
        """The file's content, or its copy if it is damaged; zeros when the file is missing or too short.

        Raises `StoreError`.
        """
        shown = cls(*load_numbers(path, _FIELDS.size // 8))
        copy = cls._copy(path)
        if copy is None or copy == shown:
            return copy or shown
        if shown._follows(copy):
            return shown
        log.error("%s is damaged; its copy is used: %s instead of %s", path, copy, shown)
        return copy

    @classmethod
    def _copy(cls, path: Path) -> TimerCheck | None:
        """The copy in the file; None if there is none, or a damaged one."""
        try:
            data = disk.read(path)[COPY_AT:]
        except FileNotFoundError:
            return None
        except OSError as error:
            raise disk.store_error("cannot read", path, error) from error
        size = _FIELDS.size + _WAITING.size
        if len(data) < _COPY.size + size:
            return None
        magic, checksum = _COPY.unpack_from(data)
        body = data[_COPY.size : _COPY.size + size]
        if magic != _MAGIC or crc32(body) != checksum:
            return None
        (waiting,) = _WAITING.unpack_from(body, _FIELDS.size)
        return replace(cls(*_FIELDS.unpack_from(body)), waiting=None if waiting < 0 else waiting)

    def _follows(self, copy: TimerCheck) -> bool:
        """Whether RocketMQ may have written this after `copy`: its values only grow, and several of them
        change together. Damage mostly changes one.
        """
        mine, its = astuple(self)[:-1], astuple(copy)[:-1]
        changed = {number for number, value in enumerate(mine) if value != its[number]}
        if {2, 3} <= changed and mine[2] == mine[3]:
            changed.discard(3)  # a master writes the same in both
        grew = all(value >= its[number] for number, value in enumerate(mine[:_FIELDS_MIN]))
        return grew and len(changed) > 1 and self.read_time - copy.read_time <= _AWAY_MS_MAX

    @classmethod
    def decode(cls, body: bytes) -> TimerCheck:
        """Decode the response of a master, which in older releases has only the first four fields.

        Raises `ProtocolError` when it is shorter.
        """
        count = min(len(body) // 8, _FIELDS.size // 8)
        if count < _FIELDS_MIN:
            raise ProtocolError(
                f"a timer checkpoint of {len(body)} bytes, at least {8 * _FIELDS_MIN} are needed"
            )
        return cls(*struct.unpack_from(f">{count}q", body))

    def encode(self) -> bytes:
        """Encode it for slaves (request 60)."""
        return _FIELDS.pack(*astuple(self)[:-1])

    def save(self, path: Path) -> None:
        """Write the file, 4096 bytes; raises OSError."""
        disk.make_directory(path.parent)
        shown = self.encode()
        body = shown + _WAITING.pack(-1 if self.waiting is None else max(0, self.waiting))
        save_page(path, shown.ljust(COPY_AT, b"\0") + _COPY.pack(_MAGIC, crc32(body)) + body)
