"""Bodies as values: text and JSON in Arrow's own code, Avro and Protobuf by their libraries.

A codec gives a value for every body, null where the body is bad, and says which are. If a codec can only
report that a chunk contains a bad body, the chunk is halved until the bad bodies are isolated (`salvage`).
Chunks without bad bodies cost nothing extra.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as arrow_json

from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.bodies.json_values import narrowed, parsed_type
from sparrowmq.spark.bodies.types import place_of, plain

_REASON_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class Decoded:
    """One value per body; rows in `bad` are null, and `reasons` maps each of them to the reason."""

    values: pa.Array
    bad: npt.NDArray[np.bool_]
    reasons: Mapping[int, str] = field(default_factory=dict)


class Codec(Protocol):
    """Decodes bodies of one format."""

    def decode(self, bodies: pa.Array) -> Decoded:
        """Decode binary `bodies`; never raises for the content of a body."""


def salvage(bodies: pa.Array, decode: Callable[[pa.Array], pa.Array], kind: pa.DataType) -> Decoded:
    """Call `decode`; if it raises `ValueError`, try the halves, down to single bodies."""
    bad = np.zeros(len(bodies), np.bool_)
    reasons, pieces = dict[int, str](), list[pa.Array]()
    waiting = [(0, len(bodies))]
    while waiting:  # each half is shorter, down to one body
        start, end = waiting.pop()
        try:
            pieces.append(decode(bodies.slice(start, end - start)))
        except ValueError as error:
            if end - start > 1:
                middle = (start + end) // 2
                waiting += [(middle, end), (start, middle)]
                continue
            bad[start], reasons[start] = True, short(error)
            pieces.append(pa.nulls(1, kind))
    return Decoded(pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces), bad, reasons)


def short(error: BaseException) -> str:
    """The text of an error, for a message."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _REASON_MAX else f"{text[:_REASON_MAX]}…"


class TextCodec:
    """UTF-8."""

    def decode(self, bodies: pa.Array) -> Decoded:
        """Decode the texts; bodies that are not UTF-8 are bad."""
        return salvage(bodies, lambda part: part.cast(pa.string()), pa.string())


class JsonCodec:
    """One JSON object per body, read by Arrow's parser.

    Fields that the type does not have are ignored, missing ones are null. Types must match: a number is not a
    string, `1.5` is not an integer; dates and times are strings in ISO 8601, and those without a zone are in
    `zone`. Decimals are rounded to their scale. A duplicate key makes the body bad.
    """

    def __init__(self, kind: pa.DataType, zone: str = "UTC") -> None:
        if not pa.types.is_struct(kind):
            raise SettingsError("bodyFormat=json needs a body of type struct<…> in the schema", what="body")
        for name, wrong in (("map", pa.types.is_map), ("binary", pa.types.is_binary)):
            place = place_of(kind, wrong)
            if place is not None:
                raise SettingsError(
                    f"bodyFormat=json cannot read column {place}, which has type {name}; use bodyFormat=text "
                    "and Spark's from_json",
                    "bodyFormat",
                    "json",
                    what=name,
                )
        self._kind = kind
        self._zone = zone
        self._parsed = parsed_type(kind)

    def decode(self, bodies: pa.Array) -> Decoded:
        """Decode the objects."""
        return salvage(bodies, self._all, self._kind)

    def _all(self, bodies: pa.Array) -> pa.Array:
        if not len(bodies):
            return pa.nulls(0, self._kind)
        bodies.cast(pa.string())  # raises unless everything is UTF-8, which the parser does not check
        data = _numbered(bodies)
        table = arrow_json.read_json(
            pa.BufferReader(data),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=data.size),
            parse_options=arrow_json.ParseOptions(
                explicit_schema=pa.schema([("i", pa.int64()), ("b", self._parsed)]),
                newlines_in_values=True,
                unexpected_field_behavior="ignore",
            ),
        )
        # A body may close our object and open another: then a number appears twice, or there are too many
        # objects.
        if not table["i"].combine_chunks().equals(pa.array(np.arange(len(bodies)))):
            raise ValueError("the body is not a single JSON object")
        return narrowed(table["b"].combine_chunks(), self._kind, self._zone)


def _numbered(bodies: pa.Array) -> pa.Buffer:
    """`{"i":0,"b":…}` for every body: anything but exactly one JSON value breaks the object or its number."""

    def text(value: bytes) -> pa.Scalar:
        return pa.scalar(value, pa.binary())

    numbers = pa.array(np.arange(len(bodies))).cast(pa.string()).cast(pa.binary())
    joined = pc.binary_join_element_wise(
        text(b'{"i":'), numbers, text(b',"b":'), bodies, text(b"}\n"), text(b"")
    )
    ends = np.frombuffer(joined.buffers()[1], np.int32)[joined.offset : joined.offset + len(joined) + 1]
    return joined.buffers()[2].slice(int(ends[0]), int(ends[-1] - ends[0]))


class RowCodec:
    """Decodes with a function for one body, where Arrow has no parser; `read` may raise anything."""

    def __init__(self, read: Callable[[Any], Any], kind: pa.DataType) -> None:
        self._read = read
        self._kind = kind
        self._plain = plain(kind)

    def decode(self, bodies: pa.Array) -> Decoded:
        """Decode the bodies."""
        return self.decode_each(bodies.to_pylist())

    def decode_each(self, bodies: Sequence[Any]) -> Decoded:
        """Call `read` for each body; bodies for which it raises are bad."""
        bad = np.zeros(len(bodies), np.bool_)
        values: list[Any] = []
        reasons: dict[int, str] = {}
        for row, body in enumerate(bodies):
            try:
                value = self._read(body)
                values.append(value if self._plain is None else self._plain(value))
            except Exception as error:  # libraries raise anything for malformed bytes
                bad[row], reasons[row] = True, short(error)
                values.append(None)
        return self._fit(values, bad, reasons)

    def _fit(self, values: list[Any], bad: npt.NDArray[np.bool_], reasons: dict[int, str]) -> Decoded:
        try:
            return Decoded(self._array(values), bad, reasons)
        except ValueError:
            pass  # a value does not fit the schema
        pieces = []
        for row, value in enumerate(values):
            try:
                pieces.append(self._array([value]))
            except ValueError as error:
                bad[row], reasons[row] = True, short(error)
                pieces.append(pa.nulls(1, self._kind))
        return Decoded(pa.concat_arrays(pieces), bad, reasons)

    def _array(self, values: Iterable[Any]) -> pa.Array:
        try:
            return pa.array(values, self._kind)
        except (TypeError, OverflowError) as error:
            raise ValueError(short(error)) from None
