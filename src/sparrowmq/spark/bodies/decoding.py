"""Decoded bodies: the columns a read gives, and how bodies that cannot be decoded are handled.

With `bodyFormat` the column `body` has the format's type in place of binary. `mode` says how bad ones are
handled, as in Spark's own readers. PERMISSIVE keeps the row with a null body, the bytes in `_corrupt_record`
and the reason in `_corrupt_reason` (if the schema has these columns). DROPMALFORMED drops the row. FAILFAST
fails the task.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from sparrowmq.columnar.arrays import flags
from sparrowmq.core.errors import SparrowError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.options.table import BodyOptions

if TYPE_CHECKING:  # a process loads only the codec it needs
    from sparrowmq.spark.bodies.codecs import Codec, Decoded

BODY: Final = "body"
NOT_DECOMPRESSED: Final = "__not_decompressed"
"""Column that a batch has only when it contains bodies that cannot be decompressed: the reason for these,
else null.
"""
_OFFSET: Final = "queue_offset"


class BadBodyError(SparrowError):
    """With `mode` FAILFAST, a body does not have the format and schema of the read."""


def body_ddl(options: BodyOptions) -> str:
    """Spark's type of the column `body`, by the options alone. Raises `SettingsError`."""
    if options.format == "avro" and not options.schema:
        from sparrowmq.spark.bodies.avro import avro_ddl

        return avro_ddl(options.avro_schema)
    if options.format == "protobuf" and not options.schema:
        from sparrowmq.spark.bodies.protobuf import protobuf_ddl

        return protobuf_ddl(options.protobuf_descriptor, options.protobuf_message)
    if options.format in ("binary", "text"):
        return "binary" if options.format == "binary" else "string"
    inner = options.needed_schema()
    return inner if inner.lower().startswith("struct<") else f"struct<{inner}>"


@lru_cache(maxsize=32)
def codec(options: BodyOptions, kind: pa.DataType) -> Codec:
    """The decoder of bodies to Arrow type `kind`; one per process. Raises `SettingsError`."""
    if options.registry is not None:
        from sparrowmq.spark.bodies.registry.reading import (
            registry_codec,  # imports nothing when there is no format
        )

        return registry_codec(options, options.registry, kind)
    if options.format == "avro":
        from sparrowmq.spark.bodies.avro import avro_codec

        return avro_codec(options.avro_schema, kind)
    if options.format == "protobuf":
        from sparrowmq.spark.bodies.protobuf import protobuf_codec

        return protobuf_codec(options.protobuf_descriptor, options.protobuf_message, kind)
    from sparrowmq.spark.bodies.codecs import JsonCodec, TextCodec

    return JsonCodec(kind, options.zone) if options.format == "json" else TextCodec()


@dataclass(frozen=True, slots=True)
class Shape:
    """The columns of a read: `stored` are decoded from records, `given` are handed to Spark as `names`."""

    stored: pa.Schema
    given: pa.Schema
    options: BodyOptions
    names: tuple[str, ...]

    def fit(self, batch: pa.RecordBatch, queue: MessageQueue) -> pa.RecordBatch:
        """Convert a batch of `stored` columns, all of `queue`, to the `given` columns. Raises `BadBodyError`
        with FAILFAST.
        """
        fitted = self._given(batch, queue)
        return fitted if list(self.names) == self.given.names else fitted.rename_columns(list(self.names))

    def _given(self, batch: pa.RecordBatch, queue: MessageQueue) -> pa.RecordBatch:
        errors = None
        if NOT_DECOMPRESSED in batch.schema.names:
            batch, errors = batch.drop_columns([NOT_DECOMPRESSED]), batch[NOT_DECOMPRESSED]
        if BODY not in self.given.names:
            return batch
        options, bodies = self.options, batch[BODY]
        if options.format == "binary":
            if errors is None and batch.schema.names == self.given.names:
                return batch
            from sparrowmq.spark.bodies.codecs import Decoded

            decoded = Decoded(bodies, np.zeros(len(bodies), np.bool_))
        else:
            decoded = codec(options, self.given.field(BODY).type).decode(bodies)
        import pyarrow.compute as pc  # the driver never needs it

        if decoded.reasons and options.mode == "failfast":
            first = min(decoded.reasons)
            raise BadBodyError(
                f"queue {queue}: the body at offset {batch[_OFFSET][first]} cannot be decoded as "
                f"{options.format} with this schema: {decoded.reasons[first]}. Option mode=PERMISSIVE "
                f"keeps such bodies in column {options.corrupt_column}, DROPMALFORMED drops them"
            )
        bad, values = flags(decoded.bad), decoded.values
        if errors is not None:
            failed = pc.is_valid(errors)
            bad, values = pc.or_(bad, failed), _nulled(values, failed)
        if options.mode == "dropmalformed" and pc.any(bad).as_py():
            good = pc.invert(bad)
            batch, values = batch.filter(good), values.filter(good)
        made = {BODY: values}
        if options.corrupt_column in self.given.names:
            made[options.corrupt_column] = pc.if_else(bad, bodies, pa.scalar(None, pa.binary()))
        if options.reason_column in self.given.names:
            made[options.reason_column] = _reasons(decoded, errors)
        columns = [made[name] if name in made else batch[name] for name in self.given.names]
        return pa.RecordBatch.from_arrays(columns, schema=self.given)


def _reasons(decoded: Decoded, errors: pa.Array | None) -> pa.Array:
    """The reason for each bad body, null for good ones; a failed decompression takes precedence."""
    count = len(decoded.bad)
    found = pa.nulls(count, pa.string())
    if decoded.reasons:
        found = pa.array([decoded.reasons.get(row) for row in range(count)], pa.string())
    if errors is None:
        return found
    import pyarrow.compute as pc

    return pc.coalesce(errors, found)


def _nulled(values: pa.Array, where: pa.Array) -> pa.Array:
    """The values, null wherever `where` is true; of any type."""
    import pyarrow.compute as pc

    rows = pa.array(range(len(values)), pa.int64())
    return values.take(pc.if_else(where, pa.scalar(None, pa.int64()), rows))


def stored_columns(given: pa.Schema, options: BodyOptions) -> pa.Schema:
    """The columns to decode from records for `given`: bodies as bytes, and the offset for FAILFAST."""
    special = (options.corrupt_column, options.reason_column)
    fields = [
        pa.field(BODY, pa.binary()) if field.name == BODY and options.format != "binary" else field
        for field in given
        if field.name not in special
    ]
    decoded = BODY in given.names and options.format != "binary"
    if decoded and options.mode == "failfast" and _OFFSET not in given.names:
        fields.append(pa.field(_OFFSET, pa.int64()))
    return pa.schema(fields)
