"""Rows sorted by a key that names them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sparrowmq.core.errors import InvalidMessageError
from sparrowmq.spark.write.identity import key_hashes
from sparrowmq.spark.write.keyed import KeyedRows, by_key


def batches(*keys: list[str | None]) -> list[pa.RecordBatch]:
    return [
        pa.record_batch({"k": pa.array(part, pa.string()), "body": [str(key) for key in part]})
        for part in keys
    ]


def test_rows_come_in_the_order_of_their_keys_whatever_order_they_had() -> None:
    for order in (batches(["b", "d"], ["a", "c"]), batches(["d", "c", "b", "a"])):
        found = [row for batch in by_key(iter(order), "k") for row in batch["body"].to_pylist()]
        assert found == ["a", "b", "c", "d"]
    assert list(by_key(iter([]), "k")) == []
    assert sum(batch.num_rows for batch in by_key(iter(batches([])), "k")) == 0


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


@pytest.mark.parametrize(
    ("keys", "text"), [(["a", None], "is null in a row"), (["b", "a", "b"], "two rows .* have k='b'")]
)
def test_a_key_that_names_no_row_or_two_is_told(keys: list[str | None], text: str) -> None:
    with pytest.raises(InvalidMessageError, match=text):
        list(by_key(iter(batches(keys)), "k"))


def test_a_partition_too_large_to_sort_is_told() -> None:
    with pytest.raises(InvalidMessageError, match="more than 10 bytes to sort"):
        list(by_key(iter(batches(["a", "b"])), "k", bytes_max=10))
