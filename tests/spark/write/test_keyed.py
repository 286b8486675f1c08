"""Rows sorted by a key that names them, in memory and in files."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support import about

from sparrowmq.core.errors import InvalidMessageError
from sparrowmq.spark.write import keyed
from sparrowmq.spark.write.identity import key_hashes
from sparrowmq.spark.write.keyed import KeyedRows, sorted_rows


def batches(*keys: list[str | None]) -> list[pa.RecordBatch]:
    return [
        pa.record_batch({"k": pa.array(part, pa.string()), "body": [str(key) for key in part]})
        for part in keys
    ]


def bodies(parts: Sequence[pa.RecordBatch]) -> list[str]:
    with sorted_rows(iter(parts), "k") as rows:
        return [row for batch in rows for row in batch["body"].to_pylist()]


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Spark's local directory, where rows beyond a kilobyte or so go."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/nowhere")
    monkeypatch.setattr(keyed, "SORT_BYTES_MAX", 1000)
    monkeypatch.setattr(keyed, "PIECE_BYTES", 100)
    return tmp_path


def test_rows_come_in_the_order_of_their_keys_whatever_order_they_had() -> None:
    for order in (batches(["b", "d"], ["a", "c"]), batches(["d", "c", "b", "a"])):
        assert bodies(order) == ["a", "b", "c", "d"]
    assert bodies([]) == bodies(batches([])) == []


@pytest.mark.parametrize("files_max", [2, 3, 1000])
def test_a_partition_larger_than_memory_is_sorted_in_files(
    local: Path, monkeypatch: pytest.MonkeyPatch, files_max: int
) -> None:
    keys = [f"k{number:04}" for number in range(3000)]
    shuffled = random.Random(1).sample(keys, len(keys))
    at_once: list[int] = []
    sort = keyed.sort

    def counted(parts: Sequence[pa.RecordBatch], key: str) -> list[pa.RecordBatch]:
        at_once.append(sum(part.num_rows for part in parts))
        return sort(parts, key)

    monkeypatch.setattr(keyed, "sort", counted)
    monkeypatch.setattr(keyed, "FILES_MAX", files_max)
    parts = batches(*(shuffled[start : start + 20] for start in range(0, len(keys), 20)))
    assert sum(part.nbytes for part in parts) > 50 * keyed.SORT_BYTES_MAX
    with sorted_rows(iter(parts), "k") as rows:
        files = list(local.glob("*/*.arrow"))
        assert 1 < len(files) <= files_max
        for _ in range(2):
            assert [row for batch in rows for row in batch["body"].to_pylist()] == keys
    assert not list(local.iterdir())
    row = parts[0].nbytes // parts[0].num_rows
    assert max(at_once) <= max(keyed.SORT_BYTES_MAX, len(files) * keyed.PIECE_BYTES) // row + 1


def test_files_are_removed_when_a_task_fails(local: Path) -> None:
    parts = batches(*([f"{number:03}"] * 1 for number in range(300)))
    with pytest.raises(RuntimeError, check=about(args=("the task",))), sorted_rows(iter(parts), "k") as rows:
        assert next(iter(rows))["k"][0].as_py() == "000"
        assert list(local.iterdir())
        raise RuntimeError("the task")
    assert not list(local.iterdir())


@pytest.mark.parametrize("kind", [pa.int64(), pa.int32(), pa.binary(), pa.string()])
def test_keys_of_all_types_are_merged(local: Path, kind: pa.DataType) -> None:
    texts = [str(number) for number in range(500)]
    keys = [pa.array(texts[start::50]).cast(kind) for start in range(50)]
    with sorted_rows((pa.record_batch({"k": part}) for part in keys), "k") as rows:
        found = [key for batch in rows for key in batch["k"].to_pylist()]
    assert found == sorted(pa.array(texts).cast(kind).to_pylist())


def test_two_rows_of_a_key_in_two_files_are_told(local: Path) -> None:
    parts = batches(["b"], *([f"{number:03}"] for number in range(300)), ["b"])
    with (
        pytest.raises(InvalidMessageError, check=about(part="k", value="b")),
        sorted_rows(iter(parts), "k") as rows,
    ):
        list(rows)
    assert not list(local.iterdir())


def test_what_is_stored_is_left_out_wherever_it_was() -> None:
    many = 1000
    parts = batches([f"k{number}" for number in range(many)], ["x", "y", "z"])
    rows = KeyedRows(parts, "k")
    rows.found(key_hashes(pa.array(["y", "of another partition", *(f"k{n}" for n in range(0, many, 2))])))
    rows.found(key_hashes(pa.array([], pa.string())))
    left = [row for batch in rows.missing() for row in batch["k"].to_pylist()]
    assert left == [f"k{number}" for number in range(1, many, 2)] + ["x", "z"]
    assert (len(rows), rows.stored) == (many + 3, many // 2 + 1)
    empty = KeyedRows([], "k")
    empty.found(key_hashes(pa.array(["a"])))
    assert not list(empty.missing()) and not len(empty)


@pytest.mark.parametrize(("keys", "value"), [(["a", None], None), (["b", "a", "b"], "b")])
def test_a_key_that_names_no_row_or_two_is_told(keys: list[str | None], value: str | None) -> None:
    with pytest.raises(InvalidMessageError, check=about(part="k", value=value)):
        bodies(batches(keys))
