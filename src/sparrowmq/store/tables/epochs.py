"""`epochFileCheckpoint`: which master wrote which part of the log, in RocketMQ's format.

A master's reign has a number, its epoch, and begins at a position of the log. Two logs agree up to the end of
the last reign that both have with the same beginning. What was written before there were epochs belongs to
epoch 0.
"""

from __future__ import annotations

import logging
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

from sparrowmq.core.errors import InvariantError, StoreCorruptError
from sparrowmq.files import disk

log = logging.getLogger("sparrowmq.store")
FILE_NAME: Final = "epochFileCheckpoint"
ROLE_FILE: Final = "replicaRole.json"
"""The file of `config/` with a broker's role and the text that identifies its store."""
IMPLICIT: Final = 0
"""The epoch of what was written before the first entry."""
EPOCHS_MAX: Final = 10_000
"""More entries are refused; each is a change of the master whose messages are still in the log."""
NOTHING_COMMON: Final = -1

_CRC_MASK: Final = 0x7FFFFFFF
_NOT_CHECKED: Final = 0
_EPOCH_MAX: Final = 2**31 - 1
_POSITION_MAX: Final = 2**63 - 1


class ReignSpan(NamedTuple):
    """The part of a log that one master wrote: its epoch, and the bytes from `start` to `end`."""

    epoch: int
    start: int
    end: int


class EpochTable:
    """Where the reigns of a log began: pairs of epoch and position, both ascending. Immutable and pure."""

    __slots__ = ("starts",)

    def __init__(self, starts: tuple[tuple[int, int], ...] = ()) -> None:
        """Raises `StoreCorruptError` when the epochs or the positions do not ascend."""
        if len(starts) > EPOCHS_MAX:
            raise StoreCorruptError(f"{len(starts)} epochs are more than {EPOCHS_MAX}")
        for epoch, start in starts:
            if not 0 <= epoch <= _EPOCH_MAX or not 0 <= start <= _POSITION_MAX:
                raise StoreCorruptError(f"epoch {epoch} at {start} cannot be")
        for (epoch, start), (following, later) in pairwise(starts):
            if following <= epoch or later <= start:
                raise StoreCorruptError(f"epoch {following} at {later} comes after epoch {epoch} at {start}")
        self.starts = starts

    def __repr__(self) -> str:
        return f"EpochTable({self.starts!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EpochTable) and self.starts == other.starts

    def __hash__(self) -> int:
        return hash(self.starts)

    @property
    def last(self) -> int:
        """The newest epoch, also if nothing was written in it yet."""
        return self.starts[-1][0] if self.starts else IMPLICIT

    def spans(self, end: int) -> list[ReignSpan]:
        """The parts of a log that ends at `end`, without empty ones."""
        starts = self.starts
        if not starts or starts[0][1] > 0:
            starts = ((IMPLICIT, 0), *starts)
        ends = [start for _, start in starts[1:]] + [end]
        return [
            ReignSpan(epoch, start, min(stop, end))
            for (epoch, start), stop in zip(starts, ends, strict=True)
            if start < min(stop, end)
        ]

    def log_epoch(self, end: int) -> int:
        """The epoch of the last byte of a log that ends at `end`."""
        spans = self.spans(end)
        return spans[-1].epoch if spans else IMPLICIT

    def common_end(self, end: int, other: EpochTable, other_end: int) -> int:
        """Up to where this log, which ends at `end`, has the same bytes as another; `NOTHING_COMMON` (-1) if
        they never had the same master."""
        if not end or not other_end:
            return 0
        others = {(span.epoch, span.start): span for span in other.spans(other_end)}
        for span in reversed(self.spans(end)):
            found = others.get((span.epoch, span.start))
            if found is not None:
                return min(span.end, found.end)
        return NOTHING_COMMON

    def begun(self, epoch: int, start: int) -> EpochTable:
        """With a new reign at the end of the log. Reigns in which nothing was written are left out.

        Raises `InvariantError` when the epoch is not new.
        """
        if epoch <= self.last:
            raise InvariantError(f"epoch {epoch} begins after epoch {self.last}")
        return EpochTable((*self.cut(start).starts, (epoch, start)))

    def cut(self, position: int) -> EpochTable:
        """Without the reigns that began at `position` or later."""
        return EpochTable(tuple(one for one in self.starts if one[1] < position))

    def encode(self) -> bytes:
        """The content of the file: number of lines, checksum, and `epoch-position` in each line."""
        lines = "".join(f"{epoch}-{start}\n" for epoch, start in self.starts).encode()
        return b"%d\n%d\n%b" % (len(self.starts), crc32(lines) & _CRC_MASK, lines)

    @classmethod
    def decode(cls, data: bytes) -> EpochTable:
        """From the content of the file. Raises `StoreCorruptError`."""
        try:
            count, checksum, *lines = data.decode("ascii").split("\n")
            found = [line.strip() for line in lines if line.strip()]
            starts = tuple((int(epoch), int(start)) for epoch, start in (one.split("-") for one in found))
            wanted = int(checksum)
            if int(count) != len(starts):
                raise ValueError(f"{count} lines are announced, {len(starts)} are there")
        except ValueError as error:
            raise StoreCorruptError(f"it is no table of epochs: {error}") from error
        ending = "\r\n" if b"\r\n" in data else "\n"
        actual = crc32("".join(line + ending for line in found).encode()) & _CRC_MASK
        if wanted not in (_NOT_CHECKED, actual):
            raise StoreCorruptError(f"its checksum is {wanted}, that of its lines {actual}")
        return cls(starts)


class EpochFile:
    """The table of one store on disk, with the previous version beside it."""

    def __init__(self, root: Path) -> None:
        self.path = root / FILE_NAME
        self._backup = root / f"{FILE_NAME}.bak"

    def load(self) -> EpochTable:
        """The stored table; the backup's if the file cannot be used, an empty one without either.

        Raises `StoreCorruptError` when there is data, but none that can be used: without the table, it would
        be unknown what another master wrote.
        """
        problems = []
        for path in (self.path, self._backup):
            try:
                data = disk.read(path)
                table = EpochTable.decode(data)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise disk.store_error("cannot read", path, error) from error
            except StoreCorruptError as error:
                problems.append(f"{path}: {error}")
                continue
            for problem in problems:
                log.warning("%s; the backup is used instead", problem)
            return table
        if problems:
            raise StoreCorruptError(f"{'; '.join(problems)}; replace it with a good copy of this store's")
        return EpochTable()

    def save(self, table: EpochTable) -> None:
        """Replace the file durably. An empty table is written too, unless there was never one. Raises
        `StoreError`."""
        try:
            if table.starts or disk.exists(self.path):
                disk.replace(self.path, table.encode(), self._backup)
        except OSError as error:
            raise disk.store_error("cannot write", self.path, error) from error
