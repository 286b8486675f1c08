from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import about

from sparrowmq.columnar import encode as module
from sparrowmq.columnar.encode import MessageColumns, encode_batches, encode_messages, mark_column
from sparrowmq.columnar.schema import PROPERTIES
from sparrowmq.core.errors import InvalidMessageError
from sparrowmq.protocol import properties as property_string
from sparrowmq.protocol.batch import decode_batch, encode_batch
from sparrowmq.protocol.producer_mark import Mark, binding, first_of_run

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), max_size=6)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "body": st.binary(min_size=1, max_size=20),
            "ids": st.none() | TEXT,
            "tags": st.none() | TEXT,
            "keys": st.none() | TEXT,
            "sharding_keys": st.none() | TEXT,
            "properties": st.none() | st.dictionaries(TEXT.map("x{}".format), st.none() | TEXT, max_size=3),
        }
    ),
    max_size=12,
)


def _columns(rows: list[dict[str, Any]]) -> MessageColumns:
    kinds = {"body": pa.binary(), "properties": PROPERTIES}
    return MessageColumns(
        **{
            name: pa.array(
                [list(row[name].items()) if isinstance(row[name], dict) else row[name] for row in rows],
                kinds.get(name, pa.string()),
            )
            for name in ("body", "ids", "tags", "keys", "sharding_keys", "properties")
        }
    )


def _reference(row: dict[str, Any]) -> tuple[int, bytes, bytes]:
    properties = {
        "UNIQ_KEY": row["ids"] or "",
        "KEYS": row["keys"] or "",
        "TAGS": row["tags"] or "",
        "__SHARDINGKEY": row["sharding_keys"] or "",
        **{name: value or "" for name, value in (row["properties"] or {}).items()},
    }
    return 0, row["body"], property_string.encode(properties)


@given(ROWS, st.integers(1, 300), st.integers(0, 3))
def test_batches_are_those_of_the_reference(rows: list[dict[str, Any]], bytes_max: int, skip: int) -> None:
    columns = _columns(rows).slice(min(skip, len(rows)), max(0, len(rows) - skip))
    rows = rows[skip:]
    batches = list(encode_batches(columns, bytes_max=bytes_max))
    assert sum(batch.count for batch in batches) == len(rows)
    start = 0
    for batch in batches:
        assert batch.start == start
        assert batch.body == encode_batch(map(_reference, rows[start : start + batch.count]))
        assert len(batch.body) <= bytes_max or batch.count == 1
        start += batch.count


def test_a_batch_takes_all_that_fit() -> None:
    columns = MessageColumns(pa.array([b"x" * 78] * 10))
    assert [batch.count for batch in encode_batches(columns, bytes_max=300)] == [3, 3, 3, 1]
    assert [len(batch.body) for batch in encode_batches(columns, bytes_max=1000)] == [1000]
    assert [batch.count for batch in encode_batches(columns, bytes_max=99)] == [1] * 10


def test_large_batches_are_worked_on_in_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SPAN_BYTES_MAX", 25)
    columns = MessageColumns(pa.array([b"12345678"] * 10), pa.array([f"id{row}" for row in range(10)]))
    batches = list(encode_batches(columns, bytes_max=1000))
    assert [(batch.start, batch.count) for batch in batches] == [(0, 3), (3, 3), (6, 3), (9, 1)]
    found = [item[2] for batch in batches for item in decode_batch(batch.body)]
    assert found == [f"UNIQ_KEY\x01id{row}\x02".encode() for row in range(10)]


def test_a_message_without_properties() -> None:
    assert encode_messages(MessageColumns(pa.array([b"a"])))[0].as_py() == encode_batch([(0, b"a", b"")])


@pytest.mark.parametrize("body", [None, b"", b"12345"])
def test_a_body_that_cannot_be_sent_names_its_row(body: bytes | None) -> None:
    columns = MessageColumns(pa.array([b"ok", body], pa.binary()))
    with pytest.raises(InvalidMessageError, check=about(part="body", value=1)):
        list(encode_batches(columns, bytes_max=100, body_bytes_max=4))


@pytest.mark.parametrize("name", ["tags", "keys", "sharding_keys", "ids"])
@pytest.mark.parametrize("mark", ["\x01", "\x02"])
def test_a_separator_in_a_text_names_its_row(name: str, mark: str) -> None:
    texts = pa.array([None, "fine", f"a{mark}b"])
    columns = MessageColumns(pa.array([b"a", b"b", b"c"]), **{name: texts})
    with pytest.raises(InvalidMessageError, check=about(value=2)):
        list(encode_batches(columns, bytes_max=100))


@pytest.mark.parametrize(
    ("entry", "part"),
    [(("TAGS", "x"), "TAGS"), (("a\x01", "x"), "properties"), (("a", "\x02"), "properties")],
)
def test_a_property_that_cannot_be_sent_names_its_row(entry: tuple[str, str], part: str) -> None:
    maps = pa.array([[("p", "q"), ("r", "s")], None, [("p", "q"), entry], []], PROPERTIES)
    with pytest.raises(InvalidMessageError, check=about(part=part, value=2)):
        list(encode_batches(MessageColumns(pa.array([b"a"] * 4), properties=maps), bytes_max=1000))


def test_properties_over_the_limit_name_their_row() -> None:
    columns = MessageColumns(pa.array([b"a", b"b"]), keys=pa.array(["k", "k" * 32767]))
    with pytest.raises(InvalidMessageError, check=about(part="properties", limit=32767)):
        list(encode_batches(columns, bytes_max=100_000))


def test_marks_stand_first_and_are_read_back() -> None:
    columns = MessageColumns(
        body=pa.array([b"a", b"b"]),
        ids=pa.array(["AB", "CD"]),
        marks=mark_column("spark", 9, "t", 3, np.array([5, 6])),
    )
    (batch,) = encode_batches(columns, bytes_max=10_000)
    texts = [own for _, _, own in decode_batch(batch.body)]
    assert first_of_run(texts) == (Mark("spark", 9, 5, binding("t", 3)), 2)
    assert texts[1].endswith(b"UNIQ_KEY\x01CD\x02") and texts[1].startswith(b"SPARROW_PRODUCER\x01")
    with pytest.raises(ValueError, match="producer id"):
        mark_column("a b", 0, "t", 3, np.array([0]))
