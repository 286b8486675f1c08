"""A sequence of equally large files that together are one long range of bytes (broker:1.1).

Each file is named by the position of its first byte, in 20 digits. Files are made at full size, as holes, and
never cut. They are mapped at first use; a `MapPool` bounds how many stay mapped.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from sparrowmq.core.errors import StoreCorruptError
from sparrowmq.store import disk

NAME_DIGITS: Final = 20


class Segment:
    """One file. `base` is the position of its first byte in the sequence."""

    __slots__ = ("_map", "_pool", "_view", "_writable", "base", "fd", "on_unmap", "path", "size")

    def __init__(self, path: Path, base: int, size: int, pool: MapPool, *, writable: bool) -> None:
        self.path = path
        self.base = base
        self.size = size
        self.fd = -1
        self.on_unmap: Callable[[], None] | None = None
        self._pool = pool
        self._writable = writable
        self._map: mmap.mmap | None = None
        self._view: memoryview | None = None

    def __repr__(self) -> str:
        return f"<Segment {self.path} {'mapped' if self._map is not None else 'not mapped'}>"

    @property
    def end(self) -> int:
        """The position after the last byte."""
        return self.base + self.size

    def map(self) -> mmap.mmap:
        """The file's bytes; writable if the sequence is. Raises `StoreError` when it cannot be mapped."""
        if self._map is None:
            access = mmap.ACCESS_WRITE if self._writable else mmap.ACCESS_READ
            try:
                fd = os.open(self.path, (os.O_RDWR if self._writable else os.O_RDONLY) | os.O_CLOEXEC)
                try:
                    self._map = mmap.mmap(fd, self.size, access=access)
                    if self._writable:
                        # The first write would read the file ahead, megabytes of nothing for one entry.
                        self._map.madvise(mmap.MADV_RANDOM)
                finally:
                    os.close(fd)
            except OSError as error:
                raise disk.store_error("cannot map", self.path, error) from error
            self._pool.add(self)
        return self._map

    def view(self) -> memoryview:
        """The same as a memory view. Slices of it stay valid after `unmap`."""
        if self._view is None:
            self._view = memoryview(self.map())
        return self._view

    def unmap(self) -> None:
        """Let go of the mapping, after telling `on_unmap`; it ends when the last slice of it is gone."""
        if self._map is None:
            return
        if self.on_unmap is not None:
            self.on_unmap()
        self._view = None
        self._map = None
        self._pool.discard(self)

    def open(self) -> int:
        """A descriptor for positioned writes, kept until `close`."""
        if self.fd < 0:
            self.fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        return self.fd

    def close_descriptor(self) -> None:
        """Close what `open` opened."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def close(self) -> None:
        """Close descriptor and mapping."""
        self.unmap()
        self.close_descriptor()


class MapPool:
    """Bounds how many segments are mapped at one time."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._mapped: dict[Segment, None] = {}

    def __len__(self) -> int:
        return len(self._mapped)

    def add(self, segment: Segment) -> None:
        """Note that a segment was mapped."""
        self._mapped[segment] = None

    def discard(self, segment: Segment) -> None:
        """Note that a segment is no longer mapped."""
        self._mapped.pop(segment, None)

    @property
    def is_over(self) -> bool:
        """Whether more is mapped than should be."""
        return len(self._mapped) > self._limit

    def trim(self) -> None:
        """Unmap the longest mapped segments above the limit; called where nobody is in the middle of one."""
        while len(self._mapped) > self._limit:
            next(iter(self._mapped)).unmap()


