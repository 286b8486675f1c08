"""What became of a message: its stages, the groups it is for, and its traces as a picture over time."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlencode

from sparrowmq.console.pages.messages.places import place_of
from sparrowmq.console.pages.messages.timeline import spans_of, timeline
from sparrowmq.console.tables import Column
from sparrowmq.console.visits import SEARCH_SECONDS, Form, Page, PagePart, Values, Visit, at
from sparrowmq.coordinator.api import lives as api
from sparrowmq.coordinator.api.shared import Answer
from sparrowmq.core.names import TRACE_TOPIC

ID_CHARS_MAX: Final = 256
STAGES: Final = (
    Column("stage_ms", "time"),
    Column("stage", "state"),
    Column("group", link=lambda row: at("groups", row["group"]) if row["group"] else ""),
    Column("tries", "number"),
    Column("due_ms", "due"),
    Column("where", link=lambda row: place_of(row) if row["what"] != "born" else ""),
)
STAGE_STATES: Final = {"waits": "until", "retry": "again", "dead": "letter"}
"""Stages whose word is another than that of the same state of something else."""
STANDINGS: Final = (
    Column("group", link=lambda row: at("groups", row["group"])),
    Column("state", "state"),
    Column("tries", "number"),
)
TRACED: Final = (
    Column("began_ms", "time"),
    Column("what", "state"),
    Column("group", link=lambda row: at("groups", row["group"]) if row["what"] == "consumed" else ""),
    Column("tries", "number"),
    Column("took", "span"),
    Column("outcome", "state"),
)


def life_link(topic: str, message_id: str) -> str:
    """The page of a message's life."""
    return f"{at('life', topic)}?{urlencode({'id': message_id})}"


async def stages(visit: Visit) -> Values:
    """Its stages, the oldest first."""
    topic, wanted = visit.named("topic"), _id(visit)
    values: Values = {"wanted": wanted, "table": None, "notes": []}
    if not wanted:
        return values
    found = await visit.once("life", lambda: api.message_life(topic, visit.caller, wanted))
    rows = [
        one
        | {
            "stage": STAGE_STATES.get(one["what"], one["what"]),
            "stage_ms": one["at_ms"],
            "due_ms": one["due_ms"] or 0,
            "where": one["broker"]
            if one["what"] == "born"
            else f"{one['topic']}/{one['broker']}/{one['queue']}, {one['offset']}",
        }
        for one in found["stages"]
    ]
    table = await visit.table("stages", STAGES, rows, empty="empty.life")
    return values | {"table": table, "notes": [f"{name}: {why}" for name, why in found["failed"].items()][:5]}


async def standings(visit: Visit) -> Values:
    """Whether each group has consumed it."""
    topic, wanted = visit.named("topic"), _id(visit)
    rows: list[Answer] = []
    if wanted:
        found = await visit.once("life", lambda: api.message_life(topic, visit.caller, wanted))
        listed = found["groups"] if found["stages"] else []
        rows = [one | ({"state": "letter"} if one["state"] == "dead" else {}) for one in listed]
    return {"table": await visit.table("standings", STANDINGS, rows, sort="group", empty="empty.readers")}


async def traced(visit: Visit) -> Values:
    """What was traced of the message that the address names, drawn, and as a table."""
    wanted = _id(visit)
    topic = visit.query.get("in", "").strip()[:255] or TRACE_TOPIC
    values: Values = {"wanted": wanted, "topic": topic, "drawn": None, "table": None, "path": visit.path}
    if not wanted:
        return values
    drawn = timeline(spans_of(await api.list_traces(visit.caller, wanted, topic)))
    rows = [
        {
            "began_ms": one.begin_ms,
            "what": one.what,
            "group": one.who,
            "tries": one.tries,
            "took": None if one.outcome == "begun" and one.what == "consumed" else one.end_ms - one.begin_ms,
            "outcome": one.outcome,
        }
        for one in drawn.spans
    ]
    return values | {"drawn": drawn, "table": await visit.table("traced", TRACED, rows, empty="empty.traced")}


def _id(visit: Visit) -> str:
    return visit.query.get("id", "").strip()[:ID_CHARS_MAX]


PAGES: Final = (
    Page(
        "/life/{topic}",
        "page.life",
        "messages",
        (
            PagePart("stages", stages, template="stages", seconds=SEARCH_SECONDS),
            PagePart("standings", standings, seconds=SEARCH_SECONDS),
            PagePart("traced", traced, template="traced", seconds=SEARCH_SECONDS),
        ),
        is_live=False,
    ),
    Page(
        "/traces",
        "page.traces",
        "traces",
        (PagePart("traced", traced, template="traced", seconds=SEARCH_SECONDS),),
        is_live=False,
    ),
)
FORMS: Final[tuple[Form, ...]] = ()
