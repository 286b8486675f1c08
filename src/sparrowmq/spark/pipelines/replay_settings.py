"""The settings of a replay: what is read, what is sent where, and what of it stays the same in every run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from sparrowmq.columnar.encode import PROPERTY_SHARDING_KEY
from sparrowmq.core.errors import SettingsError
from sparrowmq.core.names import dlq_topic
from sparrowmq.spark.offsets import Span
from sparrowmq.spark.pipelines import homes, writing
from sparrowmq.spark.pipelines.archive_home import directory
from sparrowmq.spark.pipelines.replay_home import ReplayHome

TOPIC: Final = "{topic}"
"""In `to` it stands for the topic that messages come from."""
DEFAULTS: Final[Mapping[str, str]] = {
    "body": "body",
    "tags": "tags",
    "keys": "keys",
    "properties": "properties",
    "sharding_key": f"properties['{PROPERTY_SHARDING_KEY}']",
}
"""What is sent, as expressions over the source's columns."""
_FREE: Final = frozenset(
    "failondataloss batchrows batchbytes prefetchbatches pullsinflight pulltimeoutms fetchoffset.numretries "
    "fetchoffset.retryintervalms".split()
)
"""Options of the source that change nothing of what is read, beside those of the connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings:
    """What is sent where. One source: topics (or ranges of queues), an archive, a group's dead letters."""

    home: str | Path
    """The replay's directory; a replay that was stopped or killed goes on there."""
    to: str
    """The topic to send to; `{topic}` in it stands for the one a message comes from."""
    topics: tuple[str, ...] = ()
    """Topics to read; with an archive and none, all that it has."""
    archive: str | Path | None = None
    """Read an archive, not the live log."""
    dead_letters_of: str = ""
    """Read the dead letters of a consumer group."""
    ranges: tuple[Span, ...] = ()
    """Only these offsets; each queue may come several times."""
    since: int | None = None
    """Only what was stored at or after it, epoch milliseconds."""
    until: int | None = None
    """Only what was stored before it, epoch milliseconds."""
    name_server: str = ""
    """`host:port;…`; by default from `SPARROW_NAMESRV` or `NAMESRV_ADDR`."""
    to_name_server: str = ""
    """The cluster to send to, if it is another."""
    tags: str = ""
    """Only messages with one of these tags, `created || paid`; brokers look."""
    sql92: str = ""
    """Only messages whose properties this holds for; brokers look, so not with an archive."""
    where: str = ""
    """Only messages that this Spark SQL condition over the source's columns and `text` holds for."""
    values: Mapping[str, str] = field(default_factory=dict)
    """What to send in place of what was stored: SQL expressions by name, of `body`, `tags`, `keys`,
    `properties` and `sharding_key`.
    """
    ids: Literal["renew", "keep"] = "renew"
    """New unique ids, the same in every try; or those that messages have."""
    keep_order: bool = True
    """A queue's messages go to one queue, in order; else they are spread over all."""
    mark: bool = True
    """Give messages the properties `SPARROW_REPLAY` and `SPARROW_ORIGIN`."""
    rate: int | None = None
    """Messages a second at most."""
    batch_rows: int = 100_000
    """Messages of a part at most."""
    tasks: int = 2
    """Tasks that send at once; one with a rate."""
    fail_on_data_loss: bool = True
    options: Mapping[str, str] = field(default_factory=dict)
    """More options of the source: of the connection, of speed."""
    to_options: Mapping[str, str] = field(default_factory=dict)
    """More options of the sink."""

    def __post_init__(self) -> None:
        self._check_source()
        for name, value, least in (
            ("rate", self.rate, 1),
            ("batch_rows", self.batch_rows, 1),
            ("tasks", self.tasks, 1),
        ):
            if value is not None and value < least:
                raise SettingsError(f"{name}={value}: it takes {least} or more")
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise SettingsError(f"since={self.since} is not before until={self.until}")
        if self.ids not in ("renew", "keep"):
            raise SettingsError(f"ids={self.ids!r}: it takes renew or keep")
        unknown = [name for name in self.values if name not in DEFAULTS]
        if unknown:
            raise SettingsError(f"values has {unknown[0]!r}; it takes {', '.join(DEFAULTS)}")
        for name in self.options:
            if name.lower() not in _FREE and not writing.connection({name: ""}):
                raise SettingsError(
                    f"option {name} would change what is replayed; settings say that. It takes options of "
                    "the connection and of speed"
                )

    def _check_source(self) -> None:
        if not self.to:
            raise SettingsError(f"a replay needs to, a topic; to={TOPIC!r} is the one messages come from")
        live = bool(self.topics or self.ranges)
        if self.dead_letters_of and (live or self.archive is not None):
            raise SettingsError(
                "dead_letters_of is a source of its own: leave out topics, ranges and archive"
            )
        if not self.dead_letters_of and not live and self.archive is None:
            raise SettingsError("a replay needs a source: topics, ranges, an archive or dead_letters_of")
        if self.dead_letters_of and TOPIC in self.to:
            raise SettingsError(f"to={self.to!r}: dead letters need a topic to go to, by its name")
        if self.sql92 and self.archive is not None:
            raise SettingsError("sql92 is for brokers; an archive is narrowed by tags and where")
        if self.sql92 and self.tags:
            raise SettingsError("tags and sql92 are both given; sql92 takes TAGS = 'a' as well")

    @property
    def sources(self) -> tuple[str, ...]:
        """The topics that are read; none means all of an archive."""
        if self.dead_letters_of:
            return (dlq_topic(self.dead_letters_of),)
        return self.topics or tuple(sorted({span.queue.topic for span in self.ranges}))

    @property
    def source_options(self) -> dict[str, str]:
        """Options of every read of the cluster."""
        found = {"failOnDataLoss": str(self.fail_on_data_loss).lower(), **self.options}
        if self.name_server:
            found["nameServer"] = self.name_server
        if self.tags:
            found["tags"] = self.tags
        if self.sql92:
            found["sql92"] = self.sql92
        return found

    def sink_options(self, source: str) -> dict[str, str]:
        """Options of every write of what comes from a topic."""
        found = writing.connection(self.options)
        if self.name_server:
            found["nameServer"] = self.name_server
        if self.to_name_server:
            found = {"nameServer": self.to_name_server}
        return {**found, **self.to_options, "topic": self.to.replace(TOPIC, source)}

    @property
    def may_lose(self) -> bool:
        """Whether it goes on when messages were deleted before they were read."""
        given = [text for name, text in self.options.items() if name.lower() == "failondataloss"]
        return given[-1].strip().lower() == "false" if given else not self.fail_on_data_loss

    @property
    def asked(self) -> dict[str, Any]:
        """What decides which messages are sent, and how: the same in every run of a replay."""
        return {
            "archive": "" if self.archive is None else str(directory(self.archive)),
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
    def replay_home(self) -> ReplayHome:
        """The replay's directory. Raises `SettingsError` for one that cannot hold it."""
        return ReplayHome(homes.directory(self.home, "replay"))
