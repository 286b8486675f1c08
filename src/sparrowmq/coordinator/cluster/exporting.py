"""Messages as a file: JSON Lines, or Parquet where pyarrow is installed. It is never in memory whole."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Any, BinaryIO, Final

from sparrowmq.coordinator.cluster.bodies.unpacking import cost_of, unpacked
from sparrowmq.core.errors import RefusedError
from sparrowmq.core.message import ReceivedMessage
from sparrowmq.core.outside import json_line

MESSAGES_MAX: Final = 10_000
BYTES_MAX: Final = 32 * 1024 * 1024
"""Maximum size of the messages of one file, decompressed and with their properties."""
FILE_BYTES_MAX: Final = 2 * BYTES_MAX
GROUP_BYTES: Final = 4 * 1024 * 1024
NAME_CHARS_MAX: Final = 100
_ODD: Final = re.compile(r"[^A-Za-z0-9_-]+")


class FileFormat(StrEnum):
    """The formats of a file of messages."""

    JSONL = "jsonl"
    PARQUET = "parquet"


MEDIA_TYPES: Final = {
    FileFormat.JSONL: "application/x-ndjson",
    FileFormat.PARQUET: "application/vnd.apache.parquet",
}


def write_file(messages: Sequence[ReceivedMessage], kind: FileFormat, out: BinaryIO) -> int:
    """Write the messages, one after another, to a file; how many it has then.

    It ends before `BYTES_MAX` of messages with their bodies decompressed, and after `FILE_BYTES_MAX` of its
    own, but always has the first one.

    Raises `RefusedError` (422) when pyarrow is needed and not there.
    """
    write = _write_parquet if kind is FileFormat.PARQUET else _write_json_lines
    return write(_bounded(messages), out)


def _bounded(messages: Sequence[ReceivedMessage]) -> Iterator[ReceivedMessage]:
    size = 0
    for number, one in enumerate(messages):
        here = unpacked(one)
        size += cost_of(here) - len(one.body) + len(here.body)
        if number and size > BYTES_MAX:
            return
        yield here


def _write_json_lines(messages: Iterable[ReceivedMessage], out: BinaryIO) -> int:
    """One object on each line, bodies in base64."""
    count = 0
    for one in messages:
        line = {**_values(one), "body_base64": base64.b64encode(one.body).decode()}
        out.write(f"{json_line(line)}\n".encode())
        count += 1
        if out.tell() > FILE_BYTES_MAX:
            break
    return count


def _write_parquet(messages: Iterable[ReceivedMessage], out: BinaryIO) -> int:
    """A table with one row for each; times are timestamps, `body` has its bytes, `properties` is a map. Row
    groups have about `GROUP_BYTES`.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        text = "Parquet needs pyarrow at the coordinator: pip install 'sparrowmq[columnar]'; or take jsonl"
        raise RefusedError(text, status=422, what="pyarrow") from None
    moment = pa.timestamp("ms", tz="UTC")
    schema = pa.schema(
        {
            "topic": pa.string(), "broker": pa.string(), "queue": pa.int32(), "offset": pa.int64(),
            "message_id": pa.string(), "tags": pa.string(), "keys": pa.list_(pa.string()),
            "born_ms": moment, "stored_ms": moment, "tries": pa.int32(),
            "properties": pa.map_(pa.string(), pa.string()), "body": pa.binary(),
        }
    )  # fmt: skip
    count = 0
    with pq.ParquetWriter(out, schema) as writer:
        for group in _groups(messages):
            rows = [
                {**_values(one), "properties": list(one.properties.items()), "body": one.body}
                for one in group
            ]
            writer.write_table(pa.Table.from_pylist(rows, schema))
            count += len(rows)
    return count


def _groups(messages: Iterable[ReceivedMessage]) -> Iterator[list[ReceivedMessage]]:
    group, size = list[ReceivedMessage](), 0
    for one in messages:
        group.append(one)
        size += cost_of(one) + len(one.body)
        if size >= GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def file_name(topic: str, kind: FileFormat) -> str:
    """A name for a file about a topic that leads to no other place, whatever the topic is called."""
    plain = _ODD.sub("_", topic)[:NAME_CHARS_MAX].strip("_") or "messages"
    return f"{plain}.{kind}"


def _values(one: ReceivedMessage) -> dict[str, Any]:
    return {
        "topic": one.topic,
        "broker": one.queue.broker_name,
        "queue": one.queue.queue_id,
        "offset": one.queue_offset,
        "message_id": one.message_id,
        "tags": one.tags,
        "keys": one.keys,
        "born_ms": one.born_timestamp,
        "stored_ms": one.store_timestamp,
        "tries": one.reconsume_times,
        "properties": dict(one.properties),
    }
