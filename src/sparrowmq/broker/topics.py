"""The broker's topics: what exists, how many queues, what is allowed (broker:6.1, 6.4).

The table is kept in `config/topics.json`, see `TableFile` for when it is saved. System topics are put in
before the file is read, so a stored entry of the same name wins.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from sparrowmq.broker.table_file import TableFile
from sparrowmq.core.errors import StoreCorruptError, StoreError
from sparrowmq.core.names import RETRY_PREFIX, SEND_FORBIDDEN_TOPICS, TEMPLATE_TOPIC, is_system_topic
from sparrowmq.core.route import PERM_INHERIT, PERM_READ, PERM_WRITE
from sparrowmq.protocol.bodies import DataVersion, TopicConfig
from sparrowmq.protocol.sysflag import MULTI_TAGS

if TYPE_CHECKING:
    from sparrowmq.core.clock import Clock
    from sparrowmq.core.settings import BrokerSettings
    from sparrowmq.store.config_file import ConfigFile
    from sparrowmq.store.consume_queue import ConsumeQueue
    from sparrowmq.store.message_store import MessageStore

READ_WRITE = PERM_READ | PERM_WRITE
MULTI_TAG = "MULTI_TAG"


@dataclass(slots=True, eq=False)
class Topic:
    """A topic with its queues opened: `queues[id]`, as many as the larger of its two queue numbers.

    A send to a `special` topic needs the general path.
    """

    config: TopicConfig
    queues: list[ConsumeQueue]
    sys_flag: int
    special: bool

    @property
    def readable(self) -> bool:
        """Whether consumers may pull."""
        return bool(self.config.perm & PERM_READ)


def system_topics(settings: BrokerSettings) -> list[TopicConfig]:
    """The topics every broker has (broker:6.1)."""

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
        topic(f"{cluster}_REPLY_TOPIC"),
    ]
    if settings.trace_topic_enable:
        topics.append(topic(settings.msg_trace_topic_name))
    if settings.timer_wheel_enable:
        topics.append(topic("rmq_sys_wheel_timer"))
    if settings.auto_create_topic_enable:
        topics.insert(1, topic(TEMPLATE_TOPIC, settings.default_topic_queue_nums, inherited))
    return topics


class Topics(NamedTuple):
    """The table at one moment."""

    configs: dict[str, TopicConfig]
    version: DataVersion


class TopicTable:
    """All topics of one broker. `version` grows with every change; name servers compare it.

    A topic that is not saved yet counts as special: who sends to it waits for the save.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        file: ConfigFile,
        clock: Clock,
        *,
        pool: Executor | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._open: dict[str, Topic] = {}
        self.configs = {config.topic_name: config for config in system_topics(settings)}
        self._reserved = frozenset(self.configs)
        self.version = DataVersion(timestamp=clock.now_ms())
        stored = file.load()
        try:
            self._load(stored)
        except (msgspec.ValidationError, AttributeError) as error:
            raise StoreCorruptError(
                f"{file.path} is not a table of topics ({error}); restore or remove it"
            ) from error
        self._unsaved: set[str] = set()
        self._going: set[str] = set()
        self._file = TableFile(file, self._snapshot, _content, pool=pool, settled=self._settle)
        self.keep_saving = self._file.run

    def _snapshot(self) -> Topics:
        return Topics(self.configs, self.version)

    def _load(self, data: dict[str, Any]) -> None:
        stored = data.get("topicConfigTable") or {}
        for name, raw in stored.items():
            config = msgspec.convert(raw, TopicConfig, strict=False)
            self.configs[name] = config
        if data.get("dataVersion"):
            self.version = msgspec.convert(data["dataVersion"], DataVersion, strict=False)

    def get(self, name: str) -> Topic | None:
        """The topic with its queues, or None. Opened topics are kept, so this is one dictionary look-up."""
        found = self._open.get(name)
        if found is not None:
            return found
        config = self.configs.get(name)
        return None if config is None else self._opened(config)

    def _opened(self, config: TopicConfig) -> Topic:
        count = max(config.read_queue_nums, config.write_queue_nums)
        name = config.topic_name
        topic = Topic(
            config=config,
            queues=[self._store.queue(name, queue_id) for queue_id in range(count)],
            sys_flag=MULTI_TAGS if config.topic_filter_type == MULTI_TAG else 0,
            special=_is_special(name) or name in self._unsaved,
        )
        self._open[name] = topic
        return topic

    def is_unsaved(self, name: str) -> bool:
        """Whether a crash now would lose the topic."""
        return name in self._unsaved

    def is_going(self, name: str) -> bool:
        """Whether the topic is being deleted; until it is gone nobody can make it again."""
        return name in self._going

    def close(self, name: str) -> None:
        """Forget the opened queues of a topic: the store deleted some of them."""
        self._open.pop(name, None)

    def is_reserved(self, name: str) -> bool:
        """Whether RocketMQ or this broker keeps the name for itself."""
        return name in self._reserved or is_system_topic(name)

    def put_soon(self, config: TopicConfig) -> bool:
        """Create or change a topic, on disk after `kept` or soon.

        False when it already was like that, or while it is being deleted.
        """
        name = config.topic_name
        if self.configs.get(name) == config or name in self._going:
            return False
        self._change(self.configs | {name: config})
        self._unsaved.add(name)
        self._open.pop(name, None)
        return True

    async def kept(self, names: Iterable[str]) -> None:
        """Wait until the table is on disk with these topics, which many may do together.

        Raises `StoreError`, with these topics as the disk has them, when it cannot be saved.
        """
        try:
            await self._file.saved()
        except StoreError:
            self._take_back(names)
            raise

    def _take_back(self, names: Iterable[str]) -> None:
        stored, configs = self._file.on_disk.configs, dict(self.configs)
        for name in self._unsaved.intersection(names):
            self._unsaved.discard(name)
            self._open.pop(name, None)
            configs.pop(name, None)
            if name in stored:
                configs[name] = stored[name]
        self._change(configs)

    def _settle(self) -> None:
        """Topics that were saved meanwhile are as any other."""
        stored = self._file.on_disk.configs
        for name in [name for name in self._unsaved if self.configs.get(name) == stored.get(name)]:
            self._unsaved.discard(name)
            opened = self._open.get(name)
            if opened is not None:
                opened.special = _is_special(name)

    async def delete(self, name: str) -> bool:
        """Forget a topic, on disk when this returns; False when it is unknown or goes already.

        Its queues are the store's to delete, which must be done before the loop's next turn: from then on
        the topic can be made again. Raises `StoreError`, with the topic as the disk has it, when the table
        cannot be saved.
        """
        if name not in self.configs:
            return False
        self._going.add(name)
        self._unsaved.add(name)
        self._open.pop(name, None)
        self._change({other: config for other, config in self.configs.items() if other != name})
        try:
            await self.kept([name])
        finally:
            self._going.discard(name)
        return True

    def create_from_template(self, name: str, template: str, queues: int) -> TopicConfig | None:
        """Auto-create `name` as `template` allows (broker:6.4); None when it does not. See `put_soon`."""
        model = self.configs.get(template)
        if model is None or not model.perm & PERM_INHERIT or name in self._going:
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

    def ensure_soon(self, name: str, queues: int, *, sys_flag: int = 0) -> bool:
        """Create an internal topic (retry, dead letters) unless it exists; True when it was made.

        See `put_soon` for when it is saved.
        """
        if name in self.configs:
            return False
        return self.put_soon(
            TopicConfig(
                topic_name=name,
                read_queue_nums=queues,
                write_queue_nums=queues,
                topic_sys_flag=sys_flag,
            )
        )

    def names(self) -> Iterable[str]:
        """All topic names."""
        return self.configs.keys()

    def offered_anew(self) -> None:
        """The broker's own permission changed: name servers take only tables with another version."""
        self._change(self.configs)

    def _change(self, configs: dict[str, TopicConfig]) -> None:
        """Take over a table that is saved later."""
        self.configs, self.version = configs, self.version.bumped(self._clock.now_ms())
        self._file.changed()

    def save(self) -> None:
        """Write what is not on disk yet; raises `StoreError`."""
        if not self._file.is_saved:
            self._file.save()


def _is_special(name: str) -> bool:
    return name in SEND_FORBIDDEN_TOPICS or name.startswith(RETRY_PREFIX)


def _content(table: Topics) -> dict[str, Any]:
    return {
        "dataVersion": msgspec.to_builtins(table.version),
        "topicConfigTable": msgspec.to_builtins(table.configs),
    }
