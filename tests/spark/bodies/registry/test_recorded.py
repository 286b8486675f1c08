"""Bodies as `confluent-kafka` 2.16 wrote them, with the schemas it registered for them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.spark.bodies.registry.rig import Registry
from tests.spark.bodies.registry.test_reading import decoded, parsed

AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "state", "type": ["null", "string"], "default": None},
    ],
}
AVRO_BODY = bytes.fromhex("00000000010e020870616964")
PROTOBUF = base64.b64decode(
    "CgtvcmRlci5wcm90bxIEc2hvcBofZ29vZ2xlL3Byb3RvYnVmL3RpbWVzdGFtcC5wcm90byITCgRMaW5lEgsKA3NrdRgBIAEoCSJR"
    "CgVPcmRlchIKCgJpZBgBIAEoAxImCgJhdBgCIAEoCzIaLmdvb2dsZS5wcm90b2J1Zi5UaW1lc3RhbXAaFAoETm90ZRIMCgR0ZXh0"
    "GAEgASgJYgZwcm90bzM="
)
LINE, ORDER, NOTE = (
    bytes.fromhex(text)
    for text in ("0000000002000a0161", "00000000020202080712020805", "00000000020402000a016e")
)


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry() as made:
        assert made.register("orders-value", json.loads(json.dumps(AVRO))) == 1
        assert made.register("messages-value", PROTOBUF, references=[]) == 2
        yield made


@pytest.mark.usefixtures("spark")
def test_avro(registry: Registry) -> None:
    values, bad = decoded(parsed(registry, bodyFormat="avro"), AVRO_BODY)
    assert (values, bad) == ([{"id": 7, "state": "paid"}], [None])


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("message", "value"),
    [
        ("shop.Line", {"sku": "a"}),
        ("shop.Order", {"id": 7, "at": datetime.fromtimestamp(5, UTC)}),
        ("shop.Order.Note", {"text": "n"}),
    ],
)
def test_protobuf(registry: Registry, message: str, value: dict[str, Any]) -> None:
    options = parsed(registry, subscribe="messages", bodyFormat="protobuf", protobufMessage=message)
    bodies = {"shop.Line": LINE, "shop.Order": ORDER, "shop.Order.Note": NOTE}
    values, bad = decoded(options, *bodies.values())
    assert values == [value if name == message else None for name in bodies]
    assert bad == [None if name == message else body for name, body in bodies.items()]
