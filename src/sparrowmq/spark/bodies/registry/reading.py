"""Reads with a registry: the driver chooses the reader's schema, and tasks decode with it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import pyarrow as pa

from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.bodies.avro import avro_library, avro_schema, check_struct, read_datum
from sparrowmq.spark.bodies.codecs import Codec, JsonCodec
from sparrowmq.spark.bodies.protobuf import protobuf_codec, protobuf_read
from sparrowmq.spark.bodies.registry.avro_schemas import whole
from sparrowmq.spark.bodies.registry.client import (
    Registered,
    RegistryClient,
    RegistryError,
    UnknownSchemaError,
)
from sparrowmq.spark.bodies.registry.codec import HeadlessCodec, RegistryCodec, Schemas
from sparrowmq.spark.bodies.registry.protobuf_schemas import descriptor_set, message_name
from sparrowmq.spark.bodies.registry.wire import Head
from sparrowmq.spark.options.registry import ROCKETMQ, RegistrySettings
from sparrowmq.spark.options.table import BodyOptions, ReadOptions

T = TypeVar("T")


def settled(options: ReadOptions) -> ReadOptions:
    """The options of a read, completed with the reader's schema: the newest of the subject, unless one is
    given.

    Called when a query is planned; tasks receive the result. Raises `RegistryError`, `SettingsError`.
    """
    body = options.body
    if body.registry is None or not needs_newest(body):
        return options
    if not body.registry.subject:
        own = "avroSchema" if body.format == "avro" else "protobufDescriptor"
        raise SettingsError(
            "the schema is unknown: a read of a single topic uses the topic's schema; other reads need "
            f"schemaRegistrySubject or {own}"
        )
    try:
        found = RegistryClient(body.registry).newest(serialized=body.format == "protobuf")
    except UnknownSchemaError as error:
        raise SettingsError(
            f"{error}: the subject schemaRegistrySubject={body.registry.subject!r} does not exist"
        ) from None
    if body.format == "avro":
        return replace(options, avro_schema=_avro_text(found))
    name = body.protobuf_message or message_name(found, (0,))
    return replace(options, protobuf_descriptor=descriptor_set(found), protobuf_message=name)


def needs_newest(body: BodyOptions) -> bool:
    """Whether the reader's schema is the newest in the registry."""
    if body.format == "avro":
        return not body.avro_schema
    return body.format == "protobuf" and not body.protobuf_descriptor


def registry_codec(options: BodyOptions, registry: RegistrySettings, kind: pa.DataType) -> Codec:
    """The decoder of bodies with a header, to Arrow type `kind`. Raises `SettingsError`."""
    if options.format == "json":
        return HeadlessCodec(registry.kind, "json", JsonCodec(kind, options.zone))
    if options.format == "avro":
        return _avro(options, registry, kind)
    if registry.kind == ROCKETMQ:
        codec = protobuf_codec(options.protobuf_descriptor, options.protobuf_message, kind)
        return HeadlessCodec(registry.kind, "protobuf", codec)
    return _protobuf(options, registry, kind)


def _avro(options: BodyOptions, registry: RegistrySettings, kind: pa.DataType) -> RegistryCodec:
    library, reader = avro_library(), avro_schema(options.avro_schema)
    check_struct(kind)
    client = RegistryClient(registry)

    def load(schema: int) -> tuple[Any, Any]:
        found = client.by_id(schema)
        writer = _or_bad(lambda: avro_schema(_avro_text(found)))
        return writer, None if writer == reader else reader

    schemas = Schemas(load)

    def read(body: bytes, head: Head) -> Any:
        return read_datum(library, body, *schemas[head.schema])

    return RegistryCodec(registry.kind, "avro", schemas, read, kind)


def _protobuf(options: BodyOptions, registry: RegistrySettings, kind: pa.DataType) -> RegistryCodec:
    wanted = options.protobuf_message
    value_of = protobuf_read(options.protobuf_descriptor, wanted, kind)
    client = RegistryClient(registry)
    names: dict[tuple[int, tuple[int, ...]], str] = {}

    def load(schema: int) -> Registered:
        found = client.by_id(schema, serialized=True)
        _or_bad(lambda: descriptor_set(found))
        return found

    schemas = Schemas(load)

    def read(body: bytes, head: Head) -> Any:
        place = (head.schema, head.indexes)
        name = names.get(place)
        if name is None:
            name = names[place] = message_name(schemas[head.schema], head.indexes)
        if name != wanted:
            raise ValueError(f"it is a {name}, not a {wanted}")
        return value_of(body)

    return RegistryCodec(registry.kind, "protobuf", schemas, read, kind)


def _avro_text(found: Registered) -> str:
    if found.kind != "AVRO":
        raise RegistryError(f"the registry has a schema of type {found.kind}, not AVRO")
    return whole(found)


def _or_bad(make: Any) -> Any:
    """Call `make`; an unreadable schema makes its bodies bad and does not end the query."""
    try:
        return make()
    except (RegistryError, SettingsError) as error:
        raise ValueError(str(error)) from None
