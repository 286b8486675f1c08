"""Findings about topics and groups: unused for days, missing owners, too many or too few queues. Pure.

They are advice; nothing is changed automatically. Times are milliseconds by the database's clock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from sparrowmq.coordinator.records.findings import Finding
from sparrowmq.coordinator.upkeep.landscape import Use
from sparrowmq.coordinator.upkeep.logs import DAY_MS, HOUR_MS

ZOMBIE: Final = "zombie-topic"
OWNER_GONE: Final = "owner-gone"
NO_OWNER: Final = "no-owner"
OVER: Final = "over-sized"
UNDER: Final = "under-sized"
KINDS: Final = (ZOMBIE, OWNER_GONE, NO_OWNER, OVER, UNDER)

Thing = tuple[str, str]
"""`topic` or `group`, and its name."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Stored data of a topic or group. `sent` and `consumed` are sums of ends and of offsets."""

    first_at: int
    sent: int = 0
    consumed: int = 0
    sent_at: int = 0
    used_at: int = 0
    day_at: int = 0
    day_sent: int = 0
    day_rate: int = -1
    owned: bool = False

    def a_day(self, now: int) -> int | None:
        """Messages per day since `day_at`; in its first hour, those of the day before; None if unknown."""
        if now - self.day_at >= HOUR_MS:
            return max(0, self.sent - self.day_sent) * DAY_MS // (now - self.day_at)
        return self.day_rate if self.day_rate >= 0 else None


@dataclass(frozen=True, slots=True)
class Measures:
    """Thresholds. `idle_ms` is how long a topic without sends and reads may exist before it is a zombie."""

    idle_ms: int
    queue_messages: int
    queues_min: int
    over_factor: int
    need_owner: bool = False


def remember(
    before: Mapping[Thing, Memory], use: Use, had_owner: Collection[Thing], now: int
) -> dict[Thing, Memory]:
    """Data after a check; objects that no longer exist are removed, unless the check was incomplete."""
    after = {}
    for topic, ends in use.ends.items():
        thing = ("topic", topic)
        sent, consumed = sum(one.next for one in ends), use.progress.get(topic, 0)
        known = before.get(thing)
        if known is None:
            last = max((one.last_ms for one in ends), default=0)
            sent_at = min(last, now) if last > 0 else now
            known = Memory(now, sent, consumed, sent_at, now, now, sent)
        anew = sent < known.day_sent
        after[thing] = replace(
            known,
            sent=sent,
            consumed=consumed,
            sent_at=now if sent != known.sent else known.sent_at,
            used_at=now if use.readers.get(topic) or consumed != known.consumed else known.used_at,
            day_at=now if anew else known.day_at,
            day_sent=sent if anew else known.day_sent,
            day_rate=-1 if anew else known.day_rate,
        )
    for group in use.groups:
        thing = ("group", group)
        after[thing] = before.get(thing) or Memory(now, used_at=now)
    for thing, memory in after.items():
        if thing in had_owner and not memory.owned:
            after[thing] = replace(memory, owned=True)
    kept = {thing: memory for thing, memory in before.items() if thing[1] in use.failed}
    return kept | after


def next_day(memories: Mapping[Thing, Memory], now: int) -> dict[Thing, Memory]:
    """The data with rates restarted where they cover a day."""
    return {
        thing: replace(one, day_at=now, day_sent=one.sent, day_rate=one.a_day(now) or 0)
        if now - one.day_at >= DAY_MS
        else one
        for thing, one in memories.items()
    }


def verdicts(
    memories: Mapping[Thing, Memory],
    use: Use,
    owners: Collection[Thing],
    measures: Measures,
    now: int,
) -> list[Finding]:
    """All findings of a check. `owners` are the objects with a current owner."""
    found: list[Finding] = []
    for thing, memory in sorted(memories.items()):
        kind, name = thing
        if name in use.failed:
            continue
        found += _owned(thing, memory, owners, measures)
        if kind == "topic":
            zombie = _zombie(name, memory, use, measures, now)
            found += [zombie] if zombie else _sized(name, memory, use, measures, now)
    return found


def _zombie(topic: str, memory: Memory, use: Use, measures: Measures, now: int) -> Finding | None:
    silent, unused = now - memory.sent_at, now - memory.used_at
    if use.readers.get(topic) or min(silent, unused) < measures.idle_ms:
        return None
    text = (
        f"the topic {topic} has had no sender for {silent // DAY_MS} days and no reader for "
        f"{unused // DAY_MS} days: delete it if nobody needs it"
    )
    numbers = {"silent_ms": silent, "unused_ms": unused}
    return Finding(ZOMBIE, f"topic {topic}", text, topic=topic, numbers=numbers)


def _owned(thing: Thing, memory: Memory, owners: Collection[Thing], measures: Measures) -> Iterator[Finding]:
    kind, name = thing
    if thing in owners or not (memory.owned or measures.need_owner):
        return
    group, topic = (name, "") if kind == "group" else ("", name)
    told = OWNER_GONE if memory.owned else NO_OWNER
    text = f"the {kind} {name} has lost all its owners" if memory.owned else f"the {kind} {name} has no owner"
    yield Finding(told, f"{kind} {name}", f"{text}; assign an owner", group, topic)


def _sized(topic: str, memory: Memory, use: Use, measures: Measures, now: int) -> Iterator[Finding]:
    """Queues compared with traffic and members: one member reads a queue, and a queue has a daily
    capacity.
    """
    messages = memory.a_day(now)
    if messages is None:
        return
    queues = len(use.ends[topic])
    members = max(use.readers.get(topic, {}).values(), default=0)
    needed = max(1, members, -(-messages // measures.queue_messages))
    why = f"{messages} messages a day and at most {members} members per group"
    numbers = {"queues": queues, "needed": needed, "messages_a_day": messages, "members": members}
    if queues < needed:
        text = f"the topic {topic} has {queues} queues for {why}: it needs {needed}"
        yield Finding(UNDER, f"topic {topic}", text, topic=topic, numbers=numbers)
    elif queues >= measures.over_factor * max(needed, measures.queues_min):
        enough = max(needed, measures.queues_min)
        text = f"the topic {topic} has {queues} queues for {why}: {enough} are enough"
        yield Finding(OVER, f"topic {topic}", text, topic=topic, numbers=numbers)
