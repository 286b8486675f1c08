"""Avro bodies and the values that Spark's `from_avro` reads from them, recorded in `avro.jsonl`.

    python -m tests.spark.bodies.avro_table SPARK_AVRO_JAR

records them anew, with `org.apache.spark:spark-avro_2.13` from Maven.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

RECORDED = Path(__file__).parents[1] / "data" / "avro.jsonl"
END = b"\x0e"
"""The value 7 of the record's last field: where Spark has it not, the body is bad."""


def logical(underlying: str, name: str, **more: Any) -> dict[str, Any]:
    """A logical type."""
    return {"type": underlying, "logicalType": name, **more}


def number(value: int) -> bytes:
    """An `int` or `long`."""
    left = (value << 1) ^ (value >> 63)
    out = bytearray()
    while left > 127:
        out.append(left & 127 | 128)
        left >>= 7
    return bytes([*out, left])


def sized(value: bytes) -> bytes:
    """A `string` or `bytes`."""
    return number(len(value)) + value


TEXTS = [b"", b"a", "größe 😀".encode(), b"\x00", b"\xff", b"a\xed\xa0\x80b", b"\xc0\xaf", b"\xe2\x82"]
INTS = [0, 1, -1, 2**31 - 1, -(2**31)]
LONGS = [*INTS, 2**31, -(2**31) - 1, 2**63 - 1, -(2**63)]
OVERLONG = [b"\x80\x00", b"\x82\x80\x80\x80\x00", b"\xff\xff\xff\xff\x7f", b"\x80" * 5 + b"\x01"]
OVERLONG += [b"\xff" * 9 + b"\x7f", b"\x80" * 9 + b"\x02", b"\x80" * 10 + b"\x01"]
MICROS = [0, 1, -1, 1_714_564_800_123_456, -62_135_596_800_000_001, -62_135_596_800_000_000]
MICROS += [253_402_300_799_999_999, 253_402_300_800_000_000, 2**63 - 1, -(2**63), 2**53]
MILLIS = [0, 1, -1, 1_714_564_800_123, -62_135_596_800_001, 253_402_300_799_999, 253_402_300_800_000]
MILLIS += [1_763_596_800_000_000, 9_223_372_036_854_775, 9_223_372_036_854_776, 2**63 - 1, -(2**63)]
DAYS = [0, 1, -1, 19_844, -719_162, -719_163, 2_932_896, 2_932_897, 2**31 - 1, -(2**31), -141_428, -141_427]
UNSCALED = [b"", b"\x00", b"\x01", b"\xff", b"\x04\xd2", b"\x7f" * 4, b"\x80" + b"\x00" * 3, b"\x00" * 20]
UNSCALED += [b"\x05\xf5\xe0\xff", b"\x05\xf5\xe1\x00", b"\x7f" * 16, b"\x7f" * 17, b"\x7f" * 30, b"\xff" * 9]
UNSCALED += [(10**38 - 1).to_bytes(16), (10**38).to_bytes(16), b"\x7f" * 8]
FLOATS = "00000000 00000080 0000803f 0000c07f 0000c0ff 0100807f 0000807f 000080ff 01000000 ffff7f7f".split()
DOUBLES = [f"{'0' * 8}{one}" for one in "00000000 00000080 0000f03f 0000f87f 0000f07f 0000f0ff".split()]
DOUBLES += ["0100000000000000", "ffffffffffffef7f", "9a9999999999b93f"]
ENUM = {"type": "enum", "name": "E", "symbols": ["NEW", "PAID"]}
PAIR = {
    "type": "record",
    "name": "P",
    "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "string"}],
}
COUNTED = [b"\x00", number(2) + b"\x02\x04\x00", number(1) + b"\x02" + number(1) + b"\x04\x00"]
COUNTED += [number(-2) + number(2) + b"\x02\x04\x00", number(-2) + number(9) + b"\x02\x04\x00"]
COUNTED += [number(2) + b"\x02\x00", number(1), number(2**40) + b"\x02", number(-(2**63)) + b"\x02\x00"]
ENTRIES = [b"\x00", number(2) + sized(b"a") + b"\x02" + sized(b"b") + b"\x04\x00"]
ENTRIES += [number(2) + sized(b"a") + b"\x02" + sized(b"a") + b"\x04\x00"]
ENTRIES += [number(1) + sized(b"\xff") + b"\x02\x00", number(-1) + number(3) + sized(b"a") + b"\x02\x00"]
CHOICES = [b"\x00", b"\x02\x04", b"\x00\x04", b"\x02", b"\x04\x04", b"\x01\x04", b"\x02\x02a", b"\x00\x02a"]

