"""The search through all crashes of all scripts, and what it counted.

`python -m tests.simulation.search` runs all of it; `… SCRIPT …` only these scripts, `--sample N` only about
one in N histories, `--faults N` one in N failing operations, `--again N` crashes in the first start after one
in N crashes. `--count` opens nothing and prints how many there are, which is what docs/quality.md says.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.broker.doubles import FakeClock
from tests.simulation.disk import Beside, Fault, SimulatedDisk
from tests.simulation.histories import History, histories, write
from tests.simulation.model import (
    Event,
    Expected,
    Seen,
    Told,
    differences,
    early,
    expected,
    faults,
    forgotten,
    handed_out_in_disorder,
    handed_out_wrongly,
    look,
    undelivered,
)
from tests.simulation.run import COMMIT, Run, end_ext
from tests.simulation.scripts import CHUNKS, HOUR_MS, SCRIPTS, YEAR_MS
from tests.simulation.server import SimulatedBroker

from sparrowmq.core.errors import SparrowError
from sparrowmq.core.names import is_system_topic
from sparrowmq.core.randomness import RANDOM
from sparrowmq.files import disk as files
from sparrowmq.protocol.codes import RequestCode as Code

T0 = 1_700_000_000_000
SHIFTS = (1000,) * 6 + (-HOUR_MS,) * 4 + (0,) * 3 + (24 * HOUR_MS,) * 2 + (YEAR_MS,)
"""How the clock of the next start differs from that of the crash: a little later, back, stopped, ahead."""

KINDS = ("EIO", "ENOSPC", "short", "full")
"""What goes wrong in runs that go on: one call fails, the disk is full from then on."""

SETTLE_MS = 600_000


def scratch() -> Path:
    """A directory in memory, where there is one."""
    memory = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="sparrow-disk-", dir=memory if memory.is_dir() else None))


class Complaints(logging.Handler):
    """Exceptions that a broker logged because it did not expect them."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, SparrowError | OSError):
            self.found.append(f"{record.getMessage()}: {error!r}")


@contextmanager
def listening() -> Iterator[Complaints]:
    """Collect complaints; nothing is printed."""
    logger, handler = logging.getLogger("sparrowmq"), Complaints()
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield handler
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


@dataclass(frozen=True, slots=True)
class Finding:
    """A promise that was broken, and by which history."""

    script: str
    sync: bool
    fault: str
    operation: str
    what: str
    at: int
    text: str

    def __str__(self) -> str:
        mode = "SYNC_FLUSH" if self.sync else "ASYNC_FLUSH"
        fault = f", {self.fault}" if self.fault else ""
        return f"{self.script} {mode}{fault}: {self.what} at {self.at}, before {self.operation}: {self.text}"


@dataclass
class Result:
    """What a search did."""

    histories: int = 0
    states: int = 0
    runs: int = 0
    findings: list[Finding] = field(default_factory=list)


@dataclass
class Opened:
    """A state of the disk, opened: what was there, what was delivered, what a second start found wrong."""

    problems: list[str] = field(default_factory=list)
    first: Seen | None = None
    on_time: Seen | None = None
    settled: Seen | None = None
    doubled: set[tuple[str, bytes]] = field(default_factory=set)
    open_halves: set[tuple[str, bytes]] | None = None
    """Topics and bodies of the half messages whose producers would be asked."""
    handed_out: Counter[tuple[str, bytes]] = field(default_factory=Counter)
    """What the group of a topic still got by POP, hours later."""
    in_order: dict[str, list[bytes]] = field(default_factory=dict)
    """The same by ordered POP, by topic."""


