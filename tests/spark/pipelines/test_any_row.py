"""Rows of random schemas go all ways that messages go, and are everywhere what they were.

Each run has a random schema with odd names and nested types, and rows with values at the edges of their
types. A topic, an archive before and after it is merged, SQL and a replay must give the rows of the model.
The source's own format for JSON refuses columns with maps or binary by name.
"""

from __future__ import annotations

import json
import os
import random
import re
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from tests.spark.support import Topics

import sparrowmq as mq
from sparrowmq.core.errors import SettingsError
from sparrowmq.spark import ArchiveSettings, ReplaySettings, SqlSettings, archive, read_archive, replay, sql
from sparrowmq.spark.bodies.ddl import ddl, quoted
from sparrowmq.spark.pipelines.archive.location import content_of
from sparrowmq.spark.pipelines.common import reading

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SEEDS: Final = range(16 if os.environ.get("SPARROW_TEST_TIER") == "full" else 1)
COLUMNS: Final = 16
ROWS: Final = 12
ARCHIVED: Final = 3
"""In how many batches."""
DEPTH_MOST: Final = 3
NAMES: Final = (
    "order-id",
    "@timestamp",
    "price.net",
    "a`b",
    "``",
    "two words",
    "größe",
    "select",
    "1st",
    "x:y,z",
    "_",
)
EDGES: Final[dict[str, tuple[Any, ...]]] = {
    "boolean": (True, False),
    "tinyint": (-128, 0, 127),
    "smallint": (-(2**15), 2**15 - 1),
    "int": (-(2**31), -1, 2**31 - 1),
    "bigint": (-(2**63), 0, 2**63 - 1),
    "float": (0.5, -0.0, float("nan"), float("inf"), 2.0**-149, 2.0**127),
    "double": (5e-324, 1.7976931348623157e308, -0.0, float("nan"), float("-inf"), 0.1),
    "decimal(38,18)": (Decimal("99999999999999999999.999999999999999999"), Decimal("-0.000000000000000001")),
    "decimal(5,0)": (Decimal(99999), Decimal(-99999), Decimal(0)),
    "binary": (b"", b"\x00\xff", b"a" * 100),
    "string": ("", "a\nb\t\x00", "größe 😀", '"\\', "null"),
    "date": (date(1, 1, 1), date(1582, 10, 10), date(9999, 12, 31)),
    "timestamp": (
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
    ),
    "timestamp_ntz": (
        datetime(1, 1, 1),
        datetime(2024, 3, 31, 2, 30),
        datetime(9999, 12, 31, 23, 59, 59, 999999),
    ),
}


REFUSED: Final = re.compile("map<|binary")
"""Types that `bodyFormat=json` refuses."""


class Entries(dict[str, Any]):
    """A value of a map, which Arrow gives as a list of pairs."""


class Rows:
    """A random schema, and values of it."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        made = [self._type(0) for _ in range(COLUMNS)]
        self.columns = {self._name(n): kind for n, (kind, _) in enumerate(made)}
        makers = [make for _, make in made]
        self.values = [
            {name: make() for name, make in zip(self.columns, makers, strict=True)} for _ in range(ROWS)
        ]
        self.schema = ddl(self.columns)

    def _name(self, number: int) -> str:
        return f"{self._random.choice(NAMES)}{number}"

    def _type(self, depth: int) -> tuple[str, Callable[[], Any]]:
        choice = self._random.random()
        if depth < DEPTH_MOST and choice < 0.2:
            kind, make = self._type(depth + 1)
            return f"array<{kind}>", self._or_null(lambda: [make() for _ in range(self._random.randrange(3))])
        if depth < DEPTH_MOST and choice < 0.3:
            kind, make = self._type(depth + 1)
            keys = EDGES["string"]
            return f"map<string,{kind}>", self._or_null(
                lambda: Entries((key, make()) for key in self._random.sample(keys, self._random.randrange(3)))
            )
        if depth < DEPTH_MOST and choice < 0.5:
            inner = {self._name(n): self._type(depth + 1) for n in range(self._random.randrange(1, 4))}
            fields = ",".join(f"{quoted(name)}:{kind}" for name, (kind, _) in inner.items())
            return f"struct<{fields}>", self._or_null(
                lambda: {name: one() for name, (_, one) in inner.items()}
            )
        kind = self._random.choice(list(EDGES))
        return kind, self._or_null(lambda: self._random.choice(EDGES[kind]))

    def _or_null(self, make: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: None if self._random.random() < 0.15 else make()


def as_json(value: Any) -> str:
    """The text of a value in a body."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{as_json(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(as_json, value)) + "]"
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, bytes):
        return json.dumps(b64encode(value).decode())
    return json.dumps(value.isoformat() if isinstance(value, date) else value)


