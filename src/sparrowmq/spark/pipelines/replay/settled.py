"""What a replay sends, as offsets: fixed at its first start, the same in every run."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from sparrowmq.core.errors import NoRouteError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.offsets.offsets import Span
from sparrowmq.spark.pipelines.archive.location import content_of
from sparrowmq.spark.pipelines.common import reading, writing
from sparrowmq.spark.pipelines.common.source import between
from sparrowmq.spark.pipelines.replay.directory import Replay, ReplayDirectory, ReplayError
from sparrowmq.spark.pipelines.replay.settings import ReplaySettings


def settled(settings: ReplaySettings, home: ReplayDirectory) -> Replay:
    """The settled values of the directory; before the first start, those that it would settle now."""
    found = home.replay()
    if found is not None:
        found.check(settings.asked, home.root)
        return found
    spans = _archived(settings) if settings.archive is not None else _stored(settings)
    topics = sorted({span.queue.topic for span in spans} | set(settings.sources))
    targets = {topic: writing.target(settings.sink_options(topic)).queues for topic in topics}
    return Replay(secrets.token_hex(8), settings.asked, tuple(sorted(spans)), targets)


def _archived(settings: ReplaySettings) -> list[Span]:
    """The requested part of the archive."""
    assert settings.archive is not None
    ledger = content_of(settings.archive).ledger
    missing = set(settings.sources) - {queue.topic for queue in ledger.queues}
    if missing:
        text = f"archive {settings.archive} has no messages of topic {min(missing)!r}"
        raise ReplayError(text, "topics", min(missing))
    wanted = set(settings.sources)
    spans = [
        span
        for queue in ledger.queues
        if not wanted or queue.topic in wanted
        for span in ledger.covered(queue)
    ]
    return _within(spans, settings.ranges)


def _stored(settings: ReplaySettings) -> list[Span]:
    """The requested part of the brokers' messages."""
    options = {**settings.source_options, "subscribe": ",".join(settings.sources)}
    try:
        spans = reading.spans_of(between(options, settings.since, settings.until))
        return _within(spans, settings.ranges)
    except NoRouteError as error:
        if not settings.dead_letters_of:
            raise
        raise ReplayError(
            f"group {settings.dead_letters_of!r} has no dead letters that can be read: {error}",
            "dead_letters_of",
            settings.dead_letters_of,
        ) from None


def _within(spans: Sequence[Span], ranges: Sequence[Span]) -> list[Span]:
    """The parts of `spans` within `ranges`; all of them without ranges."""
    if not ranges:
        return list(spans)
    of_queue: dict[MessageQueue, list[Span]] = {}
    for span in spans:
        of_queue.setdefault(span.queue, []).append(span)
    found: set[Span] = set()
    for wanted in ranges:
        there = of_queue.get(wanted.queue, [])
        parts = [Span(wanted.queue, max(one.start, wanted.start), min(one.end, wanted.end)) for one in there]
        parts = [part for part in parts if part.start < part.end]
        if sum(map(len, parts)) != len(wanted):
            stored = ", ".join(f"{one.start} to {one.end - 1}" for one in there) or "none"
            raise ReplayError(
                f"range {wanted.queue}={wanted.start}-{wanted.end}: some of these offsets do not exist; in "
                f"the given time the queue has {stored}",
                "ranges",
                wanted,
                what="offsets",
            )
        known = [old for old in found if old.queue == wanted.queue]
        if any(part.start < old.end and old.start < part.end for part in parts for old in known):
            text = f"range {wanted.queue}={wanted.start}-{wanted.end}: it overlaps another range"
            raise ReplayError(text, "ranges", wanted, what="overlap")
        found.update(parts)
    return sorted(found)
