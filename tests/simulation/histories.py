"""What a disk may hold after a crash at one moment: each file and each directory entry kept, torn or lost."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.simulation.disk import Change, Content, Directory, File, Moment, applied

State = dict[str, Content | None]
"""By path: what a file holds, None for a directory."""


@dataclass(frozen=True, slots=True)
class History:
    """One crash: at moment `at`, by death of the process or a power cut, and what the disk holds then.

    What was acknowledged up to `known` is to be there.
    """

    at: int
    power: bool
    what: str
    state: State
    known: int

    @property
    def name(self) -> bytes:
        """The same for equal contents of the disk."""
        return name_of(self.state)


def name_of(state: State) -> bytes:
    """Names a state of the disk by all that is in it."""
    found = hashlib.blake2b(digest_size=16)
    for path in sorted(state):
        content = state[path]
        found.update(path.encode() + b"\0" + (b"" if content is None else content.digest) + b"\n")
    return found.digest()


def write(state: State, root: Path) -> None:
    """Make a directory that holds the state."""
    root.mkdir(parents=True)
    for path in sorted(state):
        content = state[path]
        if content is None:
            (root / path).mkdir()
        else:
            content.write(root / path)


Entries = Callable[[Directory], dict[str, "File | Directory"]]
Contents = Callable[[File], Content]


def build(moment: Moment, entries: Entries, content: Contents) -> State:
    """The state with these entries and contents."""
    state: State = {}

    def add(directory: Directory, prefix: str) -> None:
        for name, node in entries(directory).items():
            if isinstance(node, Directory):
                state[prefix + name] = None
                add(node, f"{prefix}{name}/")
            else:
                state[prefix + name] = content(node)

    add(moment.root, "")
    return state


def histories(moments: list[Moment], at: int, *, thorough: bool = True) -> Iterator[History]:
    """Every crash at one moment. Without `thorough` fewer sectors and entries are lost one by one."""
    yield from _kills(moments, at)
    yield from _power_cuts(moments, at, thorough=thorough)


def _kills(moments: list[Moment], at: int) -> Iterator[History]:
    """Deaths of the process: the page cache survives. A write may have got as far as any sector."""
    moment = moments[at]

    def now(file: File) -> Content:
        return moment.files[file].now

    def seen(directory: Directory) -> dict[str, File | Directory]:
        return moment.directories[directory].entries

    yield History(at, False, "killed", build(moment, seen, now), at)
    yield from _killed_between_entries(moments, at, seen, now)
    if moment.writing is not None:
        for what, file, content in _torn(moment):
            yield History(at, False, what, build(moment, seen, _with(now, file, content)), at)
    if any(part.refused for part in moment.files.values()):
        kept = build(moment, seen, lambda file: _written(moment, file))
        yield History(at, True, "killed, and what could not be written left the cache", kept, at)


def _killed_between_entries(
    moments: list[Moment], at: int, seen: Entries, now: Contents
) -> Iterator[History]:
    moment = moments[at]
    if not moment.mapped or not at:
        return
    before = moments[at - 1].files

    def old(file: File) -> Content:
        return before[file].now if file in moment.mapped and file in before else now(file)

    yield History(at, False, "killed before its entries", build(moment, seen, old), at - 1)
    if len(moment.mapped) > 1:
        for file in moment.mapped:
            state = build(moment, seen, _with(old, file, now(file)))
            yield History(at, False, "killed between entries", state, at - 1)


def _torn(moment: Moment) -> Iterator[tuple[str, File, Content]]:
    assert moment.writing is not None
    file, wanted = moment.writing
    if file not in moment.files:
        return
    now = moment.files[file].now
    changed = wanted.changed(now)
    for count in range(1, len(changed)):
        kept = set(changed[:count])
        size = max(now.size, min(wanted.size, (changed[count - 1] + 1) * 512))
        yield (
            f"killed in a write after {count} of {len(changed)} sectors",
            file,
            wanted.mixed(now, kept, size=size),
        )


def _with(base: Contents, file: File, content: Content) -> Contents:
    return lambda one: content if one is file else base(one)


def _written(moment: Moment, file: File) -> Content:
    """All of the page cache, but what the disk refused to take."""
    part = moment.files[file]
    if not part.refused:
        return part.now
    return part.now.mixed(part.durable, set(part.now.changed(part.durable)) - part.refused)


def _power_cuts(moments: list[Moment], at: int, *, thorough: bool) -> Iterator[History]:
    moment = moments[at]

    def new(file: File) -> Content:
        return _written(moment, file)

    def old(file: File) -> Content:
        return moment.files[file].durable

    def sized(file: File) -> Content:
        return old(file).mixed(old(file), set(), size=new(file).size)

    def seen(directory: Directory) -> dict[str, File | Directory]:
        return moment.directories[directory].entries

    def synced(directory: Directory) -> dict[str, File | Directory]:
        return moment.directories[directory].durable

    def cut(what: str, entries: Entries, content: Contents) -> History:
        return History(at, True, what, build(moment, entries, content), at)

    yield cut("power cut, everything was written", seen, new)
    yield cut("power cut, nothing was written but what was forced", synced, old)
    yield cut("power cut, entries of directories lost", synced, new)
    yield cut("power cut, contents lost", seen, old)
    yield cut("power cut, contents lost but sizes", seen, sized)
    dirty = [file for file in moment.files if moment.files[file].now is not moment.files[file].durable]
    for file in dirty:
        yield cut("power cut, one file lost", seen, _with(new, file, old(file)))
        yield cut("power cut, one file kept", seen, _with(old, file, new(file)))
        for what, content in _sectors(new(file), old(file), thorough=thorough):
            yield cut(what, seen, _with(new, file, content))
    yield from (cut(what, entries, new) for what, entries in _entries_lost(moment, seen, thorough=thorough))


def _sectors(new: Content, old: Content, *, thorough: bool) -> Iterator[tuple[str, Content]]:
    changed = new.changed(old)
    if len(changed) < 2:
        return
    for count in range(1, len(changed)) if thorough else (1, len(changed) - 1):
        yield f"power cut, {count} of {len(changed)} sectors written", new.mixed(old, set(changed[:count]))
    for number in changed if thorough else changed[:1]:
        yield f"power cut, sector {number} lost", new.mixed(old, set(changed) - {number})


def _entries_lost(moment: Moment, seen: Entries, *, thorough: bool) -> Iterator[tuple[str, Entries]]:
    for directory, part in moment.directories.items():
        if not part.changes:
            continue

        def of(changes: tuple[Change, ...], one: Directory = directory) -> Entries:
            entries = applied(moment.directories[one].durable, *changes)
            return lambda found: entries if found is one else seen(found)

        yield "power cut, entries of one directory lost", of(())
        count = len(part.changes)
        if count < 2:
            continue
        for index in range(count) if thorough else (0, count - 1):
            yield "power cut, one entry lost", of(part.changes[:index] + part.changes[index + 1 :])
            yield "power cut, entries lost from one on", of(part.changes[: index + 1])
