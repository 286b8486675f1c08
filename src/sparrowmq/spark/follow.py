"""How a stream follows its queues: the decisions of the driver, batch by batch.

One object lives as long as the query (spark:P-04). Spark asks it about a hundred times a second when idle
(spark:S-24), so the queues' ends are remembered for a moment. While a cluster cannot be reached there is just
nothing new; only lost messages and what cannot even begin are errors.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import TimeoutError as FutureTimeoutError
from time import monotonic, sleep
from typing import Final, Protocol, TypeVar

from sparrowmq.core.errors import SettingsError, SparrowError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.faults import Occasionally, is_passing, messages_lost, topics_lost
from sparrowmq.spark.lookup import Found, Lookup
from sparrowmq.spark.offsets import StreamOffset, advance, lag, lost
from sparrowmq.spark.option_types import LATEST
from sparrowmq.spark.options import ReadOptions

log = logging.getLogger("sparrowmq.spark")

T = TypeVar("T")

POLL_SECONDS: Final = 30.0
"""The longest a poll may take; what it needs is a few answers of at most 3 s each."""
REPORT_SECONDS: Final = 2.0
SAMPLE_SECONDS: Final = 10.0
"""For so long the average size of records is believed."""
_RECORD_BYTES_GUESS: Final = 1024.0
_LOOKS_AT_LOSS: Final = 3
_LOSS_PAUSE: Final = 0.2
"""So often, with so many seconds between, a queue must end before its start: its broker may just start."""


class Ask(Protocol):
    """Runs a question of a `Lookup` to its end, at most `timeout` seconds."""

    def __call__(self, question: Callable[[Lookup], Awaitable[T]], timeout: float) -> T:
        """The answer."""


class Follower:
    """Where a stream starts and how far each micro-batch goes."""

    def __init__(self, ask: Ask, options: ReadOptions, now: Callable[[], float] = monotonic) -> None:
        self._ask = ask
        self._options = options
        self._now = now
        self._initial: StreamOffset | None = None
        self._target: Found | None = None
        self._ends: Found = {}
        self._ends_at = float("-inf")
        self._batch_at = float("-inf")
        self._poll_took = 0.0
        self._checkpoint_is_ours = False
        self._deleted: list[str] = []
        self._deleted_at = float("-inf")
        self._reported: Found = {}
        self._warned: list[MessageQueue] = []
        self._sample = _RECORD_BYTES_GUESS
        self._sample_at = float("-inf")
        self._complaints = Occasionally()

    @property
    def _patience(self) -> float:
        return 60.0 + 15.0 * (self._options.retries + 1)

    def initial(self) -> StreamOffset:
        """Where a new query starts; settled once, because Spark asks again (spark:S-13)."""
        if self._initial is None:
            found = self._ask(lambda lookup: lookup.patiently(lambda: lookup.starts(LATEST)), self._patience)
            self._initial = StreamOffset(found, initial=True)
        return self._initial

    def fix_target(self) -> None:
        """From now on nothing goes beyond the ends of this moment (Trigger.AvailableNow)."""

        async def ends(lookup: Lookup) -> Found:
            return await lookup.ends(await lookup.queues(fresh=True))

        self._target = self._ask(lambda lookup: lookup.patiently(lambda: ends(lookup)), self._patience)

    def latest(self, start: StreamOffset, *, limited: bool) -> StreamOffset:
        """The end of the batch after `start`; `start` itself when there is none to make.

        Raises `DataLossError` when a queue ends before `start` and failOnDataLoss is on.
        """
        self._check_checkpoint(start)
        ends = self._checked(start, self._target if self._target is not None else self._poll())
        firsts = self._firsts([queue for queue in ends if queue not in start.queues])
        waiting = lag(start.queues, {queue: end for queue, end in ends.items() if queue in start.queues})
        waiting += sum(max(0, ends[queue] - first) for queue, first in firsts.items())
        if limited and self._too_few(waiting):
            return start
        limit = self._limit(start, ends) if limited and waiting else None
        end = advance(start, ends, firsts, limit)
        if end.queues == start.queues:
            return start
        self._batch_at = self._now()
        return end

    def known_ends(self) -> StreamOffset | None:
        """The queues' ends as last seen, or the target; None before that."""
        ends = self._ends if self._target is None else self._target
        return StreamOffset(ends) if ends else None

    def report(self, done: StreamOffset) -> None:
        """Tell the brokers that the group has read up to `done`; never raises (spark:S-04)."""
        if self._options.group_id is None or done.initial:
            return
        news = {queue: end for queue, end in done.queues.items() if self._reported.get(queue) != end}
        if not news:
            return
        try:
            self._ask(lambda lookup: lookup.report(news), REPORT_SECONDS)
            self._reported |= news
        except (SparrowError, FutureTimeoutError) as error:
            self._complaints.warn("progress of group %s is not reported: %r", self._options.group_id, error)

    def _poll(self) -> Found:
        now = self._now()
        # A poll of very many queues takes its time: no more than half of all time is spent on polls.
        if now - self._ends_at < max(self._options.poll_interval, self._poll_took):
            return self._ends

        async def ends(lookup: Lookup) -> Found:
            return await lookup.reachable_ends(await lookup.queues(all_there=False))

        try:
            self._ends = self._ends | self._ask(ends, POLL_SECONDS)
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
        """Once: whether the checkpoint is of what the options ask for."""
        if self._checkpoint_is_ours:
            return
        topics = {queue.topic for queue in start.queues}
        strange = sorted(topic for topic in topics if not self._options.reads(topic))
        if topics and len(strange) == len(topics):
            raise SettingsError(
                f"the checkpoint is of {', '.join(strange)}, which the options of this query do not ask for; "
                "give the query another checkpointLocation, or subscribe to what it read before"
            )
        if strange:
            log.warning("no longer asked for, and left where they are: %s", ", ".join(strange))
        self._checkpoint_is_ours = True

    def _check_deleted(self, start: StreamOffset) -> None:
        """Now and then: whether topics were deleted; a broker that is just away looks the same at first."""
        if self._now() - self._deleted_at < self._options.discovery_interval:
            return
        self._deleted_at = self._now()
        try:
            gone = self._ask(lambda lookup: lookup.deleted(start.queues), POLL_SECONDS)
        except (SparrowError, FutureTimeoutError):
            return
        if gone != self._deleted:
            self._deleted = gone
            if gone:
                topics_lost(self._options, gone)

    def _checked(self, start: StreamOffset, ends: Found) -> Found:
        """The ends, after looking again when a queue seems to have lost messages (spark:S-54)."""
        self._check_deleted(start)
        for look in range(_LOOKS_AT_LOSS):
            gone = lost(start.queues, ends)
            if not gone or gone == self._warned:
                return ends
            if look < _LOOKS_AT_LOSS - 1:
                sleep(_LOSS_PAUSE)
                self._ends_at = float("-inf")
                fresh = self._poll()
                ends = {queue: fresh.get(queue, end) for queue, end in ends.items()}
        self._warned = gone
        for queue in gone:
            why = (
                f"the queue ends at {ends[queue]}: its broker lost messages, the topic was deleted and made "
                "anew, or the checkpoint is of another cluster"
            )
            messages_lost(self._options, queue, ends[queue], start.queues[queue], why)
        return ends

    def _firsts(self, queues: list[MessageQueue]) -> Found:
        if not queues:
            return {}
        try:
            return self._ask(lambda lookup: lookup.firsts(queues), POLL_SECONDS)
        except (SparrowError, FutureTimeoutError) as error:
            self._complaints.warn("new queues are read later, their start is not known now: %r", error)
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
            places = {queue: offset for queue, offset in start.queues.items() if ends.get(queue, 0) > offset}
            try:
                found = self._ask(lambda lookup: lookup.record_bytes(places), POLL_SECONDS)
                self._sample = found or self._sample
            except (SparrowError, FutureTimeoutError) as error:
                self._complaints.warn("the size of messages is not known now: %r", error)
            self._sample_at = self._now()
        return self._sample
