"""Decoded bodies: the columns a read gives, and what becomes of bodies that cannot be decoded.

With `bodyFormat` the column `body` has the format's type in place of binary. `mode` says what becomes of bad
ones, as in Spark's own readers: PERMISSIVE keeps the row with a null body and the bytes in `_corrupt_record`
(if the schema has that column), DROPMALFORMED leaves it out, FAILFAST ends the task.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from sparrowmq.core.errors import SparrowError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.body_avro import avro_codec, avro_ddl
from sparrowmq.spark.body_codecs import Codec, JsonCodec, TextCodec
from sparrowmq.spark.body_protobuf import protobuf_codec, protobuf_ddl
from sparrowmq.spark.options import BodyOptions

BODY: Final = "body"
SHUT: Final = "__shut"
"""Column that a batch has only when bodies of it are shut (`shut_bodies`): true for these."""
_OFFSET: Final = "queue_offset"


class BadBodyError(SparrowError):
    """A body is not of the format and schema that a read asks for, and `mode` is FAILFAST."""


def body_ddl(options: BodyOptions) -> str:
    """Spark's type of the column `body`, by the options alone. Raises `SettingsError`."""
    if options.format == "avro" and not options.schema:
        return avro_ddl(options.avro_schema)
    if options.format == "protobuf" and not options.schema:
        return protobuf_ddl(options.protobuf_descriptor, options.protobuf_message)
    if options.format in ("binary", "text"):
        return "binary" if options.format == "binary" else "string"
    inner = options.needed_schema()
    return inner if inner.lower().startswith("struct<") else f"struct<{inner}>"


@lru_cache(maxsize=32)
def codec(options: BodyOptions, kind: pa.DataType) -> Codec:
    """What decodes bodies as Arrow type `kind`; one per process. Raises `SettingsError`."""
    if options.format == "avro":
        return avro_codec(options.avro_schema, kind)
    if options.format == "protobuf":
        return protobuf_codec(options.protobuf_descriptor, options.protobuf_message, kind)
    return JsonCodec(kind) if options.format == "json" else TextCodec()


@dataclass(frozen=True, slots=True)
class Shape:
    """The columns of a read: `stored` are decoded from records, `given` is what Spark gets."""

    stored: pa.Schema
    given: pa.Schema
    options: BodyOptions

    def fit(self, batch: pa.RecordBatch, queue: MessageQueue) -> pa.RecordBatch:
        """A batch of `stored` columns, all of `queue`, as `given`. Raises `BadBodyError` with FAILFAST."""
        if SHUT in batch.schema.names:
            batch, shut = batch.drop_columns([SHUT]), batch[SHUT]
        else:
            shut = None
        if BODY not in self.given.names:
            return batch
        if self.options.format == "binary":
            return batch if shut is None else self._without(batch, shut)
        options, bodies = self.options, batch[BODY]
        decoded = codec(options, self.given.field(BODY).type).decode(bodies)
        bad, values = pa.array(decoded.bad), decoded.values
        if decoded.bad.any() and options.mode == "failfast":
            first = int(decoded.bad.argmax())
            raise BadBodyError(
                f"queue {queue}: the body at offset {batch[_OFFSET][first]} is not {options.format} of the "
                f"schema: {decoded.reason}. Option mode=PERMISSIVE keeps such bodies in column "
                f"{options.corrupt_column}, DROPMALFORMED leaves them out"
            )
        if shut is not None:
            bad, values = pc.or_(bad, shut), _nulled(values, shut)
        if options.mode == "dropmalformed" and pc.any(bad).as_py():
            good = pc.invert(bad)
            batch, values = batch.filter(good), values.filter(good)
        made = {BODY: values}
        if options.corrupt_column in self.given.names:
            made[options.corrupt_column] = pc.if_else(bad, bodies, pa.scalar(None, pa.binary()))
        columns = [made[name] if name in made else batch[name] for name in self.given.names]
        return pa.RecordBatch.from_arrays(columns, schema=self.given)

    def _without(self, batch: pa.RecordBatch, shut: pa.Array) -> pa.RecordBatch:
        """Binary bodies without the shut ones, as `mode` says."""
        if self.options.mode == "dropmalformed":
            return batch.filter(pc.invert(shut))
        columns = [_nulled(batch[name], shut) if name == BODY else batch[name] for name in batch.schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _nulled(values: pa.Array, where: pa.Array) -> pa.Array:
    """The values, null `where` is true; of any type."""
    rows = pa.array(range(len(values)), pa.int64())
    return values.take(pc.if_else(where, pa.scalar(None, pa.int64()), rows))


def stored_columns(given: pa.Schema, options: BodyOptions) -> pa.Schema:
    """What has to be decoded from records for `given`: bodies as bytes, and the offset for FAILFAST."""
    if options.format == "binary":
        return given
    fields = [
        pa.field(BODY, pa.binary()) if field.name == BODY else field
        for field in given
        if field.name != options.corrupt_column
    ]
    if options.mode == "failfast" and _OFFSET not in given.names:
        fields.append(pa.field(_OFFSET, pa.int64()))
    return pa.schema(fields)
