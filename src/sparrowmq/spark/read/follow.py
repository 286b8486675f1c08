"""How a stream follows its queues: the decisions of the driver, batch by batch.

One object lives as long as the query (spark:P-04). Spark asks it about a hundred times a second when idle
(spark:S-24), so the queues' ends are remembered for a moment. While a cluster cannot be reached there is just
nothing new; only lost messages and what cannot even begin are errors.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import replace
from time import monotonic, sleep, time
from typing import TYPE_CHECKING, Final, TypeVar

from sparrowmq.core.errors import SettingsError, SparrowError, TransportError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.cluster.faults import (
    Occasionally,
    is_passing,
    messages_lost,
    offset_reset,
    unread_lost,
)
from sparrowmq.spark.offsets.offsets import StreamOffset, advance, describe, lag, lost, spans
from sparrowmq.spark.offsets.resets import OffsetReset
from sparrowmq.spark.options.table import ReadOptions
from sparrowmq.spark.options.values import LATEST
from sparrowmq.spark.read.group_commits import GroupProgress
from sparrowmq.spark.read.lookup import Ask, Found, Lookup
from sparrowmq.spark.read.marks import Marks

if TYPE_CHECKING:
    from sparrowmq.spark.offsets.losses import GoneQueue
    from sparrowmq.spark.read.missing import MissingQueue

log = logging.getLogger("sparrowmq.spark")

T = TypeVar("T")

POLL_SECONDS: Final = 30.0
"""The longest a poll may take; what it needs is a few answers of at most 3 s each."""
SAMPLE_SECONDS: Final = 10.0
"""How long the average size of records is cached."""
_RECORD_BYTES_GUESS: Final = 1024.0
_LOOKS_AT_LOSS: Final = 3
_LOSS_PAUSE: Final = 0.2
"""So often, with so many seconds between, a queue must end before its start: its broker may just start."""
_HELD_PAUSE: Final = 0.5


class Follower:
    """Decides where a stream starts and how far each micro-batch reaches."""

    def __init__(
        self,
        ask: Ask,
        options: ReadOptions,
        now: Callable[[], float] = monotonic,
        clock: Callable[[], float] = time,
    ) -> None:
        self._ask = ask
        self._options = options
        self._now = now
        self._clock = clock
        self._initial: StreamOffset | None = None
        self._target: Found | None = None
        self._ends: Found = {}
        self._ends_at = float("-inf")
        self._answered: Found = {}
        self._answered_ms = 0
        self._batch_at = float("-inf")
        self._poll_took = 0.0
        self._checkpoint_is_ours = False
        self._gone: frozenset[MessageQueue] = frozenset()
        self._missing_at = float("-inf")
        self._lost_said = False
        self._progress = GroupProgress(ask, options, now)
        self._marks = Marks(ask)
        self._resets: Found = {}
        self._recreated_checked = False
        self._sample = _RECORD_BYTES_GUESS
        self._sample_at = float("-inf")
        self._complaints = Occasionally()

    @property
    def _retry_seconds(self) -> float:
        return 60.0 + 15.0 * (self._options.retries + 1)

    def initial(self) -> StreamOffset:
        """Where a new query starts; decided once, because Spark asks again (spark:S-13)."""
        if self._initial is None:
            found = self._ask(
                lambda lookup: lookup.retried(lambda: lookup.starts(LATEST)), self._retry_seconds
            )
            self._initial = StreamOffset(found, initial=True, marks=self._marks.of(found))
        return self._initial

    def fix_target(self) -> None:
        """From now on nothing goes beyond the ends of this moment (Trigger.AvailableNow)."""

        async def ends(lookup: Lookup) -> Found:
            return await lookup.ends(await lookup.queues(fresh=True))

        asked_ms = self._clock_ms()
        self._target = self._ask(lambda lookup: lookup.retried(lambda: ends(lookup)), self._retry_seconds)
        self._answered, self._answered_ms = self._target, asked_ms

    def latest(self, start: StreamOffset, *, limited: bool) -> StreamOffset:
        """The end of the batch after `start`; `start` itself when there is none to make.

        Raises `DataLossError` when a queue no longer has the messages before `start`, or nobody can read its
        unread messages, and failOnDataLoss is on; otherwise the batch begins in it as in a new queue, or
        after its last message. A queue whose last message cannot be read now
        waits for a later batch; with a target, which must be reached, at most `brokerTimeoutMs`.
        """
        self._check_checkpoint(start)
        self._say_lost(start.queues, start)
        ends = self._checked(start)
        deadline = self._now() + self._options.broker_timeout
        held: set[MessageQueue] = set()
        while True:  # each round holds or moves another queue, or waits
            there = {queue: end for queue, end in ends.items() if queue not in held}
            end = self._planned(start, there, limited=limited)
            if end is None and held and self._target is not None:
                self._wait_for(held, deadline)
                ends, held = self._checked(start), set()
                continue
            if end is None:
                return start
            kept = {queue: offset for queue, offset in end.queues.items() if not self._is_gone(queue)}
            found = self._marks.compare(start, replace(end, queues=kept), self._resets.keys() & there.keys())
            if not found.unknown and not found.changed:
                break
            held |= found.unknown
            if found.changed and not self._reset(found.changed, ends, start):
                held |= found.changed.keys()
        self._batch_at = self._now()
        moved = self._resets.keys() & there.keys()
        # After a move, the old time would make the new queue seem recreated once more.
        seen = not all(map(self._is_gone, moved)) or self._answered.keys() >= self._followed(start)
        self._resets = {queue: first for queue, first in self._resets.items() if queue not in moved}
        return replace(
            end,
            seen_ms=self._answered_ms if seen else start.seen_ms,
            own_group=self._progress.own_group(start, ends),
            marks={q: mark for q, mark in found.marks.items() if q not in moved or not self._is_gone(q)},
            ends=self._last_ends(end.queues, start),
        )

    def _followed(self, start: StreamOffset) -> set[MessageQueue]:
        """The queues of an offset that are still read."""
        return {q for q in start.queues if self._options.follows(q) and q not in self._gone}

    def _is_gone(self, queue: MessageQueue) -> bool:
        """Whether nobody can read a queue: for now, or because its broker is lost for good."""
        return queue in self._gone or self._options.is_lost(queue)

    def _last_ends(self, queues: Iterable[MessageQueue], known: StreamOffset) -> Found:
        """The last ends that queues were seen to have, as far as they are known."""
        ends = {**known.ends, **(self._target or {}), **self._ends}
        return {queue: ends[queue] for queue in queues if queue in ends}

    def _planned(self, start: StreamOffset, ends: Found, *, limited: bool) -> StreamOffset | None:
        """The end of a batch up to these ends of queues, without marks; None if there is none to make."""
        resets = {queue: first for queue, first in self._resets.items() if queue in ends}
        kept = {queue: offset for queue, offset in start.queues.items() if queue not in resets}
        firsts = resets | self._firsts([queue for queue in ends if queue not in start.queues])
        waiting = lag(kept, {queue: end for queue, end in ends.items() if queue in kept})
        waiting += sum(max(0, ends[queue] - first) for queue, first in firsts.items())
        if limited and self._too_few(waiting):
            return None
        limit = self._limit(start, ends) if limited and waiting else None
        end = advance(replace(start, queues=kept), ends, firsts, limit)
        return end if end.queues != start.queues or resets else None

    def _wait_for(self, queues: Iterable[MessageQueue], deadline: float) -> None:
        """Wait before the next attempt to reach the target in these queues, which may have become shorter."""
        if self._now() >= deadline:
            raise TransportError(
                f"the last messages of {describe(sorted(queues))} could not be read for "
                f"{1000 * self._options.broker_timeout:.0f} ms (option brokerTimeoutMs). Nothing is lost: "
                f"restart the broker and then the query, or increase the option",
                value=sorted(queues),
                limit=self._options.broker_timeout,
            )
        sleep(_HELD_PAUSE)
        self._ends_at = float("-inf")
        fresh, target = self._poll(), self._target or {}
        self._target = target | {
            queue: min(target[queue], fresh[queue]) for queue in queues if queue in target and queue in fresh
        }

    def replaced(self, start: StreamOffset, end: StreamOffset) -> frozenset[MessageQueue]:
        """Queues of a batch that runs again, from `start` to `end`, that it must not read.

        Nobody can read some any more. In a topic that was recreated, the offsets belong to other messages;
        the next batch begins with them. Raises as `latest`.
        """
        places = dict(end.queues)
        ends = self._looked_again(places, self._poll())
        begins = {span.queue: span.start for span in spans(start, end)}
        self._check_missing(places | begins, end)
        self._say_lost(places | begins, end)
        without = {queue: begin for queue, begin in begins.items() if self._options.is_lost(queue)}
        self._resets |= without
        gone = lost(places, ends)
        self._refuse_lost(gone, places, ends)
        reached = {queue: place for queue, place in places.items() if queue in ends and queue not in gone}
        found: list[OffsetReset] = []
        try:
            read_to = self._marks.changed(end, reached) | {queue: places[queue] for queue in gone}
            if read_to:
                found += self._ask(lambda lookup: lookup.resets(read_to, ends, end), POLL_SECONDS)
            if end.seen_ms:
                found += self._ask(lambda lookup: lookup.recreated(reached, ends, end.seen_ms), POLL_SECONDS)
        except (SparrowError, FutureTimeoutError) as error:
            self._complaints.warn("cannot check now whether topics were recreated: %r", error)
        if self._options.fail_on_data_loss:
            for one in found:
                offset_reset(self._options, one)  # otherwise the next batch reports it
        return self._gone | without.keys() | {one.queue for one in found if one.recreated}

    def known_ends(self) -> StreamOffset | None:
        """The last known ends of queues, or the target; None before the first query."""
        held = {queue: offset for queue, offset in self._resets.items() if self._is_gone(queue)}
        ends = (self._ends if self._target is None else self._target) | held
        return StreamOffset(ends) if ends else None

    def report(self, done: StreamOffset) -> None:
        """Commit to the group that it has read up to `done`, if it may; never raises.

        Queues that nobody can read are left out: their brokers would refuse, or not answer.
        """
        places = {queue: done.queues[queue] for queue in self._followed(done)}
        self._progress.report(replace(done, queues=places))

    def _poll(self) -> Found:
        now = self._now()
        # A poll of very many queues takes its time: no more than half of all time is spent on polls.
        if now - self._ends_at < max(self._options.poll_interval, self._poll_took):
            return self._ends

        async def ends(lookup: Lookup) -> Found:
            return await lookup.reachable_ends(await lookup.queues(all_there=False))

        asked_ms = self._clock_ms()
        try:
            self._answered = self._ask(ends, POLL_SECONDS)
            self._answered_ms = asked_ms
            self._ends = self._ends | self._answered
        except (SparrowError, FutureTimeoutError) as error:
            if isinstance(error, SparrowError) and not is_passing(error):
                raise
            self._complaints.warn(
                "%s cannot be asked for new messages now: %r", self._options.name_server, error
            )
        self._ends_at = self._now()
        self._poll_took = self._ends_at - now
        return self._ends

    def _check_checkpoint(self, start: StreamOffset) -> None:
        """Check once whether the checkpoint matches the options."""
        if self._checkpoint_is_ours:
            return
        topics = {queue.topic for queue in start.queues}
        strange = sorted(topic for topic in topics if not self._options.reads(topic))
        if topics and len(strange) == len(topics):
            raise SettingsError(
                f"the checkpoint is of {', '.join(strange)}, to which this query does not subscribe; give "
                f"the query another checkpointLocation, or subscribe as before",
                "checkpointLocation",
                strange,
            )
        if strange:
            log.warning("no longer subscribed, and kept at their offsets: %s", ", ".join(strange))
        self._checkpoint_is_ours = True

    def _check_missing(self, places: Found, offset: StreamOffset) -> None:
        """Now and then: what became of queues, read up to `places`, that the route no longer has.

        Those that their brokers still serve are read on. Those that nobody can read are in `_gone`; if they
        have unread messages, that is a loss, and their new offsets are in `_resets`.
        """
        if self._now() - self._missing_at < self._options.discovery_interval:
            return
        self._missing_at = self._now()
        is_strict = self._target is not None and self._options.fail_on_data_loss

        async def ask(lookup: Lookup) -> Mapping[MessageQueue, MissingQueue]:
            found = await lookup.missing(places)
            if is_strict and found:
                from sparrowmq.spark.read.missing import refuse_away

                refuse_away(found)
            return found

        try:
            found = (
                self._ask(lambda lookup: lookup.retried(lambda: ask(lookup)), self._retry_seconds)
                if is_strict
                else self._ask(ask, POLL_SECONDS)
            )
        except (SparrowError, FutureTimeoutError) as error:
            if is_strict:
                raise
            self._complaints.warn("cannot check now whether queues are missing: %r", error)
            return
        if not found:
            self._gone = frozenset()
            return
        from sparrowmq.spark.read import missing

        ends = self._last_ends(places, offset)
        self._know(missing.readable(found))
        gone = missing.gone(found, places, ends)
        self._give_up([one for one in gone if one.queue not in self._resets], offset)
        self._gone = frozenset(one.queue for one in gone)

    def _give_up(self, gone: Sequence[GoneQueue], offset: StreamOffset) -> None:
        """Continue without queues. Raises `DataLossError` for unread messages, unless they may be lost."""
        from sparrowmq.spark.offsets.losses import UnreadLoss

        loss = UnreadLoss.of(gone, offset.seen_ms)
        whole = [one for one in gone if one.unread == 0 and one.queue not in self._gone]
        if loss.queues:
            unread_lost(self._options, loss)
            skipped = {q.queue: q.place if q.end is None else q.end for q in loss.queues}
            self._resets |= skipped
            self._know(skipped)
        if whole:
            log.warning(
                "queues are gone that were read to their last known end: %s (%s); continuing without them",
                describe(one.queue for one in whole),
                whole[0].why,
            )

    def _say_lost(self, places: Mapping[MessageQueue, int], offset: StreamOffset) -> None:
        """Log once what is not read because brokers are lost for good, as far as it is known."""
        lost = [queue for queue in places if self._options.is_lost(queue)]
        if not lost or self._lost_said:
            return
        self._lost_said = True
        from sparrowmq.spark.offsets.losses import GoneQueue, UnreadLoss

        gone = (GoneQueue(q, places[q], offset.ends.get(q), "its broker is lost") for q in lost)
        loss = UnreadLoss.of(gone, offset.seen_ms)
        log.warning(
            "continuing without %s because of option lostBrokers; %d queues stay at their offsets, and are "
            "read on if the broker returns and the option is removed: %s",
            ", ".join(sorted({queue.broker_name for queue in lost})),
            len(lost),
            loss if loss.queues else "they were read to their last known end",
        )

    def _know(self, ends: Found) -> None:
        """Take these as the ends of queues that polls do not ask for."""
        self._ends = self._ends | ends
        if self._target is not None:
            self._target = self._target | ends

    def _checked(self, start: StreamOffset) -> Found:
        """The ends, after looking again when queues seem to have lost messages (spark:S-54).

        Their new offsets are in `_resets` until a batch is planned.
        """
        if self._target is None:
            self._poll()
        self._check_missing(dict(start.queues), start)
        held = {queue: offset for queue, offset in self._resets.items() if self._is_gone(queue)}
        ends = (self._ends if self._target is None else self._target) | held
        places = {queue: place for queue, place in start.queues.items() if queue not in self._resets}
        ends = self._looked_again(places, ends)
        gone = lost(places, ends)
        self._refuse_lost(gone, places, ends)
        if gone:
            read_to = {queue: places.pop(queue) for queue in gone}
            self._reset(read_to, ends, start)
        if not start.seen_ms:  # a new query's: what follows it is made here
            self._recreated_checked = True
        elif not self._recreated_checked:  # a checkpoint that may have lain for a while
            read_to = {queue: place for queue, place in places.items() if queue in ends}
            self._recreated_checked = self._look(
                lambda lookup: lookup.recreated(read_to, ends, start.seen_ms)
            )
        return ends

    def _looked_again(self, places: Found, ends: Found) -> Found:
        """The ends of the queues; queues that end before their position are checked again (spark:S-54)."""
        gone = lost(places, ends)
        for _ in range(_LOOKS_AT_LOSS - 1):
            if not gone:
                break
            sleep(_LOSS_PAUSE)
            self._ends_at = float("-inf")
            fresh = self._poll()
            news = {queue: fresh[queue] for queue in gone if queue in fresh}
            ends = ends | news
            if self._target is not None:
                self._target = self._target | news
            gone = lost(places, ends)
        return ends

    def _refuse_lost(self, gone: Iterable[MessageQueue], places: Found, ends: Found) -> None:
        """Raise `DataLossError` for queues that end before their place, unless that is to be passed over."""
        if not self._options.fail_on_data_loss:
            return
        for queue in gone:
            why = (
                f"the queue ends at {ends[queue]}: its broker lost messages, the topic was deleted and "
                f"recreated, or the checkpoint is of another cluster"
            )
            messages_lost(self._options, queue, ends[queue], places[queue], why)

    def _reset(self, read_to: Found, ends: Found, start: StreamOffset) -> bool:
        """Note where to resume in queues that lost what was read; False as for `_look`."""
        return self._look(lambda lookup: lookup.resets(read_to, ends, start))

    def _look(self, question: Callable[[Lookup], Awaitable[list[OffsetReset]]]) -> bool:
        """Note queues that moved; False when a broker does not answer now, so it is asked again later."""
        try:
            found = self._ask(question, POLL_SECONDS)
        except (SparrowError, FutureTimeoutError) as error:
            self._complaints.warn("cannot check now whether queues lost messages: %r", error)
            return False
        for one in found:
            offset_reset(self._options, one)
            self._resets[one.queue] = one.offset
        return True

    def _clock_ms(self) -> int:
        return int(1000 * self._clock())

    def _firsts(self, queues: list[MessageQueue]) -> Found:
        if not queues:
            return {}
        try:
            return self._ask(lambda lookup: lookup.firsts(queues), POLL_SECONDS)
        except (SparrowError, FutureTimeoutError) as error:
            self._complaints.warn(
                "new queues are read later, because their start is not known now: %r", error
            )
            return {}

    def _too_few(self, waiting: int) -> bool:
        least = self._options.min_offsets
        if least is None or self._target is not None or waiting >= least:
            return False  # with a target nothing more may come (spark:S-23)
        return self._now() - self._batch_at < self._options.max_trigger_delay

    def _limit(self, start: StreamOffset, ends: Found) -> int | None:
        most = self._options.max_offsets
        if self._options.max_bytes is None:
            return most
        by_size = max(1, int(self._options.max_bytes / self._record_bytes(start, ends)))
        return by_size if most is None else min(most, by_size)

    def _record_bytes(self, start: StreamOffset, ends: Found) -> float:
        if self._now() - self._sample_at >= SAMPLE_SECONDS:
            waiting = {queue: offset for queue, offset in start.queues.items() if ends.get(queue, 0) > offset}
            places = {queue: offset for queue, offset in waiting.items() if not self._is_gone(queue)}
            try:
                found = self._ask(lambda lookup: lookup.record_bytes(places), POLL_SECONDS)
                self._sample = found or self._sample
            except (SparrowError, FutureTimeoutError) as error:
                self._complaints.warn("cannot read the size of messages now: %r", error)
            self._sample_at = self._now()
        return self._sample
