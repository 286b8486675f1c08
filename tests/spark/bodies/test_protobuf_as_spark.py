"""Protobuf bodies have the values that Spark's `from_protobuf` reads; the exceptions are those of
docs/spark.md.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from tests.spark.bodies.protobuf_table import BAD, DESCRIPTORS, TYPES, Case, cases
from tests.support import about

from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.bodies.protobuf import protobuf_codec, protobuf_ddl

_LINE = pa.struct([("sku", pa.string()), ("count", pa.int32())])
_ARROW = {
    "double": pa.float64(),
    "float": pa.float32(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "decimal(20,0)": pa.decimal128(20, 0),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", "UTC"),
    TYPES["line"]: _LINE,
    TYPES["lasts"]: pa.struct([("seconds", pa.int64()), ("nanos", pa.int32())]),
    TYPES["empty"]: pa.struct([]),
    TYPES["counts"]: pa.map_(pa.string(), pa.int32()),
    TYPES["lines"]: pa.map_(pa.int64(), _LINE),
    TYPES["states"]: pa.map_(pa.bool_(), pa.string()),
}
_OLD = {"seven": "int", "text": "string", "paid": "string", "id": "int", "seconds": "bigint"}


def arrow(ddl: str) -> pa.DataType:
    """The type of a field."""
    if ddl.startswith("array<"):
        return pa.list_(pa.field("element", _ARROW[ddl.removeprefix("array<").removesuffix(">")]))
    return _ARROW[ddl]


@pytest.mark.parametrize("syntax", ["proto2", "proto3"])
def test_types_are_those_of_from_protobuf(syntax: str) -> None:
    fields = ", ".join(f"`{name}`: {kind}" for name, kind in TYPES.items())
    assert protobuf_ddl(DESCRIPTORS, f"{syntax}.Order") == f"struct<{fields}>"
    with pytest.raises(SettingsError, check=about(setting="protobufMessage", value=f"{syntax}.Tree")):
        protobuf_ddl(DESCRIPTORS, f"{syntax}.Tree")


def test_values_are_those_of_from_protobuf() -> None:
    differing = {}
    for case in cases():
        found = _read(case)
        if repr(found) != repr(case.ours):
            differing[str(case)] = (found, case.ours, case.spark)
    assert not differing


def _read(case: Case) -> Any:
    kind = arrow((TYPES | _OLD)[case.field])
    codec = protobuf_codec(DESCRIPTORS, case.read_as, pa.struct([(case.field, kind)]))
    found = codec.decode(pa.array([case.body], pa.binary()))
    if found.bad[0]:
        return BAD
    scalar = found.values[0][case.field]
    if pa.types.is_timestamp(kind):  # Python has no years beyond 9999
        return scalar.value
    value = scalar.as_py()
    return sorted(value) if pa.types.is_map(kind) else value
