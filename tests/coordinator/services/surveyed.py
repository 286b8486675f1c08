"""Brokers' tables and disks of a fake cluster as housekeeping services see them; repairs change them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from sparrowmq.coordinator.upkeep.landscape import BrokerTables, Landscape, Loss, Use
from sparrowmq.coordinator.upkeep.logs import DiskSurvey
from sparrowmq.core.errors import SparrowError
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.bodies import SubscriptionGroupConfig, TopicConfig


class MadeUpSurvey:
    """A `SurveyView` with prepared answers. `refuses` is the error of repairs."""

    def __init__(self) -> None:
        self.sight = DiskSurvey()
        self.land = Landscape()
        self.used = Use()
        self.lost: list[Loss] = []
        self.unread: dict[str, str] = {}
        self.cuts: dict[str, int] = {}
        self.refuses: SparrowError | None = None
        self.deaf = False
        """Repairs are answered, and change nothing."""
        self.done: list[str] = []

    async def disks(self) -> DiskSurvey:
        return self.sight

    async def losses(self, before_ms: Mapping[str, int]) -> tuple[list[Loss], dict[str, str]]:
        self.cuts = dict(before_ms)
        return self.lost, self.unread

    async def landscape(self, *, ends: bool = True, offsets: bool = True) -> Landscape:
        return self.land if ends else replace(self.land, ends={})

    async def use(self) -> Use:
        return self.used

    async def put_topic(self, broker: str, config: TopicConfig) -> None:
        self._change(
            broker, lambda one: replace(one, topics={**one.topics, config.topic_name: config}), "put_topic"
        )

    async def put_group(self, broker: str, config: SubscriptionGroupConfig) -> None:
        self._change(
            broker, lambda one: replace(one, groups={**one.groups, config.group_name: config}), "put_group"
        )

    async def set_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        def moved(one: BrokerTables) -> BrokerTables:
            return replace(one, offsets={**one.offsets, group: {**one.offsets[group], queue: offset}})

        self._change(queue.broker_name, moved, "set_offset")

    async def clear_topic(self, broker: str, topic: str) -> None:
        def cleared(one: BrokerTables) -> BrokerTables:
            return replace(
                one,
                offsets={
                    group: {queue: at for queue, at in offsets.items() if queue.topic != topic}
                    for group, offsets in one.offsets.items()
                },
            )

        self._change(broker, cleared, "clear_topic")

    async def unlist_topic(self, topic: str) -> None:
        self._allowed("unlist_topic")
        if not self.deaf:
            self.land = replace(
                self.land, listed={at: topics - {topic} for at, topics in self.land.listed.items()}
            )

    async def close(self) -> None:
        """Do nothing."""

    def _change(self, broker: str, how: Callable[[BrokerTables], BrokerTables], what: str) -> None:
        self._allowed(what)
        if not self.deaf:
            brokers = [how(one) if one.name == broker else one for one in self.land.brokers]
            self.land = replace(self.land, brokers=brokers)

    def _allowed(self, what: str) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.done.append(what)