VALUES: list[tuple[Any, list[bytes]]] = [
    ("boolean", [b"\x00", b"\x01", b"\x02", b"\xff", b"\x80"]),
    ("int", [*map(number, INTS), *OVERLONG, number(2**31), number(-(2**31) - 1)]),
    ("long", [*map(number, LONGS), *OVERLONG]),
    ("float", [bytes.fromhex(one) for one in FLOATS]),
    ("double", [bytes.fromhex(one) for one in DOUBLES]),
    ("string", [*map(sized, TEXTS), number(-1), number(5) + b"a", number(2**40) + b"a", number(2**31)]),
    ("bytes", [*map(sized, TEXTS), number(-1), number(5) + b"a", number(-(2**63))]),
    (ENUM, [number(one) for one in (0, 1, 2, -1, 2**31)]),
    ({"type": "fixed", "name": "F", "size": 2}, [b"ab", b"\x00\xff", b"a"]),
    ({"type": "fixed", "name": "F", "size": 0}, [b""]),
    ({"type": "array", "items": "int"}, COUNTED),
    ({"type": "array", "items": ["null", "int"]}, [b"\x00", number(2) + b"\x00\x02\x04\x00"]),
    ({"type": "map", "values": "int"}, ENTRIES),
    ({"type": "map", "values": ["int", "null"]}, [number(1) + sized(b"a") + b"\x02\x00"]),
    (["null", "int"], CHOICES),
    (["string", "null"], CHOICES),
    (["int"], CHOICES),
    (["null", ENUM], [b"\x00", b"\x02\x00", b"\x02\x04"]),
    (PAIR, [b"\x02" + sized(b"a"), b"\x02" + sized(b"\xff"), b"\x02"]),
    (["null", PAIR], [b"\x00", b"\x02\x02" + sized(b"a")]),
    (logical("int", "date"), [*map(number, DAYS), number(2**31)]),
    *[
        (logical("long", f"{local}timestamp-{unit}"), [number(one) for one in values])
        for local in ("", "local-")
        for unit, values in (("millis", MILLIS), ("micros", MICROS))
    ],
    (logical("int", "time-millis"), [number(one) for one in (0, 1, -1, 86_399_999, 86_400_000)]),
    (logical("string", "uuid"), [sized(b"not checked"), sized(b"0190a5c1-0000-7000-8000-000000000000")]),
    ({**logical("fixed", "duration"), "name": "D", "size": 12}, [b"\x01" * 12]),
    ({**logical("fixed", "uuid"), "name": "U", "size": 16}, [b"\x01" * 16]),
    (logical("int", "odd"), [b"\x02"]),
    (logical("string", "timestamp-millis"), [sized(b"a")]),
    *[
        (logical("bytes", "decimal", precision=precision, scale=scale), [*map(sized, UNSCALED)])
        for precision, scale in ((8, 2), (20, 0), (38, 18))
    ],
    (
        {**logical("fixed", "decimal", precision=6, scale=2), "name": "M", "size": 4},
        UNSCALED[5:7] + UNSCALED[8:10],
    ),
]


def cases() -> Iterator[tuple[Any, bytes]]:
    """Each type with its bodies: the value and the end, the value alone, and both with more bytes."""
    for kind, values in VALUES:
        for value in values:
            yield kind, value + END
        yield kind, values[0]
        yield kind, values[0] + END + b"\x00"
        yield kind, b""


def schema(kind: Any) -> str:
    """The schema of bodies with a value of that type."""
    fields = [{"name": "a", "type": kind}, {"name": "z", "type": "int"}]
    return json.dumps({"type": "record", "name": "R", "fields": fields})


def text(value: pa.Scalar) -> str:
    """A value with its type: days and microseconds beyond Python's calendar, and texts that are not UTF-8."""
    kind = value.type
    if not value.is_valid:
        return "null"
    if pa.types.is_struct(kind):
        return f"{{{', '.join(f'{name}: {text(value[name])}' for name in kind.names)}}}"
    if pa.types.is_map(kind) or pa.types.is_list(kind):
        return f"[{', '.join(text(one) for one in value.values)}]"
    if pa.types.is_temporal(kind):
        return f"{kind}: {value.value}"
    plain = value.as_buffer().to_pybytes() if pa.types.is_string(kind) else value.as_py()
    return f"{kind}: {plain!r}"


def main(jar: str) -> None:
    """Ask Spark."""
    from sparrowmq.spark.sessions import builder

    spark = builder("avro table").getOrCreate()
    spark.sql(f"ADD JAR '{jar}'")
    asked = list(cases())
    read = [
        f"from_avro(x'{body.hex()}', '{schema(kind)}', map('mode', 'PERMISSIVE')) c{number}"
        for number, (kind, body) in enumerate(asked)
    ]
    frame = spark.sql(f"SELECT {', '.join(read)}")
    found = frame.toArrow()
    lines: dict[str, dict[str, Any]] = {}
    for number, (kind, body) in enumerate(asked):
        value = found.column(number)[0]
        bad = not value.is_valid or not value["z"].is_valid
        type_json = frame.schema[number].dataType["a"].dataType.json().replace(": false", ": true")
        line = lines.setdefault(json.dumps(kind), {"type": kind, "spark_type": type_json, "values": {}})
        line["values"][body.hex()] = None if bad else text(value["a"])
    RECORDED.write_text("".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines.values()))


if __name__ == "__main__":
    main(sys.argv[1])
