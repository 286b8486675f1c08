"""Effects of an offset reset in each queue, with links to the messages that are repeated or skipped. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from sparrowmq.console.tables import Column, Row
from sparrowmq.console.visits import Visit


def messages_link(row: Row, count: int | None, begin: str, end: str) -> str:
    """The page of the messages of a queue from one offset of a step to another, exclusive; empty if there are
    none, or if it is unknown which.
    """
    if not count or row[begin] is None or row[end] is None:
        return ""
    fields = {"topic": row["topic"], "by": "offset", "broker": row["broker"], "queue": row["queue"]}
    return f"/messages?{urlencode(fields | {'offset': row[begin], 'until': row[end]})}"


OFFSET_STEPS: Final = (
    Column("topic"),
    Column("broker"),
    Column("queue", "number"),
    Column("before", "number"),
    Column("after", "number"),
    Column("again", "number", link=lambda row: messages_link(row, row["again"], "after", "before")),
    Column("never", "number", link=lambda row: messages_link(row, row["never"], "before", "after")),
)


def step_rows(steps: Sequence[Mapping[str, Any]], topic: str = "") -> list[dict[str, Any]]:
    """Steps of the API with the topic in each."""
    return [{"topic": topic} | dict(one) for one in steps]


def says_of(visit: Visit, key: str, rows: Sequence[Mapping[str, Any]], **values: str) -> list[str]:
    """Number of repeated and skipped messages, and whether it is complete."""
    again, never = (sum(one[name] or 0 for one in rows) for name in ("again", "never"))
    says = [visit.words(key, again=again, never=never, **values)]
    if any(one["before"] is None for one in rows):
        says.append(visit.words("form.reset-unknown"))
    return says
