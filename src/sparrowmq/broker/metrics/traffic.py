"""Messages in and out, by topic and group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from sparrowmq.broker.tables.topic_attributes import MESSAGE_TYPE
from sparrowmq.core.figures.exposition import Aside, Exposition, Family, labels
from sparrowmq.core.names import DLQ_PREFIX, dlq_topic, is_system_group, is_system_topic

if TYPE_CHECKING:
    from sparrowmq.broker.admin.stats import BrokerStats
    from sparrowmq.broker.tables.groups import GroupTable
    from sparrowmq.broker.tables.topics import TopicTable
    from sparrowmq.protocol.bodies import TopicConfig
    from sparrowmq.store.queues.consume_queue import ConsumeQueue

STEP_ITEMS: Final = 20


class TrafficFigures:
    """Figures of `BrokerStats`, counted since the broker started."""

    def __init__(self, stats: BrokerStats, topics: TopicTable, groups: GroupTable) -> None:
        self._stats = stats
        self._topics = topics
        self._groups = groups

    def collect(self, into: Exposition, node: str) -> Iterator[Aside | None]:
        """Add the figures; `node` has the labels of the broker."""
        grown: list[ConsumeQueue] = []
        yield Aside(self._stats.finding(grown))
        yield from self._stats.counting(grown)
        self._add_sizes(into, node)
        yield Aside(self._adding(into, node))

    def _adding(self, into: Exposition, node: str) -> Iterator[None]:
        """In another thread: it reads single values of items and topics, which the loop may change."""
        topics = self._topics.configs
        by_topic = {
            "TOPIC_PUT_NUMS": into.counter("rocketmq_messages_in_total", "Messages stored."),
            "TOPIC_PUT_SIZE": into.counter("rocketmq_throughput_in_total", "Bytes of the messages stored."),
        }
        by_group = {
            "GROUP_GET_NUMS": into.counter("rocketmq_messages_out_total", "Messages sent to consumers."),
            "GROUP_GET_SIZE": into.counter(
                "rocketmq_throughput_out_total", "Bytes of the messages sent to consumers."
            ),
        }
        dead: dict[str, int] = {}
        for at, ((name, key), item) in enumerate(self._stats.items().items(), 1):
            if at % STEP_ITEMS == 0:
                yield
            if (family := by_topic.get(name)) is not None:
                family.add(_of_topic(node, key, topics.get(key)), item.value)
                if name == "TOPIC_PUT_NUMS" and key.startswith(DLQ_PREFIX):
                    dead[key.removeprefix(DLQ_PREFIX)] = item.value
            elif (family := by_group.get(name)) is not None:
                _add_group(family, node, key, item.value)
        yield from self._add_dead(into, node, dead)

    def _add_dead(self, into: Exposition, node: str, dead: dict[str, int]) -> Iterator[None]:
        """Groups without dead letters have a 0: Prometheus sees no increase in a series that begins."""
        family = into.counter(
            "rocketmq_send_to_dlq_messages_total", "Messages that became dead letters, by the group's topic."
        )
        groups = (group for group in self._groups.configs.copy() if not is_system_group(group))
        for at, group in enumerate({**dead, **dict.fromkeys(groups)}, 1):
            if at % STEP_ITEMS == 0:
                yield
            family.add(labels(node, consumer_group=group, topic=dlq_topic(group)), dead.get(group, 0))

    def _add_sizes(self, into: Exposition, node: str) -> None:
        sizes = self._stats.sizes
        family = into.histogram("rocketmq_message_size", "Bytes of a stored message, all topics together.")
        family.add_histogram(node, sizes.by_bound(), sizes.total)


def _of_topic(node: str, topic: str, config: TopicConfig | None) -> str:
    kind = "normal" if config is None else config.attributes.get(MESSAGE_TYPE, "normal").lower()
    system = "true" if is_system_topic(topic) else "false"
    return labels(node, topic=topic, message_type=kind, is_system=system)


def _add_group(family: Family, node: str, key: str, value: int) -> None:
    topic, _, group = key.rpartition("@")
    system = "true" if is_system_topic(topic) or is_system_group(group) else "false"
    family.add(labels(node, topic=topic, consumer_group=group, is_system=system), value)
