"""What an archive would do: the offsets that wait or are missing, and the steps of a run. Starts no Spark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from sparrowmq.spark.offsets.offsets import Span
from sparrowmq.spark.pipelines.archive.ledger import ArchiveLedger, rounds
from sparrowmq.spark.pipelines.archive.settings import ArchiveSettings
from sparrowmq.spark.pipelines.common import reading
from sparrowmq.spark.pipelines.common.source import between, check_times
from sparrowmq.spark.pipelines.common.steps import Plan, Step, reads

NAME: Final = "archive"
BACKFILL: Final = "backfill"


def plan_archive(settings: ArchiveSettings) -> Plan:
    """What `archive` would do now. Asks the cluster, starts no Spark, writes nothing."""
    ledger = settings.ledger()
    spans = waiting(settings, ledger)
    batches = _count(-(-sum(map(len, spans)) // settings.batch_rows))
    end = (
        f"a batch every {settings.every:g} s until stopped" if settings.follow else f"{batches}, then the end"
    )
    plan = _plan(NAME, settings, ledger, spans, end)
    if not settings.hold_hours:
        return plan
    hold = Step("hold", f"messages until {settings.group} has them, for {settings.hold_hours} hours")
    return replace(plan, steps=(*plan.steps, hold))


def plan_backfill(settings: ArchiveSettings, *, since: int | None = None, until: int | None = None) -> Plan:
    """What `backfill` would do now. Asks the cluster, starts no Spark, writes nothing."""
    ledger = settings.ledger()
    spans = missing(settings, ledger, since, until)
    count = sum(len(list(parts(one, settings.batch_rows))) for one in rounds(spans))
    return _plan(BACKFILL, settings, ledger, spans, f"{_count(count)}, then the end")


def _plan(
    name: str, settings: ArchiveSettings, ledger: ArchiveLedger, spans: Sequence[Span], end: str
) -> Plan:
    if not spans and not settings.follow:
        return Plan(name, (), 0)
    steps = reads("read", spans)
    place = settings.store.place(ledger.next_number)
    details = {"columns": ", ".join((settings.schema, *settings.select)), "batches": end}
    steps.append(Step("write", place, details))
    if settings.bad_rows is not None:
        steps.append(Step("set aside", f"bodies that cannot be decompressed, to {settings.bad_rows.where}"))
    if settings.compact_batches:
        most = f"{settings.compact_bytes:,} bytes"
        steps.append(Step("merge", f"{settings.compact_batches} small batches into one of at most {most}"))
    return Plan(name, tuple(steps), sum(map(len, spans)))


def _count(batches: int) -> str:
    return "1 batch" if batches == 1 else f"{batches:,} batches"


def waiting(settings: ArchiveSettings, ledger: ArchiveLedger) -> list[Span]:
    """The stored offsets that a run would archive."""
    return reading.unread(settings, ledger.ends(), reading.queues_of(settings.source_options))


def missing(
    settings: ArchiveSettings, ledger: ArchiveLedger, since: int | None, until: int | None
) -> list[Span]:
    """Offsets before the archive's ends that are stored but not archived. Raises `SettingsError` for a time
    range that ends before it begins.
    """
    check_times(since, until)
    ends = ledger.ends()
    found: list[Span] = []
    for span in reading.spans_of(between(settings.source_options, since, until)):
        end = min(span.end, ends.get(span.queue, span.start))
        if end > span.start:
            found += ledger.missing(Span(span.queue, span.start, end))
    return found


def parts(spans: Sequence[Span], rows: int) -> Iterable[list[Span]]:
    """Divide spans into pieces of at most `rows` messages, with each queue once per piece."""
    left = list(spans)
    while left:  # each piece has at least one message
        piece, room, rest = list[Span](), rows, list[Span]()
        for span in left:
            end = min(span.end, span.start + room)
            if end > span.start:
                piece.append(Span(span.queue, span.start, end))
                room -= end - span.start
            if end < span.end:
                rest.append(Span(span.queue, end, span.end))
        yield piece
        left = rest
