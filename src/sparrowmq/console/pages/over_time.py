"""The parts of pages that show figures over time: which charts, and the range that the address asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from sparrowmq.console.charts import Chart, chart
from sparrowmq.console.visits import PagePart, Values, Visit
from sparrowmq.coordinator.api import cluster, history
from sparrowmq.coordinator.api.history import Range
from sparrowmq.coordinator.services.housekeeping.meter import broker_name
from sparrowmq.core.errors import RefusedError

RANGES: Final[Sequence[Range]] = ("1h", "24h", "30d")
FIELD: Final = "range"
"""The field of the address."""
Charts = Sequence[tuple[str, Sequence[str]]]
"""Names of charts, and the figures that each shows."""
OVERVIEW: Final[Charts] = (("rates", ("cluster-in", "cluster-out")), ("worst", ("group-lag",)))
TOPIC: Final[Charts] = (("rates", ("topic-in", "topic-out")),)
GROUP: Final[Charts] = (("lag", ("group-lag",)), ("age", ("group-age",)), ("queues", ("queue-lag",)))
BROKER: Final[Charts] = (
    ("rates", ("broker-in", "broker-out")),
    ("disk", ("broker-disk",)),
    ("log", ("broker-log",)),
)
SERVICE: Final[Charts] = (("took", ("service-took",)), ("failed", ("service-failed",)))


def asked_range(visit: Visit) -> Range:
    """The range given in the address; an hour for any other value."""
    asked = visit.query.get(FIELD, "")
    return next((one for one in RANGES if one == asked), RANGES[0])


async def overview(visit: Visit) -> Values:
    """Messages per second of all brokers, and the lag of the groups with the most lag."""
    return _values(
        visit, await visit.call(history.cluster_history, visit.caller, asked_range(visit)), OVERVIEW
    )


async def topic(visit: Visit) -> Values:
    """A topic's messages per second."""
    found = await visit.call(history.topic_history, visit.named("topic"), visit.caller, asked_range(visit))
    return _values(visit, found, TOPIC)


async def group(visit: Visit) -> Values:
    """A group's lag, its age, and the lag by queue."""
    found = await visit.call(history.group_figures, visit.named("group"), visit.caller, asked_range(visit))
    return _values(visit, found, GROUP)


async def broker(visit: Visit) -> Values:
    """A broker's rates, disk and log."""
    address = visit.named("address")
    for one in (await cluster.list_servers(visit.caller))["brokers"]:
        if one["address"] == address:
            name = broker_name(one["broker"], one["broker_id"])
            found = await visit.call(history.broker_history, name, visit.caller, asked_range(visit))
            return _values(visit, found, BROKER)
    raise RefusedError(f"there is no broker at {address[:64]} now", status=404)


async def service(visit: Visit) -> Values:
    """A service's runs."""
    found = await visit.call(history.service_history, visit.named("name"), visit.caller, asked_range(visit))
    return _values(visit, found, SERVICE)


def part(load: Callable[[Visit], Any]) -> PagePart:
    """The part of a page that has charts."""
    return PagePart("history", load, template="charts")


def _values(visit: Visit, found: dict[str, Any], wanted: Charts) -> Values:
    charts: list[Chart] = []
    for key, figures in wanted:
        series = [one for one in found["series"] if one["figure"] in figures]
        if series:
            charts.append(chart(f"chart.{key}", series, found))
    return {"charts": charts, "ranges": _links(visit, asked_range(visit))}


def _links(visit: Visit, chosen: Range) -> list[Mapping[str, Any]]:
    """Links to the other ranges, with the rest of the address unchanged."""
    others = {name: value for name, value in visit.query.items() if name != FIELD}
    return [
        {
            "name": one,
            "link": f"{visit.path}?{urlencode({**others, FIELD: one})}",
            "is_chosen": one == chosen,
        }
        for one in RANGES
    ]
