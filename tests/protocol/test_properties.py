"""Property strings: Java's rules for reading, what is written, and `find` against `decode`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocol import recorded
from tests.support import about

from sparrowmq.core.errors import InvalidMessageError
from sparrowmq.core.message import PROPERTIES_BYTES_MAX
from sparrowmq.protocol import properties
from sparrowmq.protocol.codes import RequestCode

TEXT = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1, max_size=12
)
NAMES = st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "S", "KS", "X_KEYS"]) | TEXT
PIECES = st.lists(
    st.sampled_from([b"KEYS", b"X_KEYS", b"S", b"\x01", b"\x02", b"v", b"\xff", "é".encode()]), max_size=14
)


def test_the_vector_of_the_reference() -> None:
    assert properties.encode({"k": "v", "TAGS": "TagA"}) == b"k\x01v\x02TAGS\x01TagA\x02"
    assert properties.decode(b"k\x01v\x02TAGS\x01TagA\x02") == {"k": "v", "TAGS": "TagA"}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", {}),
        (b"\x02\x02", {}),
        (b"a\x01b", {"a": "b"}),
        (b"a\x01b\x02c\x01d", {"a": "b", "c": "d"}),
        (b"a\x01\x02", {}),
        (b"\x01b\x02", {}),
        (b"ab\x02", {}),
        (b"a\x01b\x01c\x02", {"a": "b\x01c"}),
        (b"a\x01b\x02a\x01c\x02", {"a": "c"}),
        (b"a\x01b\x02a\x01\x02", {"a": "b"}),
        ("é\x01尺寸😀\x02".encode(), {"é": "尺寸😀"}),
        (b"a\x01\xff\x02", {"a": "\ufffd"}),
    ],
)
def test_reading_follows_java(data: bytes, expected: dict[str, str]) -> None:
    assert properties.decode(data) == expected
    for name in ("a", "é"):
        found = properties.find(data, name.encode())
        assert (None if found is None else found.decode("utf-8", "replace")) == expected.get(name)


@given(st.dictionaries(TEXT, TEXT, max_size=8))
def test_what_is_written_is_read_back(values: dict[str, str]) -> None:
    data = properties.encode(values)
    assert properties.decode(data) == values
    assert all(properties.find(data, name.encode()) == value.encode() for name, value in values.items())


def test_empty_names_and_values_are_not_written() -> None:
    assert properties.encode({"": "x", "a": "", "b": "1"}) == b"b\x011\x02"


@pytest.mark.parametrize("values", [{"a\x01": "b"}, {"a": "b\x02"}, {"a\x02b": "c"}, {"a": "\x01"}])
def test_separators_in_names_and_values_are_refused(values: dict[str, str]) -> None:
    with pytest.raises(InvalidMessageError, check=about(part="properties")):
        properties.encode(values)


def test_text_that_is_no_unicode_is_refused() -> None:
    with pytest.raises(InvalidMessageError, check=about(part="properties")):
        properties.encode({"a": "\ud800"})


def test_the_limit_counts_bytes() -> None:
    fits = {"a": "é" * ((PROPERTIES_BYTES_MAX - 3) // 2)}
    assert len(properties.encode(fits)) == PROPERTIES_BYTES_MAX
    with pytest.raises(InvalidMessageError, check=about(part="properties", limit=PROPERTIES_BYTES_MAX)):
        properties.encode({"ab": fits["a"]})


@given(PIECES, NAMES)
def test_find_gives_what_decode_gives(pieces: list[bytes], name: str) -> None:
    data = b"".join(pieces)
    found = properties.find(data, name.encode())
    expected = properties.decode(data).get(name)
    assert (None if found is None else found.decode("utf-8", "replace")) == expected


def test_find_is_anchored_at_the_start_of_a_property() -> None:
    data = b"X_KEYS\x01no\x02VALUE\x01KEYS\x01no\x02"
    assert properties.find(data, b"KEYS") is None
    assert properties.find(b"KEYS\x01yes\x02" + data, b"KEYS") == b"yes"
    assert properties.find(b"KEYS\x01old\x02KEYS\x01new\x02" + data, b"KEYS") == b"new"


@pytest.mark.parametrize("end", range(1, 21))
def test_a_cut_property_string_gives_its_whole_pieces(end: int) -> None:
    data = b"UNIQ\x01123\x02TAGS\x01TagA\x02"
    read = properties.decode(data[:end])
    assert read.get("UNIQ", "") == data[:end].partition(b"\x02")[0].partition(b"\x01")[2].decode()
    assert "TAGS" not in read or "TagA".startswith(read["TAGS"])


def test_recorded_property_strings_survive_a_round_trip() -> None:
    seen = 0
    for exchange, command in recorded.requests(RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2):
        text = command.ext.get("i", command.ext.get("properties", "")).encode()
        values = properties.decode(text)
        assert properties.decode(properties.encode(values)) == values, exchange
        assert "UNIQ_KEY" in values or not exchange.file.startswith("java"), exchange
        seen += bool(values)
    assert seen > 50
