"""The settings of a replay: the source, the target, and which values stay the same in every run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import PROPERTY_SHARDING_KEY
from sparrowmq.core.names import dlq_topic
from sparrowmq.spark.offsets.offsets import Span
from sparrowmq.spark.options.table import connection_options
from sparrowmq.spark.pipelines.common import directories
from sparrowmq.spark.pipelines.common.source import WholeSource, check_least, check_times
from sparrowmq.spark.pipelines.replay.directory import ReplayDirectory

TOPIC: Final = "{topic}"
"""In `to` it stands for the source topic of a message."""
DEFAULTS: Final[Mapping[str, str]] = {
    "body": "body",
    "tags": "tags",
    "keys": "keys",
    "properties": "properties",
    "sharding_key": f"properties['{PROPERTY_SHARDING_KEY}']",
}
"""The columns to send, as expressions over the source's columns."""
_FREE: Final = frozenset(
    "failondataloss batchrows batchbytes prefetchbatches pullsinflight fetchoffset.numretries "
    "fetchoffset.retryintervalms".split()
)
"""Options of the source that do not change what is read, besides those of the connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings(WholeSource):
    """A replay's source and target. One source: topics (or ranges of queues), an archive (without topics: all
    in it), a group's dead letters. Of the source's `options`, those of the connection and of speed.
    """

    home: str | Path
    """The replay's directory, a path or a URI of a file system of Spark's. A stopped or killed replay
    continues there.
    """
    to: str
    """The target topic; `{topic}` in it stands for a message's source topic."""
    archive: str | Path | None = None
    """Read an archive instead of the live log."""
    dead_letters_of: str = ""
    """Read the dead letters of a consumer group."""
    ranges: tuple[Span, ...] = ()
    """Only these offsets; a queue may occur several times."""
    since: int | None = None
    """Only messages stored at or after this time, epoch milliseconds."""
    until: int | None = None
    """Only messages stored before this time, epoch milliseconds."""
    to_name_server: str = ""
    """The target cluster, if it is another one."""
    tags: str = ""
    """Only messages with one of these tags, `created || paid`; brokers filter."""
    sql92: str = ""
    """Only messages whose properties match this filter; brokers filter, so not with an archive."""
    where: str = ""
    """Only messages that match this Spark SQL condition over the source's columns and `text`."""
    values: Mapping[str, str] = field(default_factory=dict)
    """Replacements for stored values: SQL expressions by name, of `body`, `tags`, `keys`, `properties` and
    `sharding_key`.
    """
    ids: Literal["renew", "keep"] = "renew"
    """Create new unique ids, the same in every attempt; otherwise messages keep theirs."""
    keep_order: bool = True
    """A queue's messages go to one queue, in order; otherwise they are spread over all."""
    mark: bool = True
    """Add the properties `SPARROW_REPLAY` and `SPARROW_ORIGIN`."""
    rate: int | None = None
    """Maximum messages per second."""
    batch_rows: int = 100_000
    """Maximum messages of a part."""
    tasks: int = 2
    """Number of concurrent tasks; one with a rate limit."""
    to_options: Mapping[str, str] = field(default_factory=dict)
    """More options of the sink."""

    def __post_init__(self) -> None:
        self._check_source()
        check_least(self, rate=1, batch_rows=1, tasks=1)
        check_times(self.since, self.until)
        if self.ids not in ("renew", "keep"):
            raise SettingsError(f"ids={self.ids!r}: must be renew or keep", "ids", self.ids)
        unknown = [name for name in self.values if name not in DEFAULTS]
        if unknown:
            text = f"values has {unknown[0]!r}; it may have {', '.join(DEFAULTS)}"
            raise SettingsError(text, "values", unknown[0])
        for name in self.options:
            if name.lower() not in _FREE and not connection_options({name: ""}):
                raise SettingsError(
                    f"option {name} would change what is replayed; use the replay's settings instead. Only "
                    f"options of the connection and of speed are allowed",
                    "options",
                    name,
                )

    def _check_source(self) -> None:
        if not self.to:
            raise SettingsError(
                f"a replay needs a target topic; to={TOPIC!r} is each message's original topic",
                "to",
            )
        live = bool(self.topics or self.ranges)
        if self.dead_letters_of and (live or self.archive is not None):
            text = "dead_letters_of cannot be combined with topics, ranges or archive"
            raise SettingsError(text, "dead_letters_of", self.dead_letters_of)
        if not self.dead_letters_of and not live and self.archive is None:
            text = "a replay needs a source: topics, ranges, an archive or dead_letters_of"
            raise SettingsError(text, "topics")
        if self.dead_letters_of and TOPIC in self.to:
            raise SettingsError(
                f"to={self.to!r}: dead letters need the name of a target topic", "to", self.to
            )
        if self.sql92 and self.archive is not None:
            text = "sql92 is for brokers; use tags and where for an archive"
            raise SettingsError(text, "sql92", self.sql92, other="archive")
        if self.sql92 and self.tags:
            text = "tags and sql92 are both given; sql92 takes TAGS = 'a' as well"
            raise SettingsError(text, "sql92", self.sql92, other="tags")

    @property
    def sources(self) -> tuple[str, ...]:
        """The topics to read; empty means all of an archive."""
        if self.dead_letters_of:
            return (dlq_topic(self.dead_letters_of),)
        return self.topics or tuple(sorted({span.queue.topic for span in self.ranges}))

    def _options(self) -> dict[str, str]:
        filters = {"tags": self.tags, "sql92": self.sql92}
        return {**WholeSource._options(self), **{name: text for name, text in filters.items() if text}}

    def sink_options(self, source: str) -> dict[str, str]:
        """Options of every write of messages from a topic."""
        found = connection_options(self.options)
        if self.name_server:
            found["nameServer"] = self.name_server
        if self.to_name_server:
            found = {"nameServer": self.to_name_server}
        return {**found, **self.to_options, "topic": self.to.replace(TOPIC, source)}

    @property
    def names_queues(self) -> bool:
        """Whether each row names its queue, so that the sink has no choice."""
        return self.keep_order and "sharding_key" not in self.values

    @property
    def asked(self) -> dict[str, Any]:
        """The values that decide which messages are sent, and how: the same in every run of a replay."""
        return {
            "archive": "" if self.archive is None else directories.named(self.archive),
            "topics": list(self.topics),
            "dead_letters_of": self.dead_letters_of,
            "ranges": [[str(span.queue), span.start, span.end] for span in self.ranges],
            "since": self.since,
            "until": self.until,
            "name_server": self.name_server,
            "to": self.to,
            "to_name_server": self.to_name_server,
            "tags": self.tags,
            "sql92": self.sql92,
            "where": self.where,
            "values": dict(sorted(self.values.items())),
            "ids": self.ids,
            "keep_order": self.keep_order,
            "mark": self.mark,
        }

    @property
    def replay_directory(self) -> ReplayDirectory:
        """The replay's directory. Raises `SettingsError` for an impossible location."""
        return ReplayDirectory(self.home)
