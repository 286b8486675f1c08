"""Routes of figures over time, and the last of them for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query
from fastapi.responses import PlainTextResponse
from sqlalchemy import Connection

from sparrowmq.coordinator.api.exposition import exposed
from sparrowmq.coordinator.api.shared import Answer, ApiCaller, Who
from sparrowmq.coordinator.database.texts import key_of
from sparrowmq.coordinator.history import store
from sparrowmq.coordinator.history.grains import GRAINS, RANGES, SECONDS, UNKNOWN, Figure, Series
from sparrowmq.coordinator.services.base import board
from sparrowmq.coordinator.services.housekeeping.recorder import KIND
from sparrowmq.coordinator.users.roles import RoleRight

router = APIRouter(prefix="/cluster", tags=["history"])
Range = Literal["1h", "24h", "30d"]
Span = Annotated[Range, Query(alias="range")]
GROUPS_MAX: Final = 256
"""Number of groups among which the worst are chosen: those with the most lag now."""
LINES_MAX: Final = 64
"""Maximum number of lines in an answer for queues of a group."""
RECENT_STEPS: Final = 9
"""Maximum age of a current figure, in steps of seconds."""


@router.get("/history")
def cluster_history(who: Who, span: Span = "1h", worst: Annotated[int, Query(ge=1, le=20)] = 5) -> Answer:
    """Messages a second of all brokers that answered, and the lag of the groups that were furthest behind.

    Each series has one value for each step up to `end_ms`, the oldest first: means of rates, peaks of lag;
    null for unknown values. The range 1h has steps of 10 seconds, 24h of a minute, 30d of 15 minutes.
    """

    def work(connection: Connection) -> Answer:
        rates = [Series(Figure.CLUSTER_IN, ""), Series(Figure.CLUSTER_OUT, "")]
        now = who.context.database.now(connection)
        groups = {
            Series(Figure.GROUP_LAG, name): number
            for name, number in store.named(connection, Figure.GROUP_LAG, limit=20_000).items()
        }
        if len(groups) > GROUPS_MAX:
            last = store.latest(connection, SECONDS, groups.values(), now, RECENT_STEPS)
            first = sorted(groups.items(), key=lambda one: -last.get(one[1], -1.0))
            groups = dict(first[:GROUPS_MAX])
        known = store.numbers(connection, rates) | groups
        found = store.read(connection, RANGES[span], known.values(), now)
        peaks = {one: _peak(found[number]) for one, number in groups.items()}
        chosen = sorted((one for one in peaks if peaks[one] > 0), key=lambda one: -peaks[one])[:worst]
        return _answer(span, now, [*rates, *chosen], known, found)

    return _read(who, work)


@router.get("/history/topics/{topic}")
def topic_history(topic: str, who: Who, span: Span = "1h") -> Answer:
    """A topic's messages a second: stored, and consumed by the offsets that its groups committed."""
    return _of(who, span, topic, (Figure.TOPIC_IN, Figure.TOPIC_OUT))


@router.get("/history/groups/{group}")
def group_history(group: str, who: Who, span: Span = "1h") -> Answer:
    """A group's lag in messages, the seconds that the oldest has waited, and, unless it has too many, the lag
    of each queue, named `TOPIC/BROKER/QUEUE`.
    """
    return _told(group_figures(group, who, span))


def group_figures(group: str, who: ApiCaller, span: Range = "1h") -> Answer:
    """The same with the values as they are stored, unknown ones as NaN. Not a route: of the many lines of a
    group a chart shows few, and rounding the others would take most of the time.
    """

    def work(connection: Connection) -> Answer:
        prefix = f"{key_of(group)} "
        now = who.context.database.now(connection)
        queues = store.named(connection, Figure.QUEUE_LAG, prefix)
        names = [name for name in queues if name.startswith(prefix)][:LINES_MAX]
        wanted = [Series(figure, key_of(group)) for figure in (Figure.GROUP_LAG, Figure.GROUP_AGE)]
        found = _read_series(
            connection, span, now, [*wanted, *(Series(Figure.QUEUE_LAG, name) for name in names)]
        )
        for one in found["series"]:
            one["name"] = one["name"].removeprefix(prefix)
        return found

    who.need(RoleRight.READ)
    return who.read(work)


