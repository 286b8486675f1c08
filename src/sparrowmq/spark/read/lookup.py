"""The driver's requests to a cluster: which queues there are, where they begin and end, where to start.

Calls are repeated while faults pass, because an exception of the driver ends a query (spark:S-30). What runs
once per query raises in the end; polls give what is reachable.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from sparrowmq import aio
from sparrowmq.core.backoff import Backoff
from sparrowmq.core.errors import NoRouteError, SettingsError, SparrowError, TransportError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.results import RawBatch
from sparrowmq.spark.cluster.faults import (
    Occasionally,
    is_deleted,
    is_passing,
    messages_lost,
    unusable_filter,
    without_broker,
)
from sparrowmq.spark.offsets.offsets import MessageMark, Span, StreamOffset, describe
from sparrowmq.spark.offsets.pushdown import Wanted, cut_by_time
from sparrowmq.spark.offsets.resets import OffsetReset, is_recreated, was_replaced
from sparrowmq.spark.options.table import ReadOptions
from sparrowmq.spark.options.values import (
    EARLIEST,
    EARLIEST_OFFSET,
    GROUP,
    LATEST,
    LATEST_OFFSET,
    Place,
)

if TYPE_CHECKING:
    from sparrowmq.spark.read.missing import MissingQueue

log = logging.getLogger("sparrowmq.spark")

T = TypeVar("T")
Found = dict[MessageQueue, int]

_PAUSE_MOST: Final = 5.0
_SAMPLE_MESSAGES: Final = 32
_SAMPLE_QUEUES: Final = 32
_CALLS_MAX: Final = 512
"""Questions on their way at once: a topic may have thousands of queues."""
_IDS_AFTER_LAST: Final = 4
"""So many numbers after a topic's last queue are asked for; as many again as long as one of them is there."""


class Ask(Protocol):
    """Runs a question of a `Lookup` to its end, at most `timeout` seconds."""

    def __call__(self, question: Callable[[Lookup], Awaitable[T]], timeout: float) -> T:
        """The answer."""


