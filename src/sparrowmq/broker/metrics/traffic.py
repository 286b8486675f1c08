"""Messages in and out, by topic and group."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

from sparrowmq.broker.tables.topic_attributes import MESSAGE_TYPE
from sparrowmq.core.figures.exposition import Exposition, Family, labels
from sparrowmq.core.names import DLQ_PREFIX, is_system_group, is_system_topic

if TYPE_CHECKING:
    from sparrowmq.broker.admin.stats import BrokerStats
    from sparrowmq.broker.tables.topics import TopicTable

STEP_ITEMS: Final = 100


class TrafficFigures:
    """Figures of `BrokerStats`, counted since the broker started."""

    def __init__(self, stats: BrokerStats, topics: TopicTable) -> None:
        self._stats = stats
        self._topics = topics

    def collect(self, into: Exposition, node: str) -> Iterator[None]:
        """Add the figures; `node` has the labels of the broker."""
        yield from self._stats.collecting()
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
        dead = into.counter(
            "rocketmq_send_to_dlq_messages_total", "Messages that became dead letters, by the group's topic."
        )
        items = iter(self._stats.totals())
        while piece := list(islice(items, STEP_ITEMS)):
            for name, key, value in piece:
                if (family := by_topic.get(name)) is not None:
                    family.add(self._of_topic(node, key), value)
                    if name == "TOPIC_PUT_NUMS" and key.startswith(DLQ_PREFIX):
                        dead.add(labels(node, consumer_group=key.removeprefix(DLQ_PREFIX), topic=key), value)
                elif (family := by_group.get(name)) is not None:
                    _add_group(family, node, key, value)
            yield
        yield from self._sizes(into, node)

    def _of_topic(self, node: str, topic: str) -> str:
        config = self._topics.configs.get(topic)
        kind = "normal" if config is None else config.attributes.get(MESSAGE_TYPE, "normal").lower()
        system = "true" if is_system_topic(topic) else "false"
        return labels(node, topic=topic, message_type=kind, is_system=system)

    def _sizes(self, into: Exposition, node: str) -> Iterator[None]:
        sizes = self._stats.sizes
        family = into.histogram("rocketmq_message_size", "Bytes of a stored message, all topics together.")
        family.add_histogram(node, sizes.by_bound(), sizes.total)
        yield


def _add_group(family: Family, node: str, key: str, value: int) -> None:
    topic, _, group = key.rpartition("@")
    system = "true" if is_system_topic(topic) or is_system_group(group) else "false"
    family.add(labels(node, topic=topic, consumer_group=group, is_system=system), value)
