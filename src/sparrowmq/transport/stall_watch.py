"""Watches event loops: each turn that blocks other clients for `STALL_SECONDS` is recorded with what ran in
it.

Connections record the beginning and end of each chunk (two assignments and two clock reads), so requests are
measured exactly. One thread per process sends each watched loop a beat every `BEAT_SECONDS`. If the loop does
not respond, the thread records what it runs: the chunk, or else the task, and the stack. This also finds
other work on the loop; its time is measured from the beat on, so at most `BEAT_SECONDS` too short. It works
for asyncio's loop and uvloop, and costs an idle loop 50 wake-ups per second.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import threading
import time
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sparrowmq.core.stalls import Stall, StallBook
from sparrowmq.protocol.frame import RawFrame
from sparrowmq.transport.occasional import OccasionalLog
from sparrowmq.transport.stall_names import (
    KINDS_MAX,
    RequestIds,
    calls_of,
    ids_of,
    requests_of,
    thread_frames,
)

if TYPE_CHECKING:
    from sparrowmq.transport.tls_stream import ServedConnection

STALL_SECONDS: Final = 0.05
"""How long one turn of a loop may keep others waiting."""
BEAT_SECONDS: Final = 0.02
LOOK_SECONDS: Final = 0.04
"""How long a beat stays unanswered until the loop is inspected; then again each time this has doubled."""
LATE_SECONDS: Final = 0.005
"""Tolerated delay of the watching thread's wake-up."""
STALLS_FILE: Final = "SPARROW_STALLS_FILE"
"""Environment variable: a file to which each stall is added as one line of JSON."""

logger = logging.getLogger("sparrowmq.stalls")
_REQUEST: Final = re.compile("[A-Z_]{4,}|connection lost")


@dataclass(frozen=True, slots=True)
class _Times:
    """Times in seconds: CPU time of the loop's thread, its wait for a processor, CPU time of all threads."""

    cpu: float
    waited: float
    process: float


class _Seen(NamedTuple):
    """What a loop that does not respond runs."""

    what: str = "?"
    client: str = ""
    where: tuple[str, ...] = ()
    ids: RequestIds | None = None


