"""The reconciliation sees every fault there can be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparrowmq.cli.demo.reconcile import Parquet, Reconciliation, read_parquet

GOOD = Parquet(
    rows=6, duplicates=0, missing=0, strangers=0, missing_shown=[], duplicates_shown=[], queue_gaps=[]
)
BALANCED = Reconciliation(expected=6, sent=6, stored=6, parquet=GOOD, counted=6)


def write(directory: Path, batch: int, rows: list[tuple[int, str, int]]) -> None:
    table = pa.table(
        {
            "row": pa.array([row for row, _, _ in rows], pa.int32()),
            "queue": [queue for _, queue, _ in rows],
            "queue_offset": pa.array([offset for _, _, offset in rows], pa.int64()),
            "other": ["x"] * len(rows),
        }
    )
    path = directory / f"batch={batch:08d}"
    path.mkdir()
    pq.write_table(table, path / "part-0.parquet")


def test_all_is_well(tmp_path: Path) -> None:
    write(tmp_path, 0, [(1, "b/0", 0), (2, "b/1", 0), (3, "b/0", 1)])
    write(tmp_path, 1, [(4, "b/1", 1), (5, "b/0", 2), (6, "b/0", 3)])
    assert read_parquet(tmp_path, 6) == GOOD
    assert BALANCED.faults == []


def test_missing_double_and_strange_rows(tmp_path: Path) -> None:
    rows = [(1, "b/0", 0), (1, "b/0", 1), (1, "b/0", 2), (4, "b/0", 3), (0, "b/0", 4), (99, "b/0", 5)]
    write(tmp_path, 0, rows)
    found = read_parquet(tmp_path, 4)
    assert (found.rows, found.duplicates, found.missing, found.strangers) == (6, 2, 2, 2)
    assert (found.duplicates_shown, found.missing_shown) == ([1], [2, 3])
    assert found.queue_gaps == []


@pytest.mark.parametrize("offsets", [(1, 2), (0, 2)])
def test_gaps_in_a_queue(tmp_path: Path, offsets: tuple[int, int]) -> None:
    write(tmp_path, 0, [(1, "b/7", offsets[0]), (2, "b/7", offsets[1])])
    (gap,) = read_parquet(tmp_path, 2).queue_gaps
    assert gap == f"b/7 has 2 offsets from {offsets[0]} to {offsets[1]}"


def test_nothing_written(tmp_path: Path) -> None:
    found = read_parquet(tmp_path / "none", 7)
    assert (found.rows, found.missing, found.missing_shown) == (0, 7, [1, 2, 3, 4, 5])
    write(tmp_path, 0, [])
    assert read_parquet(tmp_path, 2).missing == 2


@pytest.mark.parametrize(
    ("verdict", "text"),
    [
        (replace(BALANCED, expected=7), "6 of 7 flights were sent"),
        (replace(BALANCED, stored=5), "6 were sent but 5 are stored"),
        (
            replace(BALANCED, parquet=msgspec.structs.replace(GOOD, rows=5)),
            "6 are stored but 5 are in Parquet",
        ),
        (replace(BALANCED, parquet=msgspec.structs.replace(GOOD, duplicates=1)), "1 twice in Parquet"),
        (replace(BALANCED, parquet=msgspec.structs.replace(GOOD, missing=2)), "2 not in Parquet"),
        (
            replace(BALANCED, parquet=msgspec.structs.replace(GOOD, strangers=1)),
            "1 rows in Parquet were never",
        ),
        (replace(BALANCED, parquet=msgspec.structs.replace(GOOD, queue_gaps=["q"])), "gaps in queues: q"),
        (replace(BALANCED, counted=4), "the totals count 4, but Parquet has 6"),
    ],
)
def test_every_fault_is_told(verdict: Reconciliation, text: str) -> None:
    assert any(fault.startswith(text) for fault in verdict.faults)
