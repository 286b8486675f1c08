from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import about

from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.bodies.codecs import Decoded, JsonCodec, RowCodec, TextCodec, salvage, short

ORDER = pa.struct([("id", pa.int64()), ("name", pa.string()), ("lines", pa.list_(pa.int32()))])


def _bodies(*bodies: bytes) -> pa.Array:
    return pa.array(bodies, pa.binary())


def _json(kind: pa.DataType, *bodies: bytes) -> Decoded:
    return JsonCodec(kind).decode(_bodies(*bodies))


def test_text_is_utf_8() -> None:
    found = TextCodec().decode(_bodies("größe".encode(), b"", b"\xff", b"a\x00b"))
    assert found.values.to_pylist() == ["größe", "", None, "a\x00b"]
    assert found.bad.tolist() == [False, False, True, False]
    assert list(found.reasons) == [2]
    assert "Invalid UTF8" in found.reasons[2]
    assert found.values.type == pa.string()


def test_json_objects_become_structs() -> None:
    found = _json(
        ORDER,
        b'{"id": 1, "name": "a", "lines": [1, null]}',
        b'{"name":"gr\xc3\xb6\\u00dfe","other":{"id":[9]}}',
        b" {\n\t}\r\n",
        b"null",
    )
    assert found.values.to_pylist() == [
        {"id": 1, "name": "a", "lines": [1, None]},
        {"id": None, "name": "größe", "lines": None},
        {"id": None, "name": None, "lines": None},
        None,
    ]
    assert found.values.type == ORDER
    assert not found.bad.any()
    assert found.reasons == {}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"no json",
        b"[]",
        b"7",
        b'"text"',
        b"{}{}",
        b"{} {}",
        b"{},{}",
        b'{"id":1}}',
        b'{"id":1',
        b'{"id":1}\x00',
        b"{'id':1}",
        b'{"id":"1"}',
        b'{"id":1.5}',
        b'{"id":9223372036854775808}',
        b'{"lines":{}}',
        b'{"lines":[3000000000]}',
        b'{"name":5}',
        b'{"name":"\xff"}',
        b'{"name":"a\nb"}',
        b'{"id":1,"id":2}',
        b'{"id":1}}\n{"i":1,"b":{}',
        b'{}}\n{"i":2,"b":{}',
        b'{},"b":{}',
        b'{},"i":1',
        b'{"name":"',
        b'"}',
        b'{"lines":[1',
        b"{" * 50_000,
        bytes(range(256)),
    ],
    ids=lambda body: repr(body[:24]),
)
def test_a_poisoned_body_harms_no_other(body: bytes) -> None:
    good = b'{"id":1,"name":"x","lines":[]}'
    for bodies in ([body, good, good], [good, body, good], [good, good, body], [body, body, good], [body]):
        found = _json(ORDER, *bodies)
        assert found.bad.tolist() == [one is body for one in bodies]
        expected = [None if one is body else {"id": 1, "name": "x", "lines": []} for one in bodies]
        assert found.values.to_pylist() == expected
        assert list(found.reasons) == [row for row, one in enumerate(bodies) if one is body]


def test_times_dates_and_decimals_are_read() -> None:
    kind = pa.struct(
        [
            ("t", pa.timestamp("us", "UTC")),
            ("n", pa.timestamp("us")),
            ("d", pa.list_(pa.field("element", pa.date32()))),
            ("x", pa.decimal128(10, 2)),
            ("f", pa.float32()),
            ("b", pa.bool_()),
        ]
    )
    body = {
        "t": "2024-01-02T03:04:05.5+02:00",
        "n": "2024-01-02 03:04:05",
        "d": ["2024-02-29", None],
        "x": 1.25,
        "f": 0.5,
        "b": True,
    }
    found = _json(kind, json.dumps(body).encode(), b'{"d":["2023-02-29"]}', b'{"t":1700000000}')
    assert found.bad.tolist() == [False, True, True]
    assert found.values.type == kind
    assert found.values[0].as_py() == {
        "t": datetime(2024, 1, 2, 1, 4, 5, 500_000, UTC),
        "n": datetime(2024, 1, 2, 3, 4, 5),
        "d": [date(2024, 2, 29), None],
        "x": Decimal("1.25"),
        "f": 0.5,
        "b": True,
    }


