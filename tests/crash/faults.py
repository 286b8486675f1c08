"""What the tests of faults share: servers in a child process, what they acknowledged, small disks."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sparrowmq import aio
from sparrowmq.core.errors import SparrowError
from sparrowmq.protocol.record import StoredRecord, decode_records
from sparrowmq.runtime.child import ChildServers

TOPIC = "Ledger"
LOG_BYTES = 1 << 20
QUEUE_BYTES = 2000
PROGRAM = (sys.executable, "-m", "sparrowmq.cli.main")

Entry = tuple[str, int, int, bytes]
"""Topic, queue id, queue offset, body."""


@dataclass
class Place:
    """Servers over one directory, started again and again."""

    root: Path
    log_file: Path | None = None
    settings: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._log = self.log_file or self.root.with_name(self.root.name + ".log")

    @property
    def store(self) -> Path:
        return self.root / "store"

    @property
    def log(self) -> str:
        """What the servers said so far."""
        return self._log.read_text() if self._log.exists() else ""

    def servers(self) -> ChildServers:
        """New servers, not started yet."""
        broker = {
            "storePathRootDir": str(self.store),
            "listenPort": "0",
            "mappedFileSizeCommitLog": str(LOG_BYTES),
            "mappedFileSizeConsumeQueue": str(QUEUE_BYTES),
            # the machine that runs the tests may have a full disk
            "diskSpaceWarningLevelRatio": "100",
            **self.settings,
        }
        return ChildServers(broker=broker, nameserver={"listenPort": "0"}, log=self._log)


async def create(namesrv: str, topic: str = TOPIC, queues: int = 1) -> None:
    async with aio.Admin(namesrv=namesrv) as admin:
        await admin.topics.create(topic, queues=queues)


async def send(producer: aio.Producer, bodies: Iterable[bytes], topic: str = TOPIC) -> list[Entry]:
    """Send one after the other; what was acknowledged. Raises the first refusal."""
    entries = []
    for body in bodies:
        result = await producer.send(aio.Message(topic, body))
        entries.append((topic, result.queue.queue_id, result.queue_offset, body))
    return entries


async def refusals(producer: aio.Producer, bodies: Iterable[bytes], topic: str = TOPIC) -> list[SparrowError]:
    """Send all at once; why each was refused. AssertionError when one was not."""
    sends = (producer.send(aio.Message(topic, body)) for body in bodies)
    results = await asyncio.gather(*sends, return_exceptions=True)
    for result in results:
        assert isinstance(result, SparrowError), result
    return [result for result in results if isinstance(result, SparrowError)]


async def records(namesrv: str, topic: str = TOPIC) -> list[StoredRecord]:
    """Every record of a topic that can be read, by queue and offset."""
    found: list[StoredRecord] = []
    async with aio.PullConsumer(namesrv=namesrv) as consumer:
        for queue in sorted(await consumer.queues(topic)):
            offset, end = await consumer.min_offset(queue), await consumer.max_offset(queue)
            while offset < end:
                batch = await consumer.fetch_raw(queue, offset)
                assert batch.next_offset > offset
                found += decode_records(batch.buffer)
                offset = batch.next_offset
    return found


async def stored(namesrv: str, *topics: str) -> list[Entry]:
    """Everything that can be read, as entries."""
    found: list[Entry] = []
    for topic in topics or (TOPIC,):
        found += [(topic, r.queue_id, r.queue_offset, r.body) for r in await records(namesrv, topic)]
    return found


def sparrow(
    *arguments: str,
    environment: dict[str, str] | None = None,
    without_privilege: bool = False,
    file_bytes_max: int | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own, to its end."""

    def prepare() -> None:
        if without_privilege:
            drop_privilege()
        if file_bytes_max is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes_max, resource.RLIM_INFINITY))

    return subprocess.run(
        [*PROGRAM, *arguments],
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=prepare,
    )


def drop_privilege() -> None:
    """Let file permissions count for root too, from the next exec on."""
    if os.geteuid() == 0:
        import ctypes

        dac_override, dac_read_search, capbset_drop = 1, 2, 24
        libc = ctypes.CDLL(None, use_errno=True)
        for capability in (dac_override, dac_read_search):
            if libc.prctl(capbset_drop, capability, 0, 0, 0) != 0:
                raise OSError(ctypes.get_errno(), "prctl")


class SmallDisk:
    """A disk that can be filled and emptied while servers run on it."""

    def fill(self, servers: ChildServers) -> None:
        """Nothing more can be stored."""
        raise NotImplementedError

    def free(self, servers: ChildServers) -> None:
        """There is room again."""
        raise NotImplementedError


class Limit(SmallDisk):
    """Files may not become larger: the system refuses as a full disk does, in the middle of a write."""

    reason = "File too large"

    def fill(self, servers: ChildServers) -> None:
        resource.prlimit(servers.pid, resource.RLIMIT_FSIZE, (100_001, resource.RLIM_INFINITY))

    def free(self, servers: ChildServers) -> None:
        unlimited = resource.RLIM_INFINITY
        resource.prlimit(servers.pid, resource.RLIMIT_FSIZE, (unlimited, unlimited))


class Mounted(SmallDisk):
    """A file system of its own, full to the last block."""

    reason = "No space left on device"

    def __init__(self, root: Path) -> None:
        self._ballast = root / "ballast"

    def fill(self, servers: ChildServers) -> None:
        with self._ballast.open("wb", buffering=0) as file:
            try:
                while True:  # until the disk is full
                    file.write(bytes(4096))
            except OSError:
                pass

    def free(self, servers: ChildServers) -> None:
        self._ballast.unlink()


def _mount(directory: Path) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(directory)]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


@contextmanager
def mounted(directory: Path) -> Iterator[bool]:
    """A file system of 4 MiB on `directory` for the block; False where that is not allowed."""
    directory.mkdir(parents=True, exist_ok=True)
    done = _mount(directory)
    try:
        yield done
    finally:
        if done:
            # Lazily: a process that is just ending may still have a file open there.
            subprocess.run(["umount", "--lazy", str(directory)], check=True)
