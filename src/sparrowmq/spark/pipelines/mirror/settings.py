"""The settings of a mirror, and the options of the source and the sink that follow from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.names import check_group
from sparrowmq.spark.options.table import ReadOptions, WriteOptions
from sparrowmq.spark.options.values import pattern
from sparrowmq.spark.pipelines.common.source import FollowedSource, check_least
from sparrowmq.spark.pipelines.mirror.clusters import Side
from sparrowmq.spark.pipelines.mirror.rows import check_name, check_topic

TASKS: Final = 8
"""Maximum tasks that read a batch, on every machine: a repeated batch is divided in the same way
elsewhere.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorSettings(FollowedSource):
    """What is mirrored from cluster `source` to cluster `target`. Exactly one of `topics` and `pattern`."""

    directory: str | Path
    """The mirror's directory, with its checkpoint; the driver and all executors must have it
    under this path.
    """
    source: str
    """The name of the source cluster, the same in all mirrors; messages carry it."""
    target: str
    """The name of the target cluster."""
    target_name_server: str
    """`host:port;…` of the target."""
    create_topics: bool = True
    """Create topics at the target, with as many queues, and extend them when the source's grow."""
    target_cluster: str = ""
    """The cluster of the target's name servers in which topics are created; by default all known ones."""
    groups: tuple[str, ...] = ()
    """Consumer groups whose offsets are mirrored."""
    group_pattern: str = ""
    """A regular expression for further groups; it must match the whole name."""
    groups_every: float = 10.0
    """Seconds between two checks of groups, and of topics and queues without messages."""
    target_options: Mapping[str, str] = field(default_factory=dict)
    """More options of the sink, such as its account."""

    def __post_init__(self) -> None:
        self.check_followed("a mirror")
        check_least(self, groups_every=0)
        check_name("source", self.source)
        check_name("target", self.target)
        if self.source == self.target:
            raise SettingsError(
                f"source and target are both called {self.source!r}; give them different names",
                "target",
                self.target,
                other="source",
            )
        if not self.target_name_server:
            text = "a mirror needs target_name_server, such as 10.0.0.2:9876"
            raise SettingsError(text, "target_name_server")
        for topic in self.topics:
            check_topic(topic)
        if "%" in self.pattern:
            raise SettingsError(
                f"pattern={self.pattern!r}: retry topics are not mirrored; name each dead-letter topic",
                "pattern",
                self.pattern,
            )
        for group in self.groups:
            check_group(group)
        if self.group_pattern:
            pattern("group_pattern", self.group_pattern)

    def _options(self) -> dict[str, str]:
        return {"maxPartitions": str(TASKS), **FollowedSource._options(self)}

    @property
    def sink_options(self) -> dict[str, str]:
        """Options of every write."""
        return {**self.target_options, "nameServer": self.target_name_server}

    @property
    def lost_brokers(self) -> frozenset[str]:
        """Brokers of the target that are lost for good. Raises `SettingsError` for wrong options."""
        return WriteOptions.parse(self.sink_options).lost_brokers

    @property
    def sides(self) -> tuple[Side, Side]:
        """Source and target. Raises `SettingsError` for wrong options."""
        return (
            Side.of(self.source, ReadOptions.parse(self.source_options, "stream")),
            Side.of(self.target, WriteOptions.parse(self.sink_options)),
        )
