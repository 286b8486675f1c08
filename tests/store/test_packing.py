"""Packing many records at once gives the same as packing each."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.store.rig import HOST

from sparrowmq.protocol.batch import AlikeBatch
from sparrowmq.protocol.record import encode_record
from sparrowmq.store.packing import alike_batch, pack_alike, pack_entries
from sparrowmq.store.queues.consume_queue import ENTRY

COMMON = struct.pack(">iq8sq8siq", 1, 123, HOST, 456, HOST, 2, 0)
INT64 = st.integers(0, 2**62)


@st.composite
def batches(draw: st.DrawFn) -> AlikeBatch:
    count, body, own = draw(st.integers(1, 6)), draw(st.integers(1, 30)), draw(st.integers(0, 30))
    return AlikeBatch(
        draw(st.integers(-(2**31), 2**31 - 1)),
        tuple(draw(st.binary(min_size=body, max_size=body)) for _ in range(count)),
        tuple(draw(st.binary(min_size=own, max_size=own)) for _ in range(count)),
    )


@pytest.mark.proves("broker:2.1")
@given(batches(), st.binary(max_size=20), st.integers(0, 2**31 - 1), INT64, INT64)
def test_records_equal_those_of_the_protocol(
    batch: AlikeBatch, added: bytes, queue_id: int, offset: int, start: int
) -> None:
    size = 91 + len("Topic") + len(batch.bodies[0]) + len(batch.properties[0]) + len(added)
    starts = range(start, start + size * len(batch.bodies), size)
    found = pack_alike(
        batch,
        added,
        topic_field=b"\5Topic",
        queue_id=queue_id,
        offset=offset,
        starts=starts,
        common=COMMON,
    )
    assert found == [
        encode_record(
            topic=b"Topic",
            queue_id=queue_id,
            queue_offset=offset + number,
            physical_offset=starts[number],
            body=body,
            properties=own + added,
            flag=batch.flag,
            sys_flag=1,
            born_timestamp=123,
            born_host=HOST,
            store_timestamp=456,
            store_host=HOST,
            reconsume_times=2,
            prepared_offset=0,
        )
        for number, (body, own) in enumerate(zip(batch.bodies, batch.properties, strict=True))
    ]
    assert [len(record) for record in found] == [size] * len(batch.bodies)


def test_values_that_do_not_fit_are_an_error() -> None:
    batch = AlikeBatch(0, (b"x",), (b"",))
    with pytest.raises(struct.error):
        pack_alike(
            batch, b"", topic_field=b"\1T", queue_id=2**31, offset=0, starts=range(0, 93, 93), common=COMMON
        )


@pytest.mark.proves("broker:3.1")
@given(st.lists(st.tuples(INT64, st.integers(0, 2**31 - 1), st.integers(-(2**63), 2**63 - 1))))
def test_entries_equal_those_packed_one_by_one(entries: list[tuple[int, int, int]]) -> None:
    starts, sizes, codes = ([entry[part] for entry in entries] for part in range(3))
    assert pack_entries(starts, sizes, codes) == b"".join(ENTRY.pack(*entry) for entry in entries)


@given(batches())
def test_messages_of_equal_lengths_are_a_batch(batch: AlikeBatch) -> None:
    codes = tuple(range(len(batch.bodies)))
    items = list(zip([batch.flag] * len(codes), batch.bodies, batch.properties, codes, strict=True))
    assert alike_batch(items) == (batch, codes)


@pytest.mark.parametrize("other", [(1, b"b", b"p", 0), (0, b"bb", b"p", 0), (0, b"b", b"", 0)])
def test_messages_that_differ_in_more_than_bytes_are_no_batch(other: tuple[int, bytes, bytes, int]) -> None:
    assert alike_batch([(0, b"a", b"q", 5), other]) is None