class SegmentSequence:
    """The files of one directory, in order and without a gap."""

    __slots__ = ("_pool", "_segments", "_writable", "directory", "file_bytes", "setting")

    def __init__(
        self, directory: Path, file_bytes: int, pool: MapPool, *, setting: str, writable: bool
    ) -> None:
        self.directory = directory
        self.file_bytes = file_bytes
        self.setting = setting
        self._pool = pool
        self._writable = writable
        self._segments: dict[int, Segment] = {}

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(list(self._segments.values()))

    @property
    def start(self) -> int:
        """Position of the first byte; 0 without files."""
        return next(iter(self._segments), 0)

    @property
    def end(self) -> int:
        """The position after the last file; 0 without files."""
        return next(reversed(self._segments), -self.file_bytes) + self.file_bytes

    def load(self) -> None:
        """Find the files. Last ones of length 0, which a crash leaves, are deleted (broker:1.1).

        Raises `StoreCorruptError` when a file has another length than the setting says, is not named by a
        position, or is missing between two others.
        """
        try:
            entries = sorted(os.scandir(self.directory), key=lambda entry: entry.name)
            files = [(Path(entry.path), entry.stat().st_size) for entry in entries if entry.is_file()]
            while files and files[-1][1] == 0:
                files.pop()[0].unlink()
        except FileNotFoundError:
            return
        except OSError as error:
            raise disk.store_error("cannot read", self.directory, error) from error
        for path, size in files:
            base = self._base(path, size)
            if self._segments and base != self.end:
                raise StoreCorruptError(
                    f"{path}: the file before it, {self.end:0{NAME_DIGITS}d}, is missing; "
                    "restore it from a copy"
                )
            self._add(path, base)

    def _base(self, path: Path, size: int) -> int:
        if size != self.file_bytes:
            step = "set it to the size this directory was made with"
            if size < self.file_bytes:
                step += f"; if the file was cut short, lengthen it: truncate -s {self.file_bytes} {path}"
            raise StoreCorruptError(
                f"{path} has {size} bytes, but {self.setting} is {self.file_bytes}; {step}"
            )
        base = int(path.name) if path.name.isascii() and path.name.isdigit() else -1
        if base < 0 or base % self.file_bytes:
            raise StoreCorruptError(
                f"{path} is not named by a multiple of {self.setting} ({self.file_bytes}); move it away"
            )
        return base

    def _add(self, path: Path, base: int) -> Segment:
        segment = Segment(path, base, self.file_bytes, self._pool, writable=self._writable)
        self._segments[base] = segment
        return segment

    def at(self, position: int) -> Segment | None:
        """The segment that holds `position`, or None."""
        return self._segments.get(position - position % self.file_bytes)

    def make(self, position: int) -> Segment:
        """The segment that holds `position`, made if it is not there; raises OSError."""
        base = position - position % self.file_bytes
        segment = self._segments.get(base)
        if segment is None:
            assert not self._segments or base == self.end, f"{self.directory}: {base} after {self.end}"
            self.directory.mkdir(parents=True, exist_ok=True)
            path = self.directory / f"{base:0{NAME_DIGITS}d}"
            disk.create(path, self.file_bytes)
            segment = self._add(path, base)
        return segment

    def remove_from(self, position: int) -> list[Path]:
        """Delete the files that start at or after `position`, last first; their paths."""
        removed = []
        for base in [base for base in reversed(self._segments) if base >= position]:
            segment = self._segments[base]
            segment.close()
            try:
                segment.path.unlink(missing_ok=True)
            except OSError as error:
                raise disk.store_error("cannot delete", segment.path, error) from error
            del self._segments[base]
            removed.append(segment.path)
        return removed

    def detach_first(self) -> Segment:
        """Forget the oldest file and give it, still on disk; slices of it stay valid. Never the last one."""
        assert len(self._segments) > 1, self.directory
        segment = self._segments.pop(self.start)
        segment.close()
        return segment

    def attach_first(self, segment: Segment) -> None:
        """Take back a file that `detach_first` gave: it could not be deleted."""
        assert segment.end == self.start, (segment, self.start)
        self._segments = {segment.base: segment, **self._segments}

    def clear(self, start: int, end: int) -> int:
        """Zero the bytes from `start` to `end`, all of one file; the length of what was not zero.

        Raises `StoreError` when the disk refuses.
        """
        segment = self.at(start)
        if segment is None or start >= end:
            return 0
        try:
            return disk.clear_data(segment.path, start - segment.base, end - segment.base)
        except OSError as error:
            raise disk.store_error("cannot clear the end of", segment.path, error) from error

    def close(self) -> None:
        """Close every file."""
        for segment in self:
            segment.close()

    def remove(self) -> None:
        """Delete all files and the directory."""
        self.remove_from(0)
        with suppress(OSError):
            self.directory.rmdir()
