"""A disk that remembers what of it would survive, and fails when told.

Operations go to real files in a scratch directory, so mappings and locks are the system's own. Beside them
the disk keeps for each file what was forced to disk and what is only in the page cache, and for each
directory the entries that were forced to disk and the changes since. `moments` holds all of that before each
operation and at each mark, so every power cut at any time can be made from one run.
"""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from sparrowmq.core.clock import Clock
from sparrowmq.files.system import System

SECTOR: Final = 512
ZEROS: Final = bytes(SECTOR)
TAKES_SPACE: Final = frozenset(
    {"create", "pwrite", "ftruncate", "posix_fallocate", "mkdir", "replace", "fsync"}
)
WRITES: Final = TAKES_SPACE | {"fdatasync", "truncate", "unlink", "rmdir"}
"""Operations that change something, or force it to disk. The others can only fail."""


class Content:
    """What a file holds: its size and its sectors that are not zero. Never changed once made."""

    __slots__ = ("_digest", "sectors", "size")

    def __init__(self, size: int = 0, sectors: dict[int, bytes] | None = None) -> None:
        self.size = size
        self.sectors = {} if sectors is None else sectors
        self._digest = b""

    @property
    def digest(self) -> bytes:
        """Names the content."""
        if not self._digest:
            found = hashlib.blake2b(str(self.size).encode(), digest_size=16)
            for number in sorted(self.sectors):
                if self.sectors[number] != ZEROS:
                    found.update(b"%d:" % number + self.sectors[number])
            self._digest = found.digest()
        return self._digest

    def changed(self, base: Content) -> list[int]:
        """The sectors in which it is not `base`."""
        if self.sectors is base.sectors:
            return []
        numbers = self.sectors.keys() | base.sectors.keys()
        return sorted(n for n in numbers if self.sectors.get(n, ZEROS) != base.sectors.get(n, ZEROS))

    def mixed(self, base: Content, kept: set[int], *, size: int | None = None) -> Content:
        """`base` with the sectors `kept` of this one, and its size unless another is given."""
        size = self.size if size is None else size
        sectors = {n: data for n, data in base.sectors.items() if n * SECTOR < size}
        for number in kept:
            if number * SECTOR < size:
                sectors[number] = self.sectors.get(number, ZEROS)
        return Content(size, sectors)

    def write(self, path: Path) -> None:
        """Make a file that holds this."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            os.ftruncate(fd, self.size)
            for number, data in self.sectors.items():
                at = number * SECTOR
                if data != ZEROS and at < self.size:
                    os.pwrite(fd, data[: self.size - at], at)
        finally:
            os.close(fd)


@dataclass(eq=False)
class File:
    """A file, under whatever names. `refused` are sectors that could not be written: no later fsync writes
    them, unless they were written once more.
    """

    now: Content = field(default_factory=Content)
    durable: Content = field(default_factory=Content)
    refused: dict[int, bytes] = field(default_factory=dict)
    fd: int = -1
    raw: bytes = b""


Change = tuple[tuple[str, "File | Directory | None"], ...]
"""Names of one directory and what they mean from then on, None for nothing; in one step."""


@dataclass(eq=False)
class Directory:
    """A directory: its entries, those on disk, and the changes between the two."""

    entries: dict[str, File | Directory] = field(default_factory=dict)
    durable: dict[str, File | Directory] = field(default_factory=dict)
    changes: tuple[Change, ...] = ()

    def change(self, change: Change) -> None:
        """Take a change over into what processes see."""
        self.entries = applied(self.entries, change)
        self.changes = (*self.changes, change)


def applied(entries: dict[str, File | Directory], *changes: Change) -> dict[str, File | Directory]:
    """Entries after some changes."""
    found = dict(entries)
    for change in changes:
        for name, node in change:
            if node is None:
                found.pop(name, None)
            else:
                found[name] = node
    return found


class FileAt(NamedTuple):
    """A file at one moment."""

    now: Content
    durable: Content
    refused: frozenset[int]


class DirectoryAt(NamedTuple):
    """A directory at one moment."""

    entries: dict[str, File | Directory]
    durable: dict[str, File | Directory]
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Moment:
    """All of the disk before the operation `what`, or when `what` was marked."""

    what: str
    root: Directory
    files: dict[File, FileAt]
    directories: dict[Directory, DirectoryAt]
    mapped: frozenset[File]
    """Files changed through mappings since the moment before."""

    clock: int
    """What the broker's clock showed, epoch ms."""

    writing: tuple[File, Content] | None = None
    """What a write that begins now will leave, if it comes to its end."""


