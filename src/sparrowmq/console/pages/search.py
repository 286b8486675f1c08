"""The search page: objects by name, messages by id or key. The palette shows its first part."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlencode

from sparrowmq.console.pages.messages.places import place_of
from sparrowmq.console.rendering import MENU
from sparrowmq.console.tables import Column
from sparrowmq.console.texts import LANGUAGES, words
from sparrowmq.console.visits import SEARCH_SECONDS, Form, Page, PagePart, Values, Visit, at
from sparrowmq.coordinator.api.told import finding

WHERE: Final = {
    "topic": "topics",
    "group": "groups",
    "broker": "brokers",
    "service": "services",
    "person": "people",
}
"""The pages of each kind of object."""
MESSAGES: Final = (
    Column("stored_ms", "time"),
    Column("message_id", link=place_of),
    Column("topic", link=lambda row: at("topics", row["topic"])),
    Column("tags"),
    Column("keys", "list"),
    Column("broker"),
    Column("queue", "number"),
    Column("offset", "number"),
)
TEXT_CHARS_MAX: Final = 256


def _text(visit: Visit) -> str:
    return visit.query.get("q", "").strip()[:TEXT_CHARS_MAX]


async def hits(visit: Visit) -> Values:
    """Pages and objects whose names contain the text, and a link to messages."""
    text = _text(visit)
    found = await _named(visit)
    return {
        "text": text,
        "hits": found["hits"],
        "unknown": found["unknown"],
        "messages": f"/search?{urlencode({'q': text, 'in': 'messages'})}" if text else "",
    }


async def _named(visit: Visit) -> dict[str, Any]:
    return await visit.once("hits", lambda: _find(visit))


async def _find(visit: Visit) -> dict[str, Any]:
    text = _text(visit)
    if not text:
        return {"hits": [], "unknown": []}
    pages = [
        (visit.words(f"menu.{name}"), link)
        for name, link in MENU
        if any(text.casefold() in words(code)(f"menu.{name}").casefold() for code in LANGUAGES)
    ]
    answer = await finding.find(text, visit.caller, 20)
    things = [("page", name, link) for name, link in pages]
    things += [(one["kind"], one["name"], at(WHERE[one["kind"]], one["name"])) for one in answer["found"]]
    return {"hits": things, "unknown": answer["unknown"]}


async def messages(visit: Visit) -> Values:
    """Messages with that id or key; searched on request, or if no object has such a name."""
    text = _text(visit)
    if not text or (visit.query.get("in") != "messages" and (await _named(visit))["hits"]):
        return {"table": None, "looked": False, "topics": 0, "left": 0}
    answer = await finding.messages_anywhere(text, visit.caller, heads=True)
    table = await visit.table("found", MESSAGES, answer["messages"], sort="-stored_ms", empty="search.none")
    return {"table": table, "looked": True, "topics": answer["topics"], "left": answer["left"]}


PAGES: Final = (
    Page(
        "/search",
        "page.search",
        "",
        (
            PagePart("hits", hits, template="hits"),
            PagePart("anywhere", messages, template="anywhere", seconds=SEARCH_SECONDS),
        ),
        is_live=False,
    ),
)
FORMS: Final[tuple[Form, ...]] = ()
