"""Counters that grow in episodes: when an episode began, how much it grew, and when it ends. They are in the
database, so that another leader can continue.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Final

from sqlalchemy import Connection, select

from sparrowmq.coordinator.database.clock import now_ms
from sparrowmq.coordinator.database.many import delete_all, insert_all, update_all
from sparrowmq.coordinator.database.tables import growth

KEY: Final = ("rule", "object_key")


@dataclass(frozen=True, slots=True)
class GrowthMark:
    """A counter: its value, its value before the episode, and when it last grew (0: never)."""

    base: int
    value: int
    grown_at: int = 0


def seen(mark: GrowthMark | None, value: int, now: int, window_ms: int) -> GrowthMark:
    """The mark after a check. A counter that shrank was reset. Pure; times in milliseconds."""
    if mark is None or value < mark.value:
        return GrowthMark(value, value)
    if value == mark.value:
        return mark
    goes_on = mark.grown_at and now - mark.grown_at < window_ms
    return GrowthMark(mark.base if goes_on else mark.value, value, now)


def grown(mark: GrowthMark, now: int, window_ms: int) -> int:
    """Growth in the current episode; 0 without one. Pure."""
    return mark.value - mark.base if mark.grown_at and now - mark.grown_at < window_ms else 0


def look(
    connection: Connection,
    rule: str,
    values: Mapping[str, int],
    window_ms: int,
    unknown: Collection[str] = (),
) -> dict[str, int]:
    """Save a rule's counters; returns the growth of each. Missing counters are deleted, except the `unknown`
    ones.
    """
    now = int(connection.execute(select(now_ms())).scalar_one())
    mine = growth.c.rule == rule
    rows = connection.execute(select(growth).where(mine)).mappings()
    known = {row["object_key"]: GrowthMark(row["base"], row["value"], row["grown_at"]) for row in rows}
    marks = {key: seen(known.get(key), value, now, window_ms) for key, value in values.items()}
    changed = {key: mark for key, mark in marks.items() if mark != known.get(key)}
    values_of = {key: {"rule": rule, "object_key": key} | asdict(mark) for key, mark in changed.items()}
    insert_all(connection, growth, [row for key, row in values_of.items() if key not in known])
    update_all(connection, growth, KEY, [row for key, row in values_of.items() if key in known])
    gone = known.keys() - marks.keys() - set(unknown)
    delete_all(connection, growth, KEY, [{"rule": rule, "object_key": key} for key in gone])
    return {key: grown(mark, now, window_ms) for key, mark in marks.items()}