class Search:
    """Runs scripts and opens what they may leave. `scratch` is its own directory."""

    def __init__(self, directory: Path, *, thorough: bool = True) -> None:
        self._directory = directory
        self._thorough = thorough
        self._opened: dict[tuple[bytes, int], Opened] = {}
        self._made = 0
        self.result = Result()

    def _fresh(self) -> Path:
        self._made += 1
        path = self._directory / f"{self._made}"
        path.mkdir(parents=True)
        return path

    # Runs

    async def run(self, name: str, *, sync: bool, fault: Fault | None = None) -> Run:
        """One run of a script on a new disk."""
        RANDOM.seed(7)
        root = self._fresh()
        clock = FakeClock(T0)
        simulated = SimulatedDisk(root, fault, clock=clock)
        run = Run(simulated, root / "store", clock, sync=sync)
        self.result.runs += 1
        with files.use(Beside(simulated)), listening() as complaints:
            try:
                await run.start()
                await (SCRIPTS | CHUNKS)[name](run)
            finally:
                if not run.down:
                    await run.broker.kill()
                simulated.mark("end")
                simulated.end()
        shutil.rmtree(root)
        for text in complaints.found:
            self._found(name, run, History(-1, False, "while running", {}, 0), text)
        return run

    def _found(self, name: str, run: Run, history: History, text: str) -> None:
        disk = run.disk
        operation = disk.moments[history.at].what if disk.moments else ""
        fault = f"{disk.fault.kind} in {disk.faulted}" if disk.fault is not None else ""
        self.result.findings.append(Finding(name, run.sync, fault, operation, history.what, history.at, text))

    async def count(self, name: str, *, sync: bool) -> None:
        """How many crashes there are, and how many states of the disk they leave; nothing is opened."""
        run = await self.run(name, sync=sync)
        for at in range(len(run.disk.moments)):
            for history in histories(run.disk.moments, at):
                self.result.histories += 1
                self._opened.setdefault((history.name, run.disk.moments[at].clock), Opened())
        self.result.states += len(self._opened)
        self._opened.clear()

    # Histories

    async def crashes(self, name: str, *, sync: bool, chosen: Chosen) -> None:
        """All crashes of a script that goes well."""
        run = await self.run(name, sync=sync)
        for at in range(len(run.disk.moments)):
            for history in histories(run.disk.moments, at, thorough=self._thorough):
                await self._judge(name, run, history, chosen)

    async def lost_sectors(self, name: str, *, sync: bool) -> None:
        """Power cuts that lose a single sector of those that were not forced to disk."""
        run = await self.run(name, sync=sync)
        for at in range(len(run.disk.moments)):
            for history in histories(run.disk.moments, at):
                if history.what.startswith("power cut, sector "):
                    await self._judge(name, run, history, Chosen())

    async def again(self, name: str, *, sync: bool, chosen: Chosen) -> None:
        """Crashes in the first start after some crashes: what recovery does may be cut short, too."""
        run = await self.run(name, sync=sync)
        for at in range(len(run.disk.moments)):
            for history in histories(run.disk.moments, at, thorough=False):
                if chosen.take(history.name):
                    await self._crash_again(name, run, history)

    async def _crash_again(self, name: str, run: Run, first: History) -> None:
        root = self._fresh()
        write(first.state, root / "disk")
        clock = FakeClock(run.disk.moments[first.at].clock)
        simulated = SimulatedDisk(root / "disk", clock=clock)
        broker = SimulatedBroker(root / "disk" / "store", clock)
        self.result.runs += 1
        with files.use(Beside(simulated)), listening():
            await broker.start()
            await broker.kill()
            simulated.mark("end")
            simulated.end()
        shutil.rmtree(root)
        for at in range(len(simulated.moments)):
            for second in histories(simulated.moments, at, thorough=False):
                what = f"{first.what}, then {second.what} at {at}"
                power = first.power or second.power
                history = History(first.at, power, what, second.state, first.known)
                await self._judge(name, run, history, Chosen(1))

    async def broken(self, name: str, *, sync: bool, chosen: Chosen) -> None:
        """The script again for each operation and each way it can fail, with crashes at its end."""
        count = (await self.run(name, sync=sync)).disk.count
        for number in range(count):
            for kind in KINDS:
                if not chosen.take(f"{name}{sync}{number}{kind}".encode()):
                    continue
                fault = Fault(number, "ENOSPC" if kind == "full" else kind, kind == "full")
                run = await self.run(name, sync=sync, fault=fault)
                if not run.disk.faulted:
                    continue
                last = len(run.disk.moments) - 1
                for history in histories(run.disk.moments, last, thorough=False):
                    await self._judge(name, run, history, Chosen(1))

    async def _judge(self, name: str, run: Run, history: History, chosen: Chosen) -> None:
        state = history.name
        if not chosen.take(state):
            return
        self.result.histories += 1
        told = run.told
        wanted = expected(told, history.at, history.known, power=history.power)
        shown = [moment.clock for moment in run.disk.moments[: history.at + 1]]
        clock, wanted.latest = shown[-1], max(shown)
        opened = self._opened.get((state, clock))
        if opened is None:
            opened = self._opened[state, clock] = await self._open(history, clock, told)
            self.result.states += 1
        for text in (*opened.problems, *self._broken_promises(opened, wanted)):
            self._found(name, run, history, text)

    def _broken_promises(self, opened: Opened, wanted: Expected) -> Iterator[str]:
        if opened.first is not None:
            yield from faults(opened.first, wanted)
        if opened.first is not None and opened.open_halves is not None:
            yield from forgotten(opened.first, opened.open_halves, wanted)
        if opened.on_time is not None:
            yield from early(opened.on_time, wanted, max(wanted.latest, opened.on_time.now))
        if opened.settled is not None:
            yield from undelivered(opened.settled, wanted)
        if opened.settled is not None:
            yield from handed_out_wrongly(opened.handed_out, wanted)
        for topic, bodies in opened.in_order.items():
            yield from handed_out_in_disorder(bodies, topic, wanted)
        for key in opened.doubled:
            # a power cut may tear a write: a commit without the record that says so, if nobody was told
            message = wanted.messages[key]
            if not wanted.power or (message.ended == "commit" and wanted.must_be_there(message)):
                yield f"half message {key[1][:9]!r} of {key[0]} was committed, and could be again"

    # Opening

    async def _open(self, history: History, clock_ms: int, told: Told) -> Opened:
        """Open a state with the shipped code, twice, and use it in between."""
        opened, root = Opened(), self._fresh()
        shift = SHIFTS[history.name[0] % len(SHIFTS)]
        clock = FakeClock(clock_ms + shift)
        write(history.state, root / "disk")
        store = root / "disk" / "store"
        with listening() as complaints:
            try:
                await self._live(opened, store, clock, told, stop=bool(history.name[1] & 1))
            except Exception as error:
                opened.problems.append(f"opened {shift} ms later: {type(error).__name__}: {error}")
        opened.problems += complaints.found
        shutil.rmtree(root)
        return opened

    async def _live(self, opened: Opened, store: Path, clock: FakeClock, told: Told, *, stop: bool) -> None:
        due = max((event.data.get("due", 0) for event in told.events), default=0)
        deleted = {event.data["name"] for event in told.events if event.kind == "deletion"}
        halves = [event for event in told.events if event.kept and event.data.get("kind") == "half"]
        broker = SimulatedBroker(store, clock)
        await broker.start()
        try:
            opened.first = look(broker)
            opened.open_halves = broker.open_halves()
            await broker.deliver()
            opened.on_time = look(broker)
            clock.ms = max(clock.ms, due) + SETTLE_MS
            await broker.deliver()
            opened.settled = look(broker)
            await _pop_the_rest(opened, broker, told)
            opened.problems += await _send_to_each(broker, opened.settled)
            opened.doubled = await _end_again(broker, halves)
            opened.problems += await _delete_again(broker, deleted)
            last = look(broker)
        except BaseException:
            await broker.kill()
            raise
        await (broker.stop() if stop else broker.kill())
        again = SimulatedBroker(store, clock)
        await again.start()
        try:
            opened.problems += differences(last, look(again))
        finally:
            await again.kill()


