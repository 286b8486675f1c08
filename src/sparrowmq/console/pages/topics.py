"""Topics: their queues, rates and groups; creation, changes and deletion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlencode

from sparrowmq.console import shown
from sparrowmq.console.pages import guards, over_time, owners
from sparrowmq.console.pages.columns import LAGS, lag_rows
from sparrowmq.console.tables import Column
from sparrowmq.console.visits import Field, Form, Page, PagePart, Preview, Values, Visit, at
from sparrowmq.coordinator.api import cluster
from sparrowmq.coordinator.api.cluster import QUEUES_MAX, TopicChange
from sparrowmq.coordinator.api.told import topics as told
from sparrowmq.coordinator.users.roles import RoleRight
from sparrowmq.core.errors import RefusedError

TOPICS: Final = (
    Column("topic", link=lambda row: at("topics", row["topic"])),
    Column("kind", "state", filtered=True),
    Column("type", filtered=True),
    Column("queues", "number"),
    Column("perm_word", "state", filtered=True),
    Column("brokers", "list", filtered=True),
)
AT: Final = (
    Column("broker"),
    Column("read_queues", "number"),
    Column("write_queues", "number"),
    Column("perm_word", "state"),
    Column("stored_per_second", "rate"),
    Column("attributes"),
)
QUEUES: Final = (
    Column("broker", filtered=True),
    Column("queue", "number", link=lambda row: _messages_at(row)),
    Column("messages", "number"),
    Column("first", "number"),
    Column("next", "number"),
    Column("sent_ms", "time"),
)
KEPT: Final = (
    Column("broker"),
    Column("messages", "number"),
    Column("bytes", "bytes"),
    Column("reserved_hours", "number"),
    Column("delete_hours", "list"),
    Column("deletes_ms", "due"),
    Column("before_ms", "due"),
    Column("deleted", "number", link=lambda row: _gone_first(row)),
)
SENDERS: Final = (
    Column("address"),
    Column("state", "state", filtered=True),
    Column("client_id"),
    Column("language"),
    Column("groups", "list"),
    Column("queues", "number"),
    Column("sent_ms", "time"),
)
NEWEST: Final = 20
READ: Final = 4
WRITE: Final = 2
PERMS: Final[Mapping[int, str]] = {6: "read-write", 4: "read-only", 2: "write-only", 0: "closed"}


TYPES: Final = ("NORMAL", "FIFO", "DELAY", "TRANSACTION")
"""Types of messages that a topic can be created for."""


def perm_word(perm: int | None) -> str:
    """The permission of a topic, as a word of the catalogue."""
    return "mixed" if perm is None else PERMS.get(perm & 6, str(perm))


def _messages_at(row: Mapping[str, Any]) -> str:
    """The newest messages of a queue."""
    begin = max(row["first"], row["next"] - NEWEST)
    fields = {
        "topic": row["topic"],
        "by": "offset",
        "broker": row["broker"],
        "queue": row["queue"],
        "offset": begin,
    }
    return f"/messages?{urlencode(fields)}"


async def topics(visit: Visit) -> Values:
    """All topics; RocketMQ's own with `system`."""
    found = await cluster.list_topics(visit.caller, bool(visit.query.get("system")))
    rows = await visit.call(_topic_rows, found["topics"])
    table = await visit.table("topics", TOPICS, rows, sort="topic", empty="empty.topics")
    notes = [f"{name}: {why}" for name, why in found["failed"].items()]
    return {"table": table, "looked_ms": found["looked_ms"], "notes": notes}


