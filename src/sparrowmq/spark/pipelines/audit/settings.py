"""Settings of an audit. Values only; `audit` runs it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import check_group
from sparrowmq.spark.offsets.offsets import Span
from sparrowmq.spark.options import values
from sparrowmq.spark.pipelines.audit.verdict import allowed_of
from sparrowmq.spark.pipelines.common.source import check_least, check_times
from sparrowmq.spark.pipelines.query.stored import Stored, StoredSource

DAY_MS: Final = 86_400_000
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
LEDGER_FORMATS: Final = ("csv", "json", "parquet")
MATCHES: Final = ("id", "keys")
LEDGER_COLUMNS: Final = ("topic", "id", "time")


@dataclass(frozen=True, slots=True)
class AuditedGroup:
    """A consumer group that should have received every message; with `tags`, those with one of the tags."""

    name: str
    tags: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, text: str) -> AuditedGroup:
        """`billing`, or `billing=TagA || TagB`. Raises `InvalidNameError`, `SettingsError`."""
        name, _, tags = text.partition("=")
        check_group(name)
        return cls(name, values.tags(f"group {name}", tags))


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings(StoredSource):
    """Which messages are judged, how, and what is allowed."""

    directory: str | Path
    """Where the verdict and the findings are written, a path or a URI of a file system of Spark's; they
    replace those of an earlier audit.
    """
    groups: tuple[AuditedGroup, ...] = ()
    """Consumer groups that should have received every message; if empty, only sent and stored are compared.
    """
    since: int | None = None
    """Messages sent and stored at or after it, epoch milliseconds; by default a day before `until`."""
    until: int | None = None
    """Messages sent and stored before it; by default now."""
    spans: tuple[Span, ...] = ()
    """Offsets to judge instead of a time; sends are judged for the time in which these were stored."""
    ledger: str = ""
    """Files in which producers record their sends, a path as Spark reads it; if empty, message trace is used.
    """
    ledger_format: str = ""
    """csv (with a header), json (lines) or parquet; by default the extension of the path."""
    ledger_columns: Mapping[str, str] = field(default_factory=dict)
    """SQL expressions over the ledger for `topic`, `id` (what `match` compares) and `time` (a timestamp or
    epoch milliseconds); by default the columns of these names.
    """
    with_sent: bool = True
    """Whether sends are judged at all."""
    match: str = "id"
    """What identifies messages: `id`, the unique id, or `keys`, each of a message's keys."""
    trace_topic: str = TRACE_TOPIC
    """Topic to which clients with `trace=True` write."""
    late_seconds: float = 300.0
    """Allowed time from storing to consuming a message."""
    margin_seconds: float = 60.0
    """Maximum difference between clocks, and maximum delay between a send and its trace."""
    allow: Mapping[str, int] = field(default_factory=dict)
    """Allowed findings by kind (`comparison.Kind`); -1: any number."""
    shown: int = 100
    """Maximum number of findings listed in the verdict's file."""

    def __post_init__(self) -> None:
        if not self.topics:
            raise SettingsError("an audit needs at least one topic", "topics")
        if self.match not in MATCHES:
            raise SettingsError(f"match={self.match!r}: must be {' or '.join(MATCHES)}", "match", self.match)
        if self.match == "keys" and self.groups and len(self.topics) > 1:
            raise SettingsError(
                "consumers' traces do not name the topic: match='keys' with groups allows one topic at a "
                "time",
                "match",
                self.match,
                other="topics",
            )
        check_least(self, late_seconds=0, margin_seconds=0, shown=0)
        self._check_window()
        self._check_ledger()
        allowed_of(self.allow)
        if not self.live and self.archive is None:
            raise SettingsError("without the live log an audit needs an archive", "archive", other="live")
        if not self.with_sent and not self.groups:
            text = "an audit without sends needs a group, or there is nothing to compare"
            raise SettingsError(text, "groups", other="with_sent")

    def _check_window(self) -> None:
        if self.spans and (self.since is not None or self.until is not None):
            raise SettingsError("give either offsets or times for an audit", "spans", other="since")
        check_times(self.since, self.until)
        if len({span.queue for span in self.spans}) < len(self.spans):
            raise SettingsError("offsets name a queue twice; give one range per queue", "spans")
        strange = sorted({span.queue.topic for span in self.spans} - set(self.topics))
        if strange:
            text = f"offsets name topic {strange[0]!r}, which is not audited"
            raise SettingsError(text, "spans", strange[0])

    def _check_ledger(self) -> None:
        if self.ledger and not self.with_sent:
            raise SettingsError(
                f"ledger={self.ledger!r} records sends, which are not checked",
                "ledger",
                self.ledger,
                other="with_sent",
            )
        if self.ledger and self.ledger_kind not in LEDGER_FORMATS:
            raise SettingsError(
                f"ledger={self.ledger!r}: unknown format; give one of {', '.join(LEDGER_FORMATS)}",
                "ledger",
                self.ledger,
            )
        for name in self.ledger_columns:
            if name not in LEDGER_COLUMNS:
                text = f"ledger_columns {name!r}: must be one of {', '.join(LEDGER_COLUMNS)}"
                raise SettingsError(text, "ledger_columns", name)

    @property
    def by_key(self) -> bool:
        """Whether keys identify messages."""
        return self.match == "keys"

    @property
    def ledger_kind(self) -> str:
        """The ledger's format."""
        return self.ledger_format or self.ledger.rstrip("/").rpartition(".")[2].lower()

    @property
    def needs_trace(self) -> bool:
        """Whether message trace is read."""
        return (self.with_sent and not self.ledger) or bool(self.groups)

    @property
    def trace(self) -> Stored:
        """Where traces are: the live log, and the archive if it has their topic."""
        return self.stored.of(self.trace_topic)

    def window(self, now: int) -> tuple[int, int]:
        """The window, with the defaults filled in. Raises `SettingsError` for a time in the future."""
        until = now if self.until is None else self.until
        if until > now:
            raise SettingsError(f"until={until} is in the future; give a time in the past", "until", until)
        return (until - DAY_MS if self.since is None else self.since), until


def spans_from(text: str) -> tuple[Span, ...]:
    """`{"topic": {"broker": {"0": [first, end]}}}` as spans, `end` excluded. Raises `SettingsError`."""
    try:
        found = list(_spans(json.loads(text)))
    except (TypeError, ValueError, AttributeError):
        found = []
    if not found or any(span.start < 0 or span.end <= span.start for span in found):
        raise SettingsError(
            f'offsets {text!r}: give JSON such as {{"orders": {{"broker-a": {{"0": [0, 100]}}}}}}, the first '
            "offset and the one after the last",
            "spans",
            text,
        )
    return tuple(sorted(found))


def _spans(tree: Any) -> Iterable[Span]:
    for topic, brokers in tree.items():
        for broker, queues in brokers.items():
            for queue_id, (start, end) in queues.items():
                yield Span(MessageQueue(topic, broker, int(queue_id)), int(start), int(end))
