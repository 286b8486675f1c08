"""Avro bodies have the values that Spark's `from_avro` reads; the exceptions are those of docs/spark.md."""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import _parse_datatype_json_string
from tests.spark.bodies.avro_table import ENUM, RECORDED, VALUES, cases, schema, text

from sparrowmq.spark.bodies.avro import avro_codec, avro_ddl
from sparrowmq.spark.bodies.types import arrow_type

LINES: list[dict[str, Any]] = [json.loads(line) for line in RECORDED.read_text().splitlines()]
STRICTER = re.compile(r"bytes are left|'utf-8' codec|too large|out of range")
"""Reasons for which bodies are bad, though Spark reads them."""
LOOSER = [
    *(("boolean", body) for body in ("020e", "ff0e", "800e")),
    *(("int", body) for body in ("808080808080808080020e", "80808080808080808080010e")),
    ("long", "80808080808080808080010e"),
    (ENUM, "010e"),
    *((kind, "01040e") for kind in (["null", "int"], ["int"])),
    *((kind, "000e") for kind, _ in VALUES if isinstance(kind, dict) and kind.get("precision", 6) != 6),
]
"""Malformed data that Spark finds bad or reads as another value."""


@pytest.mark.parametrize("line", LINES, ids=[json.dumps(line["type"])[:60] for line in LINES])
def test_values_are_those_of_from_avro(line: dict[str, Any]) -> None:
    asked, spark_type = schema(line["type"]), _parse_datatype_json_string(line["spark_type"])
    assert avro_ddl(asked).replace("`", "").replace(" ", "") == f"struct<a:{spark_type.simpleString()},z:int>"
    codec = avro_codec(asked, pa.struct([("a", arrow_type(spark_type)), ("z", pa.int32())]))
    differing = {}
    for body, value in line["values"].items():
        found = codec.decode(pa.array([bytes.fromhex(body)], pa.binary()))
        ours = None if found.bad[0] else text(found.values[0]["a"])
        is_stricter = ours is None and STRICTER.search(found.reasons[0])
        if ours != value and not is_stricter:
            differing[body] = (ours, value)
    assert {*differing} == {body for kind, body in LOOSER if kind == line["type"]}, differing


def test_the_record_is_of_this_table() -> None:
    recorded = {(json.dumps(line["type"]), body) for line in LINES for body in line["values"]}
    assert recorded == {(json.dumps(kind), body.hex()) for kind, body in cases()}
