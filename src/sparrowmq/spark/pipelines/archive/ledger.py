"""Contents of an archive: units of data, and the spans of queues that each unit covers. Pure.

A unit is one published directory: a batch, a backfill or several of them merged. Spans of different units
never overlap, so no message is in an archive twice, even if another query wrote it or a checkpoint was lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.offsets.offsets import Span
from sparrowmq.spark.pipelines.common.notes import check_version, reading

VERSION: Final = 1


class ArchiveError(SettingsError):
    """An archive does not fit the requested operation; the text names directory, queue and offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveUnit:
    """One published directory, `batch=<number>`."""

    number: int
    spans: tuple[Span, ...]
    """The offsets it covers, sorted; lost and filtered messages are included."""
    rows: int
    size: int
    """Bytes of its Parquet files."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Spark types by column name, as in the files."""
    done: Mapping[str, int] = field(default_factory=dict)
    """The last batch it contains of each streaming query, by query id."""

    def to_json(self) -> dict[str, Any]:
        """As a JSON value."""
        return {
            "version": VERSION,
            "number": self.number,
            "rows": self.rows,
            "size": self.size,
            "spans": [
                [one.queue.topic, one.queue.broker_name, one.queue.queue_id, one.start, one.end]
                for one in self.spans
            ],
            "columns": dict(self.columns),
            "done": dict(self.done),
        }

    @classmethod
    def from_text(cls, text: str, where: object) -> ArchiveUnit:
        """The inverse of `to_json` as text. Raises `ArchiveError` naming `where`."""
        with reading("a unit of an archive", where, ArchiveError):
            return cls.from_json(json.loads(text), where)

    @classmethod
    def from_json(cls, value: Any, where: object) -> ArchiveUnit:
        """The inverse of `to_json`. Raises `ArchiveError` naming `where`."""
        with reading("a unit of an archive", where, ArchiveError):
            check_version(value, VERSION, where, ArchiveError)
            return cls(
                number=int(value["number"]),
                spans=tuple(
                    Span(MessageQueue(topic, broker, queue_id), start, end)
                    for topic, broker, queue_id, start, end in value["spans"]
                ),
                rows=int(value["rows"]),
                size=int(value["size"]),
                columns=dict(value["columns"]),
                done={str(query): int(batch) for query, batch in value["done"].items()},
            )


class ArchiveLedger:
    """All units of an archive, by number."""

    def __init__(self, units: Iterable[ArchiveUnit] = ()) -> None:
        self.units: tuple[ArchiveUnit, ...] = tuple(sorted(units, key=lambda unit: unit.number))
        self._covered = _by_queue(span for unit in self.units for span in unit.spans)

    def __repr__(self) -> str:
        return f"<Ledger {len(self.units)} units, {self.rows} rows>"

    @property
    def rows(self) -> int:
        """Number of messages in the archive."""
        return sum(unit.rows for unit in self.units)

    @property
    def next_number(self) -> int:
        """The number of the next unit."""
        return self.units[-1].number + 1 if self.units else 0

    @property
    def queues(self) -> list[MessageQueue]:
        """Queues with archived messages, sorted."""
        return sorted(self._covered)

    @property
    def columns(self) -> dict[str, str]:
        """Columns of all units with the types of the latest that has them."""
        found: dict[str, str] = {}
        for unit in self.units:
            found.update(unit.columns)
        return found

    def covered(self, queue: MessageQueue) -> tuple[Span, ...]:
        """The archived spans of a queue, sorted, adjacent ones joined."""
        return self._covered.get(queue, ())

    def ends(self) -> dict[MessageQueue, int]:
        """The offset after the last archived one, for each queue."""
        return {queue: spans[-1].end for queue, spans in self._covered.items()}

    def has(self, query: str, batch: int) -> bool:
        """Whether a streaming query's batch is published."""
        return any(unit.done.get(query, -1) >= batch for unit in self.units)

    def with_unit(self, unit: ArchiveUnit) -> ArchiveLedger:
        """A ledger with one more unit. Raises `ArchiveError` if the unit covers an offset a second time."""
        self.check_new(unit.spans)
        return ArchiveLedger((*self.units, unit))

    def check_new(self, spans: Iterable[Span]) -> None:
        """Raise `ArchiveError` if any of `spans` is archived already."""
        for span in spans:
            for old in self.covered(span.queue):
                if old.start < span.end and span.start < old.end:
                    first, last = max(old.start, span.start), min(old.end, span.end) - 1
                    raise ArchiveError(
                        f"offsets {first} to {last} of {span.queue} are already archived; if the topic was "
                        f"recreated, use a new archive for it",
                        what="offsets",
                        value=Span(span.queue, first, last + 1),
                    )

    def missing(self, span: Span) -> list[Span]:
        """The parts of `span` that are not archived, sorted."""
        found, position = list[Span](), span.start
        for old in self.covered(span.queue):
            if old.end <= position:
                continue
            if old.start >= span.end:
                break
            if old.start > position:
                found.append(Span(span.queue, position, old.start))
            position = old.end
        if position < span.end:
            found.append(Span(span.queue, position, span.end))
        return found


def merged(units: Sequence[ArchiveUnit], *, size: int, columns: Mapping[str, str]) -> ArchiveUnit:
    """The unit that replaces `units`; its number is that of the last of them."""
    done: dict[str, int] = {}
    for unit in units:
        for query, batch in unit.done.items():
            done[query] = max(batch, done.get(query, -1))
    spans = _by_queue(span for unit in units for span in unit.spans)
    return ArchiveUnit(
        number=max(unit.number for unit in units),
        spans=tuple(span for queue in sorted(spans) for span in spans[queue]),
        rows=sum(unit.rows for unit in units),
        size=size,
        columns=dict(columns),
        done=done,
    )


def rounds(spans: Iterable[Span]) -> list[list[Span]]:
    """Group the spans so that each queue is in a group once: one batch read takes one span per queue."""
    groups: list[list[Span]] = []
    place: dict[MessageQueue, int] = {}
    for span in sorted(spans):
        index = place.get(span.queue, 0)
        place[span.queue] = index + 1
        if index == len(groups):
            groups.append([])
        groups[index].append(span)
    return groups


def evolve(old: Mapping[str, str], new: Mapping[str, str], where: object) -> dict[str, str]:
    """The columns of an archive after a unit with `new` ones; old rows have nulls in new columns.

    Raises `ArchiveError` when a column changes its type, or the case of its name: readers could not read
    both.
    """
    known = {name.casefold(): name for name in old}
    for name, kind in new.items():
        before = known.get(name.casefold(), name)
        if before != name:
            raise ArchiveError(
                f"column {name!r} differs only in case from column {before!r} of archive {where}; rename "
                f"the column, or start another archive",
                what="case",
                value=name,
                other=before,
            )
        if old.get(name, kind) != kind:
            raise ArchiveError(
                f"column {name!r} has type {old[name]} in archive {where}, but {kind} now; rename the "
                f"column, or start another archive",
                what="type",
                value=name,
                other=old[name],
            )
    return {**old, **new}


def _by_queue(spans: Iterable[Span]) -> dict[MessageQueue, tuple[Span, ...]]:
    """Spans by queue, sorted, adjacent ones joined."""
    found: dict[MessageQueue, list[Span]] = {}
    for span in sorted(spans):
        known = found.setdefault(span.queue, [])
        if known and span.start <= known[-1].end:
            known[-1] = Span(span.queue, known[-1].start, max(known[-1].end, span.end))
        else:
            known.append(span)
    return {queue: tuple(known) for queue, known in found.items()}
