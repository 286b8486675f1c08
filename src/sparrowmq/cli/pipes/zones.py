"""The time zone of a command: times that are given and printed without one are in it."""

from __future__ import annotations

from datetime import tzinfo
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from sparrowmq.cli.base.times import VARIABLE

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

SETTING: Final = "spark.sql.session.timeZone"
PATTERN: Final = "yyyy-MM-dd HH:mm:ss.SSSxxx"
"""How Spark writes times for the output: with their zone."""
TimeZone = Annotated[
    str,
    typer.Option(
        "--time-zone",
        metavar="ZONE",
        envvar=VARIABLE,
        show_envvar=False,
        help="The zone of days and of times without one, given and printed, such as Europe/Berlin.",
    ),
]


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
