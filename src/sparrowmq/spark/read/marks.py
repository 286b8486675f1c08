"""Whether the messages that a stream has read are still those that are stored.

A broker may lose the end of its log and then store other messages at the same offsets: a take-over from an
`ASYNC_MASTER`, a power cut with `ASYNC_FLUSH`. Offsets alone do not show it once the log has grown again. So
each offset of a stream has marks of the last messages before it, and before the next batch they are compared.
A broker's log only ever loses its end, so if a message is still there, those stored before it are, too: one
message of each topic and broker is compared, not one of each queue.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Final, NamedTuple

from sparrowmq.core.errors import SparrowError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.cluster.faults import Occasionally
from sparrowmq.spark.offsets.offsets import MessageMark, Offsets, StreamOffset
from sparrowmq.spark.read.lookup import Ask, Found

MARKED_MAX: Final = 1024
"""Maximum number of queues of one batch that are compared; of more, a sample is."""
_ASK_SECONDS: Final = 30.0


class MarkCheck(NamedTuple):
    """What a comparison found: marks for the end of the batch; queues whose broker does not answer now; and
    how far queues were read whose last message read is another one now.
    """

    marks: Mapping[MessageQueue, MessageMark]
    unknown: set[MessageQueue]
    changed: Found


class Marks:
    """Reads marks and compares them. `ask` sends the questions."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._complaints = Occasionally()

    def of(self, offsets: Offsets) -> Mapping[MessageQueue, MessageMark]:
        """The marks of offsets, as far as they are known now."""
        return _present(self._stored({queue: offsets[queue] for queue in _sample(offsets)}))

    def changed(self, read: StreamOffset, queues: Iterable[MessageQueue]) -> Found:
        """How far queues were read whose last message read is another one now, as far as it is known."""
        return _changed(read, self._stored(_marked(read, queues)))

    def compare(
        self, start: StreamOffset, end: StreamOffset, restarted: Collection[MessageQueue]
    ) -> MarkCheck:
        """Compare the start of a batch, and read the marks of its end. `restarted` are queues that do not
        begin at `start`.

        The end is read first. If the log was cut before that, the start shows it; if it is cut afterwards,
        the next batch finds another message at this end.
        """
        moved = [
            queue
            for queue, offset in end.queues.items()
            if offset != start.queues.get(queue) or queue in restarted
        ]
        last = {queue: end.queues[queue] for queue in _sample(moved) if end.queues[queue]}
        found = self._stored(last)
        first = _marked(start, (queue for queue in moved if queue not in restarted))
        unknown, changed = self._compared(start, first)
        kept = {queue: start.marks[queue] for queue in start.marks.keys() - moved}
        return MarkCheck(kept | _present(found), unknown | (last.keys() - found.keys()), changed)

    def _compared(self, read: StreamOffset, places: Found) -> tuple[set[MessageQueue], Found]:
        """Queues of `places` that are not known to be unchanged, and those that have changed.

        Of each topic and broker the message that was stored last is compared first, and the others only if
        it is not there any more.
        """
        newest: dict[tuple[str, str], MessageQueue] = {}
        for queue in sorted(places, key=lambda queue: read.marks[queue].position):
            newest[_log_of(queue)] = queue
        now = self._stored({queue: places[queue] for queue in newest.values()})
        same = {_log_of(queue) for queue, mark in _present(now).items() if mark.is_of(read.marks[queue])}
        doubtful = {_log_of(queue) for queue in now} - same
        now |= self._stored(
            {q: place for q, place in places.items() if _log_of(q) in doubtful and q not in now}
        )
        unknown = {queue for queue in places if _log_of(queue) not in same and queue not in now}
        return unknown, _changed(read, now)

    def _stored(self, offsets: Offsets) -> dict[MessageQueue, MessageMark | None]:
        places = {queue: offset - 1 for queue, offset in offsets.items() if offset > 0}
        if not places:
            return {}
        try:
            return self._ask(lambda lookup: lookup.marks(places), _ASK_SECONDS)
        except SparrowError:
            raise
        except FutureTimeoutError:
            self._complaints.warn("cannot read the last messages of %d queues now", len(places))
            return {}


def _sample(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    found = sorted(queues)
    return found[:: -(-len(found) // MARKED_MAX) or 1]


def _log_of(queue: MessageQueue) -> tuple[str, str]:
    return queue.topic, queue.broker_name


def _marked(read: StreamOffset, queues: Iterable[MessageQueue]) -> Found:
    """Up to where queues were read, as far as there are marks of it."""
    return {queue: read.queues[queue] for queue in _sample(q for q in queues if q in read.marks)}


def _present(found: Mapping[MessageQueue, MessageMark | None]) -> dict[MessageQueue, MessageMark]:
    return {queue: mark for queue, mark in found.items() if mark is not None}


def _changed(read: StreamOffset, now: Mapping[MessageQueue, MessageMark | None]) -> Found:
    return {
        queue: read.queues[queue]
        for queue, mark in _present(now).items()
        if not mark.is_of(read.marks[queue])
    }
