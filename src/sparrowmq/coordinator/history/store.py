"""The tables of the history: series and their blocks. One transaction per round, few statements.

A round writes one row for each 64 series, not one for each value: it reads the open blocks, adds the values,
and writes them back.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from sqlalchemy import ColumnElement, Connection, delete, func, select, update

from sparrowmq.coordinator.database.many import insert_all, update_all
from sparrowmq.coordinator.database.tables import history_block, history_series
from sparrowmq.coordinator.database.texts import key_of
from sparrowmq.coordinator.history.blocks import (
    SERIES,
    empty,
    fitting,
    packed,
    place_of,
    unpacked,
    values_of,
)
from sparrowmq.coordinator.history.grains import (
    GRAINS,
    QUARTERS,
    UNKNOWN,
    Figure,
    Grain,
    Series,
    folded,
)

AT_ONCE: Final = 500
"""Maximum number of values in one `IN`."""
FIGURES: Final = {one.value: one for one in Figure}
Points = Mapping[int, Mapping[int, float]]
"""Values by the number of the series and of the step."""


def series(connection: Connection) -> dict[Series, int]:
    """The number of every series."""
    query = select(history_series.c.figure, history_series.c.name, history_series.c.number)
    return {Series(FIGURES[row[0]], row[1]): row[2] for row in connection.execute(query) if row[0] in FIGURES}


def numbers(connection: Connection, wanted: Collection[Series]) -> dict[Series, int]:
    """The numbers of some series; unknown ones are omitted."""
    by_figure: defaultdict[Figure, list[str]] = defaultdict(list)
    for one in wanted:
        by_figure[one.figure].append(one.name)
    found = {}
    for figure, names in by_figure.items():
        for start in range(0, len(names), AT_ONCE):
            some = history_series.c.name.in_(names[start : start + AT_ONCE])
            query = select(history_series.c.name, history_series.c.number)
            for name, number in connection.execute(query.where(_is(figure), some)):
                found[Series(figure, name)] = number
    return found


def named(connection: Connection, figure: Figure, prefix: str = "", limit: int = AT_ONCE) -> dict[str, int]:
    """The series of a figure whose names have this prefix: numbers by name, in the order of names."""
    query = select(history_series.c.name, history_series.c.number).where(_is(figure))
    if prefix:
        query = query.where(history_series.c.name.startswith(prefix, autoescape=True))
    found = connection.execute(query.order_by(history_series.c.name).limit(limit))
    return {row[0]: row[1] for row in found}


def add(
    connection: Connection, known: Mapping[Series, int], new: Iterable[Series], now_ms: int, limit: int
) -> dict[Series, int]:
    """Create series with the lowest free numbers, up to `limit` in total; returns their numbers."""
    used, made = set(known.values()), dict[Series, int]()
    number = 0
    for one in sorted(new, key=lambda one: (one.figure.value, one.name)):
        if len(used) >= limit:
            break
        while number in used:
            number += 1
        used.add(number)
        made[one] = number
    rows = [
        {"number": number, "figure": one.figure.value, "name": one.name, "seen_at": now_ms}
        for one, number in made.items()
    ]
    insert_all(connection, history_series, rows)
    return made


def seen(connection: Connection, some: Collection[int], now_ms: int) -> None:
    """Record that series still exist."""
    listed = sorted(some)
    for start in range(0, len(listed), AT_ONCE):
        mine = history_series.c.number.in_(listed[start : start + AT_ONCE])
        connection.execute(update(history_series).where(mine).values(seen_at=now_ms))


def put(connection: Connection, grain: Grain, points: Points) -> None:
    """Write values into existing or new blocks."""
    parts: defaultdict[int, defaultdict[int, list[tuple[int, float]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for number, values in points.items():
        shard, place = place_of(number)
        for slot, value in values.items():
            at = place * grain.points + slot % grain.points
            parts[grain.begin(slot)][shard].append((at, fitting(value)))
    for begin, shards in parts.items():
        before = _blocks(connection, grain, begin)
        fresh: list[Mapping[str, object]] = []
        changed: list[Mapping[str, object]] = []
        for shard, put_in in shards.items():
            block = unpacked(before[shard], grain.points) if shard in before else empty(grain.points)
            for at, value in put_in:
                block[at] = value
            row = {"grain": grain.number, "begin_at": begin, "shard": shard, "data": packed(block)}
            (changed if shard in before else fresh).append(row)
        insert_all(connection, history_block, fresh)
        update_all(connection, history_block, ("grain", "begin_at", "shard"), changed)


def fold(
    connection: Connection, fine: Grain, coarse: Grain, slots: Sequence[int], known: Mapping[Series, int]
) -> None:
    """Aggregate fine steps into coarse ones, for all series. A coarse step lies within one fine block."""
    if not slots:
        return
    ratio = coarse.step_ms // fine.step_ms
    figures = {number: one.figure for one, number in known.items()}
    points: defaultdict[int, dict[int, float]] = defaultdict(dict)
    by_begin: defaultdict[int, list[int]] = defaultdict(list)
    for slot in slots:
        by_begin[fine.begin(slot * ratio)].append(slot)
    for begin, here in by_begin.items():
        for shard, data in _blocks(connection, fine, begin).items():
            block = unpacked(data, fine.points)
            for place in range(SERIES):
                figure = figures.get(shard * SERIES + place)
                if figure is None:
                    continue
                for slot in here:
                    first = place * fine.points + slot * ratio % fine.points
                    value = folded(figure, block[first : first + ratio])
                    if value == value:
                        points[shard * SERIES + place][slot] = value
    put(connection, coarse, points)


def read(
    connection: Connection, grain: Grain, wanted: Collection[int], now_ms: int
) -> dict[int, array[float]]:
    """The values of series by their numbers, the oldest first, up to the last complete step.

    All have as many values as the grain keeps, including unknown ones.
    """
    count = grain.keep_ms // grain.step_ms
    last = grain.slot(now_ms)
    first = last - count
    shards: defaultdict[int, list[int]] = defaultdict(list)
    for number in wanted:
        shards[place_of(number)[0]].append(number)
    found = {number: array("f", [UNKNOWN]) * count for number in wanted}
    query = select(history_block.c.shard, history_block.c.begin_at, history_block.c.data).where(
        history_block.c.grain == grain.number,
        history_block.c.begin_at >= grain.begin(first),
        history_block.c.shard.in_(sorted(shards)),
    )
    for shard, begin, data in connection.execute(query):
        block, start = unpacked(data, grain.points), begin // grain.step_ms - first
        low, high = max(0, -start), min(grain.points, count - start)
        if low >= high:
            continue
        for number in shards[shard]:
            values = values_of(block, place_of(number)[1], grain.points)
            found[number][start + low : start + high] = values[low:high]
    return found


def latest(
    connection: Connection, grain: Grain, wanted: Collection[int], now_ms: int, back: int
) -> dict[int, float]:
    """The last known value of each series in the last `back` steps; series without one are omitted."""
    last = grain.slot(now_ms)
    found: dict[int, float] = {}
    shards: defaultdict[int, list[int]] = defaultdict(list)
    for number in wanted:
        shards[place_of(number)[0]].append(number)
    query = (
        select(history_block.c.shard, history_block.c.begin_at, history_block.c.data)
        .where(history_block.c.grain == grain.number, history_block.c.begin_at >= grain.begin(last - back))
        .order_by(history_block.c.begin_at.desc())
    )
    for shard, begin, data in connection.execute(query):
        if shard not in shards:
            continue
        block, start = unpacked(data, grain.points), begin // grain.step_ms
        low, high = max(0, last - back - start), min(grain.points, last + 1 - start)
        for number in shards[shard]:
            if number in found or low >= high:
                continue
            values = values_of(block, place_of(number)[1], grain.points)
            known = [value for value in values[low:high] if value == value]
            if known:
                found[number] = known[-1]
    return found


def forget(connection: Connection, now_ms: int) -> dict[str, int]:
    """Delete expired blocks, and series without blocks; returns how many of each."""
    gone = 0
    for grain in GRAINS:
        old = (history_block.c.grain == grain.number) & (
            history_block.c.begin_at <= now_ms - grain.keep_ms - grain.block_ms
        )
        gone += connection.execute(delete(history_block).where(old)).rowcount
    unseen = history_series.c.seen_at < now_ms - QUARTERS.keep_ms - QUARTERS.block_ms
    series_gone = connection.execute(delete(history_series).where(unseen)).rowcount
    return {"blocks deleted": gone, "series deleted": series_gone}


def size(connection: Connection) -> tuple[int, int, int]:
    """Number of series and blocks, and the bytes of the blocks."""
    blocks, held = connection.execute(
        select(func.count(), func.coalesce(func.sum(func.length(history_block.c.data)), 0)).select_from(
            history_block
        )
    ).one()
    count = connection.execute(select(func.count()).select_from(history_series)).scalar_one()
    return int(count), int(blocks), int(held)


def name_of(*parts: str) -> str:
    """The stored name of a series that has several parts."""
    return key_of(" ".join(parts))


def _is(figure: Figure) -> ColumnElement[bool]:
    return history_series.c.figure == figure.value


def _blocks(connection: Connection, grain: Grain, begin: int) -> dict[int, bytes]:
    query = select(history_block.c.shard, history_block.c.data).where(
        history_block.c.grain == grain.number, history_block.c.begin_at == begin
    )
    return {row[0]: row[1] for row in connection.execute(query)}
