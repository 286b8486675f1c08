from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.columnar import properties as module
from sparrowmq.columnar.properties import read_properties
from sparrowmq.protocol.properties import decode

PIECES = st.sampled_from([b"\x01", b"\x02", b"\x00", b"\xff", b"\xc3", b"\xa9", b"TAGS", b"KEYS", b"a", b"b"])
ROWS = st.lists(st.lists(PIECES, max_size=14).map(b"".join), max_size=5)
PLAIN = st.dictionaries(
    st.sampled_from(["TAGS", "KEYS", "a", "ключ"]), st.sampled_from(["x", "yy", "é"]), max_size=4
)


def _maps(rows: list[bytes]) -> list[dict[str, str]]:
    found = read_properties(pa.array(rows, pa.binary())).map()
    found.validate(full=True)
    return [dict(row) for row in found.to_pylist()]


def _check(rows: list[bytes]) -> None:
    expected = [decode(row) for row in rows]
    assert _maps(rows) == expected
    found = read_properties(pa.array(rows, pa.binary()))
    for name in ("TAGS", "a", "missing"):
        assert found.column(name).to_pylist() == [row.get(name) for row in expected]


@given(ROWS)
def test_any_bytes_give_what_the_reference_gives(rows: list[bytes]) -> None:
    _check(rows)


@given(st.lists(st.tuples(PLAIN, st.booleans()), max_size=6))
def test_plain_properties_with_and_without_last_separator(rows: list[tuple[dict[str, str], bool]]) -> None:
    texts = ["".join(f"{name}\x01{value}\x02" for name, value in row.items()) for row, _ in rows]
    _check(
        [text.encode()[: -1 if cut and text else None] for text, (_, cut) in zip(texts, rows, strict=True)]
    )


@pytest.mark.parametrize(
    "rows",
    [
        [b"a\x011\x02b\x012\x02", b"a\x013\x02b\x014\x02"],
        [b"a\x011\x02b\x012", b"", b"a\x013\x02b\x014", b""],
        [b"a\x011", b"b\x012\x02", b"", b"", b"ab\x01345"],
        [b"a\x011\x02b\x012\x02", b"b\x013\x02a\x014\x02"],
        ["ключ\x01значение\x02".encode()],
        [b"", b""],
    ],
    ids=["uniform", "open", "mixed", "orders", "unicode", "empty"],
)
def test_well_formed_chunks_never_leave_the_vectors(
    rows: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: pa.Array) -> None:
        raise AssertionError("the loop was used")

    monkeypatch.setattr(module, "_by_rows", fail)
    _check(rows)


@pytest.mark.parametrize(
    "row",
    [
        b"a\x011\x02a\x012\x02",
        b"a\x01\x02",
        b"\x011\x02",
        b"a\x011\x01z\x02",
        b"noise\x02a\x011\x02",
        b"a\x01\xff\x02",
    ],
    ids=["double", "no value", "no name", "separator in value", "no separator", "not utf-8"],
)
def test_odd_rows_follow_the_reference(row: bytes) -> None:
    _check([b"a\x011\x02", row, b"a\x013\x02"])


def test_a_sliced_array_is_read_from_its_own_start() -> None:
    rows = [b"a\x011\x02", b"TAGS\x01x\x02", b"b\x012", b"a\x013\x02"]
    found = read_properties(pa.array(rows, pa.binary()).slice(1, 2))
    assert [dict(row) for row in found.map().to_pylist()] == [{"TAGS": "x"}, {"b": "2"}]
    assert found.column("TAGS").to_pylist() == ["x", None]


def test_the_last_of_doubled_names_wins_in_map_and_column() -> None:
    rows = [b"TAGS\x01first\x02TAGS\x01last\x02"] * 2
    assert _maps(rows) == [{"TAGS": "last"}] * 2
    assert read_properties(pa.array(rows, pa.binary())).column("TAGS").to_pylist() == ["last"] * 2
