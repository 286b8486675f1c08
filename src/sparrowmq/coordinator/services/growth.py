"""Counters that grow in episodes: since when, by how much, and until when it counts as going on. In the
database, so that another leader goes on where this one was.
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
class Mark:
    """A counter: its value, what it was before the episode, and when it was last seen to grow (0: never)."""

    base: int
    value: int
    grown_at: int = 0


def seen(mark: Mark | None, value: int, now: int, window_ms: int) -> Mark:
    """The mark after a look. A counter that shrank was made anew. Pure; times in milliseconds."""
    if mark is None or value < mark.value:
        return Mark(value, value)
    if value == mark.value:
        return mark
    goes_on = mark.grown_at and now - mark.grown_at < window_ms
    return Mark(mark.base if goes_on else mark.value, value, now)


def grown(mark: Mark, now: int, window_ms: int) -> int:
    """By how much it grew in the episode that goes on; 0 without one. Pure."""
    return mark.value - mark.base if mark.grown_at and now - mark.grown_at < window_ms else 0


def look(
    connection: Connection,
    rule: str,
    values: Mapping[str, int],
    window_ms: int,
    unknown: Collection[str] = (),
) -> dict[str, int]:
    """Note a rule's counters; gives by how much each grew. Those that are not there any more are forgotten,
    but not the `unknown`.
    """
    now = int(connection.execute(select(now_ms())).scalar_one())
    mine = growth.c.rule == rule
    rows = connection.execute(select(growth).where(mine)).mappings()
    known = {row["object_key"]: Mark(row["base"], row["value"], row["grown_at"]) for row in rows}
    marks = {key: seen(known.get(key), value, now, window_ms) for key, value in values.items()}
    changed = {key: mark for key, mark in marks.items() if mark != known.get(key)}
    values_of = {key: {"rule": rule, "object_key": key} | asdict(mark) for key, mark in changed.items()}
    insert_all(connection, growth, [row for key, row in values_of.items() if key not in known])
    update_all(connection, growth, KEY, [row for key, row in values_of.items() if key in known])
    gone = known.keys() - marks.keys() - set(unknown)
    delete_all(connection, growth, KEY, [{"rule": rule, "object_key": key} for key in gone])
    return {key: grown(mark, now, window_ms) for key, mark in marks.items()}
