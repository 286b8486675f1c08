"""Rows for later: which they are, and the messages they become."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest
from tests.support import about

from sparrowmq.columnar.encode import MessageColumns
from sparrowmq.core.errors import InvalidMessageError
from sparrowmq.core.message import Message
from sparrowmq.spark.write.delayed_rows import delayed_rows

MOMENT = datetime(2030, 1, 1, tzinfo=UTC)


def levels(*values: int | None) -> pa.Array:
    return pa.array(values, pa.int32())


def moments(*values: datetime | None) -> pa.Array:
    return pa.array(values, pa.timestamp("us", "UTC"))


def test_rows_without_a_time_are_for_now() -> None:
    assert delayed_rows(None, None, 0) is None
    assert delayed_rows(levels(None, 0), None, 0) is None
    assert delayed_rows(levels(None, 0), moments(None, None), 0) is None
    assert delayed_rows(levels(), moments(), 0) is None


def test_rows_with_a_time_are_split_off() -> None:
    delayed = delayed_rows(levels(None, 3, 0, None), moments(None, None, None, MOMENT), 0)
    assert delayed is not None
    now, others = delayed.split(np.array([3, 2, 1]))
    assert (now.tolist(), others.tolist()) == ([2], [3, 1])
    only = delayed_rows(None, moments(None, MOMENT), 0)
    assert only is not None and only.split(np.arange(2))[1].tolist() == [1]


def test_they_become_messages_with_everything_they_have() -> None:
    delayed = delayed_rows(levels(None, 3, None), moments(None, None, MOMENT), 0)
    assert delayed is not None
    columns = MessageColumns(
        body=pa.array([b"a", b"b", b"c"]),
        ids=pa.array(["ID0", "ID1", "ID2"]),
        tags=pa.array([None, "T", None]),
        keys=pa.array([None, "k1 k2", None]),
        sharding_keys=pa.array([None, "s", None]),
        properties=pa.array([None, [("n", "1"), ("left", None)], None], pa.map_(pa.string(), pa.string())),
    )
    first, second = delayed.messages("t", columns, np.array([1, 2]))
    assert first == Message(
        "t",
        b"b",
        tags="T",
        keys="k1 k2",
        properties={"n": "1"},
        delay_level=3,
        system={"UNIQ_KEY": "ID1", "__SHARDINGKEY": "s"},
    )
    assert second == Message("t", b"c", deliver_at=MOMENT.timestamp(), system={"UNIQ_KEY": "ID2"})
    (bare,) = delayed.messages("t", MessageColumns(pa.array([b"a", b"b", b"c"])), np.array([1]))
    assert bare == Message("t", b"b", delay_level=3, system={})


@pytest.mark.parametrize(
    ("level", "moment", "part"),
    [
        (levels(1, -2), None, "delay_level"),
        (levels(1, 1), moments(None, MOMENT), "deliver_at"),
    ],
)
def test_times_that_make_no_sense_name_their_row(level: pa.Array, moment: pa.Array | None, part: str) -> None:
    with pytest.raises(InvalidMessageError, check=about(part=part, value=11)):
        delayed_rows(level, moment, 10)
