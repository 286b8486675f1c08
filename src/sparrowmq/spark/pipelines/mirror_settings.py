"""What is mirrored from where to where, and how it is said to the source and to the sink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.names import check_group
from sparrowmq.spark.option_types import EARLIEST, LATEST, pattern
from sparrowmq.spark.options import ReadOptions, WriteOptions
from sparrowmq.spark.pipelines.mirror_rows import check_name, check_topic
from sparrowmq.spark.pipelines.mirror_sides import Side

TASKS: Final = 8
"""At most so many tasks read a batch, on every machine: one that runs again elsewhere is cut the same way."""
RETRIES: Final = 60
"""A send is tried for about two minutes: a broker may start again meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorSettings:
    """What is mirrored from cluster `source` to cluster `target`. Exactly one of `topics` and `pattern`."""

    directory: str | Path
    """The mirror's own, with its checkpoint; the driver and all executors see it under this name."""
    source: str
    """The name of the source cluster, the same in all mirrors; it travels with the messages."""
    target: str
    """The name of the target cluster."""
    target_name_server: str
    """`host:port;…` of the target."""
    name_server: str = ""
    """Of the source; by default from `SPARROW_NAMESRV` or `NAMESRV_ADDR`."""
    topics: tuple[str, ...] = ()
    pattern: str = ""
    """A regular expression that whole topic names match; new ones are picked up."""
    start: str = EARLIEST
    """`earliest` or `latest`: where the first run begins. Later topics and queues are mirrored whole."""
    follow: bool = False
    """Go on until stopped; else end with what is there now."""
    every: float = 1.0
    """With `follow`: seconds between the starts of batches."""
    batch_rows: int = 100_000
    """Messages of one batch at most."""
    create_topics: bool = True
    """Make topics at the target, with as many queues, and let them grow with the source's."""
    target_cluster: str = ""
    """The cluster of the target's name servers in which topics are made; by default all they know."""
    groups: tuple[str, ...] = ()
    """Consumer groups whose offsets follow at the target."""
    group_pattern: str = ""
    """And those whose whole names match this regular expression."""
    groups_every: float = 10.0
    """Seconds between two looks at groups, and at topics and queues without messages."""
    fail_on_data_loss: bool = True
    options: Mapping[str, str] = field(default_factory=dict)
    """More options of the source."""
    target_options: Mapping[str, str] = field(default_factory=dict)
    """More options of the sink, such as its account."""

    def __post_init__(self) -> None:
        if bool(self.topics) == bool(self.pattern):
            raise SettingsError("a mirror takes topics or a pattern, one of the two")
        check_name("source", self.source)
        check_name("target", self.target)
        if self.source == self.target:
            raise SettingsError(f"source and target are both called {self.source!r}; give them two names")
        if not self.target_name_server:
            raise SettingsError("a mirror needs target_name_server, such as 10.0.0.2:9876")
        if self.start not in (EARLIEST, LATEST):
            raise SettingsError(f"start={self.start!r}: it takes {EARLIEST} or {LATEST}")
        for name, value, least in (
            ("every", self.every, 0),
            ("batch_rows", self.batch_rows, 1),
            ("groups_every", self.groups_every, 0),
        ):
            if value < least:
                raise SettingsError(f"{name}={value}: it takes {least} or more")
        for topic in self.topics:
            check_topic(topic)
        if "%" in self.pattern:
            raise SettingsError(
                f"pattern={self.pattern!r}: retry topics are not mirrored; name topics of dead letters one "
                "by one"
            )
        for group in self.groups:
            check_group(group)
        if self.group_pattern:
            pattern("group_pattern", self.group_pattern)

    @property
    def source_options(self) -> dict[str, str]:
        """Options of every read of the topics."""
        found = {
            "failOnDataLoss": str(self.fail_on_data_loss).lower(),
            "maxPartitions": str(TASKS),
            **self.options,
        }
        if self.name_server:
            found["nameServer"] = self.name_server
        if self.topics:
            found["subscribe"] = ",".join(self.topics)
        else:
            found["subscribePattern"] = self.pattern
        return found

    @property
    def sink_options(self) -> dict[str, str]:
        """Options of every write."""
        return {"retries": str(RETRIES), **self.target_options, "nameServer": self.target_name_server}

    @property
    def sides(self) -> tuple[Side, Side]:
        """Source and target. Raises `SettingsError` for wrong options."""
        return (
            Side.of(self.source, ReadOptions.parse(self.source_options, "stream")),
            Side.of(self.target, WriteOptions.parse(self.sink_options)),
        )
