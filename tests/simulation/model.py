"""What a broker promised, moment by moment, and whether a directory that was opened again keeps it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from tests.simulation.disk import SimulatedDisk
from tests.simulation.server import SimulatedBroker
from tests.store.rig import read_all

from sparrowmq.broker.members.fence_calls import Fence
from sparrowmq.core.names import is_system_topic
from sparrowmq.protocol.record import StoredRecord

Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that was asked for (`tried`) or answered (`kept`), and at which moment of the disk."""

    at: int
    kind: str
    kept: bool
    data: dict[str, Any]


@dataclass
class Told:
    """All that was asked and answered in one run."""

    disk: SimulatedDisk
    sync: bool
    events: list[Event] = field(default_factory=list)

    def tried(self, kind: str, /, **data: Any) -> None:
        """This is asked for from now on."""
        self.events.append(Event(self.disk.mark(f"asks for {kind}"), kind, False, data))

    def kept(self, kind: str, /, **data: Any) -> None:
        """This was answered, and must hold from now on."""
        self.events.append(Event(self.disk.mark(f"has {kind}"), kind, True, data))


@dataclass
class Message:
    """What is known of one message: asked for, acknowledged, at which place, under how long a log."""

    body: bytes
    topic: str
    kind: str
    life: int
    """How often its topic had been deleted when it was sent."""

    kept: bool = False
    queue_id: int = -1
    offset: int = -1
    position: int = -1
    half_offset: int = -1
    half_position: int = -1
    """Where its half message is, once its transaction was ended."""
    due: int = 0
    taken_back: str = ""
    ended: str = ""
    acked: str = ""
    """`kept` when its consumer was told that its acknowledgement is stored, `open` when it asked."""
    acked_at: int = -1
    was_reset: bool = False
    """Its group was moved when it was there: what was out then comes again, whatever is acknowledged."""


