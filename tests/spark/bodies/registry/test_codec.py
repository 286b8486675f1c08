from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from tests.spark.bodies.registry.rig import confluent

from sparrowmq.spark.bodies.codecs import JsonCodec
from sparrowmq.spark.bodies.registry import codec as module
from sparrowmq.spark.bodies.registry.client import RegistryError, UnknownSchemaError
from sparrowmq.spark.bodies.registry.codec import UNKNOWN_SECONDS, HeadlessCodec, RegistryCodec, Schemas
from sparrowmq.spark.bodies.registry.wire import Head
from sparrowmq.spark.options.registry import CONFLUENT

KIND = pa.struct([("schema", pa.string()), ("text", pa.string())])


class _Load:
    """Knows schemas 1 to 9; `asked` says for which it was asked."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.down = False

    def __call__(self, schema: int) -> str:
        self.asked.append(schema)
        if self.down:
            raise RegistryError("away")
        if schema > 9:
            raise UnknownSchemaError("nobody knows it")
        if schema == 9:
            raise ValueError("it cannot be read")
        return f"schema {schema}"


def _codec(schemas: Schemas) -> RegistryCodec:
    def read(body: bytes, head: Head) -> Any:
        return {"schema": schemas[head.schema], "text": body.decode()}

    return RegistryCodec(CONFLUENT, "avro", schemas, read, KIND)


def _bodies(*bodies: bytes) -> pa.Array:
    return pa.array(bodies, pa.binary())


def test_each_schema_is_asked_for_once() -> None:
    load = _Load()
    codec = _codec(Schemas(load))
    for _ in range(2):
        found = codec.decode(_bodies(confluent(1, b"a"), confluent(2, b"b"), confluent(1, b"c")))
        assert [row["schema"] for row in found.values.to_pylist()] == ["schema 1", "schema 2", "schema 1"]
        assert [row["text"] for row in found.values.to_pylist()] == ["a", "b", "c"]
        assert found.reasons == {}
    assert load.asked == [1, 2]


def test_bad_bodies_have_their_own_reasons_and_harm_no_other() -> None:
    load = _Load()
    found = _codec(Schemas(load)).decode(
        _bodies(b"", confluent(1, b"a"), confluent(77, b"b"), confluent(9, b"c"), confluent(2, b"\xff"))
    )
    assert found.bad.tolist() == [True, False, True, True, True]
    assert "is empty" in found.reasons[0]
    assert found.reasons[2] == "schema 77: nobody knows it"
    assert found.reasons[3] == "schema 9: it cannot be read"
    assert "utf-8" in found.reasons[4]


def test_what_is_not_known_is_asked_for_again_later() -> None:
    load, clock = _Load(), [0.0]
    codec = _codec(Schemas(load, now=lambda: clock[0]))
    body = _bodies(confluent(77, b"a"))
    for _ in range(3):
        assert codec.decode(body).bad.all()
    assert load.asked == [77]
    clock[0] = UNKNOWN_SECONDS + 1
    codec.decode(body)
    assert load.asked == [77, 77]


def test_an_unavailable_schema_registry_is_not_a_bad_body() -> None:
    load = _Load()
    codec = _codec(Schemas(load))
    load.down = True
    with pytest.raises(RegistryError, match="away"):
        codec.decode(_bodies(confluent(1, b"a")))
    load.down = False
    assert not codec.decode(_bodies(confluent(1, b"a"))).bad.any()


def test_ids_that_somebody_makes_up_take_no_more_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDS_MAX", 5)
    schemas = Schemas(_Load())
    codec = _codec(schemas)
    for number in range(100, 150):
        codec.decode(_bodies(confluent(number, b"a")))
    assert len(schemas._unknown) <= 5
    assert not codec.decode(_bodies(confluent(1, b"a"))).bad.any()


def test_json_needs_no_schema() -> None:
    codec = HeadlessCodec(CONFLUENT, "json", JsonCodec(pa.struct([("id", pa.int64())])))
    found = codec.decode(_bodies(confluent(5, b'{"id":1}'), b'{"id":2}', confluent(5, b"x")))
    assert found.values.to_pylist() == [{"id": 1}, None, None]
    assert found.bad.tolist() == [False, True, True]
    assert "begins with byte 123" in found.reasons[1]
    assert "Invalid value" in found.reasons[2]
    assert codec.decode(_bodies(confluent(5, b"{}"))).reasons == {}