def found(frame: DataFrame, column: str) -> dict[str, str]:
    """The values of a column by the tags of their messages, as texts that tell -0.0 from 0.0."""
    table = frame.select("tags", column).toArrow()
    pairs = zip(table["tags"].to_pylist(), table[column].to_pylist(), strict=True)
    return {tag: text(value) for tag, value in pairs}


def text(value: Any) -> str:
    """A value of the model and of Arrow alike."""
    if isinstance(value, Entries):
        value = list(value.items())
    if isinstance(value, dict):
        return "{" + ",".join(f"{name}={text(one)}" for name, one in value.items()) + "}"
    if isinstance(value, tuple):
        return f"{value[0]!r}: {text(value[1])}"
    if isinstance(value, list):
        return "[" + ",".join(map(text, value)) + "]"
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).isoformat()
    return f"{value:f}" if isinstance(value, Decimal) else repr(value)


def read_as_json(spark: SparkSession, options: dict[str, str], rows: Rows) -> None:
    """Read bodies by the source: it refuses a column by name, or gives its values."""
    refused = [name for name, kind in rows.columns.items() if REFUSED.search(kind)]
    if refused:
        names = "|".join(map(re.escape, refused))
        with pytest.raises(Exception, match=rf"cannot read column body\.({names})\b.*, which has type"):
            found(reading.batch(spark, {**options, "bodySchema": rows.schema}), "body")
    kept = {name: kind for name, kind in rows.columns.items() if name not in refused}
    model = {
        f"r{number}": text({name: value[name] for name in kept}) for number, value in enumerate(rows.values)
    }
    assert found(reading.batch(spark, {**options, "bodySchema": ddl(kept)}), "body") == model


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_are_everywhere_what_they_were(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path, seed: int
) -> None:
    rows, server, out = Rows(seed), topics.cluster.namesrv, f"{topic}_out"
    topics.cluster.create_topic(out, queues=2)
    model = {f"r{number}": text(value) for number, value in enumerate(rows.values)}
    literal = f"struct<{rows.schema}>".replace("\\", "\\\\").replace("'", "\\'")
    settings = ArchiveSettings(
        directory=tmp_path / "archive",
        topics=(topic,),
        name_server=server,
        compact_batches=2,
        select=(f"from_json(cast(body as string), '{literal}') as j",),
    )
    for begin in range(0, ROWS, ROWS // ARCHIVED):
        for number in range(begin, begin + ROWS // ARCHIVED):
            body = as_json(rows.values[number]).encode()
            topics.producer.send(mq.Message(topic, body, tags=f"r{number}"))
        archive(spark, settings)

    units = content_of(settings.directory).ledger.units
    assert len(units) < ARCHIVED, "some were merged"
    options = topics.options(topic, bodyFormat="json", mode="FAILFAST")
    read_as_json(spark, options, rows)
    assert found(read_archive(spark, settings.directory), "j") == model
    kept = SqlSettings(directory=settings.directory, live=False)
    assert found(sql(spark, f"select tags, j from {topic}", kept), "j") == model
    to = ReplaySettings(home=tmp_path / "replay", to=out, topics=(topic,), name_server=server)
    assert replay(spark, to).rows == ROWS
    read_as_json(spark, {**options, "subscribe": out}, rows)


@pytest.mark.parametrize(
    ("select", "message"),
    [
        (
            "named_struct('a', 1, 'A', 2) as j",
            "column 'j' has fields 'a' and 'A', which differ at most in case",
        ),
        (
            "array(named_struct('b', named_struct('a', 1, 'a', 2))) as j",
            "column 'j[].b' has fields 'a' and 'a'",
        ),
        ("named_struct('i', make_interval(1)) as j", "column 'j.i' has type interval"),
        ("map('k', make_interval(1)) as j", "column 'j.value' has type interval"),
        ("1 as Topic", "column 'Topic' already exists"),
    ],
)
def test_what_cannot_be_read_back_is_refused_before_anything_is_written(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path, select: str, message: str
) -> None:
    topics.send(topic, 1)
    settings = ArchiveSettings(
        directory=tmp_path / "archive", topics=(topic,), name_server=topics.cluster.namesrv, select=(select,)
    )
    with pytest.raises(SettingsError, match=re.escape(message)):
        archive(spark, settings)
    assert not content_of(settings.directory).ledger.units
    assert not list((tmp_path / "archive").rglob("*.parquet"))
