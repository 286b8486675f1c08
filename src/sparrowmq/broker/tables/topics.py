"""The broker's topics: what exists, how many queues, what is allowed (broker:6.1, 6.4).

The table is kept in `config/topics.json`, see `TableFile` for when it is saved. System topics are added
before the file is read, so a stored entry of the same name overrides them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from sparrowmq.broker.tables.table_file import TableFile
from sparrowmq.broker.tables.topic_attributes import not_served
from sparrowmq.core.clock import Sleep
from sparrowmq.core.errors import NoRoomError, NoTopicError, StoreCorruptError, StoreError
from sparrowmq.core.names import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    SEND_FORBIDDEN_TOPICS,
    TEMPLATE_TOPIC,
    is_system_topic,
    reply_topic,
)
from sparrowmq.core.route import PERM_INHERIT, PERM_READ, PERM_WRITE
from sparrowmq.protocol.bodies import DataVersion, TopicConfig
from sparrowmq.protocol.sysflag import MULTI_TAGS

if TYPE_CHECKING:
    from sparrowmq.core.clock import Clock
    from sparrowmq.core.settings.servers import BrokerSettings
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.store.queues.consume_queue import ConsumeQueue
    from sparrowmq.store.tables.config_file import ConfigFile

log = logging.getLogger("sparrowmq.broker")

READ_WRITE = PERM_READ | PERM_WRITE
MULTI_TAG = "MULTI_TAG"
MADE_PREFIXES = (RETRY_PREFIX, DLQ_PREFIX)
DELETING = "deleting"
"""Our own member of `topics.json`, present only while a topic is being deleted; RocketMQ ignores it."""
BIRTHS = "births"
"""Our own member: a number by topic that another topic of that name, before or after it, does not have."""
UNKNOWN_BIRTH = 1
"""Of a topic without such a number: a broker that does not give them created it."""


class Queues(dict[int, "ConsumeQueue"]):
    """The queues of a topic by id, below `count`. Each is opened on first use, because most queues of a large
    topic are never used. Nothing else opens a queue in the store, so it has none without a topic.

    Raises `NoTopicError` for an id that the topic does not have.
    """

    __slots__ = ("_count", "_open")

    def __init__(self, count: int, opened: Callable[[int], ConsumeQueue]) -> None:
        self._count = count
        self._open = opened

    def __missing__(self, queue_id: int) -> ConsumeQueue:
        if not 0 <= queue_id < self._count:
            text = f"queue {queue_id}: the topic has {self._count} queues"
            raise NoTopicError(text, what="queue", value=queue_id, limit=self._count)
        queue = self[queue_id] = self._open(queue_id)
        return queue

    def first(self, count: int) -> list[ConsumeQueue]:
        """The queues with the ids below `count`."""
        return [self[queue_id] for queue_id in range(count)]


@dataclass(slots=True, eq=False)
class Topic:
    """A topic with its queues, `queues[id]`; `queue_count` is the larger of its two queue numbers.

    A send to a `special` topic needs the general path; consumers may pull when it is `readable`. Offsets
    belong to one `birth`; it is 0 at a slave, whose table may be late.
    """

    config: TopicConfig
    queues: Queues
    queue_count: int
    sys_flag: int
    special: bool
    readable: bool
    birth: int

    def is_earlier(self, birth: int | None) -> bool:
        """Whether an offset is of an earlier topic of this name: `birth` is the one it belongs to, 0 or None
        if that is unknown."""
        return bool(birth) and self.birth not in (birth, UNKNOWN_BIRTH, 0)

    def is_younger(self, at_ms: int) -> bool:
        """Whether it was created after this moment: a known birth is a time, or a little later."""
        return self.birth > at_ms

    def instead_of(self, queue_id: int) -> int:
        """The queue for a message that the broker puts: the given one, or if consumers cannot read it because
        the topic was shrunk or re-created, `queue_id % count` of its queues to write and read.
        """
        reads, writes = self.config.read_queue_nums, self.config.write_queue_nums
        if queue_id < reads:
            return queue_id
        return queue_id % (min(reads, writes) or self.queue_count)


def system_topics(settings: BrokerSettings) -> list[TopicConfig]:
    """The topics that every broker has (broker:6.1)."""

    def topic(name: str, queues: int = 1, perm: int = READ_WRITE) -> TopicConfig:
        return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)

    inherited = READ_WRITE | PERM_INHERIT
    cluster, broker = settings.broker_cluster_name, settings.broker_name
    topics = [
        topic("SELF_TEST_TOPIC"),
        topic("BenchmarkTest", 1024),
        topic(cluster, 16, inherited),
        topic(broker, 1, inherited),
        topic("OFFSET_MOVED_EVENT"),
        topic("SCHEDULE_TOPIC_XXXX", 18),
        topic("RMQ_SYS_TRANS_HALF_TOPIC"),
        topic("RMQ_SYS_TRANS_OP_HALF_TOPIC"),
        topic(reply_topic(cluster)),
    ]
    if settings.trace_topic_enable:
        topics.append(topic(settings.msg_trace_topic_name))
    if settings.timer_wheel_enable:
        topics.append(topic("rmq_sys_wheel_timer"))
    if settings.auto_create_topic_enable:
        topics.insert(1, topic(TEMPLATE_TOPIC, settings.default_topic_queue_nums, inherited))
    return topics


class Topics(NamedTuple):
    """An immutable copy of the table at one moment."""

    configs: dict[str, TopicConfig]
    version: DataVersion
    deleting: frozenset[str]
    births: dict[str, int]
    change: int = 0
    """Number of changes included in it."""


class TopicTable:
    """All topics of one broker. `version` increases with every change; name servers compare it.

    A topic that is not saved yet counts as special: sends to it wait for the save. `deleting` has the topics
    that were removed from the table while some of their queues or offsets may still exist, see `deletions`.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        file: ConfigFile,
        clock: Clock,
        *,
        pool: Executor | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._store = store
        self._clock = clock
        self._open: dict[str, Topic] = {}
        self.configs = {config.topic_name: config for config in system_topics(settings)}
        self._reserved = frozenset(self.configs)
        self._is_slave = settings.is_slave
        self._topics_max = settings.topics_max
        self._queues_max = settings.queues_max
        self.version = DataVersion(timestamp=clock.now_ms())
        self.deleting: frozenset[str] = frozenset()
        self.births: dict[str, int] = {}
        stored = file.load()
        try:
            self._load(stored)
        except (msgspec.ValidationError, AttributeError, TypeError) as error:
            raise StoreCorruptError(
                f"{file.path} is not a table of topics ({error}); restore or remove it"
            ) from error
        self._queue_count = sum(map(_queue_count, self.configs.values()))
        self._last_birth = max(self.births.values(), default=0)
        self._changes = 0
        self._unsaved: dict[str, int] = {}
        """The last change of each topic whose state on disk differs from the table."""
        self._file = TableFile(file, self._snapshot, _content, pool=pool, settled=self._settle, sleep=sleep)
        self.keep_saving = self._file.run

    def _snapshot(self) -> Topics:
        return Topics(dict(self.configs), self.version, self.deleting, dict(self.births), self._changes)

    def _load(self, data: dict[str, Any]) -> None:
        stored = data.get("topicConfigTable") or {}
        for name, raw in stored.items():
            config = msgspec.convert(raw, TopicConfig, strict=False)
            self.configs[name] = config
            if ignored := not_served(config.attributes):
                log.warning(
                    "topic %s is served as an ordinary one: %s is not supported by this broker; its "
                    "attributes "
                    "are kept",
                    name,
                    ", ".join(ignored),
                )
        self.deleting = frozenset(map(str, data.get(DELETING) or ())) - stored.keys()
        self.births = msgspec.convert(data.get(BIRTHS) or {}, dict[str, int])
        if data.get("dataVersion"):
            self.version = msgspec.convert(data["dataVersion"], DataVersion, strict=False)

    def get(self, name: str) -> Topic | None:
        """The topic with its queues, or None. Opened topics are cached, so this is one dictionary lookup."""
        found = self._open.get(name)
        if found is not None:
            return found
        config = self.configs.get(name)
        return None if config is None else self._opened(config)

    def _opened(self, config: TopicConfig) -> Topic:
        count = _queue_count(config)
        name = config.topic_name
        topic = Topic(
            config=config,
            queues=Queues(count, partial(self._store.queue, name)),
            queue_count=count,
            sys_flag=MULTI_TAGS if config.topic_filter_type == MULTI_TAG else 0,
            special=_is_special(name) or name in self._unsaved,
            readable=bool(config.perm & PERM_READ),
            birth=0 if self._is_slave else self.births.get(name, UNKNOWN_BIRTH),
        )
        self._open[name] = topic
        return topic

    @property
    def queue_count(self) -> int:
        """Queues of all topics, as `queuesMax` counts them."""
        return self._queue_count

    def is_unsaved(self, name: str) -> bool:
        """Whether a crash now would lose the topic."""
        return name in self._unsaved

    def is_going(self, name: str) -> bool:
        """Whether the topic is being deleted; it cannot be created again until the deletion is complete."""
        return name in self.deleting

    def close(self, name: str) -> None:
        """Drop the opened queues of a topic: the store deleted some of them."""
        self._open.pop(name, None)

    def is_reserved(self, name: str) -> bool:
        """Whether RocketMQ or this broker reserves the name."""
        return name in self._reserved or is_system_topic(name)

    def birth(self, name: str) -> int:
        """The topic's birth; 0 if it is unknown here."""
        topic = self.get(name)
        return 0 if topic is None else topic.birth

    def put_soon(self, config: TopicConfig, *, always: bool = False) -> bool:
        """Create or change a topic; it is on disk after `kept`, or soon.

        False when the topic already has this configuration, or while it is being deleted. Raises
        `NoRoomError` when the limit of topics or queues is exceeded; `always` ignores the limit. A topic
        whose messages are still there is not a new one: a crash lost it, and offsets in it stay valid.
        """
        name = config.topic_name
        if self.configs.get(name) == config or name in self.deleting:
            return False
        if not always:
            self.check_room([config])
        if name not in self.configs and not any(queue.max_offset for queue in self._store.queues(name)):
            self._last_birth = self.births[name] = max(self._clock.now_ms(), self._last_birth + 1)
        self._set(name, config)
        self._changed()
        self._unsaved[name] = self._changes
        self._open.pop(name, None)
        return True

    def check_room(self, configs: Iterable[TopicConfig]) -> None:
        """Raise `NoRoomError` if these topics would exceed the limit of topics or queues."""
        wanted = {config.topic_name: config for config in configs}
        new = sum(name not in self.configs for name in wanted)
        if new and len(self.configs) + new > self._topics_max:
            raise NoRoomError(
                f"this broker has {len(self.configs)} topics and the limit is {self._topics_max}: delete "
                "some, or raise topicsMax",
                limit=self._topics_max,
            )
        queues = sum(
            _queue_count(one) - _queue_count(self.configs.get(one.topic_name)) for one in wanted.values()
        )
        if queues > 0 and self._queue_count + queues > self._queues_max:
            raise NoRoomError(
                f"the topics of this broker have {self._queue_count} queues, {queues} more are requested "
                f"and the limit is {self._queues_max}: delete topics, or raise queuesMax",
                limit=self._queues_max,
            )

    def _set(self, name: str, config: TopicConfig | None) -> None:
        """Put a topic into the table, or remove it."""
        self._queue_count += _queue_count(config) - _queue_count(self.configs.get(name))
        if config is not None:
            self.configs[name] = config
        else:
            self.configs.pop(name, None)
            self.births.pop(name, None)

    async def kept(self, names: Iterable[str]) -> None:
        """Wait until the table with these topics is on disk; callers share a save.

        Raises `StoreError` when it cannot be saved; these topics are then reset to their state on disk.
        """
        try:
            await self._file.saved()
        except StoreError:
            self._take_back(names)
            raise

    def _take_back(self, names: Iterable[str]) -> None:
        stored = self._file.on_disk
        for name in self._unsaved.keys() & set(names):
            del self._unsaved[name]
            self._open.pop(name, None)
            self._set(name, stored.configs.get(name))
            if name in stored.births:
                self.births[name] = stored.births[name]
        self._changed()

    def _settle(self) -> None:
        """Topics that were saved meanwhile become ordinary topics. There may be some 10,000 of them."""
        saved, before = self._file.on_disk.change, self._unsaved
        self._unsaved = {name: change for name, change in before.items() if change > saved}
        for name in self._open.keys() & (before.keys() - self._unsaved.keys()):
            self._open[name].special = _is_special(name)

    async def delete(self, name: str) -> bool:
        """Remove a topic, on disk when this returns; False when it is unknown or already being deleted.

        It cannot be created again until the caller has deleted queues and offsets and calls `deleted`. Raises
        `StoreError` when the table cannot be saved; the topic is then reset to its state on disk.
        """
        if name not in self.configs:
            return False
        self.deleting |= {name}
        self._open.pop(name, None)
        self._set(name, None)
        self._changed()
        self._unsaved[name] = self._changes
        try:
            await self.kept([name])
        except StoreError:
            self.deleted(name)
            raise
        return True

    def reserve(self, name: str) -> bool:
        """Prevent creation of a topic until `deleted`: queues of its name are being deleted, and its first
        messages would be deleted with them. False when the topic exists or is already being deleted.
        """
        if name in self.configs or name in self.deleting:
            return False
        self.deleting |= {name}
        return True

    def deleted(self, name: str) -> None:
        """The deletion is complete: the topic's name is free. Saved soon, or with the next topic of that
        name."""
        if name in self.deleting:
            self.deleting -= {name}
            self._file.changed()

    def create_from_template(self, name: str, template: str, queues: int) -> TopicConfig | None:
        """Auto-create `name` if `template` allows it (broker:6.4); None when it does not. See `put_soon`."""
        model = self.configs.get(template)
        if model is None or not model.perm & PERM_INHERIT or name in self.deleting:
            return None
        count = max(1, min(queues, model.write_queue_nums))
        config = TopicConfig(
            topic_name=name,
            read_queue_nums=count,
            write_queue_nums=count,
            perm=model.perm & ~PERM_INHERIT,
            topic_filter_type=model.topic_filter_type,
        )
        self.put_soon(config)
        return config

    def ensure_soon(self, name: str, queues: int, *, sys_flag: int = 0, always: bool = False) -> bool:
        """Create an internal topic (retry, dead letters), or widen it to this many queues; True when it was
        changed. It stays as it is if there is no room for more queues.

        See `put_soon` for when it is saved, and for `always`.
        """
        config = self.configs.get(name)
        if config is None:
            config = TopicConfig(
                topic_name=name, topic_sys_flag=sys_flag, read_queue_nums=0, write_queue_nums=0
            )
        read, write = config.read_queue_nums, config.write_queue_nums
        if read >= queues and write >= queues:
            return False
        wide = replace(config, read_queue_nums=max(read, queues), write_queue_nums=max(write, queues))
        try:
            return self.put_soon(wide, always=always)
        except NoRoomError:
            if name in self.configs:
                return False
            raise

    def own_queue(self, name: str, queue_id: int) -> ConsumeQueue:
        """The queue for a message that the broker itself puts; see `Topic.instead_of` for a queue that the
        topic does not have.

        Topics that RocketMQ creates itself (retry, dead letters, system) are created if missing, and system
        topics get more queues; no limit applies to messages that were accepted. Raises `NoTopicError` for any
        other unknown topic.
        """
        topic = self.get(name)
        if topic is not None and queue_id < topic.config.read_queue_nums:
            return topic.queues[queue_id]
        if topic is None or queue_id >= topic.queue_count:
            if is_system_topic(name) or (topic is None and name.startswith(MADE_PREFIXES)):
                self.ensure_soon(name, queue_id + 1, always=True)
                topic = self.get(name)
            if topic is None or not topic.queue_count:
                raise NoTopicError(f"the broker has no topic {name} with queues", what="topic", value=name)
        return topic.queues[topic.instead_of(queue_id)]

    def names(self) -> Iterable[str]:
        """All topic names."""
        return self.configs.keys()

    def follow(
        self, configs: Mapping[str, TopicConfig], version: DataVersion, births: Mapping[str, int]
    ) -> bool:
        """Replace the table by that of this broker's master, with its version. Returns False if it is the
        same. Saved soon.
        """
        if version == self.version:
            return False
        self._open.clear()
        self.configs, self.births = dict(configs), dict(births)
        self._queue_count = sum(map(_queue_count, self.configs.values()))
        self._changes += 1
        self.version = version
        self._file.changed()
        return True

    def offered_anew(self) -> None:
        """The broker's own permission changed: name servers accept only tables with a new version."""
        self._changed()

    def _changed(self) -> None:
        """Record that the table changed; it is saved later."""
        self._changes += 1
        self.version = self.version.bumped(self._clock.now_ms())
        self._file.changed()

    def save(self) -> None:
        """Write unsaved changes; raises `StoreError`."""
        if not self._file.is_saved:
            self._file.save()


def _queue_count(config: TopicConfig | None) -> int:
    """The larger of a topic's two queue numbers; 0 if there is no topic."""
    return 0 if config is None else max(config.read_queue_nums, config.write_queue_nums)


def _is_special(name: str) -> bool:
    return name in SEND_FORBIDDEN_TOPICS or name.startswith(RETRY_PREFIX)


def _content(table: Topics) -> dict[str, Any]:
    content = {
        "dataVersion": msgspec.to_builtins(table.version),
        "topicConfigTable": table.configs,
    }
    if table.deleting:
        content[DELETING] = sorted(table.deleting)
    if table.births:
        content[BIRTHS] = table.births
    return content