@dataclass
class Expected:
    """What must be there, may be there and must not, after a crash."""

    power: bool
    sync: bool
    messages: dict[tuple[str, bytes], Message] = field(default_factory=dict)
    topics: dict[str, str] = field(default_factory=dict)
    """`kept`, `gone`, or `open` while something was asked for and not answered."""

    groups: set[str] = field(default_factory=set)
    lives: Counter[str] = field(default_factory=Counter)
    offsets: dict[tuple[str, str, int], list[int]] = field(default_factory=dict)
    saved: dict[tuple[str, str, int], int] = field(default_factory=dict)
    holds: dict[str, str] = field(default_factory=dict)
    fences: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The age of the last acknowledged policy, of groups whose management nobody asked to end."""
    generations: dict[str, int] = field(default_factory=dict)
    """The highest generation of a group that was acknowledged: no lower one may be granted ever again."""
    flushed: int = 0
    cleaned: bool = False
    popped: set[str] = field(default_factory=set)
    """Topics that are consumed by POP."""
    latest: int = 0
    """The latest time any clock showed."""

    def must_be_there(self, message: Message) -> bool:
        """Whether the message was acknowledged in a way that outlives this crash."""
        if not message.kept or message.life != self.lives[message.topic]:
            return False
        if self.topics.get(message.topic) != "kept":
            return False
        return not self.power or self.sync or message.position < self.flushed


def expected(told: Told, at: int, known: int, *, power: bool) -> Expected:
    """What holds at a moment: all that was asked for until then, all that was answered until `known`."""
    found = Expected(power, told.sync)
    for event in told.events:
        if event.at > (known if event.kept else at):
            continue
        _TAKE[event.kind](found, event.kept, **event.data)
    return found


def _topic(found: Expected, kept: bool, name: str) -> None:
    found.topics[name] = "kept" if kept else "open"


def _group(found: Expected, kept: bool, name: str) -> None:
    if kept:
        found.groups.add(name)


def _delete(found: Expected, kept: bool, name: str) -> None:
    found.topics[name] = "gone" if kept else "open"
    if kept:
        found.lives[name] += 1
    for key in [key for key in found.saved if key[0] == name]:
        del found.saved[key]
    if kept:
        for key in [key for key in found.offsets if key[0] == name]:
            del found.offsets[key]


def _message(found: Expected, kept: bool, body: bytes, topic: str, kind: str = "plain", **data: Any) -> None:
    message = found.messages.setdefault((topic, body), Message(body, topic, kind, found.lives[topic]))
    message.kept = kept
    for name, value in data.items():
        setattr(message, name, value)


def _recall(found: Expected, kept: bool, topic: str, body: bytes) -> None:
    found.messages[topic, body].taken_back = "kept" if kept else "open"


def _end(found: Expected, kept: bool, topic: str, body: bytes, state: str, position: int = -1) -> None:
    message = found.messages[topic, body]
    message.ended = state if kept else f"{state}?"
    if message.half_position < 0:
        message.half_position = message.position
    if kept:
        message.position = position


def _pop(found: Expected, kept: bool, name: str, due: int, ordered: bool) -> None:
    found.popped.add(name)


def _hidden(found: Expected, kept: bool, due: int) -> None:
    """Only the time counts, which the search reads."""


def _reset(found: Expected, kept: bool, topic: str) -> None:
    for message in found.messages.values():
        if message.topic == topic:
            message.was_reset = True


def _acked(found: Expected, kept: bool, topic: str, body: bytes, position: int = -1) -> None:
    message = found.messages[topic, body]
    message.acked = "kept" if kept else message.acked or "open"
    message.acked_at = position if kept else message.acked_at


def _offset(found: Expected, kept: bool, key: tuple[str, str, int], value: int) -> None:
    found.offsets.setdefault(key, []).append(value)


def _saved(found: Expected, kept: bool, offsets: dict[tuple[str, str, int], int]) -> None:
    if kept:
        found.saved |= offsets


def _hold(found: Expected, kept: bool, topic: str, group: str) -> None:
    if kept:
        found.holds[topic] = group


def _release(found: Expected, kept: bool, topic: str) -> None:
    found.holds.pop(topic, None)


def _fence(found: Expected, kept: bool, group: str, age: tuple[int, int], generation: int) -> None:
    if kept:
        found.fences[group] = age
        found.generations[group] = max(generation, found.generations.get(group, 0))


def _unfence(found: Expected, kept: bool, group: str) -> None:
    found.fences.pop(group, None)


def _flushed(found: Expected, kept: bool, position: int) -> None:
    found.flushed = max(found.flushed, position)


def _cleaned(found: Expected, kept: bool) -> None:
    found.cleaned = True


_TAKE: dict[str, Callable[..., None]] = {
    "topic": _topic, "group": _group, "deletion": _delete, "message": _message, "recall": _recall,
    "end": _end, "offset": _offset, "saved offsets": _saved, "hold": _hold, "release": _release,
    "fence": _fence, "end of a fence": _unfence,
    "flush": _flushed, "cleaning": _cleaned, "pop": _pop, "acked": _acked,
    "hidden": _hidden, "reset": _reset,
}  # fmt: skip


@dataclass
class Seen:
    """What an opened broker shows."""

    topics: frozenset[str]
    groups: frozenset[str]
    queues: dict[Place, dict[int, StoredRecord]]
    ends: dict[Place, tuple[int, int]]
    offsets: dict[tuple[str, str, int], int]
    holds: dict[str, str]
    fences: dict[str, tuple[int, int]]
    generations: dict[str, int]
    min_position: int
    now: int


def look(broker: SimulatedBroker) -> Seen:
    """Everything an opened broker shows. AssertionError when a queue cannot be read to its end."""
    store, parts = broker.store, broker.parts
    queues, ends = {}, {}
    for queue in store.all_queues():
        place = (queue.topic, queue.queue_id)
        records = {record.queue_offset: record for record in read_all(store, queue)}
        queues[place], ends[place] = records, (queue.min_offset, queue.max_offset)
    offsets = {(topic, group, queue_id): offset for topic, group, queue_id, offset in parts.offsets.items()}
    holds = {hold.topic: hold.group for hold in parts.upkeep.holds._holds.values()}
    fences = {name: one.policy.age for name, one in parts.fence.groups.items()}
    topics = frozenset(parts.topics.configs)
    return Seen(
        topics,
        frozenset(parts.groups.configs),
        queues,
        ends,
        offsets,
        holds,
        fences,
        _generations(parts.fence),
        store.min_position,
        broker.clock.now_ms(),
    )


def _generations(fence: Fence) -> dict[str, int]:
    """The highest generation that is known of each group, managed now or before."""
    found = dict(fence._retired)
    for name, one in fence.groups.items():
        found[name] = max([found.get(name, 0), *(grant.generation for grant in one.policy.queues)])
    return found


def faults(seen: Seen, wanted: Expected) -> Iterator[str]:
    """What is not as promised right after a start."""
    yield from _topic_faults(seen, wanted)
    yield from _message_faults(seen, wanted)
    yield from _content_faults(seen, wanted)
    yield from _offset_faults(seen, wanted)
    for name in wanted.groups - seen.groups:
        yield f"group {name} is lost"
    for topic, group in wanted.holds.items():
        if seen.holds.get(topic) != group:
            yield f"the hold of {topic} is lost"
    for group, age in wanted.fences.items():
        if seen.fences.get(group, (0, 0)) < age:
            yield f"the policy of {group} is lost: {age} was acknowledged, {seen.fences.get(group)} is there"
    for group, generation in wanted.generations.items():
        if seen.generations.get(group, 0) < generation:
            yield f"the generation {generation} of {group} is forgotten"


def _topic_faults(seen: Seen, wanted: Expected) -> Iterator[str]:
    for name, state in wanted.topics.items():
        if state == "kept" and name not in seen.topics:
            yield f"topic {name} is lost"
        if state == "gone":
            left = [place for place, records in seen.queues.items() if place[0] == name and records]
            if name in seen.topics or left:
                yield f"topic {name} was deleted and is back"


def _message_faults(seen: Seen, wanted: Expected) -> Iterator[str]:
    for message in wanted.messages.values():
        if message.offset < 0 or not wanted.must_be_there(message):
            continue
        if wanted.cleaned and message.position < seen.min_position:
            continue
        record = seen.queues.get((message.topic, message.queue_id), {}).get(message.offset)
        if record is None:
            yield f"{_name(message)} was acknowledged at {message.offset} and is lost"
        elif record.body != message.body:
            yield f"{_name(message)} was acknowledged at {message.offset}, where now is {record.body[:20]!r}"


def _name(message: Message) -> str:
    return f"{message.kind} message {message.body[:12]!r} of {message.topic}/{message.queue_id}"


def _content_faults(seen: Seen, wanted: Expected) -> Iterator[str]:
    """Messages nobody sent there, that were deleted, or that are there twice."""
    counts: Counter[tuple[str, bytes]] = Counter()
    for (topic, queue_id), records in seen.queues.items():
        if is_system_topic(topic) or topic.startswith("%"):
            continue
        for offset, record in records.items():
            message = wanted.messages.get((topic, record.body))
            if message is None:
                yield f"{topic}/{queue_id} has {record.body[:20]!r} at {offset}, which nobody sent there"
                continue
            if message.life < wanted.lives[topic]:
                yield f"{_name(message)} was deleted with its topic and is back at {offset}"
            if message.kind == "half" and message.ended.rstrip("?") != "commit":
                yield f"{_name(message)} is shown, but its transaction is {message.ended or 'open'}"
            if message.kind in ("plain", "half"):
                counts[topic, record.body] += 1
    for (topic, body), count in counts.items():
        if count > 1:
            yield f"{body[:12]!r} of {topic} is there {count} times"
    for message in wanted.messages.values():
        if message.kind != "half" or message.ended != "commit" or counts[message.topic, message.body]:
            continue
        if wanted.must_be_there(message) and not (wanted.cleaned and message.position < seen.min_position):
            yield f"{_name(message)} was committed and is lost"


def forgotten(seen: Seen, open_halves: set[tuple[str, bytes]], wanted: Expected) -> Iterator[str]:
    """Half messages that are neither shown nor open, and were not rolled back."""
    shown = _shown(seen)
    for message in wanted.messages.values():
        if message.kind != "half" or message.ended.startswith("rollback") or wanted.cleaned:
            continue
        position = message.position if message.half_position < 0 else message.half_position
        half = replace(message, position=position)
        key = (message.topic, message.body)
        if wanted.must_be_there(half) and key not in shown and key not in open_halves:
            yield f"{_name(message)} is neither shown nor open, its transaction is {message.ended or 'open'}"


def _offset_faults(seen: Seen, wanted: Expected) -> Iterator[str]:
    for key, offset in seen.offsets.items():
        topic, group, queue_id = key
        if is_system_topic(topic) or group.startswith("CID_RMQ"):
            continue
        set_to = wanted.offsets.get(key, [])
        if offset and not any(offset <= value for value in set_to):
            yield f"group {group} stands at {offset} in {topic}/{queue_id}, where nobody set it"
        if offset > seen.ends.get((topic, queue_id), (0, 0))[1]:
            yield f"group {group} stands at {offset} in {topic}/{queue_id}, behind its end"
    for key, least in wanted.saved.items():
        place = (key[0], key[2])
        if wanted.topics.get(key[0]) != "kept":
            continue
        if seen.offsets.get(key, 0) < min(least, seen.ends.get(place, (0, 0))[1]):
            yield f"the offset of group {key[1]} in {key[0]}/{key[2]} fell to {seen.offsets.get(key)}"


def early(seen: Seen, wanted: Expected, before: int) -> Iterator[str]:
    """Waiting messages that were delivered before their time, at a clock that never showed more."""
    shown = _shown(seen)
    for message in wanted.messages.values():
        if message.kind == "waiting" and message.due > before and (message.topic, message.body) in shown:
            yield f"{_name(message)} was delivered {message.due - before} ms before its time"


def undelivered(seen: Seen, wanted: Expected) -> Iterator[str]:
    """Waiting messages that did not come although their time has passed, or came although taken back."""
    shown = _shown(seen)
    for message in wanted.messages.values():
        if message.kind != "waiting":
            continue
        there = (message.topic, message.body) in shown
        if message.taken_back == "kept" and there and (not wanted.power or wanted.sync):
            yield f"{_name(message)} was taken back and is delivered"
        if message.taken_back or wanted.cleaned:
            continue
        if wanted.must_be_there(message) and not there:
            yield f"{_name(message)} was acknowledged and is not delivered"


def handed_out_in_disorder(bodies: list[bytes], topic: str, wanted: Expected) -> Iterator[str]:
    """Messages of an ordered topic that came after a later one."""
    before = -1
    for body in bodies:
        message = wanted.messages.get((topic, body))
        if message is None or message.offset < 0:
            continue
        if message.offset <= before:
            yield f"{_name(message)} at {message.offset} was handed out after {before}"
        before = message.offset


def handed_out_wrongly(handed_out: Counter[tuple[str, bytes]], wanted: Expected) -> Iterator[str]:
    """Messages that come again after their acknowledgement, or never."""
    for message in wanted.messages.values():
        if message.topic not in wanted.popped:
            continue
        comes = handed_out[message.topic, message.body]
        lasts = not wanted.power or wanted.sync or message.acked_at < wanted.flushed
        if message.acked == "kept" and lasts and comes and not message.was_reset:
            yield f"{_name(message)} comes again after its acknowledgement"
        if not message.acked and wanted.must_be_there(message) and not comes:
            yield f"{_name(message)} is not handed out"


def _shown(seen: Seen) -> set[tuple[str, bytes]]:
    return {(place[0], r.body) for place, records in seen.queues.items() for r in records.values()}


def differences(first: Seen, second: Seen) -> Iterator[str]:
    """What a further start without a crash in between lost or changed."""
    if first.topics - second.topics:
        yield f"topics {sorted(first.topics - second.topics)} are gone after a second start"
    for place, records in first.queues.items():
        for offset, record in records.items():
            again = second.queues.get(place, {}).get(offset)
            if offset >= second.ends.get(place, (0, 0))[0] and (again is None or again.body != record.body):
                yield f"{place} has another message at {offset} after a second start"
    for place, again_there in second.queues.items():
        low, high = first.ends.get(place, (0, 0))
        for offset, record in again_there.items():
            before = first.queues.get(place, {}).get(offset)
            if low <= offset < high and (before is None or before.properties != record.properties):
                yield f"{place} shows at {offset} after a second start what it did not show before"
    for place, ends in first.ends.items():
        if ends[1] and second.ends.get(place, (0, 0))[1] < ends[1]:
            yield f"{place} ends at {second.ends.get(place)} after a second start, before at {ends}"
    for key, offset in first.offsets.items():
        if second.offsets.get(key, 0) < offset:
            yield f"offset {key} is {second.offsets.get(key)} after a second start, before {offset}"
