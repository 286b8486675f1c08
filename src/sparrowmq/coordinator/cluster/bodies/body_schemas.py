"""Avro and protobuf bodies for the console: the schemas of topics from a file, and bodies as JSON.

The file is TOML, with a table for each topic; schema files are relative to it:

    [Orders]
    avro = "orders.avsc"           # an Avro schema; each body is one datum
    skip = 5                       # bytes before the datum, such as a schema registry's header

    [Bills]
    protobuf = "bills.desc"        # protoc --include_imports --descriptor_set_out=bills.desc
    message = "shop.Bill"

Anybody may send anything, so the time and size of what is decoded have bounds. A schema must not be
recursive, nor have arrays whose items take no bytes: a body of ten bytes could then say that it has 2^60.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.outside import one_line

DECODED_BYTES_MAX: Final = 64 * 1024
"""Larger bodies are not decoded."""
JSON_CHARS_MAX: Final = 256 * 1024
"""Characters of the JSON with its indentation."""
ERROR_CHARS_MAX: Final = 300
SKIP_MAX: Final = 1024
MEMBERS: Final = frozenset({"avro", "protobuf", "message", "skip"})
Read = Callable[[bytes], Any]


@dataclass(frozen=True, slots=True)
class DecodedBody:
    """A body as JSON, or why it could not be decoded. `name` is the schema's."""

    codec: str
    name: str
    text: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class BodySchema:
    """The schema of a topic's bodies."""

    codec: str
    name: str
    read: Read
    skip: int = 0

    def decoded(self, body: bytes) -> DecodedBody:
        """The body as JSON; pure, for a thread. Errors are part of the result: anybody may send anything."""
        if len(body) > DECODED_BYTES_MAX:
            return self._failed(f"it has {len(body)} bytes; at most {DECODED_BYTES_MAX} are decoded")
        if len(body) < self.skip:
            return self._failed(f"it has {len(body)} bytes, fewer than the {self.skip} to skip")
        try:
            value = self.read(body[self.skip :])
            pieces, left = [], JSON_CHARS_MAX
            for piece in json.JSONEncoder(indent=2, ensure_ascii=False, default=_plain).iterencode(value):
                left -= len(piece)
                if left < 0:
                    return self._failed(f"as JSON it has more than {JSON_CHARS_MAX} characters")
                pieces.append(piece)
        except Exception as error:  # both libraries raise exceptions of many kinds
            return self._failed(f"{type(error).__name__}: {error}")
        return DecodedBody(self.codec, self.name, "".join(pieces))

    def _failed(self, why: str) -> DecodedBody:
        return DecodedBody(self.codec, self.name, error=one_line(why)[:ERROR_CHARS_MAX])


