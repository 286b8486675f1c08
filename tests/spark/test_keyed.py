"""Rows sorted by a key that names them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sparrowmq.core.errors import InvalidMessageError
from sparrowmq.spark.keyed import by_key


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


@pytest.mark.parametrize(
    ("keys", "text"), [(["a", None], "is null in a row"), (["b", "a", "b"], "two rows .* have k='b'")]
)
def test_a_key_that_names_no_row_or_two_is_told(keys: list[str | None], text: str) -> None:
    with pytest.raises(InvalidMessageError, match=text):
        list(by_key(iter(batches(keys)), "k"))


def test_a_partition_too_large_to_sort_is_told() -> None:
    with pytest.raises(InvalidMessageError, match="more than 10 bytes to sort"):
        list(by_key(iter(batches(["a", "b"])), "k", bytes_max=10))