@router.get("/history/brokers/{broker}")
def broker_history(broker: str, who: Who, span: Span = "1h") -> Answer:
    """A broker's messages a second, hundredths of its disk that are used, and bytes of its log. A slave is
    named `NAME#ID`.
    """
    figures = (Figure.BROKER_IN, Figure.BROKER_OUT, Figure.BROKER_DISK, Figure.BROKER_LOG)
    return _of(who, span, broker, figures)


@router.get("/history/services/{service}")
def service_history(service: str, who: Who, span: Span = "1h") -> Answer:
    """A service's runs: the seconds of the longest in each step, and how many failed."""
    who.context.kind(service)
    return _of(who, span, service, (Figure.SERVICE_TOOK, Figure.SERVICE_FAILED))


@router.get("/history/size")
def history_size(who: Who) -> Answer:
    """How much the history holds, and its bounds: lines of charts and their limit, rows, bytes of values, and
    for each step how long its values are kept. The service `history` deletes what is older.
    """

    def work(connection: Connection) -> Answer:
        settings = board.all_settings(connection, who.context.kinds.values()).get(KIND.name)
        count, blocks, held = store.size(connection)
        return {
            "series": count,
            "series_max": None if settings is None else settings.options["series"],
            "blocks": blocks,
            "bytes": held,
            "grains": [{"step_ms": one.step_ms, "keep_ms": one.keep_ms} for one in GRAINS],
        }

    who.need(RoleRight.READ)
    return who.read(work)


@router.get("/metrics", response_class=PlainTextResponse)
def metrics(who: Who) -> PlainTextResponse:
    """The last figures in Prometheus' text format; unknown ones are left out."""

    def work(connection: Connection) -> dict[Series, float]:
        known = store.series(connection)
        wanted = {one: number for one, number in known.items() if one.figure is not Figure.QUEUE_LAG}
        now = who.context.database.now(connection)
        last = store.latest(connection, SECONDS, wanted.values(), now, RECENT_STEPS)
        return {one: last[number] for one, number in wanted.items() if number in last}

    who.need(RoleRight.READ)
    text, kind = exposed(who.read(work))
    return PlainTextResponse(text, media_type=kind)


def _of(who: ApiCaller, span: str, name: str, figures: Iterable[Figure]) -> Answer:
    wanted = [Series(figure, key_of(name)) for figure in figures]

    def work(connection: Connection) -> Answer:
        return _read_series(connection, span, who.context.database.now(connection), wanted)

    return _read(who, work)


def _read(who: ApiCaller, work: Callable[[Connection], Answer]) -> Answer:
    who.need(RoleRight.READ)
    return _told(who.read(work))


def _peak(values: Iterable[float]) -> float:
    """The highest value, at least 0. An unknown one is never the highest: comparisons with NaN are false."""
    return max(chain((0.0,), values))


def _read_series(connection: Connection, span: str, now: int, wanted: Sequence[Series]) -> Answer:
    known = store.numbers(connection, wanted)
    return _answer(span, now, wanted, known, store.read(connection, RANGES[span], known.values(), now))


def _answer(
    span: str,
    now: int,
    wanted: Sequence[Series],
    numbers: Mapping[Series, int],
    found: Mapping[int, Iterable[float]],
) -> Answer:
    """The answer for some series, from the values that were read, by number."""
    grain = RANGES[span]
    nothing = [UNKNOWN] * (grain.keep_ms // grain.step_ms)
    return {
        "range": span,
        "step_ms": grain.step_ms,
        "end_ms": grain.slot(now) * grain.step_ms,
        "series": [
            {"figure": one.figure.value, "name": one.name, "values": found.get(numbers.get(one, -1), nothing)}
            for one in wanted
        ],
    }


def _told(found: Answer) -> Answer:
    """The figures with values for people: rounded to the seven digits that are stored, null if unknown."""
    for one in found["series"]:
        one["values"] = [float(f"{value:.7g}") if value == value else None for value in one["values"]]
    return found