class Fault(NamedTuple):
    """What goes wrong: at the operation with this number, `EIO`, `ENOSPC` or `short`; for good if `stays`."""

    at: int
    kind: str
    stays: bool = False


class SimulatedDisk(System):
    """The disk below `root`, a scratch directory; all that is in it at first is on disk."""

    def __init__(self, root: Path, fault: Fault | None = None, *, clock: Clock | None = None) -> None:
        self.root = root
        self.fault = fault
        self.clock = clock
        self.count = 0
        self.names: list[str] = []
        self.faulted: str = ""
        self.moments: list[Moment] = []
        self.tree = Directory()
        self._open: dict[int, File | Directory] = {}
        self._mapped: dict[File, None] = {}
        self._load(root, self.tree)

    def _load(self, path: Path, into: Directory) -> None:
        for entry in os.scandir(path):
            if entry.is_dir():
                node: File | Directory = Directory()
                self._load(Path(entry.path), node)  # type: ignore[arg-type]
            else:
                node = File()
                fd = os.open(entry.path, os.O_RDONLY)
                node.now = node.durable = self._read(fd, Content(), 0, entry.stat().st_size)
                os.close(fd)
            into.entries[entry.name] = node
        into.durable = dict(into.entries)

    def end(self) -> None:
        """Let go of the descriptors it has of its own."""
        for file in self._mapped:
            os.close(file.fd)
            file.fd = -1
        self._mapped.clear()

    # What is recorded

    def mark(self, what: str) -> int:
        """Record a moment between operations; its number."""
        self._moment(f"({what})")
        return len(self.moments) - 1

    def _moment(self, what: str, writing: tuple[File, Content] | None = None) -> None:
        mapped = frozenset(self._look_at_mapped())
        now = 0 if self.clock is None else self.clock.now_ms()
        files: dict[File, FileAt] = {}
        directories: dict[Directory, DirectoryAt] = {}
        self._note(self.tree, files, directories)
        self.moments.append(Moment(what, self.tree, files, directories, mapped, now, writing))

    def _note(
        self, found: Directory, files: dict[File, FileAt], directories: dict[Directory, DirectoryAt]
    ) -> None:
        directories[found] = DirectoryAt(found.entries, found.durable, found.changes)
        nodes = {*found.entries.values(), *found.durable.values()}
        nodes |= {node for change in found.changes for _, node in change if node is not None}
        for node in nodes:
            if isinstance(node, Directory):
                self._note(node, files, directories)
            elif node not in files:
                files[node] = FileAt(node.now, node.durable, frozenset(node.refused))

    def _look_at_mapped(self) -> list[File]:
        changed = []
        for file in self._mapped:
            raw = os.pread(file.fd, file.now.size, 0)
            if raw != file.raw:
                file.raw = raw
                sectors = {
                    n: raw[n * SECTOR : (n + 1) * SECTOR].ljust(SECTOR, b"\0")
                    for n in range(-(-len(raw) // SECTOR))
                }
                before = file.now
                file.now = Content(len(raw), {n: data for n, data in sectors.items() if data != ZEROS})
                if file.now.changed(before):
                    changed.append(file)
        return changed

    def _read(self, fd: int, old: Content, start: int, end: int) -> Content:
        """`old` with the sectors from `start` to `end` read anew."""
        size = os.fstat(fd).st_size
        sectors = {n: data for n, data in old.sectors.items() if n * SECTOR < size}
        at = start - start % SECTOR
        while at < end:
            try:
                low = os.lseek(fd, at, os.SEEK_DATA)
            except OSError:
                low = end
            for gap in range(at // SECTOR, min(low, end) // SECTOR):
                sectors.pop(gap, None)
            if low >= end:
                break
            at = low - low % SECTOR
            high = min(-(-end // SECTOR) * SECTOR, os.lseek(fd, low, os.SEEK_HOLE))
            block = os.pread(fd, high - at, at)
            for part in range(0, len(block), SECTOR):
                data = block[part : part + SECTOR].ljust(SECTOR, b"\0")
                if data == ZEROS:
                    sectors.pop((at + part) // SECTOR, None)
                else:
                    sectors[(at + part) // SECTOR] = data
            at += max(len(block), SECTOR)
        return Content(size, sectors)

    # What goes wrong

    def _step(self, what: str, path: Path | str, writing: tuple[File, Content] | None = None) -> bool:
        """Count an operation and record the moment before; whether a write is to be short. Raises OSError."""
        self.names.append(f"{what} {path}")
        if what in WRITES:
            self._moment(f"{what} {path}", writing)
        number, self.count = self.count, self.count + 1
        fault = self.fault
        if fault is None or number < fault.at or (number > fault.at and not fault.stays):
            return False
        if fault.kind == "short":
            if what == "pwrite":
                self.faulted = f"{what} {path}"
            return what == "pwrite"
        if fault.kind == "ENOSPC" and what not in TAKES_SPACE:
            return False
        self.faulted = self.faulted or f"{what} {path}"
        code = getattr(errno, fault.kind)
        raise OSError(code, os.strerror(code), str(path))

    def _name(self, path: Path) -> str:
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else str(path)

    def _find(self, path: Path) -> File | Directory | None:
        node: File | Directory | None = self.tree
        for part in path.relative_to(self.root).parts:
            node = node.entries.get(part) if isinstance(node, Directory) else None
        return node

    def _above(self, path: Path) -> Directory:
        found = self._find(path.parent)
        if not isinstance(found, Directory):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
        return found

    # The calls

    def open(self, path: Path, flags: int, mode: int = 0o644) -> int:
        node = self._find(path)
        if node is None and flags & os.O_CREAT:
            self._step("create", self._name(path))
            above = self._above(path)
            node = File()
            above.change(((path.name, node),))
        else:
            self._step("truncate" if flags & os.O_TRUNC else "open", self._name(path))
        if flags & os.O_WRONLY:
            flags = flags & ~os.O_WRONLY | os.O_RDWR  # what was written is read back
        fd = super().open(path, flags, mode)
        if isinstance(node, File) and flags & os.O_TRUNC:
            node.now = Content()
        assert node is not None
        self._open[fd] = node
        return fd

    def close(self, fd: int) -> None:
        self._open.pop(fd, None)
        super().close(fd)

    def pread(self, fd: int, length: int, position: int) -> bytes:
        self._step("pread", self._path_of(fd))
        return super().pread(fd, length, position)

    def pwrite(self, fd: int, data: bytes | memoryview, position: int) -> int:
        file = self._file(fd)
        data = bytes(data)
        wanted = self._after(file, data, position)
        if self._step("pwrite", self._path_of(fd), (file, wanted)) and len(data) > 1:
            data = data[: max(1, len(data) // 2)]
        written = super().pwrite(fd, data, position)
        file.now = self._read(fd, file.now, position, position + written)
        for number in range(position // SECTOR, -(-(position + written) // SECTOR)):
            file.refused.pop(number, None)
        self._forget(file)
        if self.clock is not None:
            now = self.clock.now_ms() * 1_000_000
            os.utime(fd, ns=(now, now))
        return written

    def _after(self, file: File, data: bytes, position: int) -> Content:
        """The file with `data` at a position."""
        sectors = dict(file.now.sectors)
        first, last = position // SECTOR, (position + len(data) - 1) // SECTOR
        base = b"".join(sectors.get(n, ZEROS) for n in range(first, last + 1))
        at = position - first * SECTOR
        block = base[:at] + data + base[at + len(data) :]
        for n in range(first, last + 1):
            sectors[n] = block[(n - first) * SECTOR : (n - first + 1) * SECTOR]
        return Content(max(file.now.size, position + len(data)), sectors)

    def ftruncate(self, fd: int, size: int) -> None:
        file = self._file(fd)
        self._step("ftruncate", self._path_of(fd))
        super().ftruncate(fd, size)
        sectors = {n: data for n, data in file.now.sectors.items() if n * SECTOR < size}
        file.now = self._read(fd, Content(size, sectors), size - size % SECTOR, size)
        self._forget(file)

    def posix_fallocate(self, fd: int, start: int, length: int) -> None:
        self._step("posix_fallocate", self._path_of(fd))
        size = max(os.fstat(fd).st_size, start + length)
        super().ftruncate(fd, size)  # blocks that are there and blocks that are not read the same
        file = self._file(fd)
        file.now = Content(size, file.now.sectors)
        self._forget(file)

    def fsync(self, fd: int) -> None:
        self._sync("fsync", fd)

    def fdatasync(self, fd: int) -> None:
        self._sync("fdatasync", fd)

    def _sync(self, what: str, fd: int) -> None:
        node = self._open[fd]
        try:
            self._step("fsync" if isinstance(node, Directory) else what, self._path_of(fd))
        except OSError:
            if isinstance(node, File):  # what could not be written is clean now, and no later fsync writes it
                now = node.now
                node.refused |= {n: now.sectors.get(n, ZEROS) for n in now.changed(node.durable)}
            raise
        self._look_at_mapped()
        if isinstance(node, Directory):
            node.durable, node.changes = node.entries, ()
            return
        still = {n: data for n, data in node.refused.items() if node.now.sectors.get(n, ZEROS) == data}
        node.refused = still
        changed = set(node.now.changed(node.durable)) - still.keys()
        node.durable = node.now.mixed(node.durable, changed)

    def mmap(self, fd: int, size: int, *, writable: bool) -> mmap.mmap:
        self._step("mmap", self._path_of(fd))
        file = self._file(fd)
        if writable and file not in self._mapped:
            file.fd, file.raw = os.dup(fd), os.pread(fd, file.now.size, 0)
            self._mapped[file] = None
        return super().mmap(fd, size, writable=writable)

    def stat(self, path: Path) -> os.stat_result:
        self._step("stat", self._name(path))
        return super().stat(path)

    def scandir(self, path: Path) -> list[tuple[str, bool, bool]]:
        self._step("scandir", self._name(path))
        return super().scandir(path)

    def mkdir(self, path: Path, mode: int = 0o777) -> None:
        if self._find(path) is None and isinstance(self._find(path.parent), Directory):
            self._step("mkdir", self._name(path))
        super().mkdir(path, mode)
        self._above(path).change(((path.name, Directory()),))

    def rmdir(self, path: Path) -> None:
        self._step("rmdir", self._name(path))
        super().rmdir(path)
        self._above(path).change(((path.name, None),))

    def unlink(self, path: Path) -> None:
        if self._find(path) is not None:
            self._step("unlink", self._name(path))
        super().unlink(path)
        self._above(path).change(((path.name, None),))

    def replace(self, old: Path, new: Path) -> None:
        node = self._find(old)
        if node is not None:
            self._step("replace", f"{self._name(old)} {new.name}")
        super().replace(old, new)
        assert old.parent == new.parent, (old, new)
        self._above(old).change(((old.name, None), (new.name, node)))

    # Descriptors

    def _file(self, fd: int) -> File:
        node = self._open[fd]
        assert isinstance(node, File)
        return node

    def _path_of(self, fd: int) -> str:
        found = self._path(self.tree, self._open[fd], "")
        return "(removed)" if found is None else found

    def _path(self, within: Directory, node: File | Directory, prefix: str) -> str | None:
        if within is node:
            return prefix or "."
        for name, entry in within.entries.items():
            if entry is node:
                return prefix + name
            if isinstance(entry, Directory):
                found = self._path(entry, node, f"{prefix}{name}/")
                if found is not None:
                    return found
        return None

    def _forget(self, file: File) -> None:
        if file in self._mapped:
            file.raw = os.pread(file.fd, file.now.size, 0)


class Beside(System):
    """Gives what is below a simulated disk's root to it, and what other servers of this process do to the
    operating system.
    """

    def __init__(self, simulated: SimulatedDisk) -> None:
        self.simulated = simulated


def _chosen(name: str) -> Callable[..., Any]:
    def call(self: Beside, place: int | Path, *rest: Any, **named: Any) -> Any:
        simulated = self.simulated
        known = place in simulated._open if isinstance(place, int) else place.is_relative_to(simulated.root)
        return getattr(simulated if known else super(Beside, self), name)(place, *rest, **named)

    return call


for _name, _member in vars(System).items():
    if callable(_member) and not _name.startswith("_"):
        setattr(Beside, _name, _chosen(_name))
