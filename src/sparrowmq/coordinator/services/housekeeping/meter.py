"""Figures of one query, compared with the previous one: rates from counters, lag, and since when messages
wait.

No I/O. Unknown values are omitted from the figures, and are gaps in charts.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sparrowmq.aio import QueueProgress
from sparrowmq.coordinator.cluster.explorer import BrokerNow, broker_now
from sparrowmq.coordinator.cluster.flow import FlowSample
from sparrowmq.coordinator.cluster.offsets import unread
from sparrowmq.coordinator.database.texts import key_of
from sparrowmq.coordinator.history.grains import Figure, Series
from sparrowmq.coordinator.history.store import name_of
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import DLQ_PREFIX, is_system_group

Figures = dict[Series, float]
HELD_SECONDS: Final = 600.0
"""How long the rate of a topic that is queried in turn is valid; a rate over a longer time is omitted."""
ARRIVALS_MAX: Final = 12
READ_MAX: Final = 32
"""Number of messages read per round to get their store times."""


class Arrivals:
    """Offsets of a queue at a few times, which show approximately when a message was stored. Older times are
    thinned, which makes messages look older, never younger.
    """

    __slots__ = ("_ends", "_times")

    def __init__(self) -> None:
        self._ends = array("q")
        self._times = array("q")

    def note(self, at_ms: int, end: int) -> None:
        """Record the queue's next offset at a time."""
        if self._ends and end < self._ends[-1]:  # the queue was recreated
            del self._ends[:], self._times[:]
        if self._ends and end == self._ends[-1]:
            self._times[-1] = at_ms
            return
        self._ends.append(end)
        self._times.append(at_ms)
        if len(self._ends) > ARRIVALS_MAX:
            del self._ends[1:-4:2], self._times[1:-4:2]

    def since(self, offset: int) -> int | None:
        """A time after which the message at an offset was stored; None if it was stored before the first
        record.
        """
        place = bisect_right(self._ends, offset) - 1
        return None if place < 0 else self._times[place]


@dataclass(frozen=True, slots=True)
class _Ends:
    """Record the next offsets of a topic's queues at a time."""

    at: float
    queues: Mapping[MessageQueue, int]


class Meter:
    """Computes the figures of consecutive queries."""

    def __init__(self) -> None:
        self._ends: dict[str, _Ends] = {}
        self._rates: dict[str, tuple[float, float]] = {}
        """The last rate of a topic, and its time."""
        self._read: dict[str, dict[tuple[str, MessageQueue], int]] = {}
        """Offsets of groups by topic, at `_read_at`."""
        self._read_at: float | None = None
        self._arrivals: dict[MessageQueue, Arrivals] = {}
        self._stored: dict[tuple[str, MessageQueue], int] = {}
        """When a message that a group has not read was stored; later ones are not older."""
        self._brokers: dict[str, frozenset[str]] = {}

    def unknown(self, look: FlowSample) -> list[tuple[str, MessageQueue, int]]:
        """Record the ends of queues; returns the groups, queues and offsets of messages that must be read to
        know how long they have waited.
        """
        waiting = []
        queues: dict[MessageQueue, int] = {}
        for _, rows in _groups(look):
            for one in rows:
                queues[one.queue] = max(one.broker_offset, queues.get(one.queue, 0))
        if not look.failed:
            self._forget(look, queues)
        for queue, end in queues.items():
            self._arrivals.setdefault(queue, Arrivals()).note(look.now_ms, end)
        for group, rows in _groups(look):
            for one in rows:
                place = (group, one.queue)
                if not unread(one, look.firsts):
                    self._stored.pop(place, None)
                elif self._oldest(group, one, look.firsts) is None:
                    waiting.append((group, one.queue, one.consumer_offset))
        return waiting[:READ_MAX]

    def _forget(self, look: FlowSample, queues: Mapping[MessageQueue, int]) -> None:
        """Delete data of objects that no longer exist."""
        for queue in self._arrivals.keys() - queues.keys():
            del self._arrivals[queue]
        for group in self._brokers.keys() - look.places.keys():
            del self._brokers[group]
        for place in [one for one in self._stored if one[0] not in look.places or one[1] not in queues]:
            del self._stored[place]

    def figures(
        self, look: FlowSample, stored: Mapping[tuple[str, MessageQueue], int], queues_max: int
    ) -> Figures:
        """All figures of this query. `stored` is when messages that were `unknown` were stored; groups with
        more than `queues_max` queues have no figures of single queues.
        """
        self._stored.update(stored)
        found: Figures = {}
        found |= self._lags(look, queues_max)
        found |= self._stored_rates(look)
        found |= self._read_rates(look)
        found |= broker_figures([broker_now(one) for one in look.brokers])
        return found

    def _lags(self, look: FlowSample, queues_max: int) -> Figures:
        found: Figures = {}
        firsts = look.firsts
        for group, rows in _groups(look):
            brokers = frozenset(one.queue.broker_name for one in rows)
            if look.failed:
                brokers |= self._brokers.get(group, frozenset())
            self._brokers[group] = brokers
            if rows and len(rows) <= queues_max:
                found |= {
                    Series(Figure.QUEUE_LAG, name_of(group, queue_name(one.queue))): float(
                        unread(one, firsts)
                    )
                    for one in rows
                }
            if not rows or brokers & look.failed.keys():
                continue
            name = key_of(group)
            found[Series(Figure.GROUP_LAG, name)] = float(sum(unread(one, firsts) for one in rows))
            oldest = [self._oldest(group, one, firsts) for one in rows if unread(one, firsts)]
            known = [at for at in oldest if at is not None]
            if len(known) == len(oldest):
                age = max(0, look.now_ms - min(known, default=look.now_ms))
                found[Series(Figure.GROUP_AGE, name)] = age / 1000
        return found

    def _oldest(self, group: str, one: QueueProgress, firsts: Mapping[MessageQueue, int]) -> int | None:
        """Since when the next message of a group in a queue has waited, at most."""
        came = self._arrivals[one.queue].since(max(one.consumer_offset, firsts.get(one.queue, 0)))
        if came is None:
            came = self._stored.get((group, one.queue))
        return None if came is None else max(came, one.last_timestamp_ms)

    def _stored_rates(self, look: FlowSample) -> Figures:
        ends: defaultdict[str, dict[MessageQueue, int]] = defaultdict(dict)
        for rows in look.places.values():
            for one in rows:
                ends[one.queue.topic][one.queue] = one.broker_offset
        for topic, queues in look.ends.items():
            ends[topic] = dict(queues)
        for topic, queues in ends.items():
            rate = _rate(self._ends.get(topic), _Ends(look.at, queues))
            self._ends[topic] = _Ends(look.at, queues)
            if rate is None:
                self._rates.pop(topic, None)
            else:
                self._rates[topic] = rate, look.at
        for topic in self._ends.keys() - look.topics - ends.keys():
            del self._ends[topic]
            self._rates.pop(topic, None)
        return {
            Series(Figure.TOPIC_IN, key_of(topic)): rate
            for topic, (rate, at) in self._rates.items()
            if topic in look.topics and look.at - at <= HELD_SECONDS
        }

    def _read_rates(self, look: FlowSample) -> Figures:
        now: defaultdict[str, dict[tuple[str, MessageQueue], int]] = defaultdict(dict)
        for group, rows in look.places.items():
            for one in rows:
                now[one.queue.topic][group, one.queue] = one.consumer_offset
        before, seconds = self._read, 0.0 if self._read_at is None else look.at - self._read_at
        found: Figures = {}
        for topic in look.topics if 0 < seconds <= HELD_SECONDS else ():
            old, new = before.get(topic, {}), now.get(topic, {})
            if look.failed and (not new or old.keys() - new.keys()):
                continue
            moved = sum(max(0, offset - old[place]) for place, offset in new.items() if place in old)
            found[Series(Figure.TOPIC_OUT, key_of(topic))] = moved / seconds
        self._read, self._read_at = dict(now), look.at
        return found


