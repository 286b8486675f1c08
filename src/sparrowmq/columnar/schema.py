"""The Arrow columns of a stored record: names, types, order, and which belong to the default set."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import pyarrow as pa

from sparrowmq.core.errors import SettingsError

TIMESTAMP: Final = pa.timestamp("us", "UTC")
PROPERTIES: Final = pa.map_(pa.string(), pa.string())

TYPES: Final[dict[str, pa.DataType]] = {
    "topic": pa.string(),
    "broker": pa.string(),
    "queue_id": pa.int32(),
    "queue_offset": pa.int64(),
    "msg_id": pa.string(),
    "tags": pa.string(),
    "keys": pa.string(),
    "born_timestamp": TIMESTAMP,
    "store_timestamp": TIMESTAMP,
    "reconsume_times": pa.int32(),
    "properties": PROPERTIES,
    "body": pa.binary(),
    "flag": pa.int32(),
    "sys_flag": pa.int32(),
    "physical_offset": pa.int64(),
    "store_size": pa.int32(),
    "born_host": pa.string(),
    "store_host": pa.string(),
    "sharding_key": pa.string(),
}
"""Every column. Times are microseconds in UTC, null outside of the years 1 to 9999; `sys_flag` is as stored,
`body` is decompressed.
"""

DEFAULT_COLUMNS: Final = tuple(TYPES)[:12]
"""`topic` to `body`: the columns of a reader that names none."""


@lru_cache(maxsize=64)
def _schema(columns: tuple[str, ...]) -> pa.Schema:
    unknown = [name for name in columns if name not in TYPES]
    if unknown:
        text = f"column {unknown[0]!r} is unknown; known are {', '.join(TYPES)}"
        raise SettingsError(text, what=unknown[0])
    return pa.schema([pa.field(name, TYPES[name]) for name in columns])


def arrow_schema(columns: Sequence[str] = DEFAULT_COLUMNS) -> pa.Schema:
    """The Arrow schema of `columns`, all nullable. Raises `SettingsError` on an unknown name."""
    return _schema(tuple(columns))