class LoopWatch:
    """What one loop runs now, and its stalls. Connections set the attributes without underscore.

    A connection sets `running` to itself and `frames` to the received frames (empty while reading, None when
    the connection is lost), and calls `ended` when that took long.
    """

    __slots__ = (
        "__weakref__",
        "_beat_at",
        "_beat_taken",
        "_excused",
        "_holders",
        "_log",
        "_look_after",
        "_loop",
        "_noted",
        "_parts",
        "_schedstat",
        "_seen",
        "_starved",
        "_thread",
        "_times",
        "book",
        "frames",
        "running",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.book = StallBook()
        self.running: ServedConnection | None = None
        self.frames: list[RawFrame] | None = []
        self._loop = weakref.ref(loop)
        self._holders = 0
        self._log = OccasionalLog(logger)
        self._thread = 0
        self._schedstat = -1
        self._beat_at = 0.0
        self._beat_taken = True
        self._excused = False
        self._times = _Times(0.0, 0.0, 0.0)
        self._parts: dict[str, list[Any]] = {}
        self._noted = 0.0
        self._seen: _Seen | None = None
        self._look_after = LOOK_SECONDS
        self._starved = 0.0

    def __repr__(self) -> str:
        return f"<LoopWatch {'on' if self._holders else 'off'}, {self.book.count} stalls>"

    @property
    def is_watched(self) -> bool:
        """Whether the watching thread sends it beats."""
        return _beats.has(self)

    def hold(self) -> None:
        """Start watching; call it on the loop, and `release` as often."""
        self._holders += 1
        if self._holders > 1:
            return
        self._thread = threading.get_ident()
        self._schedstat = _open_schedstat()
        self._beat_taken, self._excused = True, False
        self._times = self._read_times()
        _beats.add(self)

    def release(self) -> None:
        """Stop watching after the last user. A stall that an unanswered beat shows is recorded first."""
        if self._holders == 0:
            return
        self._holders -= 1
        if self._holders == 0:
            _beats.remove(self)
            self._close()

    def ended(self, connection: ServedConnection, frames: list[RawFrame] | None, began: float) -> None:
        """A chunk that began at `began` (`time.monotonic`) has ended; called when it took at least
        `transport.turns.PART_SECONDS`.
        """
        if not self._holders:
            return
        now = time.monotonic()
        seconds = now - began
        kind = "connection lost" if frames is None else requests_of(frames[:1])
        part = self._parts.setdefault(kind, [0, 0.0, "", None])
        part[0] += 1
        part[1] += seconds
        part[2], part[3] = connection.address, frames
        if seconds >= STALL_SECONDS:
            what = kind if frames is None else requests_of(frames)
            self._noted += seconds
            seen = self._seen
            where = seen.where if seen is not None and seen.what == what else ()
            self._note(seconds, _Seen(what, connection.address, where, _ids(frames)))

    # The watching thread

    def beat(self, now: float, late: float) -> bool:
        """Send the loop a beat, or inspect it if the last one is unanswered. False when the loop is closed.

        `late` is the delay of the watching thread in seconds.
        """
        loop = self._loop()
        if loop is None or loop.is_closed():
            return False
        if self._beat_taken:
            self._beat_at = now
            self._parts = {}
            self._noted, self._starved = 0.0, 0.0
            self._seen, self._look_after, self._excused = None, LOOK_SECONDS, False
            self._beat_taken = False
            try:
                loop.call_soon_threadsafe(self._take_beat)
            except RuntimeError:  # closed just now
                return False
        elif not loop.is_running():
            self._excused = True  # clients wait, but the loop is not the cause
        else:
            self._starved += late
            if now - self._beat_at >= self._look_after:
                self._look_after *= 2
                self._look(loop)
        return True

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Inspect what the loop's thread runs now."""
        frame = thread_frames().get(self._thread)
        where = calls_of(frame)
        connection, frames = self.running, self.frames
        if connection is not None:
            what = "connection lost" if frames is None else requests_of(frames)
            self._seen = _Seen(what, connection.address, where, _ids(frames))
            return
        if not where and self._seen is not None:
            return
        task = asyncio.current_task(loop)
        if task is None:
            what = "callback"
        else:
            name = task.get_name()
            what = getattr(task.get_coro(), "__qualname__", name) if name.startswith("Task-") else name
        self._seen = _Seen(what, "", where)

    # On the loop

    def _take_beat(self) -> None:
        waited = time.monotonic() - self._beat_at
        if waited - self._noted >= STALL_SECONDS and not self._excused and self._holders:
            seen = self._seen or _Seen()
            parts = sorted(self._parts.items(), key=lambda part: -part[1][1])
            if parts and (not seen.where or sum(part[1][1] for part in parts) >= waited / 2):
                told = (f"{part[0]} chunks of {name}" if part[0] > 1 else name for name, part in parts)
                _, _, client, frames = parts[0][1]
                seen = _Seen(", ".join(list(told)[:KINDS_MAX]), client, seen.where, _ids(frames))
            self._note(waited, seen)
        self._times = self._read_times()  # a thread's own clock is exact; other threads may read it late
        self._beat_taken = True

    def _note(self, seconds: float, seen: _Seen) -> None:
        """Record a stall of `seconds`, unless most of it was waiting for a processor."""
        before, now = self._times, self._read_times()
        cpu = min(seconds, now.cpu - before.cpu)
        waited = min(max(0.0, seconds - cpu), now.waited - before.waited)
        if seconds - waited < STALL_SECONDS:
            return
        others = max(0.0, now.process - before.process - (now.cpu - before.cpu))
        starved = self._starved + _beats.late(time.monotonic())
        stall = Stall(
            at_ms=int(time.time() * 1000),
            what=seen.what,
            client=seen.client,
            wall_ms=round(seconds * 1000, 1),
            cpu_ms=round(cpu * 1000, 1),
            waited_ms=round(waited * 1000, 1),
            others_ms=round(min(seconds, others) * 1000, 1),
            paused_ms=round(min(seconds, max(0.0, starved - cpu)) * 1000, 1),
            where=seen.where,
            ids="" if seen.ids is None else str(seen.ids),
        )
        self.book.add(stall)
        found = _REQUEST.search(seen.what) if seen.client else None
        kind = found[0] if found is not None else "task"
        fields = None if seen.ids is None else seen.ids.fields()
        self._log.write(logging.WARNING, kind, stall.sentence(), fields=fields)
        path = os.environ.get(STALLS_FILE)
        if path:
            _append(path, stall)

    def _read_times(self) -> _Times:
        waited = 0.0
        if self._schedstat >= 0:
            try:
                waited = int(os.pread(self._schedstat, 128, 0).split()[1]) / 1e9
            except (OSError, ValueError, IndexError):  # the kernel does not count it
                self._close()
        return _Times(time.thread_time(), waited, time.process_time())

    def _close(self) -> None:
        if self._schedstat >= 0:
            os.close(self._schedstat)
            self._schedstat = -1


class _Beats:
    """The watching thread: there is one while any loop is watched."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watches: tuple[LoopWatch, ...] = ()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._woke = 0.0

    def add(self, watch: LoopWatch) -> None:
        """Start sending beats to a loop."""
        with self._lock:
            self._watches += (watch,)
            if self._thread is None or not self._thread.is_alive():  # a forked child has no thread
                self._stop = threading.Event()
                self._woke = time.monotonic()
                self._thread = threading.Thread(
                    target=self._run, args=(self._stop,), name="sparrow-stalls", daemon=True
                )
                self._thread.start()

    def remove(self, watch: LoopWatch) -> None:
        """Stop sending beats to a loop; the thread ends with the last one."""
        with self._lock:
            self._watches = tuple(one for one in self._watches if one is not watch)
            ending = None
            if not self._watches:
                ending, self._thread = self._thread, None
                self._stop.set()
        if ending is not None and ending.is_alive():
            ending.join()

    def has(self, watch: LoopWatch) -> bool:
        """Whether a loop gets beats."""
        return any(one is watch for one in self._watches)

    def late(self, now: float) -> float:
        """The delay of the thread in seconds."""
        return max(0.0, now - self._woke - BEAT_SECONDS - LATE_SECONDS)

    def _run(self, stop: threading.Event) -> None:
        while not stop.wait(BEAT_SECONDS):
            if not self._watches and self._ends():
                return
            now = time.monotonic()
            late, self._woke = self.late(now), now
            for watch in self._watches:
                if not watch.beat(now, late):
                    self._drop(watch)

    def _ends(self) -> bool:
        """Whether no loop was added meanwhile; the next one gets a new thread."""
        with self._lock:
            if not self._watches:
                self._thread = None
            return not self._watches

    def _drop(self, watch: LoopWatch) -> None:
        """Remove a loop that was closed without `release`."""
        with self._lock:
            self._watches = tuple(one for one in self._watches if one is not watch)
        watch._close()


def _forked() -> None:
    """A forked child starts empty: the loops belong to its parent."""
    global _beats
    _beats = _Beats()


_beats = _Beats()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
_watches: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopWatch] = weakref.WeakKeyDictionary()


def watch_of(loop: asyncio.AbstractEventLoop) -> LoopWatch:
    """The watch of a loop; servers that share the loop share it. It is off until `hold` is called."""
    found = _watches.get(loop)
    if found is None:
        found = _watches[loop] = LoopWatch(loop)
    return found


def _open_schedstat() -> int:
    """The file in which Linux counts a thread's time, -1 where there is none."""
    try:
        return os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


def _ids(frames: list[RawFrame] | None) -> RequestIds | None:
    return ids_of(frames) if frames else None


def _append(path: str, stall: Stall) -> None:
    line = json.dumps({**stall.to_dict(), "pid": os.getpid()}, separators=(",", ":"))
    try:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(line + "\n")
    except OSError as error:
        logger.warning("%s=%s cannot be written: %s", STALLS_FILE, path, error.strerror)
