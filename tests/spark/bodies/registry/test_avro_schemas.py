from __future__ import annotations

import json
from typing import Any

import pytest

from sparrowmq.spark.bodies.avro import avro_ddl, avro_schema
from sparrowmq.spark.bodies.registry.avro_schemas import whole
from sparrowmq.spark.bodies.registry.client import Registered, RegistryError


def _record(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": "f", "type": kind}], **more}


def _whole(schema: Any, **references: Any) -> Any:
    found = Registered(json.dumps(schema), "AVRO", tuple((n, json.dumps(s)) for n, s in references.items()))
    text = whole(found)
    avro_schema(text)  # fastavro takes it
    return json.loads(text)


def test_referenced_schemas_are_inlined_at_their_first_use() -> None:
    line = _record("Line", "string", namespace="shop")
    order = _record("shop.Order", {"type": "array", "items": "Line"})
    order["fields"].append({"name": "first", "type": ["null", "shop.Line"], "default": None})
    assert _whole(order, line=line) == {
        "type": "record",
        "name": "shop.Order",
        "fields": [
            {"name": "f", "type": {"type": "array", "items": _record("shop.Line", "string")}},
            {"name": "first", "type": ["null", "shop.Line"], "default": None},
        ],
    }


def test_references_of_references_and_their_namespaces() -> None:
    money = _record("Money", "long", namespace="base")
    line = _record("Line", "base.Money", namespace="shop")
    order = _record("Order", {"type": "map", "values": "shop.Line"}, namespace="top")
    made = _whole(order, money=money, line=line)
    assert avro_ddl(json.dumps(made)) == "struct<`f`: map<string, struct<`f`: struct<`f`: bigint>>>>"


def test_names_within_are_made_full() -> None:
    inner = _record("Inner", {"type": "enum", "name": "E", "symbols": ["A"]})
    outer = _record("Outer", inner, namespace="n")
    outer["fields"].append({"name": "g", "type": "E"})
    made = _whole(outer)
    assert made["fields"][0]["type"]["name"] == "n.Inner"
    assert made["fields"][0]["type"]["fields"][0]["type"]["name"] == "n.E"
    assert made["fields"][1]["type"] == "n.E"
    assert avro_ddl(json.dumps(made)) == "struct<`f`: struct<`f`: string>, `g`: string>"


@pytest.mark.parametrize("text", ["no json", '{"type": "record", "name": "R", "fields": [{"name": "x"}]}'])
def test_schemas_that_cannot_be_read_say_so(text: str) -> None:
    with pytest.raises(RegistryError, match="Avro schema cannot be read"):
        whole(Registered(text))
