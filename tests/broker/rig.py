"""A broker's handlers over a real store, without sockets: requests go in as frames, answers come out."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.broker.doubles import FakeClock, FakeConnection, FakeRegistration

from sparrowmq.broker.clients import ClientTable
from sparrowmq.broker.fence_calls import Fence
from sparrowmq.broker.filters import ConsumerFilters
from sparrowmq.broker.flushing import Flusher
from sparrowmq.broker.groups import GroupTable
from sparrowmq.broker.inner import InnerStore
from sparrowmq.broker.locks import QueueLocks
from sparrowmq.broker.pulling import PullPath
from sparrowmq.broker.send_back import DirectRetry
from sparrowmq.broker.sending import SendPath
from sparrowmq.broker.topics import TopicTable
from sparrowmq.core.ids import pack_host
from sparrowmq.core.settings import BrokerSettings
from sparrowmq.protocol.bloom import BloomFilter
from sparrowmq.protocol.bodies import TopicConfig
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.frame import Command, FrameReader, encode
from sparrowmq.protocol.headers import SendMessageRequest, send_v2_to_ext
from sparrowmq.store.config_file import ConfigFile
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.offsets import ConsumerOffsets
from sparrowmq.store.settings import StoreSettings

STORE_HOST = pack_host("127.0.0.1", 10911)


class Rig:
    """Everything between a decoded frame and the store; `close` when done."""

    def __init__(self, root: Path, **settings: Any) -> None:
        self.settings = BrokerSettings(store_path_root_dir=root, **settings)
        self.clock = FakeClock()
        self.store = MessageStore.open(
            StoreSettings(
                root=root,
                mapped_file_size_commit_log=1 << 20,
                mapped_file_size_consume_queue=self.settings.mapped_file_size_consume_queue,
                flush_disk_type=self.settings.flush_disk_type,
                delay_levels=self.settings.delay_levels,
            ),
            self.clock,
            store_host=STORE_HOST,
        )
        config = root / "config"
        self.pool = ThreadPoolExecutor(1)
        self.topics = TopicTable(
            self.settings, self.store, ConfigFile(config / "topics.json"), self.clock, pool=self.pool
        )
        self.groups = GroupTable(
            ConfigFile(config / "subscriptionGroup.json"), self.clock, auto_create=True, pool=self.pool
        )
        self.clients = ClientTable()
        self.offsets = ConsumerOffsets.load(ConfigFile(config / "consumerOffset.json"))
        self.filters = ConsumerFilters(
            ConfigFile(config / "consumerFilter.json"), self.clock, BloomFilter(), keep_ms=86_400_000
        )
        self.flusher = Flusher(
            self.store,
            self.pool,
            sync=self.settings.flush_disk_type == "SYNC_FLUSH",
            interval=0.05,
            timeout=5.0,
            queue_interval=1.0,
        )
        self.registration = FakeRegistration()
        self.locked: set[str] = set()
        self.locks = QueueLocks(self.clock)
        self.fence = Fence(
            ConfigFile(config / "groupPolicies.json"),
            self.settings.broker_name,
            self.clients,
            self.locks,
            self.clock,
            pool=self.pool,
        )
        self.pulling = PullPath(
            self.settings,
            self.store,
            self.topics,
            self.groups,
            self.clients,
            self.offsets,
            self.filters,
            self.fence,
        )
        self.inner = InnerStore(
            self.store,
            self.topics,
            self.flusher,
            self.clock,
            wake=self.pulling.wake,
            topic_made=self.registration.changed_soon,
        )
        self.sending = SendPath(
            self.settings,
            self.store,
            self.topics,
            self.flusher,
            self.clock,
            store_host=STORE_HOST,
            wake=self.pulling.wake,
            registration=self.registration,
            retries=DirectRetry(self.groups, is_locked=lambda group: group in self.locked),
        )

    def make_topic(self, name: str, queues: int) -> None:
        """A topic with so many queues, on disk."""
        self.put_topic(TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues))

    def put_topic(self, config: TopicConfig) -> None:
        """Create or change a topic, on disk."""
        self.topics.put_soon(config)
        self.topics.save()

    def close(self) -> None:
        self.store.close()
        self.pool.shutdown()


def send_header(**fields: Any) -> SendMessageRequest:
    """A send to `TopicTest`, queue 0, with changes."""
    defaults: dict[str, Any] = {
        "producer_group": "p",
        "topic": "TopicTest",
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": 0,
        "sys_flag": 0,
        "born_timestamp": 1_700_000_000_000,
        "flag": 0,
        "properties": "UNIQ_KEY\x01AB12\x02WAIT\x01true\x02TAGS\x01TagA\x02",
    }
    return SendMessageRequest(**(defaults | fields))


def send_command(body: bytes = b"hello", *, opaque: int = 1, flag: int = 0, **fields: Any) -> Command:
    """The same as a V2 command."""
    request = send_header(**fields)
    code = RequestCode.SEND_BATCH_MESSAGE if request.batch else RequestCode.SEND_MESSAGE_V2
    return Command(code, opaque, flag, send_v2_to_ext(request), body)


def hot_send(command: Command) -> tuple[bytes, bytes]:
    """Header and body of a command as they stand in a frame."""
    _, header, body = FrameReader().feed(encode(command))[0]
    return header, body


def pull_ext(**fields: Any) -> Mapping[str, str]:
    """Header fields of a pull of `TopicTest`, queue 0, subscription `*` given."""
    defaults: dict[str, Any] = {
        "consumerGroup": "g",
        "topic": "TopicTest",
        "queueId": 0,
        "queueOffset": 0,
        "maxMsgNums": 32,
        "sysFlag": 4,
        "commitOffset": 0,
        "suspendTimeoutMillis": 1000,
        "subscription": "*",
        "subVersion": 0,
    }
    return {name: str(value) for name, value in (defaults | fields).items()}


def damage(rig: Rig, at: int, part: str) -> None:
    """Change one byte of the record at a physical offset: of its `body` or the body's `length`."""
    files = sorted((rig.settings.store_path_root_dir / "commitlog").iterdir())
    size = files[0].stat().st_size
    fd = os.open(files[at // size], os.O_RDWR)
    try:
        place = at % size + {"length": 85, "body": 88}[part]
        (byte,) = os.pread(fd, 1, place)
        os.pwrite(fd, bytes([byte ^ 0x40]), place)
    finally:
        os.close(fd)


def connection(port: int = 50_000) -> Any:
    """A connection that keeps what is written to it."""
    return FakeConnection(port)