async def _pop_the_rest(opened: Opened, broker: SimulatedBroker, told: Told) -> None:
    """Receive and keep everything that the groups of POP have not acknowledged."""
    popped = {(event.data["name"], event.data["ordered"]) for event in told.events if event.kind == "pop"}
    for topic, ordered in sorted(popped):
        await broker.revive()
        if ordered:
            bodies = opened.in_order[topic] = await broker.pop_all_in_order(topic, "o")
        else:
            bodies = await broker.pop_all(topic, "g")
        opened.handed_out.update((topic, body) for body in bodies)
        broker.parts.topics.save()
        await broker.save_offsets()


async def _send_to_each(broker: SimulatedBroker, seen: Seen) -> list[str]:
    """One more message for each topic takes the place behind its end."""
    problems = []
    for topic in sorted(seen.topics):
        if is_system_topic(topic) or topic.startswith("%") or topic == "broker-a":
            continue
        end = seen.ends.get((topic, 0), (0, 0))[1]
        ext = {
            "a": "p", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": clock_text(broker), "h": 0,
            "i": "UNIQ_KEY\x01LAST\x02", "j": 0, "k": "false", "m": "false",
        }  # fmt: skip
        answer = await broker.call(Code.SEND_MESSAGE_V2, ext, b"last")
        if answer is None or answer.code != 0:
            problems.append(f"{topic} takes no message after the start: {answer and answer.remark}")
        elif int(answer.ext["queueOffset"]) != end:
            problems.append(f"{topic} ends at {end}, the next message got {answer.ext['queueOffset']}")
    return problems


async def _end_again(broker: SimulatedBroker, halves: list[Event]) -> set[tuple[str, bytes]]:
    """Commit as a producer does that is asked again; the messages that are shown twice then."""
    for event in halves:
        ext = end_ext(event.data["half_offset"], event.data["position"], COMMIT)
        await broker.call(Code.END_TRANSACTION, ext)
    shown = Counter(
        (place[0], r.body) for place, found in look(broker).queues.items() for r in found.values()
    )
    named = [(event.data["topic"], event.data["body"]) for event in halves]
    return {key for key in named if shown[key] > 1}


