"""Tables of topics, groups and names, and the versions that show whether they changed (remoting:4.1, 4.4)."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from msgspec import field

from sparrowmq.protocol.bodies.base import Body, Int32, Int64
from sparrowmq.protocol.java_json import dumps


class DataVersion(Body, frozen=True):
    """Version of a table; two are equal only if all three members are. `timestamp` is epoch milliseconds."""

    counter: Int64 = 0
    state_version: Int64 = 0
    timestamp: Int64 = 0

    def bumped(self, now_ms: int) -> DataVersion:
        """The version after one more change (broker:1.4)."""
        return DataVersion(self.counter + 1, self.state_version, now_ms)


class TopicConfig(Body, frozen=True, kw_only=True, gc=False):
    """One topic on one broker. `perm` bits: 1 inherit, 2 write, 4 read."""

    attributes: dict[str, str] = field(default_factory=dict)
    order: bool = False
    perm: Int32 = 6
    read_queue_nums: Int32 = 16
    topic_filter_type: str = "SINGLE_TAG"
    topic_name: str
    topic_sys_flag: Int32 = 0
    write_queue_nums: Int32 = 16


class TopicConfigList(Body, frozen=True):
    """Several topics to create or change (18)."""

    topic_config_list: list[TopicConfig] = field(default_factory=list)


class TopicConfigTable(Body, frozen=True):
    """Topics of a broker, as in `topics.json`, in answers to code 21 and in registrations."""

    data_version: DataVersion = DataVersion()
    topic_config_table: dict[str, TopicConfig] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Compact JSON, in one C call: it contains no None and may have 100,000 topics."""
        return dumps(self)


class MasterTopicTable(TopicConfigTable, frozen=True):
    """The same as our brokers answer code 21, with the member `births` of `topics.json`."""

    births: dict[str, Int64] = field(default_factory=dict)


class BrokerTopicTable(Body, frozen=True):
    """The response to code 21 for tools, with the mappings of RocketMQ 5's static topics."""

    topic_config_table: dict[str, TopicConfig] = field(default_factory=dict)
    topic_queue_mapping_detail_map: dict[str, Any] = field(default_factory=dict)


class OffsetTable(Body, frozen=True):
    """Committed offsets by queue id of each `topic@group` (43)."""

    offset_table: dict[str, dict[int, Int64]] = field(default_factory=dict)


class SubscriptionGroupConfig(Body, frozen=True, kw_only=True):
    """Settings of one consumer group (remoting:4.4)."""

    attributes: dict[str, str] = field(default_factory=dict)
    broker_id: Int64 = 0
    consume_broadcast_enable: bool = True
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_message_orderly: bool = False
    consume_timeout_minute: Int32 = 15
    group_name: str
    group_retry_policy: dict[str, Any] = field(default_factory=lambda: {"type": "CUSTOMIZED"})
    group_sys_flag: Int32 = 0
    notify_consumer_ids_changed_enable: bool = True
    retry_max_times: Int32 = 16
    retry_queue_nums: Int32 = 1
    subscription_data_set: list[dict[str, Any]] | None = None
    which_broker_when_consume_slowly: Int64 = 1


class SubscriptionGroupTable(Body, frozen=True):
    """Groups of a broker; `forbidden_table` has bits per group and topic."""

    data_version: DataVersion = DataVersion()
    forbidden_table: dict[str, dict[str, Int32]] = field(default_factory=dict)
    subscription_group_table: dict[str, SubscriptionGroupConfig] = field(default_factory=dict)

    def encoding(self) -> Generator[None, None, bytes]:
        """The same as `encode`, one group per step, because a broker may have 100,000."""
        groups = []
        for name, config in self.subscription_group_table.items():
            groups.append(dumps(name) + b":" + config.encode())
            yield
        head = SubscriptionGroupTable(self.data_version, self.forbidden_table).encode()
        return b"".join((head.removesuffix(b"{}}"), b"{", b",".join(groups), b"}}"))


class TopicList(Body, frozen=True):
    """Names of topics; `broker_addr` is some broker's address in answers that name one."""

    topic_list: list[str] = field(default_factory=list)
    broker_addr: str | None = None


class GroupList(Body, frozen=True):
    """Names of groups."""

    group_list: list[str] = field(default_factory=list)


class ConsumerList(Body, frozen=True):
    """Client ids of a group's members."""

    consumer_id_list: list[str] = field(default_factory=list)


class KVTable(Body, frozen=True):
    """Keys and values."""

    table: dict[str, str] = field(default_factory=dict)


class ProducerNumbers(Body, frozen=True):
    """What a queue has of an idempotent producer: the numbers 0 to `last` of `epoch`; the first one is not
    before offset `begins_at`.
    """

    epoch: int
    last: int
    begins_at: int = 0


class ProducersEnd(Body, frozen=True):
    """The answer to END_PRODUCERS (90301): the first epoch from which a family's marks are accepted, 0 for
    all; and the state of a producer that was asked for.
    """

    epoch: int = 0
    note: str = ""
    state: ProducerNumbers | None = None


class RetentionHold(Body, frozen=True):
    """One hold and its state: its oldest message, -1 without any; `overrun` is the reason why it was
    overridden.
    """

    topic: str
    group: str
    hours: int
    size_max: int = 0
    messages: int = 0
    position: int = -1
    stored: int = -1
    overrun: str = ""


class RetentionHoldList(Body, frozen=True):
    """The answer to GET_RETENTION_HOLDS (90103)."""

    holds: list[RetentionHold] = field(default_factory=list)