class BodySchemas:
    """The schemas of topics."""

    def __init__(self, by_topic: Mapping[str, BodySchema]) -> None:
        self._by_topic = dict(by_topic)

    def __repr__(self) -> str:
        return f"<BodySchemas of {len(self._by_topic)} topics>"

    @staticmethod
    def read(path: Path | None) -> BodySchemas:
        """The schemas of a file; none without one. Raises `SettingsError`."""
        if path is None:
            return BodySchemas({})
        try:
            tables = tomllib.loads(path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise SettingsError(f"bodySchemas={path} cannot be read: {error}", "bodySchemas", path) from None
        found = {}
        for topic, table in tables.items():
            try:
                found[topic] = schema_of(table, path.parent)
            except SettingsError as error:
                raise SettingsError(f"bodySchemas={path}, [{topic}]: {error}", "bodySchemas", path) from None
        return BodySchemas(found)

    def decoded(self, topic: str, body: bytes) -> DecodedBody | None:
        """A body of a topic; None if the topic has no schema."""
        schema = self._by_topic.get(topic)
        return None if schema is None else schema.decoded(body)


def schema_of(table: Any, directory: Path) -> BodySchema:
    """The schema that a table describes. Raises `SettingsError`."""
    if not isinstance(table, dict) or ("avro" in table) == ("protobuf" in table):
        raise SettingsError("give one of avro and protobuf, the path of a schema")
    unknown = sorted(set(table) - MEMBERS)
    if unknown:
        raise SettingsError(f"unknown: {', '.join(unknown)}; there are {', '.join(sorted(MEMBERS))}")
    skip = table.get("skip", 0)
    if type(skip) is not int or not 0 <= skip <= SKIP_MAX:
        raise SettingsError(f"skip must be a whole number from 0 to {SKIP_MAX}, not {skip!r}")
    codec = "avro" if "avro" in table else "protobuf"
    file = directory / str(table[codec])
    try:
        data = file.read_bytes()
    except OSError as error:
        raise SettingsError(f"{file} cannot be read: {error.strerror}") from None
    if codec == "avro":
        name, read = avro(data)
    else:
        name = str(table.get("message", ""))
        read = protobuf(data, name)
    return BodySchema(codec, name, read, skip)


def avro(data: bytes) -> tuple[str, Read]:
    """The name of an Avro schema, and what reads a datum. Raises `SettingsError`."""
    library = _library("fastavro")
    try:
        schema = library.parse_schema(json.loads(data))
    except Exception as error:  # fastavro has many exception classes
        raise SettingsError(f"not an Avro schema: {str(error)[:ERROR_CHARS_MAX]}") from None
    least_bytes(schema, {}, ())

    def read(body: bytes) -> Any:
        stream = BytesIO(body)
        value = library.schemaless_reader(stream, schema, None)
        if stream.tell() != len(body):
            raise ValueError(f"{len(body) - stream.tell()} bytes are left after the datum")
        return value

    name = schema.get("name", schema.get("type")) if isinstance(schema, dict) else schema
    return str(name)[:ERROR_CHARS_MAX], read


def least_bytes(schema: Any, known: dict[str, Any], within: tuple[str, ...]) -> int:
    """The least number of bytes of a datum. Pure. Raises `SettingsError` if a datum has no bound."""
    if isinstance(schema, list):
        for branch in schema:
            least_bytes(branch, known, within)
        return 1
    if isinstance(schema, str):
        if schema in within:
            raise SettingsError(f"the type {schema} is recursive; the console decodes no such bodies")
        return least_bytes(known[schema], known, within) if schema in known else int(schema != "null")
    kind, name = schema["type"], str(schema.get("name", ""))
    if kind in ("record", "error"):
        known[name] = schema
        return sum(least_bytes(field["type"], known, (*within, name)) for field in schema["fields"])
    if kind == "array":
        if least_bytes(schema["items"], known, within) == 0:
            raise SettingsError("an array has items that take no bytes; the console decodes no such bodies")
        return 1
    if kind == "map":
        least_bytes(schema["values"], known, within)
        return 1
    if kind in ("enum", "fixed"):
        known[name] = schema if kind == "fixed" else "string"
        return int(schema["size"]) if kind == "fixed" else 1
    return least_bytes(kind, known, within)


def protobuf(data: bytes, name: str) -> Read:
    """What reads a message `name` of a `FileDescriptorSet`. Raises `SettingsError`."""
    parts = ("descriptor_pb2", "descriptor_pool", "message_factory", "json_format")
    descriptor_pb2, pools, factory, json_format = (_library(f"google.protobuf.{one}") for one in parts)
    files, pool = descriptor_pb2.FileDescriptorSet(), pools.DescriptorPool()
    try:
        files.ParseFromString(data)
        for file in files.file:
            pool.Add(file)
        new = factory.GetMessageClass(pool.FindMessageTypeByName(name))
    except KeyError:
        names = (f"{file.package}.{one.name}".lstrip(".") for file in files.file for one in file.message_type)
        raise SettingsError(
            f"message={name!r}: the file has {', '.join(sorted(names)) or 'no messages'}", "message", name
        ) from None
    except Exception as error:  # the class depends on the implementation
        text = str(error)[:ERROR_CHARS_MAX]
        raise SettingsError(f"not a descriptor set ({text}); use protoc --descriptor_set_out") from None

    def read(body: bytes) -> Any:
        message = new()
        message.ParseFromString(body)
        return json_format.MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=pool)

    return read


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        text = f"it needs {name.partition('.')[0]}: pip install 'sparrowmq[body-schemas]'"
        raise SettingsError(text) from None


def _plain(value: Any) -> str:
    """What JSON has no type for: bytes in hex; decimals, dates and times as they read."""
    return value.hex() if isinstance(value, bytes) else str(value)