@pytest.mark.parametrize(
    ("kind", "what", "text"),
    [
        (pa.string(), "body", "needs a body of type struct"),
        (pa.struct([("a", pa.map_(pa.string(), pa.string()))]), "map", "column body.a, which has type map"),
        (pa.struct([("a", pa.list_(pa.binary()))]), "binary", r"column body\.a\[\], which has type binary"),
    ],
)
def test_types_that_json_cannot_give_are_refused(kind: pa.DataType, what: str, text: str) -> None:
    with pytest.raises(SettingsError, match=text, check=about(what=what)):
        JsonCodec(kind)


_VALUES = st.fixed_dictionaries(
    {},
    optional={
        "id": st.none() | st.integers(-(2**63), 2**63 - 1),
        "name": st.none() | st.text(st.characters(exclude_categories=["Cs"])),
        "lines": st.none() | st.lists(st.none() | st.integers(-(2**31), 2**31 - 1), max_size=4),
        "unknown": st.recursive(st.none() | st.booleans(), lambda inner: st.lists(inner, max_size=3)),
    },
)


@given(st.lists(st.one_of(_VALUES, st.binary(max_size=12)), max_size=4), st.booleans())
def test_json_is_what_python_reads(items: list[Any], spread: bool) -> None:
    bodies = [
        item if isinstance(item, bytes) else json.dumps(item, indent=1 if spread else None).encode()
        for item in items
    ]
    found = _json(ORDER, *bodies)
    for item, value, bad in zip(items, found.values.to_pylist(), found.bad.tolist(), strict=True):
        if isinstance(item, bytes):
            assert bad or item.strip(b" \r\n\t") in (b"{}", b"null")
        else:
            assert value == {name: item.get(name) for name in ("id", "name", "lines")}
            assert not bad


def test_a_slice_of_a_larger_array_is_read() -> None:
    bodies = _bodies(b"x", b'{"id":1}', b'{"id":2}', b"y").slice(1, 2)
    assert [row["id"] for row in JsonCodec(ORDER).decode(bodies).values.to_pylist()] == [1, 2]


@given(st.lists(st.booleans(), max_size=40))
def test_salvage_finds_exactly_the_bad_ones(good: list[bool]) -> None:
    def decode(part: pa.Array) -> pa.Array:
        if not all(part.to_pylist()):
            raise ValueError("bad")
        return part

    found = salvage(pa.array(good, pa.bool_()), decode, pa.bool_())
    assert found.bad.tolist() == [not one for one in good]
    assert found.values.to_pylist() == [one or None for one in good]


def test_rows_are_read_one_by_one() -> None:
    def read(body: bytes) -> Any:
        if body == b"!":
            raise RecursionError
        return {"a": body.decode(), "m": {"k": len(body)}}

    kind = pa.struct([("a", pa.string()), ("m", pa.map_(pa.string(), pa.int8()))])
    found = RowCodec(read, kind).decode(_bodies(b"x", b"!", b"\xff", b"y" * 300))
    assert found.values.to_pylist() == [{"a": "x", "m": [("k", 1)]}, None, None, None]
    assert found.bad.tolist() == [False, True, True, True]
    assert sorted(found.reasons) == [1, 2, 3]
    assert found.reasons[1] == "RecursionError"
    assert found.reasons[3] != found.reasons[2]
    clean = RowCodec(read, kind).decode(_bodies(b"x", b"z"))
    assert not clean.bad.any()


def test_values_of_another_kind_are_bad() -> None:
    values: dict[bytes, Any] = {b"1": {"a": 1}, b"2": {"a": "text"}, b"3": {"a": 2**70}, b"4": None}
    found = RowCodec(values.__getitem__, pa.struct([("a", pa.int64())])).decode(_bodies(*values))
    assert found.values.to_pylist() == [{"a": 1}, None, None, None]
    assert found.bad.tolist() == [False, True, True, False]
    assert sorted(found.reasons) == [1, 2]


def test_long_reasons_are_cut() -> None:
    assert short(ValueError("a\n b")) == "a b"
    assert short(ValueError("x" * 500)) == "x" * 200 + "…"
    assert short(KeyError()) == "KeyError"
