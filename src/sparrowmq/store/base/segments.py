"""A sequence of files of equal size that form one long range of bytes (broker:1.1).

Each file is named by the position of its first byte, in 20 digits. Files are created at full size, as sparse
files, and never truncated. They are mapped on first use; a `MapPool` bounds how many stay mapped.
"""

from __future__ import annotations

import logging
import mmap
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from sparrowmq.core.errors import StoreBrokenError, StoreCorruptError
from sparrowmq.files import disk

log = logging.getLogger("sparrowmq.store")
NAME_DIGITS: Final = 20
_REWRITE_BYTES: Final = 1024 * 1024


class Segment:
    """One file. `base` is the position of its first byte in the sequence."""

    __slots__ = ("_map", "_on_unmap", "_pool", "_view", "_writable", "base", "end", "fd", "path", "size")

    def __init__(self, path: Path, base: int, size: int, pool: MapPool, *, writable: bool) -> None:
        self.path = path
        self.base = base
        self.size = size
        self.end = base + size
        self.fd = -1
        self._on_unmap: Callable[[], None] | None = None
        self._pool = pool
        self._writable = writable
        self._map: mmap.mmap | None = None
        self._view: memoryview | None = None

    def __repr__(self) -> str:
        return f"<Segment {self.path} {'mapped' if self._map is not None else 'not mapped'}>"

    def map(self, on_unmap: Callable[[], None] | None = None) -> mmap.mmap:
        """Map the file; the mapping is writable if the sequence is. Raises `StoreError` when mapping fails.

        `on_unmap` is called before the file is unmapped.
        """
        if on_unmap is not None:
            self._on_unmap = on_unmap
        if self._map is None:
            try:
                self._map = disk.map_file(self.path, self.size, writable=self._writable)
            except OSError as error:
                raise disk.store_error("cannot map", self.path, error) from error
            self._pool.add(self)
        return self._map

    @property
    def mapped(self) -> mmap.mmap | None:
        """The mapping if there is one, for any thread: it is readable as long as it is referred to."""
        return self._map

    def view(self) -> memoryview:
        """The mapping as a memory view. Slices of it stay valid after `unmap`."""
        if self._view is None:
            self._view = memoryview(self.map())
        return self._view

    def unmap(self) -> None:
        """Release the mapping after calling its `on_unmap`. Existing slices keep the memory mapped."""
        if self._map is None:
            return
        if self._on_unmap is not None:
            self._on_unmap()
        self._view = None
        self._map = None
        self._pool.discard(self)

    def open(self) -> int:
        """A file descriptor for positioned writes; it stays open until `close`."""
        if self.fd < 0:
            self.fd = disk.open_file(self.path)
        return self.fd

    def close_descriptor(self) -> None:
        """Close the descriptor that `open` opened."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            disk.close(fd)

    def close(self) -> None:
        """Close the descriptor and the mapping."""
        self.unmap()
        self.close_descriptor()


class MapPool:
    """Limits how many segments are mapped at the same time."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._mapped: dict[Segment, None] = {}
        self.is_over = False
        """Whether more segments are mapped than allowed; checked after each write and before each read."""

    def __len__(self) -> int:
        return len(self._mapped)

    def add(self, segment: Segment) -> None:
        """Record that a segment was mapped."""
        self._mapped[segment] = None
        self.is_over = len(self._mapped) > self._limit

    def discard(self, segment: Segment) -> None:
        """Record that a segment is no longer mapped."""
        self._mapped.pop(segment, None)
        self.is_over = len(self._mapped) > self._limit

    def trim(self) -> None:
        """Unmap the longest-mapped segments until the limit is met; call it when no mapping is in use."""
        while len(self._mapped) > self._limit:
            next(iter(self._mapped)).unmap()


