"""The stages of a message: stored, delayed, half, retried, dead, read by groups.

A message keeps its unique id in every copy that brokers make of it in other topics. So its life is
reconstructed from copies with that id in each of these topics, and from the offsets of the groups that read
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from sparrowmq.aio import Admin
from sparrowmq.coordinator.cluster.asking import each
from sparrowmq.core.delay import DEFAULT_LEVELS
from sparrowmq.core.errors import RecordError
from sparrowmq.core.ids import parse_offset_message_id
from sparrowmq.core.message import ReceivedMessage
from sparrowmq.core.names import (
    DLQ_PREFIX,
    GIVEN_UP_TOPIC,
    HALF_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    dlq_topic,
    retry_topic,
)

GROUPS_MAX: Final = 30
"""Maximum number of groups whose retries, dead letters and offsets are checked."""
COPIES_MAX: Final = 64
SECONDS: Final = 10.0
INNER: Final = (SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, GIVEN_UP_TOPIC)


@dataclass(frozen=True, slots=True)
class Stage:
    """Something that happened to a message at a time (epoch ms): born, stored, committed, waits, half, retry,
    dead, or given-up. `due_ms` is when a delayed one is delivered; Retries and dead letters have `group` and
    `tries`.
    """

    what: str
    at_ms: int
    topic: str
    broker: str = ""
    queue: int = 0
    offset: int = 0
    group: str = ""
    tries: int = 0
    due_ms: int | None = None


@dataclass(frozen=True, slots=True)
class GroupMessageState:
    """State of a message for a group: read, waits, retrying or dead, None if unknown; and its retries."""

    group: str
    state: str | None
    tries: int = 0


@dataclass(frozen=True, slots=True)
class Life:
    """All stages in order, and the state for each group; `failed` lists unknown topics and groups."""

    stages: Sequence[Stage]
    groups: Sequence[GroupMessageState]
    failed: dict[str, str] = field(default_factory=dict)


async def life(admin: Admin, topic: str, message_id: str) -> Life:
    """The life of a message of a topic, by its unique id; without any stage the message was not found."""
    failed: dict[str, str] = {}
    groups = (await admin.topics.groups(topic))[:GROUPS_MAX]
    topics = [topic, *INNER, *map(retry_topic, groups), *map(dlq_topic, groups)]

    async def look(name: str) -> list[ReceivedMessage]:
        return await admin.messages.query(name, message_id, count=COPIES_MAX, unique=True, decompress=False)

    copies = await each(topics, look, failed, seconds=SECONDS, vanish=True)
    found = [one for name in topics for one in copies.get(name, ()) if is_of(topic, groups, one)]
    stages = stages_of(found)
    stored = [one for one in found if one.topic == topic]
    standings = await each(
        groups if stored else (),
        lambda group: _standing(admin, group, stored[-1], stages),
        failed,
        seconds=SECONDS / 2,
    )
    unknown = (GroupMessageState(name, None) for name in groups if name not in standings)
    return Life(stages, [*standings.values(), *unknown], failed)


def is_of(topic: str, groups: Sequence[str], one: ReceivedMessage) -> bool:
    """Whether a copy belongs to a message of the topic: senders make ids, which may repeat. Pure."""
    own = one.properties
    if one.topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        return own.get("RETRY_TOPIC", topic) == topic
    real = own.get("REAL_TOPIC")
    if one.topic in INNER and real is not None and real.startswith(RETRY_PREFIX):
        return real[len(RETRY_PREFIX) :] in groups and own.get("RETRY_TOPIC", topic) == topic
    return one.topic == topic or real in (None, topic)


def stages_of(found: Iterable[ReceivedMessage]) -> list[Stage]:
    """The stages recorded in the copies of a message, in order of time. Pure."""
    stages = [_stage(one) for one in found]
    born = min(((one.born_timestamp, one.born_host, one.topic) for one in found), default=None)
    if born is not None:
        stages.append(Stage("born", born[0], "", born[1]))
    return sorted(stages, key=lambda one: (one.at_ms, one.what != "born", one.topic, one.offset))


def due_of(one: ReceivedMessage) -> int | None:
    """When a delayed message is due, epoch ms; None when it does not say. Pure."""
    own = one.properties
    if one.topic == SCHEDULE_TOPIC:
        return one.store_timestamp + DEFAULT_LEVELS.delay_ms(one.queue.queue_id + 1)
    for name, factor in (("TIMER_DELAY_SEC", 1000), ("TIMER_DELAY_MS", 1)):
        if (wait := _number(own.get(name))) is not None:
            return one.born_timestamp + factor * wait
    return _number(own.get("TIMER_DELIVER_MS")) or _number(own.get("TIMER_OUT_MS"))


def _stage(one: ReceivedMessage) -> Stage:
    where = (one.topic, one.queue.broker_name, one.queue.queue_id, one.queue_offset)
    if one.topic in (SCHEDULE_TOPIC, TIMER_TOPIC):
        real = one.properties.get("REAL_TOPIC", "")
        group = real[len(RETRY_PREFIX) :] if real.startswith(RETRY_PREFIX) else ""
        tries = one.reconsume_times if group else 0
        return Stage("waits", one.store_timestamp, *where, group, tries, due_of(one))
    if one.topic == HALF_TOPIC:
        return Stage("half", one.store_timestamp, *where)
    if one.topic == GIVEN_UP_TOPIC:
        return Stage("given-up", one.store_timestamp, *where)
    for prefix, what in ((RETRY_PREFIX, "retry"), (DLQ_PREFIX, "dead")):
        if one.topic.startswith(prefix):
            return Stage(what, one.store_timestamp, *where, one.topic[len(prefix) :], one.reconsume_times)
    what = "committed" if one.prepared_transaction_offset > 0 or "TRAN_MSG" in one.properties else "stored"
    return Stage(what, one.store_timestamp, *where)


async def _standing(
    admin: Admin, group: str, stored: ReceivedMessage, stages: Sequence[Stage]
) -> GroupMessageState:
    mine = [one for one in stages if one.group == group]
    tries = max((one.tries for one in mine), default=0)
    if any(one.what == "dead" for one in mine):
        return GroupMessageState(group, "dead", tries)
    places = [one for one in await admin.groups.progress(group) if one.queue == stored.queue]
    if not places:
        return GroupMessageState(group, "retrying" if mine else None, tries)
    if mine and await _waits_in(admin, group, mine):
        return GroupMessageState(group, "retrying", tries)
    return GroupMessageState(
        group, "read" if places[0].consumer_offset > stored.queue_offset else "waits", tries
    )


async def _waits_in(admin: Admin, group: str, mine: Sequence[Stage]) -> bool:
    """Whether the group has not yet reached the last retry of a message."""
    last = mine[-1]
    if last.what != "retry":
        return True
    places = await admin.groups.progress(group)
    at = {(one.queue.topic, one.queue.broker_name, one.queue.queue_id): one.consumer_offset for one in places}
    return at.get((last.topic, last.broker, last.queue), 0) <= last.offset


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) <= 18 else None


def is_place(text: str, addresses: Iterable[str]) -> bool:
    """Whether a text is an offset id of one of these brokers. An id contains the address to query: the
    coordinator must not connect to an address that is not a broker of the cluster. Pure.
    """
    try:
        host, port, _ = parse_offset_message_id(text)
    except RecordError:
        return False
    return f"{host}:{port}" in set(addresses)