def _topic_rows(found: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [{**one, "perm_word": perm_word(one["perm"])} for one in found]


async def topic(visit: Visit) -> Values:
    """The topic's configuration at each broker, and its messages per second."""
    found = await _topic(visit)
    rows = [
        one
        | {
            "broker": name,
            "perm_word": perm_word(one["perm"]),
            "stored_per_second": found["stored_per_second"].get(name),
            "attributes": ", ".join(f"{key}={value}" for key, value in one["attributes"].items()),
        }
        for name, one in found["at"].items()
    ]
    return {"table": await visit.table("at", AT, rows, sort="broker")}


async def queues(visit: Visit) -> Values:
    """Its queues."""
    name = visit.named("topic")
    found = await _topic(visit)
    rows = [one | {"topic": name, "sent_ms": one["last_ms"]} for one in found["queues"]]
    return {"table": await visit.table("queues", QUEUES, rows, empty="empty.queues")}


def _gone_first(row: Mapping[str, Any]) -> str:
    """The messages that the next deletion removes."""
    if not row["deleted"]:
        return ""
    end = datetime.fromtimestamp(row["before_ms"] / 1000, UTC).isoformat(timespec="seconds")
    return f"/messages?{urlencode({'topic': row['topic'], 'by': 'time', 'end': end})}"


async def kept(visit: Visit) -> Values:
    """How long and how large it is at each broker, and what is deleted next."""
    found = await told.topic_retention(visit.named("topic"), visit.caller)
    rows = [one | {"topic": visit.named("topic")} for one in found["brokers"]]
    table = await visit.table("kept", KEPT, rows, sort="broker")
    silent = [one["broker"] for one in rows if not one["is_known"]]
    notes = [visit.words("topic.kept")]
    if silent:
        notes.append(visit.words("topic.not-known", brokers=", ".join(silent)))
    return {"table": table, "notes": [*notes, *found["losses"]]}


async def senders(visit: Visit) -> Values:
    """Who sent to it last."""
    found = await told.topic_senders(visit.named("topic"), visit.caller)
    rows = [
        one
        | {
            "state": "online" if one["client_id"] else "offline",
            "client_id": one["client_id"] or "–",
            "language": one["language"] or "–",
            "sent_ms": one["last_ms"],
        }
        for one in found
    ]
    table = await visit.table("senders", SENDERS, rows, sort="-sent_ms", empty="empty.senders")
    return {"table": table, "notes": [visit.words("topic.senders")] if rows else []}


async def _topic(visit: Visit) -> Mapping[str, Any]:
    return await visit.once("topic", lambda: cluster.show_topic(visit.named("topic"), visit.caller))


async def readers(visit: Visit) -> Values:
    """The groups that read it. Their lag includes all their topics."""
    found = await cluster.topic_groups(visit.named("topic"), visit.caller)
    rows = lag_rows({"groups": found})
    return {"table": await visit.table("readers", LAGS, rows, sort="-messages", empty="empty.readers")}


def _all(visit: Visit) -> Sequence[tuple[str, str]]:
    system = (
        [("do.no-system", "/topics")] if visit.query.get("system") else [("do.system", "/topics?system=1")]
    )
    return [*([("do.create-topic", "/new/topic")] if visit.may(RoleRight.EDIT) else []), *system]


def _links(visit: Visit) -> Sequence[tuple[str, str]]:
    name = visit.named("topic")
    base, thing = at("topics", name), ("topic", name)
    found = [("do.tail", at("tail", name))]
    if visit.may(RoleRight.EDIT, thing):
        found += [("do.send", f"{base}/send"), ("do.change-topic", f"{base}/change")]
    found += guards.links(visit)
    if visit.may(RoleRight.OPERATE, thing):
        found.append(("do.delete-topic", f"{base}/delete"))
    return found


# Changes


def _perms(visit: Visit) -> Sequence[tuple[str, str]]:
    return [(str(perm), visit.words(f"state.{word}")) for perm, word in PERMS.items()]


async def _new_fields(visit: Visit) -> Sequence[Field]:
    return [
        Field("topic", "column.topic", help=visit.words("form.topic-name")),
        *_fields(visit, "8", "6"),
        Field("type", "column.type", "select", TYPES[0], [(one, one) for one in TYPES],
              help=visit.words("form.topic-type-help")),
    ]  # fmt: skip


def _fields(visit: Visit, queues: str, perm: str) -> Sequence[Field]:
    return [
        Field("queues", "form.queues", "number", queues, help=f"1–{QUEUES_MAX}"),
        Field("perm", "column.perm_word", "select", perm, _perms(visit)),
    ]


async def _old_fields(visit: Visit) -> Sequence[Field]:
    found = await cluster.show_topic(visit.named("topic"), visit.caller)
    most = max((one["write_queues"] for one in found["at"].values()), default=8)
    return _fields(visit, str(most), str((found["perm"] if found["perm"] is not None else 6) & 6))


def _change(given: Mapping[str, str], *, exists: bool, reason: str = "") -> TopicChange:
    """Raises `RefusedError` (422) for invalid numbers or numbers out of range."""
    numbers = {}
    for name, low, high in (("queues", 1, QUEUES_MAX), ("perm", 0, 7)):
        text = given.get(name, "").strip()
        if not (text.isascii() and text.isdecimal() and len(text) <= 6 and low <= int(text) <= high):
            raise RefusedError(
                f"{name} must be a whole number from {low} to {high}, not {text[:40]!r}", status=422
            )
        numbers[name] = int(text)
    wanted = given.get("type", TYPES[0])
    if wanted not in TYPES:
        raise RefusedError(f"type must be one of {', '.join(TYPES)}, not {wanted[:40]!r}", status=422)
    kind: Any = None if exists or wanted == TYPES[0] else wanted
    return TopicChange(
        queues=numbers["queues"], perm=numbers["perm"], type=kind, exists=exists, reason=reason
    )


async def _preview_new(visit: Visit, given: Mapping[str, str]) -> Preview:
    name, change = given.get("topic", "").strip(), _change(given, exists=False)
    known = await cluster.list_topics(visit.caller, True)
    if not name:
        raise RefusedError(visit.words("form.topic-missing"), status=422)
    if any(one["topic"] == name for one in known["topics"]):
        raise RefusedError(visit.words("form.topic-there", topic=name), status=409)
    says = visit.words("form.topic-create", topic=name, queues=change.queues, perm=_said(visit, change.perm))
    kind = [visit.words("form.topic-type", type=change.type)] if change.type else []
    return Preview([says, *kind], stamp=name)


async def _create(visit: Visit, given: Mapping[str, str], reason: str) -> str:
    await cluster.put_topic(given["topic"].strip(), _change(given, exists=False, reason=reason), visit.caller)
    return "created"


async def _preview_change(visit: Visit, given: Mapping[str, str]) -> Preview:
    found, change = await cluster.show_topic(visit.named("topic"), visit.caller), _change(given, exists=True)
    says: list[str] = []
    lost = 0
    for name, one in sorted(found["at"].items()):
        lost |= one["perm"] & ~change.perm
        old = one["write_queues"]
        if old != change.queues:
            says.append(visit.words("form.topic-queues", broker=name, before=old, after=change.queues))
        if old > change.queues:
            queues = [row for row in found["queues"] if row["broker"] == name]
            stored = sum(row["messages"] for row in queues if row["queue"] >= change.queues)
            ids = f"{change.queues}–{old - 1}"
            says.append(visit.words("form.topic-fewer", broker=name, lost=ids, messages=stored))
        if one["perm"] != change.perm:
            before, after = _said(visit, one["perm"]), _said(visit, change.perm)
            says.append(visit.words("form.topic-perm", broker=name, before=before, after=after))
    says += await _broken_by(visit, lost)
    return Preview(says or [visit.words("form.nothing")], stamp=repr(found["at"]))


async def _broken_by(visit: Visit, lost: int) -> list[str]:
    """Who can no longer read or send, when these permissions are lost."""
    if not lost & (READ | WRITE):
        return []
    use = await told.topic_use(visit.named("topic"), visit.caller)
    readers = _readers_lose(visit, use, "form.topic-unreadable") if lost & READ else []
    return readers + (_senders_lose(visit, use, "form.topic-unwritable") if lost & WRITE else [])


def _readers_lose(visit: Visit, use: Mapping[str, Any], key: str) -> list[str]:
    """A sentence for each group of a topic: what it has not read, and who is online."""
    says = []
    for one in use["readers"]:
        known = {name: shown.said("number", one[name], visit.words) for name in ("unread", "members")}
        says.append(visit.words(key, group=one["group"], **known))
    return shown.first(says, visit.words, use["groups_left"])


def _senders_lose(visit: Visit, use: Mapping[str, Any], key: str) -> list[str]:
    names = [one["client_id"] or one["address"] for one in use["senders"]]
    return [visit.words(key, senders=shown.listed(names))] if names else []


async def _save(visit: Visit, given: Mapping[str, str], reason: str) -> str:
    await cluster.put_topic(visit.named("topic"), _change(given, exists=True, reason=reason), visit.caller)
    return "saved"


async def _nothing(visit: Visit) -> Sequence[Field]:
    return ()


async def _preview_delete(visit: Visit, given: Mapping[str, str]) -> Preview:
    name = visit.named("topic")
    found = await cluster.preview_removal(name, visit.caller)
    says = [visit.words("form.topic-delete", topic=name, messages=found["messages"], queues=found["queues"])]
    if found["groups"]:
        says.append(visit.words("form.topic-groups", groups=shown.listed(found["groups"])))
        use = await told.topic_use(name, visit.caller)
        says += _readers_lose(visit, use, "form.topic-reader")
        says += _senders_lose(visit, use, "form.topic-sender")
    return Preview(says, stamp=repr(found["groups"]))


async def _delete(visit: Visit, given: Mapping[str, str], reason: str) -> str:
    await cluster.delete_topic(visit.named("topic"), visit.caller, reason)
    return "deleted"


def _said(visit: Visit, perm: int) -> str:
    return visit.words.named("state", perm_word(perm))


def _one(visit: Visit) -> str:
    return at("topics", visit.named("topic"))


PAGES: Final = (
    Page("/topics", "page.topics", "topics", (PagePart("topics", topics),), links=_all),
    Page(
        "/topics/{topic}",
        "page.topic",
        "topics",
        (
            PagePart("at", topic),
            over_time.part(over_time.topic),
            PagePart("readers", readers),
            PagePart("senders", senders),
            PagePart("kept", kept),
            guards.HOLDS_PART,
            PagePart("queues", queues),
            owners.part("topic"),
        ),
        links=_links,
    ),
)
FORMS: Final[Sequence[Form]] = (
    *guards.FORMS,
    Form("/new/topic", "do.create-topic", "topics", _new_fields, _preview_new, _create,
         lambda visit: "/topics", looks_first=True),
    Form("/topics/{topic}/change", "do.change-topic", "topics", _old_fields, _preview_change, _save, _one,
         looks_first=True),
    Form("/topics/{topic}/delete", "do.delete-topic", "topics", _nothing, _preview_delete, _delete,
         lambda visit: "/topics", typed=lambda visit: visit.named("topic")),
)  # fmt: skip