class SegmentSequence:
    """The files of one directory, in order and without gaps."""

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
        """Position of the first byte; 0 if there are no files."""
        return next(iter(self._segments), 0)

    @property
    def end(self) -> int:
        """The position after the last file; 0 if there are no files."""
        return next(reversed(self._segments), -self.file_bytes) + self.file_bytes

    def load(self, *, mend: bool = False) -> None:
        """Find the files. Empty files at the end, which a crash leaves, are deleted (broker:1.1).

        A power failure may also leave an empty file before the last one: it is extended to full size and
        contains only zeros. With `mend`, files after a missing one are deleted, because their content can be
        rebuilt.

        Raises `StoreCorruptError` when a file does not have the configured size, is not named after a
        position, or is missing between two others.
        """
        try:
            entries = disk.entries(self.directory)
            files = [(entry.path, disk.stat(entry.path).st_size) for entry in entries if entry.is_file]
            while files and files[-1][1] == 0:
                disk.unlink(files.pop()[0])
            for index, (path, size) in enumerate(files):
                if size == 0:
                    disk.create(path, self.file_bytes)
                    files[index] = (path, self.file_bytes)
        except FileNotFoundError:
            return
        except OSError as error:
            raise disk.store_error("cannot read", self.directory, error) from error
        for path, size in files:
            base = self._base(path, size)
            if self._segments and base != self.end:
                if mend:
                    self._drop(path for path, _ in files if self._base(path, self.file_bytes) >= base)
                    return
                raise StoreCorruptError(
                    f"{path}: the file before it, {self.end:0{NAME_DIGITS}d}, is missing; "
                    "restore it from a backup",
                    what="missing",
                    value=self.end,
                )
            self._add(path, base)

    def load_unchanged(self) -> list[str]:
        """Find the files without changing any; returns the problems, and leaves out the files that have them.

        A missing file between two others is reported, and the files after it are used. Empty files at the end
        are left out: a crash leaves them. Raises OSError.
        """
        problems: list[str] = []
        try:
            entries = [entry for entry in disk.entries(self.directory) if entry.is_file]
        except FileNotFoundError:
            return problems
        files = [(entry.path, disk.stat(entry.path).st_size) for entry in entries]
        while files and files[-1][1] == 0:
            files.pop()
        for path, size in files:
            try:
                base = self._base(path, size)
            except StoreCorruptError as error:
                problems.append(str(error))
                continue
            if self._segments and base != self.end:
                problems.append(f"{path}: the file before it, {self.end:0{NAME_DIGITS}d}, is missing")
            self._add(path, base)
        return problems

    def _drop(self, paths: Iterable[Path]) -> None:
        for path in sorted(paths, reverse=True):
            log.warning("%s is recreated: a file before it is missing after the last crash", path)
            try:
                disk.unlink(path)
            except OSError as error:
                raise disk.store_error("cannot delete", path, error) from error

    def _base(self, path: Path, size: int) -> int:
        if size != self.file_bytes:
            step = "set it to the size this directory was made with"
            if size < self.file_bytes:
                step += f"; if the file was cut short, lengthen it: truncate -s {self.file_bytes} {path}"
            raise StoreCorruptError(
                f"{path} has {size} bytes, but {self.setting} is {self.file_bytes}; {step}",
                what=self.setting,
                value=size,
                limit=self.file_bytes,
            )
        base = int(path.name) if path.name.isascii() and path.name.isdigit() else -1
        if base < 0 or base % self.file_bytes:
            raise StoreCorruptError(
                f"{path} is not named by a multiple of {self.setting} ({self.file_bytes}); move it away",
                what="name",
                value=path,
            )
        return base

    def _add(self, path: Path, base: int) -> Segment:
        segment = Segment(path, base, self.file_bytes, self._pool, writable=self._writable)
        self._segments[base] = segment
        return segment

    def at(self, position: int) -> Segment | None:
        """The segment that contains `position`, or None."""
        return self._segments.get(position - position % self.file_bytes)

    def make(self, position: int) -> Segment:
        """The segment that contains `position`, created if necessary; raises OSError."""
        base = position - position % self.file_bytes
        segment = self._segments.get(base)
        if segment is None:
            if self._segments and base != self.end:
                raise StoreBrokenError(f"{self.directory}: a file for {base} does not follow {self.end}")
            disk.make_directory(self.directory, durable=False)
            path = self.directory / f"{base:0{NAME_DIGITS}d}"
            disk.create(path, self.file_bytes)
            segment = self._add(path, base)
        return segment

    def remove_from(self, position: int) -> list[Path]:
        """Delete the files that start at or after `position`, last first; returns their paths."""
        removed = []
        for base in [base for base in reversed(self._segments) if base >= position]:
            segment = self._segments[base]
            segment.close()
            try:
                disk.unlink(segment.path, missing_ok=True)
            except OSError as error:
                raise disk.store_error("cannot delete", segment.path, error) from error
            del self._segments[base]
            removed.append(segment.path)
        return removed

    def detach_first(self) -> Segment:
        """Remove the oldest file from the sequence and return it; it stays on disk and its slices stay valid.
        The last file is never removed."""
        assert len(self._segments) > 1, self.directory
        segment = self._segments.pop(self.start)
        segment.close()
        return segment

    def attach_first(self, segment: Segment) -> None:
        """Add a file that `detach_first` returned again, because it could not be deleted."""
        assert segment.end == self.start, (segment, self.start)
        self._segments = {segment.base: segment, **self._segments}

    def clear(self, start: int, end: int) -> int:
        """Zero the bytes from `start` to `end`, which are in one file; returns the length of the range from
        the first to the last nonzero byte.

        Raises `StoreError` when the write fails.
        """
        segment = self.at(start)
        if segment is None or start >= end:
            return 0
        try:
            return disk.clear_data(segment.path, start - segment.base, end - segment.base)
        except OSError as error:
            raise disk.store_error("cannot clear the end of", segment.path, error) from error

    def rewrite(self, start: int, end: int) -> None:
        """Write the bytes from `start` up to `end` again unchanged, so that the next fsync writes them to
        disk.

        After a failed fsync, the kernel drops the data it could not write but marks it clean and still shows
        it from the page cache. Raises `StoreError` when the write fails.
        """
        while start < end and (segment := self.at(start)) is not None:
            stop = min(end, segment.end)
            try:
                fd = disk.open_file(segment.path)
                try:
                    for position in range(start, stop, _REWRITE_BYTES):
                        at = position - segment.base
                        piece = disk.read_at(fd, min(_REWRITE_BYTES, stop - position), at)
                        disk.write_at(fd, piece, at)
                finally:
                    disk.close(fd)
            except OSError as error:
                raise disk.store_error("cannot write anew", segment.path, error) from error
            start = stop

    def close(self) -> None:
        """Close every file."""
        for segment in self:
            segment.close()

    def remove(self) -> None:
        """Delete all files and the directory."""
        self.remove_from(0)
        with suppress(OSError):
            disk.remove_directory(self.directory)
