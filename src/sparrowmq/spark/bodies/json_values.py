"""Values in JSON that Arrow's parser does not read as Spark's readers do: times, dates, decimals.

They are parsed as wider types and narrowed here. What Arrow's own casts take is done by these, for a chunk at
once; other forms are parsed one by one, by the grammar of Spark's `cast` from strings.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_LOCAL: Final = pa.timestamp("us")
_INSTANT: Final = pa.timestamp("us", "UTC")
_WIDE: Final = pa.decimal256(76, 38)
_MICRO: Final = timedelta(microseconds=1)
_YEARS_MOST: Final = 290_000
"""So that microseconds fit."""
_DATE: Final = r"([+-]?\d{4,6})(?:-(\d{1,2})(?:-(\d{1,2})"
_DAY: Final = re.compile(_DATE + r"(?:[ T].*)?)?)?", re.ASCII | re.DOTALL)
_TIME: Final = re.compile(
    _DATE + r"(?:[ T](\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?)?(\s*\D.*)?)?)?)?", re.ASCII
)
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d\d)(?::?(\d\d))?)?", re.ASCII)
_BEYOND_MICROS: Final = r"(\.\d{6})\d+"


def parsed_type(kind: pa.DataType) -> pa.DataType:
    """The type with which Arrow's parser reads values for `narrowed`."""
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_decimal(kind):
        return _WIDE
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", parsed_type(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, parsed_type(field.type)) for field in kind.fields])
    return kind


def narrowed(values: pa.Array, kind: pa.DataType, zone: str) -> pa.Array:
    """Parsed values as `kind`; times without a zone are in `zone`. Raises `ValueError` for a bad value."""
    if values.type == kind:
        return values
    if pa.types.is_struct(kind):
        inner = [narrowed(values.field(i), field.type, zone) for i, field in enumerate(kind.fields)]
        return pa.StructArray.from_arrays(inner, fields=kind.fields, mask=values.is_null())
    if pa.types.is_list(kind):
        elements = narrowed(values.values, kind.value_type, zone)
        return pa.ListArray.from_arrays(values.offsets, elements, type=kind, mask=values.is_null())
    if pa.types.is_decimal(kind):
        return pc.round(values, kind.scale, "half_towards_infinity").cast(kind)
    if pa.types.is_date(kind):
        return _dates(values)
    return _locals(values) if kind == _LOCAL else _instants(values, zone)


def _dates(texts: pa.Array) -> pa.Array:
    try:
        return texts.cast(pa.date32())
    except pa.ArrowInvalid:
        return pa.array([None if text is None else _day(text) for text in texts.to_pylist()], pa.date32())


def _day(text: str) -> int:
    match = _DAY.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a date")
    return int(_civil(match, text).astype(np.int64))


def _civil(match: re.Match[str], text: str) -> np.datetime64:
    year, month, day = int(match[1]), int(match[2] or 1), int(match[3] or 1)
    if abs(year) > _YEARS_MOST:
        raise ValueError(f"{text!r}: the year must be -{_YEARS_MOST} to {_YEARS_MOST}")
    sign = "-" if year < 0 else ""
    return np.datetime64(f"{sign}{abs(year):04d}-{month:02d}-{day:02d}")


def _locals(texts: pa.Array) -> pa.Array:
    """Times without a zone."""
    found = _cast(texts, _LOCAL)
    if found is not None:
        return found
    return _each(texts, _local_only)


def _instants(texts: pa.Array, zone: str) -> pa.Array:
    """Times with a zone, or local ones in `zone`."""
    found = _cast(texts, _INSTANT)
    if found is not None:
        return found
    local = _cast(texts, _LOCAL)
    if local is not None:
        return _in_zone(local, zone)
    parts = [(None, None) if text is None else _time(text) for text in texts.to_pylist()]
    local = pa.array([micros if tail is None else None for micros, tail in parts], _LOCAL)
    known = [None if tail is None or micros is None else _shifted(micros, tail) for micros, tail in parts]
    return pc.coalesce(pa.array(known, _INSTANT), _in_zone(local, zone))


def _cast(texts: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """By Arrow, which takes at most six digits of a second; more are cut as Spark does."""
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        pass
    try:
        return pc.replace_substring_regex(texts, _BEYOND_MICROS, r"\1").cast(kind)
    except pa.ArrowInvalid:
        return None


def _each(texts: pa.Array, read: Callable[[str], int]) -> pa.Array:
    return pa.array([None if text is None else read(text) for text in texts.to_pylist()], _LOCAL)


def _local_only(text: str) -> int:
    micros, tail = _time(text)
    if tail is not None:
        raise ValueError(f"{text!r} has a time zone, but the type timestamp_ntz has none")
    return micros


def _time(text: str) -> tuple[int, str | None]:
    """Local microseconds since 1970, and the zone in the text."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a time")
    hour, minute, second = (int(match[group] or 0) for group in (4, 5, 6))
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"{text!r} is not a time of day")
    days = int(_civil(match, text).astype(np.int64))
    fraction = int(((match[7] or "") + "000000")[:6])
    micros = (((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000 + fraction
    return micros, match[8].strip() if match[8] else None


def _shifted(local: int, zone: str) -> int:
    """The instant of a local time in a zone that its text names."""
    offset = _offset(zone)
    if offset is not None:
        return local - offset // _MICRO
    return int(_in_zone(pa.array([local], _LOCAL), _region(zone))[0].value)


@lru_cache(maxsize=256)
def _offset(zone: str) -> timedelta | None:
    """The offset of `Z`, `+02:00`, `UTC+2`; None for a region."""
    if zone in ("Z", "UTC", "GMT", "UT"):
        return timedelta()
    match = _OFFSET.fullmatch(zone)
    if match is None:
        return None
    hours, minutes, seconds = (int(part or 0) for part in match.groups()[1:])
    if hours > 23 or minutes > 59 or seconds > 59:
        raise ValueError(f"{zone!r} is not an offset: it must be -23:59 to +23:59")
    found = timedelta(hours=hours, minutes=minutes, seconds=seconds)
    return found if match[1] == "+" else -found


@lru_cache(maxsize=256)
def _region(zone: str) -> str:
    try:
        return str(ZoneInfo(zone))
    except (KeyError, ValueError, OSError):
        raise ValueError(f"{zone!r} is not a time zone") from None


def _in_zone(local: pa.Array, zone: str) -> pa.Array:
    """Instants of local times: the first of two, and in a gap by the offset before it, as in Java."""
    if zone == "UTC":
        return local.cast(pa.int64()).cast(_INSTANT)
    early = pc.assume_timezone(local, zone, ambiguous="earliest", nonexistent="earliest")
    behind = pc.subtract(local, pc.local_timestamp(early))
    return pc.add(early, behind).cast(_INSTANT)
