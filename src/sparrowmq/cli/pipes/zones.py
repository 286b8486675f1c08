"""The time zone of a command: times that are given and printed without one are in it."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone, tzinfo
from typing import TYPE_CHECKING, Annotated, Any, Final
from zoneinfo import ZoneInfo

import typer

from sparrowmq.cli.base.common import UsageError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

SETTING: Final = "spark.sql.session.timeZone"
PATTERN: Final = "yyyy-MM-dd HH:mm:ss.SSSxxx"
"""How Spark writes times for the output: with their zone."""
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d\d)(?::?(\d\d))?)?")
"""Other zones that Spark's SET TIME ZONE takes."""

TimeZone = Annotated[
    str,
    typer.Option(
        "--time-zone",
        metavar="ZONE",
        help="The zone of days and of times without one, given and printed, such as Europe/Berlin.",
    ),
]


def zone_of(name: str) -> tzinfo:
    """A time zone by its name or offset. Raises `UsageError`."""
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        hours, minutes, seconds = (int(part or 0) for part in offset.groups()[1:])
        distance = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        return timezone(distance if offset[1] == "+" else -distance)
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise UsageError(f"{name!r} is not a time zone; give one such as Europe/Berlin") from None


def millis(text: str | None, zone: tzinfo) -> int | None:
    """A time in epoch milliseconds; without a zone it is in `zone`. Raises `UsageError`."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{text!r} is not a time: give one such as 2026-11-21T08:00:00") from None
    return int((found if found.tzinfo else found.replace(tzinfo=zone)).timestamp() * 1000)


def in_zone(value: Any, kind: DataType, zone: tzinfo) -> Any:
    """A value that Spark collected, with times in `zone`: Python gets them in the zone of this machine."""
    from pyspark.sql import types

    if value is None:
        return None
    if isinstance(kind, types.TimestampType):
        try:
            return value.astimezone(zone)
        except (OverflowError, ValueError):  # at the ends of Python's calendar there is no other zone
            return value
    if isinstance(kind, types.ArrayType):
        return [in_zone(one, kind.elementType, zone) for one in value]
    if isinstance(kind, types.MapType):
        of_key, of_value = kind.keyType, kind.valueType
        return {in_zone(key, of_key, zone): in_zone(one, of_value, zone) for key, one in value.items()}
    if isinstance(kind, types.StructType):
        inner = zip(kind.fields, value, strict=True)
        return {field.name: in_zone(one, field.dataType, zone) for field, one in inner}
    return value
