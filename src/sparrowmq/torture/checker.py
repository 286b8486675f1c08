"""The judgement of a history: which promises to clients were broken, by which messages, where and when. Pure.

A history is complete when its clients have ended and a reader has read all queues. Each promise is one
function of `PROMISES`: it yields what contradicts it. The functions know nothing of brokers; they only
compare notes.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sparrowmq.torture.events import (
    AnyEvent,
    MessageReceived,
    MessageStored,
    OffsetCommitted,
    QueueExtent,
    SendAcknowledged,
    SendFailed,
    SendInvoked,
    SendUnknown,
)

TOLD_MAX: Final = 20
"""Broken promises of one kind that a judgement keeps; the others are counted."""

Place = tuple[str, int]
"""A queue and an offset."""


@dataclass(frozen=True, slots=True)
class BrokenPromise:
    """One contradiction. `ids` are the messages concerned; `at` is when, in seconds after the first note."""

    promise: str
    text: str
    ids: tuple[str, ...]
    queue: str
    offset: int | None
    at: float

    def __str__(self) -> str:
        return f"{self.promise}: {self.text}"

    def as_json(self) -> dict[str, Any]:
        """As a value for JSON."""
        return {
            "promise": self.promise,
            "text": self.text,
            "messages": list(self.ids),
            "queue": self.queue,
            "offset": self.offset,
            "at": round(self.at, 6),
        }


@dataclass(frozen=True, slots=True)
class HistoryVerdict:
    """What a history proves. `broken` has at most 20 of each promise, `broken_count` all of them."""

    broken: tuple[BrokenPromise, ...]
    broken_count: Mapping[str, int]
    figures: Mapping[str, int]

    @property
    def is_kept(self) -> bool:
        """Whether all promises were kept."""
        return not self.broken


@dataclass(slots=True)
class _Notes:
    """A history, sorted by what it says."""

    invoked: dict[str, SendInvoked] = field(default_factory=dict)
    acknowledged: dict[str, SendAcknowledged] = field(default_factory=dict)
    unknown: dict[str, SendUnknown] = field(default_factory=dict)
    failed: dict[str, SendFailed] = field(default_factory=dict)
    received: list[MessageReceived] = field(default_factory=list)
    committed: list[OffsetCommitted] = field(default_factory=list)
    stored: dict[str, dict[Place, MessageStored]] = field(default_factory=lambda: defaultdict(dict))
    """What each reader found."""
    read: dict[str, dict[str, QueueExtent]] = field(default_factory=lambda: defaultdict(dict))
    """The queues that each reader read."""
    repeated: list[tuple[AnyEvent, AnyEvent]] = field(default_factory=list)
    """Notes that must not come twice."""
    began: float = 0.0

    def when(self, at: float) -> str:
        """A time of the history for people."""
        return f"{at - self.began:.3f} s"

    def first(self, queue: str) -> int:
        """The lowest offset of the queue that can be read."""
        return min((read[queue].first for read in self.read.values() if queue in read), default=0)

    def end(self, queue: str) -> int | None:
        """The offset after the last message of the queue; None if nobody read it."""
        return max((read[queue].end for read in self.read.values() if queue in read), default=None)

    def places(self) -> dict[str, set[Place]]:
        """Where each message was found by readers."""
        found: dict[str, set[Place]] = defaultdict(set)
        for stored in self.stored.values():
            for place, message in stored.items():
                found[message.id].add(place)
        return found


def _sorted_out(events: Iterable[AnyEvent]) -> _Notes:
    notes = _Notes()
    ordered = sorted(events, key=lambda event: event.at)
    notes.began = ordered[0].at if ordered else 0.0
    for event in ordered:
        match event:
            case SendInvoked():
                _once(notes, notes.invoked, event.id, event)
            case SendAcknowledged():
                _once(notes, notes.acknowledged, event.id, event)
            case SendUnknown():
                _once(notes, notes.unknown, event.id, event)
            case SendFailed():
                _once(notes, notes.failed, event.id, event)
            case MessageReceived():
                notes.received.append(event)
            case OffsetCommitted():
                notes.committed.append(event)
            case MessageStored():
                _once(notes, notes.stored[event.client], (event.queue, event.offset), event)
            case QueueExtent():
                _once(notes, notes.read[event.client], event.queue, event)
            case _:
                pass
    return notes


def _once(notes: _Notes, table: dict[Any, Any], key: Any, event: AnyEvent) -> None:
    if key in table:
        notes.repeated.append((table[key], event))
    else:
        table[key] = event


def judge(events: Iterable[AnyEvent]) -> HistoryVerdict:
    """Compare the notes of all clients of a history.

    Raises `ValueError` if the history itself contradicts itself: a message id that was sent or answered
    twice, or an answer to a send that was not noted.
    """
    notes = _sorted_out(events)
    _check_notes(notes)
    broken: list[BrokenPromise] = []
    counts: dict[str, int] = {}
    for name, find in PROMISES.items():
        found = [
            BrokenPromise(name, text, ids, queue, offset, at - notes.began)
            for text, ids, queue, offset, at in find(notes)
        ]
        broken += found[:TOLD_MAX]
        if found:
            counts[name] = len(found)
    broken.sort(key=lambda one: one.at)
    return HistoryVerdict(tuple(broken), counts, _figures(notes))


def _check_notes(notes: _Notes) -> None:
    for first, second in notes.repeated:
        raise ValueError(f"the history has two notes that exclude each other: {first} and {second}")
    answers: Iterable[SendAcknowledged | SendUnknown | SendFailed] = itertools.chain(
        notes.acknowledged.values(), notes.unknown.values(), notes.failed.values()
    )
    for answer in answers:
        if answer.id not in notes.invoked:
            raise ValueError(f"the history has an answer to a send that it does not have: {answer}")
    answered = [set(notes.acknowledged), set(notes.unknown), set(notes.failed)]
    for ids, others in itertools.combinations(answered, 2):
        if twice := ids & others:
            raise ValueError(f"the history has two different answers to the send of {min(twice)}")


def _figures(notes: _Notes) -> dict[str, int]:
    ended = len(notes.acknowledged) + len(notes.unknown) + len(notes.failed)
    stored = Counter({client: len(found) for client, found in notes.stored.items()})
    return {
        "sent": len(notes.invoked),
        "acknowledged": len(notes.acknowledged),
        "unknown": len(notes.unknown) + len(notes.invoked) - ended,
        "failed": len(notes.failed),
        "received": len(notes.received),
        "committed": len(notes.committed),
        "stored": max(stored.values(), default=0),
        "queues": len({queue for read in notes.read.values() for queue in read}),
        "readers": len(notes.read),
    }


_Contradiction = tuple[str, tuple[str, ...], str, int | None, float]
"""The fields of a `BrokenPromise` after its name."""


def _acknowledged(notes: _Notes) -> Iterator[_Contradiction]:
    """Every acknowledged message is found by every reader, where it was acknowledged."""
    places = notes.places()
    for one in notes.acknowledged.values():
        place = (one.queue, one.offset)
        for reader in notes.read:
            there = notes.stored[reader].get(place)
            if there is not None and there.id == one.id:
                continue
            instead = "nothing is there" if there is None else f"{there.id} is there"
            others = sorted(places.get(one.id, set()) - {place})
            elsewhere = f"; it is at {_places(others)}" if others else ""
            text = (
                f"message {one.id}, acknowledged to {one.client} at {notes.when(one.at)} as offset "
                f"{one.offset} of {one.queue}, is not found there by {reader}: {instead}{elsewhere}"
            )
            yield text, (one.id,), one.queue, one.offset, one.at
            break


def _one_per_offset(notes: _Notes) -> Iterator[_Contradiction]:
    """Whoever names a queue and an offset means the same message: producers, consumers and readers."""
    holders: dict[Place, tuple[str, str]] = {}
    for what, one in _sightings(notes):
        place = (one.queue, one.offset)
        told = f"{what} {one.client} at {notes.when(one.at)}"
        first_id, first_told = holders.setdefault(place, (one.id, told))
        if first_id != one.id:
            text = (
                f"offset {one.offset} of {one.queue} has two messages: {first_id} ({first_told}) and "
                f"{one.id} ({told})"
            )
            yield text, (first_id, one.id), one.queue, one.offset, one.at


def _sightings(notes: _Notes) -> Iterator[tuple[str, SendAcknowledged | MessageReceived | MessageStored]]:
    for acknowledged in notes.acknowledged.values():
        yield "acknowledged to", acknowledged
    for received in notes.received:
        yield "received by", received
    for found in notes.stored.values():
        for stored in found.values():
            yield "found by", stored


def _real_time(notes: _Notes) -> Iterator[_Contradiction]:
    """What was sent after another message of the queue was acknowledged has a higher offset."""
    placed: dict[str, dict[str, int]] = defaultdict(dict)
    for found in notes.stored.values():
        for (queue, offset), message in found.items():
            if message.id in notes.invoked:
                placed[queue].setdefault(message.id, offset)
    acknowledged: dict[str, list[SendAcknowledged]] = defaultdict(list)
    for one in notes.acknowledged.values():  # in the order of time
        acknowledged[one.queue].append(one)
        placed[one.queue][one.id] = one.offset
    for queue, offsets in placed.items():
        answers = acknowledged[queue]
        times = [one.at for one in answers]
        highest = list(itertools.accumulate(answers, _higher))
        for id_, offset in offsets.items():
            invoked = notes.invoked[id_]
            before = bisect_left(times, invoked.at)
            if before and highest[before - 1].offset > offset:
                earlier = highest[before - 1]
                text = (
                    f"message {id_}, sent by {invoked.client} at {notes.when(invoked.at)}, has "
                    f"offset {offset} "
                    f"of {queue}; {earlier.id} was acknowledged before, at "
                    f"{notes.when(earlier.at)}, with the "
                    f"higher offset {earlier.offset}"
                )
                yield text, (earlier.id, id_), queue, offset, invoked.at


def _higher(one: SendAcknowledged, other: SendAcknowledged) -> SendAcknowledged:
    return one if one.offset > other.offset else other


def _from_nowhere(notes: _Notes) -> Iterator[_Contradiction]:
    """Nothing is received or stored that was not sent before."""
    for what, one in _sightings(notes):
        sent = notes.invoked.get(one.id)
        if sent is not None and sent.at <= one.at:
            continue
        but = "nobody sent it" if sent is None else f"it was sent later, at {notes.when(sent.at)}"
        text = (
            f"message {one.id} was {what} {one.client} at {notes.when(one.at)}, offset {one.offset} of "
            f"{one.queue}, and {but}"
        )
        yield text, (one.id,), one.queue, one.offset, one.at


def _stored_once(notes: _Notes) -> Iterator[_Contradiction]:
    """A message that may be stored once has one place, whatever its send was answered with."""
    places = notes.places()
    for one in notes.acknowledged.values():
        places[one.id].add((one.queue, one.offset))
    for id_, found in places.items():
        sent = notes.invoked.get(id_)
        if sent is not None and sent.once and len(found) > 1:
            text = (
                f"message {id_}, sent by {sent.client} at {notes.when(sent.at)}, is stored "
                f"{len(found)} times: "
                f"{_places(sorted(found))}"
            )
            queue, offset = max(found)
            yield text, (id_,), queue, offset, sent.at


def _failed(notes: _Notes) -> Iterator[_Contradiction]:
    """A message that was never sent anywhere is not stored."""
    places = notes.places()
    for one in notes.failed.values():
        for queue, offset in sorted(places.get(one.id, ())):
            text = (
                f"message {one.id}, whose send failed for {one.client} at {notes.when(one.at)} "
                f"({one.reason}), is "
                f"stored at {_places([(queue, offset)])}"
            )
            yield text, (one.id,), queue, offset, one.at


def _in_order(notes: _Notes) -> Iterator[_Contradiction]:
    """Messages that a client sent one after the other have this order in each queue."""
    highest: dict[tuple[str, str], tuple[int, SendInvoked]] = {}
    places = notes.places()
    for sent in notes.invoked.values():  # in the order of time
        if not sent.in_order:
            continue
        for queue, offset in sorted(places.get(sent.id, ())):
            key = (sent.client, queue)
            before = highest.get(key)
            if before is not None and before[0] > offset:
                text = (
                    f"{sent.client} sent {sent.id} at {notes.when(sent.at)} after {before[1].id} "
                    f"({notes.when(before[1].at)}), and {queue} has them the other way round: "
                    f"offsets {offset} "
                    f"and {before[0]}"
                )
                yield text, (before[1].id, sent.id), queue, offset, sent.at
            else:
                highest[key] = (offset, sent)


def _no_holes(notes: _Notes) -> Iterator[_Contradiction]:
    """Between the first and the last message of a queue, each offset has one."""
    for reader, queues in notes.read.items():
        stored = notes.stored[reader]
        for queue, read in queues.items():
            missing = [offset for offset in range(read.first, read.end) if (queue, offset) not in stored]
            if missing:
                text = (
                    f"{reader} read {queue} from {read.first} to {read.end} and found nothing at "
                    f"{len(missing)} offsets, the first {missing[0]}"
                )
                yield text, (), queue, missing[0], read.at


def _received_stays(notes: _Notes) -> Iterator[_Contradiction]:
    """What a consumer got is still there afterwards."""
    for one in _first_receipts(notes.received):
        for reader, queues in notes.read.items():
            read = queues.get(one.queue)
            if read is None or one.offset < read.first or (one.queue, one.offset) in notes.stored[reader]:
                continue
            text = (
                f"message {one.id}, received by {one.client} at {notes.when(one.at)} as offset "
                f"{one.offset} of "
                f"{one.queue}, is gone: {reader} found nothing there, the queue ends at {read.end}"
            )
            yield text, (one.id,), one.queue, one.offset, one.at
            break


def _first_receipts(received: Iterable[MessageReceived]) -> Iterator[MessageReceived]:
    seen: set[tuple[str, int, str]] = set()
    for one in received:
        key = (one.queue, one.offset, one.id)
        if key not in seen:
            seen.add(key)
            yield one


def _received_in_order(notes: _Notes) -> Iterator[_Contradiction]:
    """A group gets each queue without a gap: the next message, or one that it had before."""
    following: dict[tuple[str, str], tuple[int, MessageReceived | None]] = {}
    for one in notes.received:
        if not one.in_order:
            continue
        key = (one.group, one.queue)
        expected, before = following.get(key, (notes.first(one.queue), None))
        if one.offset > expected:
            after = "the beginning" if before is None else f"{before.id} (offset {before.offset})"
            text = (
                f"group {one.group} received {one.id} at {notes.when(one.at)} ({one.client}), offset "
                f"{one.offset} of {one.queue}, right after {after}: it skipped {one.offset - expected} from "
                f"{expected} on"
            )
            yield text, (one.id,), one.queue, one.offset, one.at
        if one.offset >= expected:
            following[key] = (one.offset + 1, one)


def _nothing_missed(notes: _Notes) -> Iterator[_Contradiction]:
    """Before a group commits an offset, it received every message below: those that are there afterwards."""
    receipts: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for one in notes.received:
        if _id_at(notes, (one.queue, one.offset)) in ("", one.id):
            receipts[one.group, one.queue].setdefault(one.offset, one.at)
    latest: dict[tuple[str, str], list[float]] = {}
    told: set[tuple[str, str, int]] = set()
    for commit in notes.committed:
        key, first = (commit.group, commit.queue), notes.first(commit.queue)
        if key not in latest:
            latest[key] = _accumulated(receipts[key], first, notes.end(commit.queue))
        waits = latest[key][: max(commit.offset - first, 0)]
        if not waits or waits[-1] <= commit.at:
            continue
        missed = first + bisect_right(waits, commit.at)
        if (commit.group, commit.queue, missed) in told:
            continue
        told.add((commit.group, commit.queue, missed))
        received = receipts[key].get(missed)
        id_ = _id_at(notes, (commit.queue, missed))
        when = "never" if received is None else f"only at {notes.when(received)}"
        text = (
            f"group {commit.group} committed offset {commit.offset} of {commit.queue} at "
            f"{notes.when(commit.at)} "
            f"({commit.client}) and received {id_ or 'the message'} at offset {missed} {when}"
        )
        yield text, (id_,) if id_ else (), commit.queue, missed, commit.at


def _accumulated(received: Mapping[int, float], first: int, end: int | None) -> list[float]:
    """For each offset, when the group had received it and all before it; infinite if never."""
    last = max(received, default=first - 1) + 1 if end is None else end
    times = (received.get(offset, math.inf) for offset in range(first, last))
    return list(itertools.accumulate(times, max))


def _id_at(notes: _Notes, place: Place) -> str:
    return next((found[place].id for found in notes.stored.values() if place in found), "")


def _commits_below_the_end(notes: _Notes) -> Iterator[_Contradiction]:
    """No group is beyond the end of a queue: it would miss what comes there."""
    for commit in notes.committed:
        end = notes.end(commit.queue)
        if end is not None and commit.offset > end:
            text = (
                f"group {commit.group} has offset {commit.offset} of {commit.queue} ({commit.client}, "
                f"{notes.when(commit.at)}), and the queue ends at {end}"
            )
            yield text, (), commit.queue, commit.offset, commit.at


def _places(places: Iterable[Place]) -> str:
    return ", ".join(f"offset {offset} of {queue}" for queue, offset in places)


PROMISES: Final[Mapping[str, Callable[[_Notes], Iterator[_Contradiction]]]] = {
    "acknowledged-is-stored": _acknowledged,
    "one-message-per-offset": _one_per_offset,
    "acknowledged-in-real-time-order": _real_time,
    "nothing-from-nowhere": _from_nowhere,
    "stored-once": _stored_once,
    "failed-is-not-stored": _failed,
    "sent-in-order": _in_order,
    "no-holes": _no_holes,
    "received-stays": _received_stays,
    "received-in-order": _received_in_order,
    "nothing-missed": _nothing_missed,
    "commits-below-the-end": _commits_below_the_end,
}
"""The promises by name, each with the function that finds what contradicts it."""