async def _delete_again(broker: SimulatedBroker, names: set[str]) -> list[str]:
    """A topic that is deleted and made again after the start is empty."""
    problems = []
    for name in sorted(names):
        if name not in look(broker).topics:
            continue
        answer = await broker.call(Code.DELETE_TOPIC_IN_BROKER, {"topic": name})
        if answer is None or answer.code != 0:
            problems.append(f"{name} cannot be deleted after the start: {answer and answer.remark}")
    for name in sorted(names):
        ext = {"topic": name, "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
        answer = await broker.call(Code.UPDATE_AND_CREATE_TOPIC, ext | {"topicFilterType": "SINGLE_TAG"})
        if answer is None or answer.code != 0:
            problems.append(f"{name} cannot be made again after the start: {answer and answer.remark}")
        elif left := look(broker).queues.get((name, 0)):
            problems.append(f"{name} was deleted and made again, and has {len(left)} old messages")
    return problems


def clock_text(broker: SimulatedBroker) -> str:
    return str(broker.clock.ms)


@dataclass(frozen=True, slots=True)
class Chosen:
    """About one in `every` things, always the same ones; `turn` takes others."""

    every: int = 1
    turn: int = 0

    def take(self, name: bytes) -> bool:
        """Whether a thing with this name is taken."""
        if self.every == 1:
            return True
        value = int.from_bytes(name[:6], "big") if len(name) == 16 else hash_of(name)
        return value % self.every == self.turn % self.every


def hash_of(name: bytes) -> int:
    """The same number for the same name in every process."""
    value = 2166136261
    for byte in name:
        value = (value ^ byte) * 16777619 % 2**32
    return value >> 7


async def search(
    names: list[str],
    *,
    every: int,
    fault_every: int,
    again_every: int = 0,
    turn: int = 0,
    thorough: bool = True,
) -> Result:
    """Search scripts in both modes of flushing: one in `every` histories, one in `fault_every` failing
    operations, crashes in the start after one in `again_every` crashes; 0 for none.
    """
    directory = scratch()
    found = Search(directory, thorough=thorough)
    try:
        for name in names:
            for sync in (True, False):
                if every:
                    await found.crashes(name, sync=sync, chosen=Chosen(every, turn))
                if fault_every:
                    await found.broken(name, sync=sync, chosen=Chosen(fault_every, turn))
                if again_every:
                    await found.again(name, sync=sync, chosen=Chosen(again_every, turn))
                found._opened.clear()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return found.result


async def lost_sectors(name: str, *, sync: bool) -> Result:
    """Power cuts in a script, each of which loses one sector."""
    directory = scratch()
    found = Search(directory)
    try:
        await found.lost_sectors(name, sync=sync)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return found.result


async def count(names: list[str]) -> Result:
    """All crashes of scripts that go well, and all states of the disk that they leave."""
    directory = scratch()
    found = Search(directory)
    try:
        for name in names:
            for sync in (True, False):
                await found.count(name, sync=sync)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return found.result


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("scripts", nargs="*")
    parser.add_argument("--sample", type=int, default=1, help="one in so many histories")
    parser.add_argument("--faults", type=int, default=1, help="one in so many faults; 0 for none")
    parser.add_argument("--again", type=int, default=200, help="a second crash after one in so many")
    parser.add_argument("--turn", type=int, default=0, help="which ones of a sample")
    parser.add_argument("--count", action="store_true", help="count all histories, open nothing")
    chosen = parser.parse_args()
    started = time.monotonic()
    names = chosen.scripts or list(SCRIPTS)
    if chosen.count:
        result = asyncio.run(count(names))
    else:
        every, faults, again = chosen.sample, chosen.faults, chosen.again
        result = asyncio.run(
            search(names, every=every, fault_every=faults, again_every=again, turn=chosen.turn)
        )
    kinds = Counter((f.script, f.sync, _kind(f.text)) for f in result.findings)
    shown: dict[tuple[str, bool, str], Finding] = {}
    for finding in result.findings:
        shown.setdefault((finding.script, finding.sync, _kind(finding.text)), finding)
    for key, finding in shown.items():
        print(f"{kinds[key]:6} {finding}")
    print(
        f"{result.histories} histories, {result.states} distinct states of the disk, {result.runs} runs, "
        f"{len(result.findings)} broken promises, {time.monotonic() - started:.0f} s"
    )


def _kind(text: str) -> str:
    return "".join(letter for letter in text if not letter.isdigit())[:60]


if __name__ == "__main__":
    main()
