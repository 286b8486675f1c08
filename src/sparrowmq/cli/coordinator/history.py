"""`sparrow history`: figures over time, as the coordinator keeps them for charts."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any, Final

import typer

from sparrowmq.cli.base.common import AsJson, UsageError, print_json, print_table
from sparrowmq.cli.base.remote import Url, call, part
from sparrowmq.cli.base.times import when


class About(Enum):
    """The kinds of objects with figures."""

    CLUSTER = "cluster"
    TOPIC = "topic"
    GROUP = "group"
    BROKER = "broker"
    SERVICE = "service"


class TimeRange(Enum):
    """The period, which determines the resolution."""

    HOUR = "1h"
    DAY = "24h"
    MONTH = "30d"


TITLES: Final = {
    "cluster-in": "stored/s",
    "cluster-out": "delivered/s",
    "topic-in": "stored/s",
    "topic-out": "consumed/s",
    "group-lag": "lag",
    "group-age": "age s",
    "queue-lag": "lag",
    "broker-in": "stored/s",
    "broker-out": "delivered/s",
    "broker-disk": "disk %",
    "broker-log": "log bytes",
    "service-took": "took s",
    "service-failed": "failed",
}


def history(
    about: Annotated[About, typer.Argument(help="What the figures are about.")] = About.CLUSTER,
    name: Annotated[str, typer.Argument(help="Its name; a slave broker is NAME#ID.")] = "",
    range_: Annotated[
        TimeRange,
        typer.Option("--range", help="1h in steps of 10 seconds, 24h of a minute, 30d of 15 minutes."),
    ] = TimeRange.HOUR,
    rows: Annotated[int, typer.Option(min=1, max=3000, help="Maximum number of rows.")] = 30,
    coordinator: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show lag, rates, disks and services' runs over time.

    A row stands for several steps when there are more of them: means of rates, peaks of everything else. A
    question mark is unknown. With `--json` every step is there, unknown ones as null.

    For example: `sparrow history group billing --range 24h`
    """
    if (about is About.CLUSTER) == bool(name):
        raise UsageError(f"cluster takes no name, and all others need one: sparrow history {about.value}")
    path = "/cluster/history" if about is About.CLUSTER else f"/cluster/history/{about.value}s/{part(name)}"
    found = call(coordinator, "GET", path, query={"range": range_.value})
    if as_json:
        print_json(found)
        return
    columns = [_title(one) for one in found["series"]]
    print_table(("until", *columns), _rows(found, rows), right=columns)


def _title(one: dict[str, Any]) -> str:
    title = TITLES.get(one["figure"], one["figure"])
    return f"{title} {one['name']}" if one["figure"] in ("queue-lag", "group-lag") and one["name"] else title


def _rows(found: dict[str, Any], most: int) -> list[tuple[str, ...]]:
    from sparrowmq.coordinator.history.grains import UNKNOWN, coarser, figure_named

    columns, step = [], 1
    for one in found["series"]:
        values = [UNKNOWN if value is None else value for value in one["values"]]
        made, step = coarser(figure_named(one["figure"]), values, most)
        columns.append(made)
    length = len(columns[0]) if columns else 0
    times = [found["end_ms"] - (length - 1 - row) * step * found["step_ms"] for row in range(length)]
    lines = zip(times, *columns, strict=True)
    return [(when(at), *(f"{one:.7g}" if one == one else "?" for one in values)) for at, *values in lines]
