"""The servers of one round, and what is in them: killed, frozen, started again, lost and asked."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as dataset
from tests.spark.matrix.cells import Cell, Fault, Scenario
from tests.spark.matrix.plan import ROWS, SIZE, SOURCE, TARGET
from tests.support import free_port, until_sync

import sparrowmq as mq
from sparrowmq import aio
from sparrowmq.columnar.decode import decode
from sparrowmq.columnar.schema import arrow_schema
from sparrowmq.core.errors import SparrowError
from sparrowmq.runtime.child import ChildServers

FIRST: Final = "broker-a"
SECOND: Final = "broker-b"
QUEUES: Final = 4
_BODIES: Final = arrow_schema(("body",))
_DIGITS: Final = 9

Numbers = npt.NDArray[np.int64]


class Cluster:
    """A name server with `broker-a` in one process, perhaps `broker-b` in another; each on ports for good."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._ports: dict[str, str] = {}
        self._children: dict[str, ChildServers] = {}
        self._consumer: mq.PullConsumer | None = None
        self.namesrv = f"127.0.0.1:{free_port()}"

    def start(self, name: str = FIRST) -> None:
        """Start a broker, or start it again on its store."""
        port = self._ports.setdefault(name, str(free_port()))
        settings = {
            "brokerName": name,
            "storePathRootDir": str(self._root / name),
            "listenPort": port,
            "mappedFileSizeCommitLog": str(16 << 20),
            "diskSpaceWarningLevelRatio": "100",
        }
        alone = {"listenPort": self.namesrv.rpartition(":")[2]}
        if name != FIRST:
            settings["namesrvAddr"] = self.namesrv
        log = self._root / f"{name}.log"
        self._root.mkdir(parents=True, exist_ok=True)
        child = ChildServers(settings, alone if name == FIRST else None, log=log)
        self._children[name] = child
        child.start()
        until_sync(lambda: name in self._known())

    def _known(self) -> Iterable[str]:
        with mq.Admin(self.namesrv) as admin:
            return admin.brokers.cluster_info().brokers

    def kill(self, name: str = FIRST) -> None:
        """kill -9."""
        self._children[name].kill()

    def freeze(self, name: str = FIRST) -> None:
        """Let its process stand still."""
        os.kill(self._children[name].pid, signal.SIGSTOP)

    def thaw(self, name: str = FIRST) -> None:
        """Let it go on."""
        os.kill(self._children[name].pid, signal.SIGCONT)

    def stop(self) -> None:
        """End everything."""
        if self._consumer is not None:
            self._consumer.close()
        for name in sorted(self._children, reverse=True):
            if self._children[name].running:
                self.thaw(name)
            self._children.pop(name).kill()

    def create(self, topic: str, queues: int = QUEUES) -> None:
        """Make a topic on every broker that runs."""
        with mq.Admin(self.namesrv) as admin:
            admin.topics.create(topic, queues=queues)

    def remake(self, topic: str) -> None:
        """Delete a topic and make it again, empty."""
        with mq.Admin(self.namesrv) as admin:
            admin.topics.delete(topic)
            until_sync(lambda: topic not in admin.topics.list())
            admin.topics.create(topic, queues=QUEUES)
        until_sync(lambda: self.count(topic) == 0)

    def fill(self, topic: str, first: int, count: int) -> dict[str, Numbers]:
        """Numbered messages, in turn over the queues; the numbers by broker."""
        held: dict[str, list[Numbers]] = {}
        with mq.Producer("filler", namesrv=self.namesrv) as producer:
            queues = producer.queues(topic)
            shares = np.array_split(np.arange(first, first + count), len(queues))
            for queue, share in zip(queues, shares, strict=True):
                held.setdefault(queue.broker_name, []).append(share)
                for start in range(0, len(share), 1000):
                    part = share[start : start + 1000]
                    producer.send_batch([mq.Message(topic, body(int(n))) for n in part], queue=queue)
        return {name: np.concatenate(parts) for name, parts in held.items()}

    def count(self, topic: str) -> int:
        """How many messages a topic's queues have ever got, at the brokers that run."""
        if self._consumer is None:
            self._consumer = mq.PullConsumer("matrix", namesrv=self.namesrv)
            self._consumer.start()
        asked = [one for one in self._consumer.queues(topic) if self._children[one.broker_name].running]
        return sum(map(self._consumer.max_offset, asked))

    def numbers(self, topic: str, brokers: Sequence[str] = (FIRST, SECOND)) -> Numbers:
        """The numbers of all messages that some brokers hold."""
        return asyncio.run(_numbers(self.namesrv, topic, brokers))


