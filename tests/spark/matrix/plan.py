"""What a driver is told to run, as JSON, and how large it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Final, Self

from tests.spark.matrix.cells import Cell, Change, Fault, Promise, Scenario

ROWS: Final = 20_000
BATCH: Final = 4_000
RATE: Final = 2_500
"""Rows a second that a task sends in the run that is to be hurt."""
SIZE: Final = 100
"""Bytes of a body."""
SOURCE: Final = "Source"
TARGET: Final = "Target"
CORES: Final = 2
PARTITIONS: Final = 4
"""Of jobs, where they are not as many as cores."""
BROKER_SECONDS: Final = 20


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One run of a scenario."""

    scenario: str
    master: str
    home: str
    """A directory for whatever it keeps: checkpoint, plans, an archive."""
    answer: str
    """The file that says how it ended."""
    source: str
    """Name server of the cluster that is read."""
    target: str
    """Of the one that is written."""
    rows: int = ROWS
    batch: int = BATCH
    partitions: int = PARTITIONS
    tries_exactly_once: bool = False
    """Whether a job is first tried with `delivery=exactlyOnce`, which must refuse it."""
    conf: Mapping[str, str] = field(default_factory=dict)
    read: Mapping[str, str] = field(default_factory=dict)
    write: Mapping[str, str] = field(default_factory=dict)
    replay_tasks: int = 2
    compact_batches: int = 32

    def to_json(self) -> str:
        """In one line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The inverse."""
        return cls(**json.loads(text))


def first_run(cell: Cell, home: str, answer: str, source: str, target: str) -> Plan:
    """The run that is hurt: slow enough to be hit in its middle."""
    executors = cell.fault is Fault.EXECUTOR
    conf = {"spark.executor.memory": "512m"} if executors else {}
    patience = str(1000 * BROKER_SECONDS)
    return Plan(
        scenario=cell.scenario,
        master=f"local-cluster[{CORES},1,512]" if executors else f"local[{CORES},3]",
        home=home,
        answer=answer,
        source=source,
        target=target,
        partitions=CORES if cell.scenario is Scenario.JOB and _by_cores(cell.change) else PARTITIONS,
        conf=conf,
        read={"brokerTimeoutMs": patience, "pollIntervalMs": "50", **_layout(cell, 2)},
        write={
            "brokerTimeoutMs": patience,
            "sendTimeoutMs": "2000",
            "batchBytes": "8192",
            "maxInFlight": "4",
            "rateLimit": str(RATE),
        },
    )


def second_run(cell: Cell, first: Plan, answer: str) -> Plan:
    """The run that goes on, with what is another now; as fast as it can."""
    write = {name: value for name, value in first.write.items() if name != "rateLimit"}
    read = dict(first.read)
    if cell.fault is Fault.LOST:
        write |= {"lostBrokers": "broker-b"}
        if cell.scenario is Scenario.ARCHIVE:  # it reads the cluster that lost a broker
            read |= {"lostBrokers": "broker-b"}
    plan = replace(
        first,
        read=read,
        answer=answer,
        master=f"local[{CORES},3]",
        conf={},
        write=write,
        tries_exactly_once=cell.promise is Promise.AT_LEAST_ONCE,
    )
    match cell.change:
        case Change.FEWER:
            return _on(cell, plan, 1)
        case Change.MORE:
            return _on(cell, plan, 2 * CORES)
        case Change.SETTINGS:
            return replace(
                plan,
                conf={"spark.sql.execution.arrow.maxRecordsPerBatch": "700"},
                read={**plan.read, "batchRows": "900", "prefetchBatches": "0", **_layout(cell, 3)},
                write={**write, "batchBytes": "3000", "maxInFlight": "2"},
                replay_tasks=3,
                compact_batches=2,
            )
        case Change.LARGER:
            larger = replace(plan, batch=5 * BATCH, write={**write, "batchBytes": "262144"})
            return replace(larger, rows=3 * ROWS // 2) if cell.scenario is Scenario.KEYED else larger
        case Change.REMADE:
            return plan


def _by_cores(change: Change) -> bool:
    return change in (Change.FEWER, Change.MORE)


def _on(cell: Cell, plan: Plan, cores: int) -> Plan:
    """On so many cores; batches of Spark's own rows have as many partitions."""
    own = cell.scenario in (Scenario.JOB, Scenario.KEYED)
    return replace(plan, master=f"local[{cores},3]", partitions=cores if own else plan.partitions)


def _layout(cell: Cell, tasks: int) -> dict[str, str]:
    """So many tasks for a batch; a replay has a setting for it."""
    return {} if cell.scenario is Scenario.REPLAY else {"minPartitions": str(tasks)}