def broker_figures(brokers: Sequence[BrokerNow]) -> Figures:
    """Figures that brokers report, and the sums over the masters that report. Pure."""
    found: Figures = {}
    for one in brokers:
        if one.error:
            continue
        name = key_of(broker_name(one.broker, one.broker_id))
        used = None
        if one.disk_total and one.disk_free is not None:
            used = 100 * (one.disk_total - one.disk_free) / one.disk_total
        values = (
            (Figure.BROKER_IN, one.stored_per_second),
            (Figure.BROKER_OUT, one.delivered_per_second),
            (Figure.BROKER_DISK, used),
            (Figure.BROKER_LOG, one.log_bytes),
        )
        found |= {Series(figure, name): float(value) for figure, value in values if value is not None}
    masters = [one for one in brokers if one.broker_id == 0 and not one.error]
    for figure, rates in (
        (Figure.CLUSTER_IN, [one.stored_per_second for one in masters]),
        (Figure.CLUSTER_OUT, [one.delivered_per_second for one in masters]),
    ):
        told = [rate for rate in rates if rate is not None]
        if told:
            found[Series(figure, "")] = sum(told)
    return found


def broker_name(broker: str, broker_id: int) -> str:
    """A broker process's name; for slaves with their id. Pure."""
    return f"{broker}#{broker_id}" if broker_id else broker


def queue_name(queue: MessageQueue) -> str:
    """A queue's name in figures. Pure."""
    return f"{queue.topic}/{queue.broker_name}/{queue.queue_id}"


def _groups(look: FlowSample) -> Iterable[tuple[str, list[QueueProgress]]]:
    """Groups of users, with their offsets except those in dead letters."""
    for group, rows in look.places.items():
        if not is_system_group(group):
            yield group, [one for one in rows if not one.queue.topic.startswith(DLQ_PREFIX)]


def _rate(before: _Ends | None, now: _Ends) -> float | None:
    """Messages per second stored between two queries; None if some ends are unknown."""
    if before is None or not 0 < now.at - before.at <= HELD_SECONDS:
        return None
    if before.queues.keys() - now.queues.keys():
        return None
    grown = [end - before.queues[queue] for queue, end in now.queues.items() if queue in before.queues]
    if len(grown) < len(now.queues) or min(grown, default=0) < 0:
        return None
    return sum(grown) / (now.at - before.at)