class Lookup:
    """Queries for one reader's options; `admin` is called when a query needs the admin client."""

    def __init__(
        self,
        consumer: aio.PullConsumer,
        admin: Callable[[], Awaitable[aio.Admin]],
        options: ReadOptions,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self._consumer = consumer
        self._admin = admin
        self._options = options
        self._now = now
        self._queues: list[MessageQueue] = []
        self._queues_at = float("-inf")
        self._there: frozenset[MessageQueue] | None = None
        """The queues in the last answers of name servers."""
        self._left: list[MessageQueue] = []
        """The queues that the topics lost, of the last `starts`."""
        self._complaints = Occasionally()

    async def retried(self, work: Callable[[], Awaitable[T]]) -> T:
        """The result of `work`, repeated after faults that pass, as often as the options say.

        A topic that no broker serves is an error immediately: waiting seldom helps.
        """
        first = max(self._options.retry_interval, 0.001)
        delays = Backoff(first=first, most=max(first, _PAUSE_MOST)).delays()
        for _ in range(self._options.retries):
            try:
                return await work()
            except SparrowError as error:
                if isinstance(error, NoRouteError) or not is_passing(error):
                    raise
                log.warning("asking %s failed and is retried: %s", self._options.name_server, error)
            await asyncio.sleep(next(delays))
        return await work()

    async def queues(self, *, fresh: bool = False, all_there: bool = True) -> list[MessageQueue]:
        """The queues to read, sorted; known ones for `discoveryIntervalMs`.

        Raises `NoRouteError` when a topic has none; with `all_there` off only when no topic has any.
        """
        if not fresh and self._queues and self._now() - self._queues_at < self._options.discovery_interval:
            return self._queues
        options = self._options
        if options.assign:
            found = await self._assigned(all_there)
        else:
            found = await self._of_topics(options.subscribe or await self._matching(), all_there)
        self._queues, self._queues_at = found, self._now()
        return found

    async def _of_topics(self, topics: Sequence[str], all_there: bool) -> list[MessageQueue]:
        answers = await asyncio.gather(
            *(self._consumer.queues(topic) for topic in topics), return_exceptions=True
        )
        found: list[MessageQueue] = []
        unrouted: dict[str, NoRouteError] = {}
        for topic, answer in zip(topics, answers, strict=True):
            if isinstance(answer, NoRouteError):
                unrouted[topic] = answer
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found += answer
        found = [queue for queue in found if not self._options.is_lost(queue)]
        self._there = frozenset(found)
        if unrouted and (all_there or not found):
            topic, error = next(iter(unrouted.items()))
            named = "assign" if self._options.assign else "subscribe"
            text = f"option {named}: {error}{await self._like(topic)}"
            raise NoRouteError(text, topic=topic, what=named)
        if not found and self._options.lost_brokers:
            lost = ",".join(sorted(self._options.lost_brokers))
            raise SettingsError(
                f"option lostBrokers={lost}: topics {', '.join(topics)} have only queues of lost brokers",
                "lostBrokers",
                lost,
            )
        return sorted(found)

    async def _like(self, topic: str) -> str:
        """A hint at topics whose names are near; nothing when there are none or they cannot be had."""
        from difflib import get_close_matches

        try:
            near = get_close_matches(topic, await (await self._admin()).topics.list(), 1, 0.75)
        except SparrowError:
            return ""
        return f"; there is a topic {near[0]!r}" if near else ""

    async def _assigned(self, all_there: bool) -> list[MessageQueue]:
        topics = sorted({queue.topic for queue in self._options.assign})
        there = await self._of_topics(topics, all_there)
        missing = {queue for queue in self._options.assign if not self._options.is_lost(queue)} - set(there)
        if missing and all_there:
            text = f"option assign names queues that do not exist: {describe(sorted(missing))}"
            raise NoRouteError(text, what="assign", value=sorted(missing))
        return [queue for queue in self._options.assign if queue in there]

    async def _matching(self) -> list[str]:
        pattern = re.compile(self._options.subscribe_pattern)
        names = await (await self._admin()).topics.list(system="%" in self._options.subscribe_pattern)
        found = [name for name in names if pattern.fullmatch(name)]
        if not found:
            self._there = frozenset()
            raise NoRouteError(
                f"no topic matches option subscribePattern={pattern.pattern!r}; create one first",
                what="subscribePattern",
                value=pattern.pattern,
            )
        return found

    async def missing(self, places: Found) -> dict[MessageQueue, MissingQueue]:
        """What became of queues, read up to `places`, that the route no longer has; none of lost brokers."""
        there = self._there
        if there is None:
            return {}
        asked = [queue for queue in places if queue not in there and self._options.follows(queue)]
        if not asked:
            return {}
        from sparrowmq.spark.read.missing import look_at

        brokers = (await (await self._admin()).brokers.cluster_info()).brokers
        return await _each(asked, lambda queue: look_at(self._consumer, queue, places[queue], brokers))

    async def firsts(self, queues: Iterable[MessageQueue]) -> Found:
        """The smallest stored offset of each queue."""
        return await _each(queues, _hinting(self._consumer.min_offset))

    async def ends(self, queues: Iterable[MessageQueue]) -> Found:
        """The next offset of each queue."""
        return await _each(queues, _hinting(self._consumer.max_offset))

    async def reachable_ends(self, queues: list[MessageQueue]) -> Found:
        """The next offset of each queue whose broker answers; the others are logged."""
        answers = await _answers(queues, self._consumer.max_offset)
        found: Found = {}
        for queue, answer in zip(queues, answers, strict=True):
            if isinstance(answer, int):
                found[queue] = answer
            elif isinstance(answer, SparrowError):
                self._complaints.warn("cannot read the end of %s now: %s", queue, answer)
            else:
                raise answer
        return found

    async def starts(self, default: str) -> Found:
        """Where to start in every queue, as the options say; `default` is for none given.

        Queues with messages that a topic no longer has to read are read as well, as far as brokers serve
        them; where the options give a place for each queue, those that they name.
        """
        options = self._options
        queues = await self.queues(fresh=True)
        if options.sql92:
            await self._try_filter(queues)
        place = options.starting_offsets if options.starting_offsets is not None else default
        self._left = await self._that_left(queues, place)
        if options.starting_timestamp is not None:
            times = dict.fromkeys(queues, options.starting_timestamp)
            left = await self._search(dict.fromkeys(self._left, options.starting_timestamp))
            return await self._at_times("startingTimestamp", times) | left
        queues = [*queues, *self._left]
        if options.starting_times is not None:
            _check_queues("startingOffsetsByTimestamp", queues, options.starting_times)
            return await self._at_times("startingOffsetsByTimestamp", options.starting_times)
        if place == GROUP:
            return await self._of_group(queues)
        return await self._at("startingOffsets", queues, place)

    async def _that_left(self, queues: Iterable[MessageQueue], place: Place) -> list[MessageQueue]:
        """The queues with messages beyond the topics' last ones, which a read from `place` is to read."""
        by_time = self._options.starting_timestamp is not None or self._options.starting_times is not None
        if self._options.assign or (place == LATEST and not by_time):
            return []
        ends: dict[tuple[str, str], int] = {}
        for queue in queues:
            of_broker = queue.topic, queue.broker_name
            ends[of_broker] = max(ends.get(of_broker, 0), queue.queue_id + 1)
        found: list[MessageQueue] = []
        while ends:
            asked = [
                MessageQueue(*of_broker, queue_id)
                for of_broker, end in ends.items()
                for queue_id in range(end, end + _IDS_AFTER_LAST)
            ]
            there = [queue for queue, is_there in (await _each(asked, self._has_left)).items() if is_there]
            found += there
            again = {(queue.topic, queue.broker_name) for queue in there}
            ends = {of_broker: end + _IDS_AFTER_LAST for of_broker, end in ends.items() if of_broker in again}
        given = self._options.starting_times if by_time else place
        return [queue for queue in found if not isinstance(given, Mapping) or queue in given]

    async def _has_left(self, queue: MessageQueue) -> bool:
        """Whether a broker serves messages of a queue that is not in the route."""
        try:
            answer = await self._one(queue, 0)
        except SparrowError as error:
            if is_deleted(error):
                return False
            raise
        return answer.max_offset > answer.min_offset

    async def stops(self) -> Found:
        """Where a batch read ends in every queue, according to the options."""
        options = self._options
        queues = [*await self.queues(), *self._left]
        if options.ending_timestamp is not None:
            return await self._search(dict.fromkeys(queues, options.ending_timestamp))
        if options.ending_times is not None:
            _check_queues("endingOffsetsByTimestamp", queues, options.ending_times)
            return await self._search(options.ending_times)
        place = options.ending_offsets if options.ending_offsets is not None else LATEST
        return await self._at("endingOffsets", queues, place)

    async def cut(self, found: Iterable[Span], wanted: Wanted) -> list[Span]:
        """The parts of spans that may contain the wanted messages."""
        spans = [part for span in found if (part := wanted.cut(span)) is not None]
        firsts: Found = {}
        lasts: Found = {}
        if wanted.search_from is not None:
            firsts = await self._search({span.queue: wanted.search_from for span in spans})
        if wanted.search_to is not None:
            lasts = await self._search({span.queue: wanted.search_to for span in spans})
        return cut_by_time(spans, firsts, lasts)

    async def _at(self, name: str, queues: list[MessageQueue], place: Place) -> Found:
        if place == EARLIEST:
            return await self.firsts(queues)
        ends = await self.ends(queues)
        if isinstance(place, str):
            return ends
        _check_queues(name, queues, place)
        firsts = await self.firsts(queues)
        found: Found = {}
        for queue in queues:
            offset = {EARLIEST_OFFSET: firsts[queue], LATEST_OFFSET: ends[queue]}.get(
                place[queue], place[queue]
            )
            if offset > ends[queue]:
                raise SettingsError(
                    f"option {name} gives offset {offset} for {queue}, which ends at {ends[queue]}; it "
                    f"must be {firsts[queue]} to {ends[queue]}, -2 or -1",
                    name,
                    offset,
                    limit=ends[queue],
                )
            found[queue] = max(offset, firsts[queue]) if name == "startingOffsets" else offset
            if offset < found[queue]:
                why = f"the oldest stored offset is {firsts[queue]}"
                messages_lost(self._options, queue, offset, firsts[queue], why)
        return found

    async def _search(self, times: Mapping[MessageQueue, int]) -> Found:
        """The offset of the first message stored at or after each queue's time."""
        return await _each(times, lambda queue: self._consumer.search_offset(queue, times[queue]))

    async def _at_times(self, name: str, times: Mapping[MessageQueue, int]) -> Found:
        found, firsts, ends = await self._search(times), await self.firsts(times), await self.ends(times)
        later = [queue for queue in times if ends[queue] > firsts[queue] and found[queue] >= ends[queue]]
        if later and self._options.starting_strategy != LATEST:
            raise SettingsError(
                f"option {name}: no message was stored at or after {times[later[0]]} in "
                f"{describe(later)}; startingOffsetsByTimestampStrategy=latest starts there at the end",
                name,
                times[later[0]],
            )
        return found

    async def _try_filter(self, queues: list[MessageQueue]) -> None:
        """Ask one queue of each broker: errors in a filter should be reported before any task runs."""
        of_brokers = {queue.broker_name: queue for queue in queues}
        ends = await self.ends(of_brokers.values())
        for queue, end in ends.items():
            try:
                await self._consumer.fetch_raw(
                    queue, end, max_bytes=1, max_messages=1, expression=self._options.expression
                )
            except SparrowError as error:
                raise unusable_filter(self._options, error) or error from None

    async def _of_group(self, queues: list[MessageQueue]) -> Found:
        """The group's offsets; queues it has none for start at their minimum."""
        firsts = await self.firsts(queues)
        ends = await self.ends(queues)
        committed = await _each(queues, self._consumer.committed)
        if queues and all(offset is None for offset in committed.values()):
            log.warning(
                "option groupId=%r: the group has no offsets; all queues are read from their beginning",
                self._options.group_id,
            )
        return {
            queue: min(
                max(offset if (offset := committed[queue]) is not None else 0, firsts[queue]), ends[queue]
            )
            for queue in queues
        }

    async def resets(self, read_to: Found, ends: Found, offset: StreamOffset) -> list[OffsetReset]:
        """New offsets for queues that no longer have the messages up to which `offset` was read."""
        firsts = await self.firsts(read_to)
        times = await self.store_times(firsts)
        return [
            OffsetReset(
                queue,
                place,
                firsts[queue],
                ends[queue],
                is_recreated(times.get(queue), offset.seen_ms, offset.marks.get(queue)),
            )
            for queue, place in read_to.items()
        ]

    async def recreated(self, read_to: Found, ends: Found, seen_ms: int) -> list[OffsetReset]:
        """Queues that still have the offsets up to which they were read, but whose topics were recreated
        since.

        One queue of each topic and broker is checked first, and the others only if that one was recreated.
        """
        firsts = await self.firsts(read_to)
        begun = {queue: firsts[queue] for queue, place in read_to.items() if firsts[queue] < place}
        samples = {(queue.topic, queue.broker_name): queue for queue in sorted(begun, reverse=True)}
        times = await self.store_times({queue: begun[queue] for queue in samples.values()})
        suspects = {
            (queue.topic, queue.broker_name) for queue, at in times.items() if was_replaced(at, seen_ms)
        }
        looked = {q: first for q, first in begun.items() if (q.topic, q.broker_name) in suspects}
        times = await self.store_times(looked) if looked else {}
        return [
            OffsetReset(queue, read_to[queue], looked[queue], ends[queue], recreated=True)
            for queue, at in times.items()
            if was_replaced(at, seen_ms)
        ]

    async def record_bytes(self, places: Found) -> float | None:
        """Average size of some stored records at the given offsets; None without any."""
        step = -(-len(places) // _SAMPLE_QUEUES) or 1
        answers = await asyncio.gather(
            *(
                self._consumer.fetch_raw(
                    queue, places[queue], max_bytes=1024 * 1024, max_messages=_SAMPLE_MESSAGES, expression="*"
                )
                for queue in sorted(places)[::step]
            )
        )
        count = sum(answer.count for answer in answers)
        return sum(len(answer.buffer) for answer in answers) / count if count else None

    async def store_times(self, places: Found) -> Found:
        """When the first message at or after each offset was stored, epoch ms; queues that have none are left
        out.
        """
        from sparrowmq.columnar.heads import first_head

        firsts = await self.firsts(places)

        async def ask(queue: MessageQueue) -> int | None:
            answer = await self._one(queue, max(places[queue], firsts[queue]))
            head = first_head(answer.buffer)
            return None if head is None else head.store_timestamp

        return {queue: at for queue, at in (await _each(places, ask)).items() if at is not None}

    async def marks(self, places: Found) -> dict[MessageQueue, MessageMark | None]:
        """What identifies the message at each offset; None for one that expired or whose queue was deleted.

        Queues whose broker does not have it, or does not answer now, are left out and logged. Raises errors
        that do not pass.
        """
        from sparrowmq.columnar.heads import first_head

        async def ask(queue: MessageQueue) -> MessageMark | None:
            place = places[queue]
            answer = await self._one(queue, place)
            head = first_head(answer.buffer)
            if head is None and answer.next_offset <= place:
                raise TransportError(f"there is no message at offset {place}")
            if head is None or head.queue_offset != place:
                return None
            return MessageMark(head.store_timestamp, head.born_timestamp, head.body_crc, head.physical_offset)

        found: dict[MessageQueue, MessageMark | None] = {}
        for queue, answer in zip(places, await _answers(list(places), ask), strict=True):
            if not isinstance(answer, BaseException):
                found[queue] = answer
            elif is_deleted(answer):
                found[queue] = None
            elif is_passing(answer):
                self._complaints.warn("cannot read the last message of %s now: %s", queue, answer)
            else:
                raise answer
        return found

    async def _one(self, queue: MessageQueue, place: int) -> RawBatch:
        """The message at an offset, as the master has it."""
        return await self._consumer.fetch_raw(
            queue, place, max_bytes=1, max_messages=1, expression="*", read_from="master"
        )

    async def others_in(self, group: str, most: Found) -> str:
        """Who else consumes in a group: members, or commits above `most`; empty if none is known to."""
        members = await (await self._admin()).groups.members(group)
        names = sorted({member.client_id for found in members.values() for member in found})
        if names:
            return f"others consume there, {names[0]} first ({len(names)} online)"
        committed = await _each(most, self._consumer.committed)
        for queue, offset in committed.items():
            if offset and offset > most[queue]:  # brokers answer 0 for a group without an offset, too
                return f"others committed there, offset {offset} in queue {queue}"
        return ""

    async def report(self, places: Found) -> None:
        """Commit how far the group has read; errors are logged."""
        answers = await _answers(list(places), lambda queue: self._consumer.commit(queue, places[queue]))
        errors = [answer for answer in answers if isinstance(answer, BaseException)]
        if errors:
            log.warning(
                "the offsets of group %s could not be committed: %s", self._options.group_id, errors[0]
            )


def _check_queues(name: str, queues: list[MessageQueue], given: Mapping[MessageQueue, int]) -> None:
    """Raise `SettingsError` unless there is a value for every queue and no other."""
    without = [queue for queue in queues if queue not in given]
    strange = sorted(set(given) - set(queues))
    if without or strange:
        what, hint = (
            ("offset", "; -2 means earliest, -1 latest") if name.endswith("Offsets") else ("time", "")
        )
        text = (
            f"has no {what} for {describe(without)}"
            if without
            else f"names {describe(strange)}, not read here"
        )
        raise SettingsError(f"option {name} {text}: give one for every queue{hint}", name, without or strange)


def _hinting(ask: Callable[[MessageQueue], Awaitable[T]]) -> Callable[[MessageQueue], Awaitable[T]]:
    """The same question; if a broker does not answer, a note of the error says how to read without it."""

    async def asking(queue: MessageQueue) -> T:
        try:
            return await ask(queue)
        except TransportError as error:
            error.add_note(f"{queue}: {without_broker(queue.broker_name)}")
            raise

    return asking


async def _each(
    queues: Iterable[MessageQueue], ask: Callable[[MessageQueue], Awaitable[T]]
) -> dict[MessageQueue, T]:
    asked = list(queues)
    found: dict[MessageQueue, T] = {}
    for part in _parts(asked):
        found.update(zip(part, await asyncio.gather(*(ask(queue) for queue in part)), strict=True))
    return found


async def _answers(
    queues: Sequence[MessageQueue], ask: Callable[[MessageQueue], Awaitable[T]]
) -> list[T | BaseException]:
    """An answer or an error for each queue."""
    found: list[T | BaseException] = []
    for part in _parts(queues):
        found += await asyncio.gather(*(ask(queue) for queue in part), return_exceptions=True)
    return found


def _parts(queues: Sequence[MessageQueue]) -> Iterator[Sequence[MessageQueue]]:
    for start in range(0, len(queues), _CALLS_MAX):
        yield queues[start : start + _CALLS_MAX]