async def _numbers(namesrv: str, topic: str, brokers: Sequence[str]) -> Numbers:
    found: list[Numbers] = []
    async with aio.PullConsumer(namesrv=namesrv) as consumer:
        for queue in await consumer.queues(topic):
            if queue.broker_name not in brokers:
                continue
            offset, end = await consumer.min_offset(queue), await consumer.max_offset(queue)
            while offset < end:
                raw = await consumer.fetch_raw(queue, offset, max_messages=8000, max_bytes=4 << 20)
                found.append(numbers_of(decode(raw.buffer, _BODIES)["body"]))
                offset = raw.next_offset
    return np.concatenate([np.empty(0, np.int64), *found])


def body(number: int) -> bytes:
    """The body of a message; drivers make the same."""
    return (b"m%0*d" % (_DIGITS, number)).ljust(SIZE, b"x")


def numbers_of(bodies: pa.Array | pa.ChunkedArray) -> Numbers:
    """The inverse, for many."""
    texts = pc.utf8_slice_codeunits(bodies.cast(pa.string()), 1, 1 + _DIGITS)
    found: Numbers = texts.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return found


def archived(directory: Path) -> Numbers:
    """What an archive shows to any reader."""
    files = dataset.dataset(directory / "data", format="parquet", partitioning="hive")
    return numbers_of(files.to_table(["body"])["body"]) if files.files else np.empty(0, np.int64)


@dataclass
class World:
    """Clusters and topics for a cell, below `root`. Of one cluster source and target are the same."""

    cell: Cell
    root: Path
    source: Cluster = field(init=False)
    target: Cluster = field(init=False)
    held: dict[str, Numbers] = field(default_factory=dict)
    """What the source holds, by broker."""

    def __enter__(self) -> Self:
        self.source = Cluster(self.root / "source")
        two = self.cell.scenario is Scenario.MIRROR
        self.target = Cluster(self.root / "target") if two else self.source
        try:
            self._begin()
        except BaseException:
            self._stop()
            raise
        return self

    def _begin(self) -> None:
        lost, archive = self.cell.fault is Fault.LOST, self.cell.scenario is Scenario.ARCHIVE
        self.source.start()
        if self.target is not self.source:
            self.target.start()
        if lost and archive:
            self.target.start(SECOND)
        # Before a second broker comes, unless that is read; as many queues as the target has.
        self.source.create(SOURCE, 2 * QUEUES if lost and not archive else QUEUES)
        if lost and not archive:
            self.target.start(SECOND)
        if self.writes_a_topic:
            # Tasks of unrouted rows fill one queue after the other: each broker must have one of the first.
            routed = self.cell.scenario in (Scenario.MIRROR, Scenario.REPLAY)
            self.target.create(self.topic, 1 if lost and not routed else QUEUES)
        if self.cell.scenario not in (Scenario.JOB, Scenario.KEYED):
            self.held = self.source.fill(SOURCE, 0, ROWS)

    @property
    def writes_a_topic(self) -> bool:
        """Whether what arrives is in a topic."""
        return self.cell.scenario is not Scenario.ARCHIVE

    @property
    def topic(self) -> str:
        """The topic that is written: mirrors keep the name."""
        return SOURCE if self.cell.scenario is Scenario.MIRROR else TARGET

    @property
    def home(self) -> Path:
        """What the scenario keeps."""
        return self.root / "home"

    def progress(self) -> int:
        """How many rows have arrived, about; fewer than before while brokers do not answer."""
        if not self.writes_a_topic:
            return _published(self.home / "archive")
        try:
            return self.target.count(self.topic)
        except SparrowError:
            return 0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        self.source.stop()
        if self.target is not self.source:
            self.target.stop()


def _published(archive: Path) -> int:
    """Rows of an archive, by the footers of its files."""
    try:
        if not (archive / "data").exists():
            return 0
        return int(dataset.dataset(archive / "data", format="parquet", partitioning="hive").count_rows())
    except (OSError, pa.ArrowInvalid):  # a merge takes files away under a reader
        return 0
