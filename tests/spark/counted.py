"""The counted harness: numbered messages go in, Parquet comes out, an audit names every difference.

A `Ledger` sends and knows where each message must stand. `audit` reads what a sink wrote with pyarrow, as any
reader would, and compares number, queue and offset. `Gate` stops a task between two of its Arrow batches, so
that a process can be killed there and not somewhere near.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as dataset
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.support import until_sync

import sparrowmq as mq

DIGITS: Final = 12
COLUMNS: Final = ("broker", "queue_id", "queue_offset", "body")
GATE_SECONDS: Final = 300
NAMES_SHOWN: Final = 5


@dataclass
class Ledger:
    """Sends numbered messages to a topic and keeps where each was stored. Numbers count from 0."""

    namesrv: str
    topic: str
    queues: list[str] = field(default_factory=list)
    _codes: list[npt.NDArray[np.int64]] = field(default_factory=list)
    _offsets: list[npt.NDArray[np.int64]] = field(default_factory=list)
    count: int = 0

    def send(self, count: int, *, size: int = 100, batch: int = 500) -> None:
        """`count` more messages with bodies of `size` bytes, in turn over the queues that are there now."""
        with mq.Producer("counted", namesrv=self.namesrv) as producer:
            queues = producer.queues(self.topic)
            shares = np.array_split(np.arange(self.count, self.count + count), len(queues))
            for queue, numbers in zip(queues, shares, strict=True):
                for start in range(0, len(numbers), batch):
                    part = numbers[start : start + batch]
                    bodies = [b"%0*d" % (DIGITS, number) + b"." * (size - DIGITS) for number in part]
                    messages = [mq.Message(self.topic, body, tags="counted") for body in bodies]
                    result = producer.send_batch(messages, queue=queue)
                    self._note(f"{queue.broker_name}/{queue.queue_id}", result.queue_offset, len(part))

    def _note(self, queue: str, offset: int, count: int) -> None:
        if queue not in self.queues:
            self.queues.append(queue)
        self._codes.append(np.full(count, self.queues.index(queue)))
        self._offsets.append(np.arange(offset, offset + count))
        self.count += count

    @property
    def codes(self) -> npt.NDArray[np.int64]:
        """For each number the place of its queue in `queues`."""
        return np.concatenate([np.empty(0, np.int64), *self._codes])

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """For each number its offset in its queue."""
        return np.concatenate([np.empty(0, np.int64), *self._offsets])


@dataclass(frozen=True)
class Verdict:
    """What an audit found, as numbers of messages by queue; everything empty when all is well."""

    rows: int
    missing: dict[str, list[int]] = field(default_factory=dict)
    duplicate: dict[str, list[int]] = field(default_factory=dict)
    misplaced: dict[str, list[int]] = field(default_factory=dict)
    """Rows that name another queue or offset than the one the message was stored at."""
    unknown: list[int] = field(default_factory=list)
    """Numbers that nobody sent."""

    @property
    def faults(self) -> str:
        """One line for each kind and queue; empty when there is none."""
        lines = []
        for kind in ("missing", "duplicate", "misplaced"):
            for queue, numbers in getattr(self, kind).items():
                lines.append(f"{queue}: {len(numbers)} {kind}: {numbers[:NAMES_SHOWN]}")
        if self.unknown:
            lines.append(f"{len(self.unknown)} never sent: {self.unknown[:NAMES_SHOWN]}")
        return "\n".join(lines)


def read_parquet(directory: Path | list[str], columns: Sequence[str] = COLUMNS) -> pa.Table:
    """All rows of a directory (or list) of Parquet files, as a reader without Spark sees them."""
    found = dataset.dataset(directory, format="parquet")
    if not found.files:
        return pa.table({name: pa.array([], _KINDS[name]) for name in columns})
    return found.to_table(list(columns))


_KINDS: Final = {
    "broker": pa.string(),
    "queue_id": pa.int32(),
    "queue_offset": pa.int64(),
    "body": pa.binary(),
}


def audit(ledger: Ledger, table: pa.Table) -> Verdict:
    """Compare `table`, with `COLUMNS`, against what was sent."""
    texts = pc.utf8_slice_codeunits(table["body"].cast(pa.string()), 0, DIGITS)
    numbers = texts.cast(pa.int64()).to_numpy()
    known = numbers < ledger.count
    codes, offsets = ledger.codes, ledger.offsets
    counts = np.bincount(numbers[known], minlength=ledger.count)
    names = pc.binary_join_element_wise(table["broker"], table["queue_id"].cast(pa.string()), "/")
    found = pc.index_in(names, pa.array(ledger.queues, pa.string())).fill_null(-1).to_numpy()
    rows = numbers[known]
    wrong = (found[known] != codes[rows]) | (table["queue_offset"].to_numpy()[known] != offsets[rows])

    def by_queue(which: npt.NDArray[np.int64]) -> dict[str, list[int]]:
        return {
            queue: which[codes[which] == code].tolist()
            for code, queue in enumerate(ledger.queues)
            if (codes[which] == code).any()
        }

    return Verdict(
        rows=len(numbers),
        missing=by_queue(np.flatnonzero(counts == 0)),
        duplicate=by_queue(np.flatnonzero(counts > 1)),
        misplaced=by_queue(rows[wrong]),
        unknown=numbers[~known].tolist(),
    )


@dataclass(frozen=True)
class Gate:
    """Holds tasks between two Arrow batches while it is closed. Works across processes, through files."""

    directory: Path

    def close(self) -> None:
        """Tasks stop here from now on."""
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "closed").touch()

    def open(self) -> None:
        """Let them go."""
        (self.directory / "closed").unlink(missing_ok=True)
        for mark in self.directory.glob("waiting-*"):
            mark.unlink()

    @property
    def waiting(self) -> bool:
        """Whether a task stands at the closed gate."""
        return any(self.directory.glob("waiting-*"))

    def wait(self, alive: Callable[[], object] = lambda: True) -> None:
        """Wait for a task to stand there. AssertionError when `alive()` becomes false before."""

        def stands() -> bool:
            assert self.waiting or alive(), "it ended before a task came to the gate"
            return self.waiting

        until_sync(stands, GATE_SECONDS)

    def through(self, frame: DataFrame) -> DataFrame:
        """`frame`, its tasks going through the gate."""
        directory, seconds = str(self.directory), GATE_SECONDS

        def passing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import os
            import time
            from pathlib import Path

            closed = Path(directory) / "closed"
            for number, batch in enumerate(batches):
                if number and closed.exists():
                    mark = Path(directory) / f"waiting-{os.getpid()}"
                    mark.touch()
                    deadline = time.monotonic() + seconds
                    while closed.exists():
                        if time.monotonic() > deadline:
                            raise TimeoutError(f"the gate stayed closed for {seconds} s")
                        time.sleep(0.01)
                yield batch

        return frame.mapInArrow(passing, frame.schema)


class ToParquet:
    """The sink that promises: a directory for each micro-batch, overwritten when the batch runs again."""

    def __init__(self, directory: Path, before: Callable[[int], None] = lambda batch_id: None) -> None:
        self.directory = directory
        self.rows: dict[int, int] = {}
        self._before = before

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        self._before(batch_id)
        target = self.directory / f"batch={batch_id:08d}"
        frame.write.mode("overwrite").parquet(str(target))
        found = dataset.dataset(target, format="parquet")
        self.rows[batch_id] = found.count_rows() if found.files else 0

    @property
    def total(self) -> int:
        """Rows of the batches that this object has written."""
        return sum(self.rows.values())


@dataclass
class Run:
    """One query over a topic and what it wrote, over all its restarts."""

    spark: SparkSession
    ledger: Ledger
    root: Path
    options: dict[str, str] = field(default_factory=dict)
    query: StreamingQuery | None = None
    before: int = 0
    """Rows that sinks of other processes wrote."""

    def __post_init__(self) -> None:
        self.gate = Gate(self.root / "gate")
        self.out = self.root / "out"
        self.checkpoint = self.root / "checkpoint"
        self.out.mkdir(parents=True, exist_ok=True)
        self.sink = ToParquet(self.out)

    def frame(self) -> DataFrame:
        """The stream: small Arrow batches, through the gate."""
        options = {
            "nameServer": self.ledger.namesrv,
            "subscribe": self.ledger.topic,
            "startingOffsets": "earliest",
            "batchRows": "100",
            "includeProperties": "false",
            **self.options,
        }
        return self.gate.through(self.spark.readStream.format("rocketmq").options(**options).load())

    def start(self, *, available_now: bool = False) -> StreamingQuery:
        """Start the query, or start it again from its checkpoint."""
        writer = self.frame().writeStream.foreachBatch(self.sink)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        if available_now:
            writer = writer.trigger(availableNow=True)
        self.query = writer.start()
        return self.query

    def check(self) -> bool:
        """True while the query runs. AssertionError with its error when it failed."""
        assert self.query is not None
        error = self.query.exception()
        assert error is None, error
        return bool(self.query.isActive)

    def finish(self, seconds: int = GATE_SECONDS) -> None:
        """Wait for an AvailableNow query to end well."""
        assert self.query is not None
        try:
            assert self.query.awaitTermination(seconds), f"still running: {self.query.status}"
            self.check()
        finally:
            self.query.stop()

    def drain(self, seconds: int = GATE_SECONDS) -> None:
        """Wait until a running query has written as many rows as were sent."""
        until_sync(lambda: self.check() and self.before + self.sink.total >= self.ledger.count, seconds)

    def verdict(self) -> Verdict:
        """The audit of what was written so far."""
        return audit(self.ledger, read_parquet(self.out))


def python_workers(jvm: int) -> list[psutil.Process]:
    """The Python workers that a JVM's daemons have forked."""
    found: list[psutil.Process] = []
    for process in descendants(jvm):
        if "pyspark.daemon" in process_line(process):
            found += process.children()
    return found


def descendants(pid: int) -> list[psutil.Process]:
    """All processes below one."""
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def process_line(process: psutil.Process) -> str:
    """The command line of a process; empty when it is gone."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def kill(processes: Iterable[psutil.Process]) -> int:
    """SIGKILL each; how many there were."""
    count = 0
    for process in processes:
        try:
            process.kill()
            count += 1
        except psutil.NoSuchProcess:
            pass
    return count


def jvm_of(spark: SparkSession) -> int:
    """The process id of a session's JVM, which is this process's child."""
    gateway: Any = spark.sparkContext._gateway
    return int(gateway.proc.pid)
