"""Names of rows: the same for the same row, another for any other."""

from __future__ import annotations

import itertools

import pyarrow as pa

from sparrowmq.spark.write.identity import RUNS_MAX, RowIdentity, task_place

BODIES = pa.array([b"a", b"b", b"a"], pa.binary())
HERE = RowIdentity("query", 7, 3)


def test_a_row_has_the_same_id_in_every_try() -> None:
    ids = HERE.ids(BODIES, 10).to_pylist()
    assert ids == RowIdentity("query", 7, 3).ids(BODIES, 10).to_pylist()
    assert ids[1:] == HERE.ids(BODIES.slice(1), 11).to_pylist()
    assert all(len(text) == 32 and text.isalnum() and text == text.upper() for text in ids)


def test_another_row_batch_partition_or_body_has_another_id() -> None:
    places = itertools.product(("query", "other"), (7, 8), (3, 4))
    ids = [text for place in places for text in RowIdentity(*place).ids(BODIES, 0).to_pylist()]
    ids += HERE.ids(pa.array([b"x", b"y", None], pa.binary()), 0).to_pylist()
    assert len(set(ids)) == len(ids) == 27


def test_ids_are_found_by_time() -> None:
    """Searches by id begin at the time that stands in its bytes 10 to 13: it must not lie in the future."""
    (text,) = HERE.ids(pa.array([b"x"], pa.binary()), 5_000_000).to_pylist()
    assert int(text[20:28], 16) == 5_000_000


def test_a_key_identifies_its_row_in_any_partition_and_order() -> None:
    ids = HERE.key_ids(pa.array(["a", "b"])).to_pylist()
    assert RowIdentity("query", 7, 4).key_ids(pa.array(["b", "a"])).to_pylist() == ids[::-1]
    assert RowIdentity("query", 8, 3).key_ids(pa.array(["a"])).to_pylist() != ids[:1]
    assert HERE.key_ids(pa.array([b"a", b"b"], pa.binary())).to_pylist() == ids
    numbers = HERE.key_ids(pa.array([1, 2], pa.int64())).to_pylist()
    assert numbers == HERE.key_ids(pa.array(["1", "2"])).to_pylist()
    assert HERE.key_ids(pa.array([], pa.string())).to_pylist() == []


def test_producers_differ_by_scope_topic_and_partition_and_epochs_grow() -> None:
    ids = {HERE.producer_id("t"), HERE.producer_id("u"), RowIdentity("query", 7, 4).producer_id("t")}
    assert len(ids | {RowIdentity("other", 7, 3).producer_id("t")}) == 4
    assert RowIdentity("query", 99, 3).producer_id("t") in ids, "one producer for all batches"
    runs = [RowIdentity("query", batch, 3, run) for batch in (0, 1, 7) for run in (0, 1, RUNS_MAX - 1)]
    epochs = [run.epoch(step) for run in runs for step in (0, 1, 15)]
    assert epochs == sorted(set(epochs))


def test_outside_a_task_there_is_no_place() -> None:
    assert task_place() == (None, 0, 0)
