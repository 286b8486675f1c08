"""Messages that wait: delayed and timed ones with when each is due, and half messages with their checks."""

from __future__ import annotations

from collections import Counter
from typing import Final

from sparrowmq.console import shown
from sparrowmq.console.pages.messages.lives import life_link
from sparrowmq.console.tables import Column, Row
from sparrowmq.console.visits import SEARCH_SECONDS, Form, Page, PagePart, Values, Visit, at
from sparrowmq.coordinator.api import lives as api
from sparrowmq.coordinator.api.shared import Answer

LEVELS: Final = (
    Column("broker", filtered=True),
    Column("level"),
    Column("delay"),
    Column("messages", "number"),
)
DUE: Final = (
    Column("due_ms", "time"),
    Column("for_topic", filtered=True, link=lambda row: topic_link(row)),
    Column("message_id", link=lambda row: life_link(home_of(row), row["message_id"])),
    Column("level", filtered=True),
    Column("tags"),
    Column("keys", "list"),
    Column("stored_ms", "time"),
    Column("broker"),
)
TOPICS: Final = (
    Column("for_topic", link=lambda row: topic_link(row)),
    Column("messages", "number"),
    Column("soonest_ms", "time"),
    Column("latest_ms", "time"),
)
HALVES: Final = (
    Column("born_ms", "time"),
    Column("half_state", "state", filtered=True),
    Column("for_topic", filtered=True, link=lambda row: topic_link(row)),
    Column("producer_group", filtered=True),
    Column("checks", "number"),
    Column("message_id", link=lambda row: life_link(row["for_topic"], row["message_id"])),
    Column("tags"),
    Column("keys", "list"),
    Column("broker"),
)


def home_of(row: Row) -> str:
    """The topic that its sender gave a message to; a retry that waits is for a retry topic."""
    return str(row["properties"].get("RETRY_TOPIC") or row["for_topic"])


def topic_link(row: Row) -> str:
    """The page of the topic that a message is for."""
    return at("topics", row["for_topic"]) if row["for_topic"] else ""


async def levels(visit: Visit) -> Values:
    """How many wait in each level."""
    found = await _delayed(visit)
    rows = [
        one
        | {
            "level": _level(visit, one["level"]),
            "delay": "–" if one["delay_ms"] is None else shown.span(one["delay_ms"]),
        }
        for one in found["counts"]
        if one["messages"]
    ]
    notes = [f"{name}: {why}" for name, why in sorted(found["failed"].items())]
    return {"table": await visit.table("levels", LEVELS, rows, empty="empty.waiting"), "notes": notes}


async def topics(visit: Visit) -> Values:
    """For which topics, of those that are listed."""
    listed = (await _delayed(visit))["messages"]
    rows = [
        {
            "for_topic": name,
            "messages": count,
            "soonest_ms": min(times) if (times := _times(listed, name)) else None,
            "latest_ms": max(times) if times else None,
        }
        for name, count in Counter(one["for_topic"] for one in listed).items()
    ]
    return {"table": await visit.table("by-topic", TOPICS, rows, sort="-messages", empty="empty.waiting")}


async def due(visit: Visit) -> Values:
    """What is due when, the soonest first."""
    found = await _delayed(visit)
    rows = [
        one | {"level": _level(visit, one["level"]), "tags": one["tags"] or "–"} for one in found["messages"]
    ]
    notes = [] if found["is_whole"] else [visit.words("waiting.more", count=len(rows))]
    return {
        "table": await visit.table("due", DUE, rows, sort="due_ms", empty="empty.waiting"),
        "notes": notes,
    }


async def halves(visit: Visit) -> Values:
    """Half messages whose transaction has not ended."""
    found = await api.list_halves(visit.caller)
    rows = [
        one
        | {
            "producer_group": one["group"],
            "half_state": "given-up" if one["is_given_up"] else "open-half",
            "tags": one["tags"] or "–",
        }
        for one in found["messages"]
    ]
    notes = [f"{name}: {why}" for name, why in sorted(found["failed"].items())]
    if not found["is_whole"]:
        notes.append(visit.words("waiting.more", count=len(rows)))
    table = await visit.table("halves", HALVES, rows, sort="born_ms", empty="empty.halves")
    return {"table": table, "notes": notes}


async def _delayed(visit: Visit) -> Answer:
    return await visit.once("delayed", lambda: api.list_delayed(visit.caller))


def _level(visit: Visit, level: int) -> str:
    return visit.words("waiting.level", number=level) if level else visit.words("waiting.timed")


def _times(listed: list[Answer], topic: str) -> list[int]:
    return [one["due_ms"] for one in listed if one["for_topic"] == topic and one["due_ms"] is not None]


PAGES: Final = (
    Page(
        "/waiting",
        "page.waiting",
        "waiting",
        (
            PagePart("levels", levels, seconds=SEARCH_SECONDS, is_wide=False),
            PagePart("by-topic", topics, seconds=SEARCH_SECONDS, is_wide=False),
            PagePart("due", due, seconds=SEARCH_SECONDS),
            PagePart("halves", halves, seconds=SEARCH_SECONDS),
        ),
        is_live=False,
    ),
)
FORMS: Final[tuple[Form, ...]] = ()
