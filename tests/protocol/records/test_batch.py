"""Batch bodies: the vector, round trips, every length wrong, recorded batches."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocol import recorded
from tests.support import about

from sparrowmq.core.errors import RecordError
from sparrowmq.protocol import properties
from sparrowmq.protocol.batch import AlikeBatch, BatchItem, decode_alike, decode_batch, encode_batch, has_more
from sparrowmq.protocol.codes import RequestCode

FIRST = bytes.fromhex(
    "0000002f0000000000000000000000000000000568656c6c6f00145741495401747275650254414753015461674102"
)
SECOND = bytes.fromhex("000000210000000000000000000000000000000178000a57414954017472756502")
ITEMS: list[BatchItem] = [
    (0, b"hello", b"WAIT\x01true\x02TAGS\x01TagA\x02"),
    (0, b"x", b"WAIT\x01true\x02"),
]
BATCHES = st.lists(
    st.tuples(st.integers(-(2**31), 2**31 - 1), st.binary(max_size=40), st.binary(max_size=40)), min_size=1
)


@pytest.mark.proves("client:B-74")
def test_the_vector_of_the_reference() -> None:
    assert encode_batch(ITEMS) == FIRST + SECOND
    assert decode_batch(FIRST + SECOND) == ITEMS


@given(BATCHES)
def test_what_is_written_is_read_back(items: list[BatchItem]) -> None:
    assert decode_batch(encode_batch(items)) == items


@pytest.mark.parametrize("end", [*range(len(FIRST)), *range(len(FIRST) + 1, len(FIRST) + len(SECOND))])
def test_a_batch_cut_anywhere_but_between_messages_is_refused(end: int) -> None:
    with pytest.raises(RecordError):
        decode_batch((FIRST + SECOND)[:end])


@pytest.mark.parametrize("tail", [b"x", b"x" * 21, b"\x00" * 22, b"\xff" * 40])
def test_a_tail_is_refused(tail: bytes) -> None:
    with pytest.raises(RecordError, check=about(value=47)):
        decode_batch(FIRST + tail)


@pytest.mark.parametrize(
    ("place", "form", "values"),
    [
        (0, ">i", (-1, -(2**31), 0, 21, 22, len(FIRST) - 1, len(FIRST) + 1, 2**31 - 1)),
        (16, ">i", (-1, -(2**31), 0, 4, 6, 25, 26, 2**31 - 1)),
        (25, ">h", (-1, -32768, 0, 19, 21, 32767)),
    ],
    ids=["total", "body", "properties"],
)
def test_every_length_wrong_is_refused(place: int, form: str, values: tuple[int, ...]) -> None:
    for value in values:
        broken = bytearray(FIRST)
        struct.pack_into(form, broken, place, value)
        with pytest.raises(RecordError, check=about(value=0)):
            decode_batch(bytes(broken))


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(RecordError, check=about(what="batch")):
        decode_batch(b"")


@pytest.mark.parametrize("item", [(2**31, b"", b""), (0, b"", b"p" * 32768)])
def test_what_does_not_fit_is_refused(item: BatchItem) -> None:
    with pytest.raises(RecordError, check=about(what="message")):
        encode_batch([item])


@given(st.binary(max_size=120), st.integers(0, 80))
def test_damage_is_a_record_error_or_messages(noise: bytes, place: int) -> None:
    data = FIRST + SECOND
    try:
        for flag, body, text in decode_batch(data[:place] + noise + data[place + len(noise) :]):
            assert isinstance(flag, int)
            assert isinstance(body, bytes)
            assert isinstance(text, bytes)
    except RecordError:
        pass


@st.composite
def alike(draw: st.DrawFn) -> list[BatchItem]:
    body, own = draw(st.integers(0, 9)), draw(st.integers(0, 9))
    flag, count = draw(st.integers(-(2**31), 2**31 - 1)), draw(st.integers(1, 5))
    return [
        (flag, draw(st.binary(min_size=body, max_size=body)), draw(st.binary(min_size=own, max_size=own)))
        for _ in range(count)
    ]


@given(alike())
def test_messages_of_equal_lengths_are_read_at_once(items: list[BatchItem]) -> None:
    bodies, owns = tuple(item[1] for item in items), tuple(item[2] for item in items)
    assert decode_alike(encode_batch(items)) == AlikeBatch(items[0][0], bodies, owns)


@given(BATCHES | alike(), st.integers(0, 200), st.binary(max_size=8), st.integers(-3, 3))
def test_what_is_read_at_once_is_what_is_read_one_by_one(
    items: list[BatchItem], place: int, noise: bytes, cut: int
) -> None:
    data = encode_batch(items)
    data = data[:place] + noise + data[place + len(noise) :]
    data = data[:cut] if cut < 0 else data + bytes(cut)
    found = decode_alike(data)
    if found is not None:
        pairs = zip(found.bodies, found.properties, strict=True)
        assert decode_batch(data) == [(found.flag, body, own) for body, own in pairs]


@pytest.mark.parametrize(
    "items",
    [
        [(0, b"one", b"p"), (0, b"two", b"pp")],
        [(0, b"one", b"p"), (0, b"four", b"")],
        [(0, b"one", b"p"), (1, b"two", b"p")],
        [],
    ],
    ids=["properties", "the same total", "flag", "none"],
)
def test_messages_that_differ_in_more_are_not_read_at_once(items: list[BatchItem]) -> None:
    assert decode_alike(encode_batch(items)) is None


@pytest.mark.parametrize(("place", "value"), [(0, 46), (0, -1), (0, 2**30), (16, -1), (16, 100), (25, 21)])
def test_a_wrong_length_is_not_read_at_once(place: int, value: int) -> None:
    broken = bytearray(FIRST)
    struct.pack_into(">h" if place == 25 else ">i", broken, place, value)
    assert decode_alike(bytes(broken)) is None


def test_properties_too_long_for_their_field_are_not_read_at_once() -> None:
    own = b"p" * 32768
    body = struct.pack(">iiiii", 22 + 1 + len(own), 0, 0, 0, 1) + b"x" + struct.pack(">H", len(own)) + own
    assert decode_alike(body) is None


def test_recorded_batches_are_read_and_written_back() -> None:
    seen = 0
    for exchange, command in recorded.requests(RequestCode.SEND_BATCH_MESSAGE):
        items = decode_batch(command.body)
        assert encode_batch(items) == command.body, exchange
        assert all("UNIQ_KEY" in properties.decode(text) for _, _, text in items), exchange
        seen += len(items)
    assert seen > 4


@pytest.mark.parametrize("count", [1, 2, 5])
def test_counting_messages_by_their_lengths(count: int) -> None:
    body = encode_batch([(0, b"x" * number, b"") for number in range(count)])
    assert has_more(body, count - 1)
    assert not has_more(body, count) and not has_more(body, count + 1)
    assert not has_more(body[:3], 0) and not has_more(b"\0" * 100, 5)
