"""JSON bodies have the values that Spark's `from_json` reads; the exceptions are those of docs/spark.md."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql.types import _parse_datatype_string

from sparrowmq.spark.bodies.codecs import JsonCodec
from sparrowmq.spark.bodies.types import arrow_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KINDS = {
    "t": "timestamp",
    "n": "timestamp_ntz",
    "d": "date",
    "x": "decimal(10,2)",
    "y": "decimal(38,18)",
    "i": "bigint",
    "j": "int",
    "h": "smallint",
    "f": "double",
    "g": "float",
    "s": "string",
    "b": "boolean",
    "l": "array<bigint>",
    "o": "struct<a:bigint,t:timestamp>",
}
TIMES = [
    f"2024-05-01{between}12:00:00{fraction}{zone}"
    for between in "T "
    for fraction in ["", *(f".{'123456789'[:digits]}" for digits in range(1, 10)), ".1234567890"]
    for zone in ("", "Z", "+02:00")
]
TIMES += [
    f"2024-05-01T12:00:00{zone}"
    for zone in ("+0200", "+02", "-08:00", " Z", "UTC", "GMT+1", " Europe/Berlin", "z", "+05:45", "+18:00")
]
TIMES += """2024-05-01T12:00|2024-05-01T12|2024-05-01|2024-05|2024|2024-05-01T|2024-5-1|2024-5-1 1:2:3
2024-05-01T24:00:00|2024-05-01T23:59:60|2024-02-30|2024-13-01|2023-02-29|20240501T120000| 2024-05-01
2024-05-01T12:00:00.|2024-05-01T12:00:00.Z|2024-05-01T12:00:00,5|2024-05-01t12:00:00|2024-05-01 garbage
2024-05-01T12:00:00[Europe/Berlin]|2024-05-01T12:00:00.123 +02:00|0001-01-01|0000-01-01|10000-01-01
-0001-01-01|+2024-05-01|9999-12-31T23:59:59.9999999|1582-10-10|1883-11-18T12:00:00|1969-12-31T23:59:59.9999999Z
2024-03-31T02:30:00|2024-10-27T02:30:00|1986-01-01T00:10:00||now|today|epoch|05/01/2024|2024/05/01|2024-W01-1
2024-001""".replace("\n", "|").split("|")
NUMBERS = """0 -0 12 12.5 12.34 12.345 12.355 12.335 -12.345 12.3449999 0.005 0.0049 -0.005 1.250 -0.00 1E1
1e2 1E-2 1.5e1 1e-10 99999999.99 99999999.994 99999999.995 100000000 1e-7 NaN Infinity -Infinity INF 127
32767 32768 -32769 2147483647 2147483648 9223372036854775807 9223372036854775808 -9223372036854775808 1.0
01 +1 .5 5. 0x10 nan 1e --1 1d 3.4028235e38 3.5e38 16777217 0.1234567 1e308
12345678901234567890.1234567890123456789 0.1234567890123456785 1.7976931348623157e308""".split()
ODD = ["null", "true", '"a"', '""', "[]", "{}", "[1]", '{"a":1}', '"true"', "[null]", '[1,"a"]', '{"a":"x"}']
BODIES = [
    "",
    " ",
    "{}",
    "[]",
    '[{"i":1}]',
    ' {"i":1}\n',
    '{"I":1}',
    '{"z":1,"z":2,"i":1}',
    '{"i":1',
    '{"i":1,}',
    "7",
]
BODIES += [
    "{i:1}",
    '\ufeff{"i":1}',
    '{"z":[[[1]]],"i":3}',
    '{"z":01,"i":3}',
    '{"o":{"t":"2024-05-01 1:2:3"}}',
]


def field(name: str, value: str) -> str:
    """A body with one field."""
    return f'{{"{name}":{value}}}'


STRICTER = [
    *(field("s", value) for value in ("true", "1", "1.5", "[]", "{}", "'a'", '"\\ud83d"')),
    *(field(name, f'"{value}"') for name in "fg" for value in ("NaN", "Infinity", "-Infinity")),
    *(field(name, value) for name in "fg" for value in ("1e400", "-1e400", "+Infinity", "-INF")),
    *(field(name, value) for name in "xy" for value in ("1e-400", "4.9e-324")),
    *(field("t", value) for value in ("1", "1714564800", '"12:30"', '"T12:30"')),
    *(field("d", f'"{value}"') for value in ("1", "20240501", "1714564800")),
    *('{"i":1' + rest for rest in (',"i":2}', '}{"i":2}', "} x", "} // c")),
]
"""Bad, though Spark reads them."""
LOOSER = ['{"t":"2024-05-01T12:00Z"}', '{"t":"2024-05-01T12Z"}', '{"t":"2024-05-01T12:00:00+19:00"}', "null"]
"""Read, though Spark does not."""


def bodies() -> list[str]:
    found = [field(name, json.dumps(text)) for text in TIMES for name in "tnd"]
    for text in NUMBERS:
        found += [field(name, value) for name in "xyijhfg" for value in (text, f'"{text}"')]
    found += [field(name, value) for name in KINDS for value in ODD]
    left_out = {*STRICTER, *LOOSER, *(field("s", value) for value in ODD)}
    return [*(one for one in dict.fromkeys([*found, *BODIES]) if one not in left_out), *STRICTER, *LOOSER]


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Asia/Kathmandu"])
def test_values_are_those_of_from_json(spark: SparkSession, zone: str) -> None:
    from pyspark.sql import functions as F

    fields = ", ".join(f"{name} {kind}" for name, kind in KINDS.items())
    given = bodies()
    frame = spark.createDataFrame(list(enumerate(given)), "id int, body string")
    read = F.from_json("body", f"{fields}, _corrupt_record string", {"timeZone": zone})
    theirs = frame.select("id", read.alias("r")).orderBy("id").toArrow()["r"].combine_chunks()
    kind = arrow_type(_parse_datatype_string(f"struct<{fields}>"))
    ours = JsonCodec(kind, zone).decode(pa.array([body.encode() for body in given]))
    refused = pc.fill_null(pc.is_valid(pc.struct_field(theirs, "_corrupt_record")), True).to_pylist()
    differing = {
        body: (ours.reasons.get(row, ours.values[row]), theirs[row])
        for row, body in enumerate(given)
        if body not in STRICTER and body not in LOOSER
        if bool(ours.bad[row]) != (refused[row] or not theirs[row].is_valid)
        or (not ours.bad[row] and not _same(ours.values[row], theirs[row], kind))
    }
    assert not differing
    first = len(given) - len(STRICTER) - len(LOOSER)
    for row in range(first, len(given)):
        assert (bool(ours.bad[row]), refused[row]) == (
            (True, False) if row < first + len(STRICTER) else (False, True)
        )


def _same(ours: Any, theirs: Any, kind: pa.DataType) -> bool:
    pairs = [(ours[name], theirs[name]) for name in kind.names]
    return all(repr(_raw(one)) == repr(_raw(other)) or one.equals(other) for one, other in pairs)


def _raw(value: Any) -> Any:
    """Python's value, or the number of microseconds where Python has none."""
    if pa.types.is_struct(value.type) and value.is_valid:
        return {name: _raw(value[name]) for name in ("a", "t")}
    is_time = pa.types.is_timestamp(value.type) or pa.types.is_date(value.type)
    return value.value if is_time and value.is_valid else value.as_py()


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_a_value_does_not_depend_on_its_neighbours(zone: str) -> None:
    kind = pa.struct([("t", pa.timestamp("us", "UTC")), ("n", pa.timestamp("us")), ("d", pa.date32())])
    odd = b'{"t":"2024-5-1","n":"2024-5-1","d":"2024-5-1"}'
    looser = [one for one in LOOSER if one != "null"]
    for body in [*(field(name, json.dumps(text)) for text in TIMES for name in "tnd"), *looser]:
        alone = JsonCodec(kind, zone).decode(pa.array([body.encode()]))
        beside = JsonCodec(kind, zone).decode(pa.array([body.encode(), odd]))
        assert alone.bad[0] == beside.bad[0], body
        assert alone.values.equals(beside.values.slice(0, 1)), body
