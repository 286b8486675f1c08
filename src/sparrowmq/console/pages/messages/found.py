"""Messages that a user searches for: by key, id, tag, SQL92 expression, time or place; and the
newest ones.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from starlette.responses import Response

from sparrowmq.console import shown
from sparrowmq.console.pages.groups import moment_of
from sparrowmq.console.pages.messages.places import MESSAGES, PICK, rows_of, send_link, whole
from sparrowmq.console.visits import SEARCH_SECONDS, Form, Page, PagePart, Values, Visit, at
from sparrowmq.coordinator.api import cluster, searching
from sparrowmq.coordinator.api import messages as api
from sparrowmq.coordinator.api.messages import TIME_MAX
from sparrowmq.coordinator.api.searching import SELECTED_MAX
from sparrowmq.coordinator.api.shared import Answer
from sparrowmq.coordinator.cluster.exporting import FileFormat
from sparrowmq.core.errors import RefusedError

WAYS: Final = ("key", "id", "tags", "sql", "time", "offset")
COUNT: Final = 50
FIELDS: Final = (
    "topic", "by", "id", "key", "tags", "sql", "broker", "queue", "offset", "until", "begin", "end",
)  # fmt: skip
FIELD_CHARS_MAX: Final = 4096
TOPICS_MAX: Final = 1000
PICKED: Final = "picked-"
"""What the downloads of ticked messages begin with, in the field `_get`."""
EXPORTS: Final = {FileFormat.JSONL: "find.export-jsonl", FileFormat.PARQUET: "find.export-parquet"}


@dataclass(frozen=True, slots=True)
class Listed:
    """What was found, and where to go on from: fields of the address, and why there is more."""

    messages: Sequence[Answer]
    onward: Mapping[str, str] | None = None
    more: str = ""


def asked_of(visit: Visit) -> dict[str, str]:
    """The fields of the address, as they were typed."""
    asked = {name: visit.query.get(name, "").strip()[:FIELD_CHARS_MAX] for name in FIELDS}
    asked["by"] = asked["by"] if asked["by"] in WAYS else WAYS[0]
    return asked


async def found(visit: Visit) -> Values:
    """What was looked for, by the fields of the address."""
    asked = asked_of(visit)
    topics = [one["topic"] for one in (await cluster.list_topics(visit.caller))["topics"]][:TOPICS_MAX]
    values: Values = {"asked": asked, "topics": topics, "ways": WAYS, "table": None, "problem_said": ""}
    if not asked["topic"]:
        return values
    try:
        listed = await _look(visit, asked)
    except RefusedError as error:
        return values | {"problem_said": str(error)}
    rows = rows_of(listed.messages)
    sort = "" if asked["by"] == "offset" else "stored_ms"
    table = await visit.table("found", (PICK, *MESSAGES), rows, sort=sort, empty="empty.found")
    onward = _address({**asked, **listed.onward}) if listed.onward else ""
    can_export = asked["by"] not in ("id", "offset")
    exports = [
        (key, f"{_address(asked)}&_get={form}") for form, key in EXPORTS.items() if rows and can_export
    ]
    tail = at("tail", asked["topic"]) + _filter(asked)
    return values | {"table": table, "onward": onward, "more": listed.more, "tail": tail, "exports": exports}


async def _look(visit: Visit, asked: Mapping[str, str]) -> Listed:
    topic, caller, way = asked["topic"], visit.caller, asked["by"]
    if way == "offset":
        queue, offset = (whole(asked[name] or "0", name) for name in ("queue", "offset"))
        messages = await api.messages_at(topic, caller, asked["broker"], queue, offset, COUNT, heads=True)
        return _up_to(visit, messages, whole(asked["until"], "until") if asked["until"] else None)
    begin, end = _span(asked)
    if way == "time":
        if not asked["begin"] and not asked["end"]:
            raise RefusedError(visit.words("find.time-missing"), status=422)
        messages = await api.messages_between(topic, caller, begin, end, COUNT, heads=True)
        return Listed(messages, more=visit.words("find.full") if len(messages) == COUNT else "")
    if not asked[way]:
        raise RefusedError(visit.words(f"find.{way}-missing"), status=422)
    if way == "id":
        return Listed(await api.message_by_id(topic, caller, asked["id"][:256], heads=True))
    if way == "key":
        key = asked["key"][:256]
        return Listed(await api.messages_by_key(topic, caller, key, COUNT, begin, end, heads=True))
    return await _filtered(visit, asked, (begin, end))


def _up_to(visit: Visit, messages: Sequence[Answer], until: int | None) -> Listed:
    """Messages of a queue before the offset `until`, and where the list continues."""
    kept = [one for one in messages if until is None or one["offset"] < until]
    if len(messages) < COUNT or len(kept) < len(messages) or kept[-1]["offset"] + 1 == until:
        said = "" if until is None else visit.words("find.until", until=until)
        return Listed(kept, more=said)
    return Listed(kept, {"offset": str(kept[-1]["offset"] + 1)}, visit.words("find.onward"))


async def _filtered(visit: Visit, asked: Mapping[str, str], span: tuple[int, int]) -> Listed:
    way = {asked["by"]: asked[asked["by"]]}
    answer = await searching.search_messages(
        asked["topic"], visit.caller, way.get("tags", ""), way.get("sql", ""), *span, COUNT, heads=True
    )
    said = [f"{queue}: {why}" for queue, why in sorted(answer["failed"].items())][:5]
    stopped = answer["stopped_ms"]
    if stopped is None:
        return Listed(answer["messages"], more="; ".join(said))
    said.append(visit.words("find.stopped", passed=answer["passed"], time=shown.moment(stopped)))
    onward = {"begin": shown.iso(stopped)} if stopped > span[0] else None
    return Listed(answer["messages"], onward, "; ".join(said))


def _span(asked: Mapping[str, str]) -> tuple[int, int]:
    begin = moment_of(asked["begin"]) if asked["begin"] else 0
    end = moment_of(asked["end"]) if asked["end"] else TIME_MAX
    if begin > end:
        raise RefusedError(f"{asked['begin'][:40]} is later than {asked['end'][:40]}", status=422)
    return begin, end


def _address(fields: Mapping[str, str]) -> str:
    return f"/messages?{urlencode({name: value for name, value in fields.items() if value})}"


def _filter(asked: Mapping[str, str]) -> str:
    """The filter of a search as that of the newest messages."""
    way = asked["by"]
    return f"?{urlencode({way: asked[way]})}" if way in ("tags", "sql") and asked[way] else ""


def _links(visit: Visit) -> Sequence[tuple[str, str]]:
    return send_link(visit, asked_of(visit)["topic"])


def _export(form: FileFormat) -> Callable[[Visit], Awaitable[Response]]:
    async def work(visit: Visit) -> Response:
        asked = asked_of(visit)
        way = {asked["by"]: asked[asked["by"]]} if asked["by"] in ("key", "tags", "sql") else {}
        return await searching.export_messages(
            asked["topic"],
            visit.caller,
            form,
            way.get("key", "")[:256],
            way.get("tags", ""),
            way.get("sql", ""),
            *_span(asked),
        )

    return work


def _export_picked(form: FileFormat) -> Callable[[Visit], Awaitable[Response]]:
    async def work(visit: Visit) -> Response:
        picked = visit.request.query_params.getlist("ids")
        if not picked:
            raise RefusedError(visit.words("find.none-picked"), status=422)
        if len(picked) > SELECTED_MAX:
            raise RefusedError(visit.words("find.many-picked", most=SELECTED_MAX), status=422)
        return await searching.export_selection(visit.query.get("topic", ""), visit.caller, picked, form)

    return work


# The newest


async def newest(visit: Visit) -> Values:
    """The newest messages of a topic, by the filter of the address."""
    topic = visit.named("topic")
    asked = {name: visit.query.get(name, "").strip()[:FIELD_CHARS_MAX] for name in ("tags", "sql")}
    values: Values = {"asked": asked, "topic": topic, "table": None, "problem_said": "", "notes": []}
    try:
        answer = await searching.newest_messages(topic, visit.caller, asked["tags"], asked["sql"], COUNT)
    except RefusedError as error:
        return values | {"problem_said": str(error)}
    table = await visit.table("newest", MESSAGES, rows_of(answer["messages"]), empty="empty.newest")
    notes = [f"{queue}: {why}" for queue, why in sorted(answer["failed"].items())][:5]
    return values | {"table": table, "notes": notes}


def _tail_links(visit: Visit) -> Sequence[tuple[str, str]]:
    topic = visit.named("topic")
    return [("do.find", _address({"topic": topic})), *send_link(visit, topic)]


PAGES: Final = (
    Page(
        "/messages",
        "page.messages",
        "messages",
        (PagePart("found", found, template="found", seconds=SEARCH_SECONDS),),
        is_live=False,
        downloads={str(form): _export(form) for form in FileFormat}
        | {f"{PICKED}{form}": _export_picked(form) for form in FileFormat},
        links=_links,
    ),
    Page(
        "/tail/{topic}",
        "page.tail",
        "messages",
        (PagePart("newest", newest, template="newest", seconds=SEARCH_SECONDS),),
        links=_tail_links,
    ),
)
FORMS: Final[Sequence[Form]] = ()
