"""Routes that search for a typed text: names of things, and messages in every topic by their id or key."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import filterfalse
from typing import Annotated, Final

from fastapi import APIRouter, Query

from sparrowmq import aio
from sparrowmq.coordinator.api.cluster import explorer, is_inner
from sparrowmq.coordinator.api.messages import ID_CHARS_MAX, Heads, views
from sparrowmq.coordinator.api.shared import Answer, ApiCaller, Who
from sparrowmq.coordinator.api.told.answering import look, shown
from sparrowmq.coordinator.cluster.asking import each
from sparrowmq.coordinator.users import people
from sparrowmq.coordinator.users.roles import RoleRight
from sparrowmq.core.errors import RefusedError
from sparrowmq.core.message import ReceivedMessage

router = APIRouter(tags=["finding"])
FOUND_MAX: Final = 100
TOPICS_MAX: Final = 500
"""Number of topics searched for a message; each is a request to its brokers."""
LOOK_SECONDS: Final = 10.0
COPIES_MAX: Final = 8
"""Maximum number of messages shown of one topic with the same key, the newest."""
Text = Annotated[str, Query(min_length=1, max_length=ID_CHARS_MAX)]


@router.get("/find")
async def find(text: Text, who: Who, count: Annotated[int, Query(ge=1, le=FOUND_MAX)] = 20) -> Answer:
    """Topics, groups, brokers, services and users with a text in their names, the best match first.

    `unknown` has the kinds that could not be searched in time.
    """
    who.need(RoleRight.READ)
    named, unknown = await _names(who)
    things = ((kind, name) for kind, names in named.items() for name in names)
    ranks = await shown(things, partial(rank, text))
    hits = sorted(one for one in ranks if one is not None)
    found = [{"kind": kind, "name": name} for *_, name, kind in hits[:count]]
    return {"found": found, "unknown": unknown}


async def _names(who: ApiCaller) -> tuple[dict[str, Iterable[str]], list[str]]:
    """Names of things, by kind, and kinds that could not be listed."""
    explores, unknown = explorer(who), list[str]()
    found: dict[str, Iterable[str]] = {}
    try:
        found["topic"] = filterfalse(is_inner, (await explores.tables()).topics)
    except RefusedError:
        unknown.append("topic")
    try:
        found["group"] = (one.group for one in (await explores.lags()).groups)
    except RefusedError:
        unknown.append("group")
    try:
        found["broker"] = [one.address for one in (await explores.servers()).brokers]
    except RefusedError:
        unknown.append("broker")
    found["service"] = list(who.context.kinds)
    everyone = await who.context.database.run(lambda: who.read(people.everyone))
    found["person"] = [one.name for one in everyone]
    return found, unknown


@router.get("/cluster/messages")
async def messages_anywhere(text: Text, who: Who, heads: Heads = False) -> Answer:
    """Messages with the text as id or key, in all topics, the newest first.

    `topics` is the number of topics that were searched, `left` the number of those that were not, because
    there are too many or no broker answered in time.
    """
    who.need(RoleRight.READ)
    topics = sorted(name for name in (await explorer(who).tables()).topics if not is_inner(name))
    admin, failed = await explorer(who).admin(), dict[str, str]()
    wanted = text.strip()
    if not wanted:
        raise RefusedError("the text to look for is blank; give an id or a key", status=422)

    async def in_one(topic: str) -> list[ReceivedMessage]:
        return await _in_topic(admin, topic, wanted)

    async with look(who, is_short=heads):
        found = await each(topics[:TOPICS_MAX], in_one, failed, seconds=LOOK_SECONDS, vanish=True)
        messages = [one for in_topic in found.values() for one in in_topic]
        messages.sort(key=lambda one: one.store_timestamp, reverse=True)
        shown = await views(messages[:FOUND_MAX], heads=heads)
    return {
        "messages": shown,
        "topics": len(found),
        "left": len(topics) - len(found),
    }


async def _in_topic(admin: aio.Admin, topic: str, text: str) -> list[ReceivedMessage]:
    """Those of one topic, without duplicates."""
    found = await admin.messages.query(topic, text, count=COPIES_MAX, decompress=False)
    by_id = await admin.messages.get(topic, text, decompress=False)
    if by_id is not None and all(one.offset_message_id != by_id.offset_message_id for one in found):
        found.append(by_id)
    return found


def rank(text: str, thing: tuple[str, str]) -> tuple[bool, bool, int, str, str] | None:
    """The place of a thing, which is its kind and name, among those whose names contain all words of a text:
    the exact name comes first, then names that begin with the text, then shorter ones. None for other names.
    Pure.
    """
    whole, (kind, name) = text.strip().casefold(), thing
    folded, words = name.casefold(), whole.split()
    if not words or not all(word in folded for word in words):
        return None
    return folded != whole, not folded.startswith(whole), len(name), name, kind
