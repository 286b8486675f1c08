"""Decodes bodies that begin with a schema's id, to the reader's schema, which is fixed when the query is
planned.

The schemas of a chunk's bodies are fetched before the bodies are decoded, once for each id and process. A
body without an id or with an id that the registry does not know, is bad. An unreachable registry is an error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sparrowmq.spark.bodies.codecs import Codec, Decoded, RowCodec, short
from sparrowmq.spark.bodies.registry.client import UnknownSchemaError
from sparrowmq.spark.bodies.registry.wire import Head, fixed_length, head

Read = Callable[[bytes, Head], Any]
"""Decode a body with its header; raises anything for a bad one."""

UNKNOWN_SECONDS: Final = 10.0
"""Seconds before the registry is asked again for an unknown id."""
IDS_MAX: Final = 10_000
"""Maximum number of cached schemas; beyond that the cache is cleared."""


class Schemas:
    """Caches what `load` returns for an id. Thread-safe."""

    def __init__(self, load: Callable[[int], Any], now: Callable[[], float] = monotonic) -> None:
        self._load = load
        self._now = now
        self._lock = threading.Lock()
        self._known: dict[int, Any] = {}
        self._unknown: dict[int, tuple[float, str]] = {}

    def fetch(self, ids: set[int]) -> None:
        """Load these ids. Raises `RegistryError`."""
        with self._lock:
            for one in sorted(ids - self._known.keys()):
                since, _ = self._unknown.get(one, (float("-inf"), ""))
                if self._now() - since >= UNKNOWN_SECONDS:
                    self._ask(one)

    def _ask(self, one: int) -> None:
        for kept in (self._known, self._unknown):
            if len(kept) >= IDS_MAX:
                kept.clear()
        try:
            self._known[one] = self._load(one)
            self._unknown.pop(one, None)
        except (UnknownSchemaError, ValueError) as error:
            self._unknown[one] = (self._now(), short(error))

    def __getitem__(self, one: int) -> Any:
        """What was loaded for an id. Raises `ValueError` with the reason if the id is unknown."""
        found = self._known.get(one)
        if found is None:
            raise ValueError(f"schema {one}: {self._unknown.get(one, (0.0, 'it is unknown'))[1]}")
        return found


class RegistryCodec:
    """Removes the header from each body, and passes body and header to `read`."""

    def __init__(self, kind: str, body_format: str, schemas: Schemas, read: Read, arrow: pa.DataType) -> None:
        self._kind = kind
        self._format = body_format
        self._schemas = schemas
        self._read = read
        self._rows = RowCodec(self._one, arrow)

    def decode(self, bodies: pa.Array) -> Decoded:
        """Decode the bodies. Raises `RegistryError`."""
        length = fixed_length(self._kind, self._format)
        found: list[tuple[bytes, Head | ValueError]] = []
        heads: dict[bytes, Head] = {}
        ids: set[int] = set()
        for body in bodies.to_pylist():
            begin = body[:length]
            one = heads.get(begin) if length else None  # most bodies of a chunk have the same header
            if one is None:
                try:
                    one = heads[begin] = head(body, self._kind, self._format)
                except ValueError as error:
                    found.append((body, error))
                    continue
                ids.add(one.schema)
            found.append((body, one))
        self._schemas.fetch(ids)
        return self._rows.decode_each(found)

    def _one(self, item: tuple[bytes, Head | ValueError]) -> Any:
        body, found = item
        if isinstance(found, ValueError):
            raise found
        return self._read(body[found.start :], found)


class HeadlessCodec:
    """Removes the header from each body and passes the rest to a codec that needs no schema of a registry."""

    def __init__(self, kind: str, body_format: str, codec: Codec) -> None:
        self._kind = kind
        self._format = body_format
        self._codec = codec

    def decode(self, bodies: pa.Array) -> Decoded:
        """Decode the bodies; a body without a header is bad."""
        rest: list[bytes] = []
        reasons: dict[int, str] = {}
        for row, body in enumerate(bodies.to_pylist()):
            try:
                rest.append(body[head(body, self._kind, self._format).start :])
            except ValueError as error:
                reasons[row] = str(error)
                rest.append(b"")
        found = self._codec.decode(pa.array(rest, pa.binary()))
        if not reasons:
            return found
        bad = found.bad | np.isin(np.arange(len(rest)), list(reasons))
        kept = pa.array([None if row in reasons else row for row in range(len(rest))], pa.int64())
        return Decoded(found.values.take(kept), bad, {**found.reasons, **reasons})
