"""A broker's handlers on a real store, without sockets: requests are frames, answers are frames."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.broker.doubles import FakeClock, FakeConnection, FakeRegistration

from sparrowmq.broker.base.periodic import Background
from sparrowmq.broker.parts import BrokerParts
from sparrowmq.broker.replication.reign import Reign
from sparrowmq.broker.server import store_settings
from sparrowmq.core.clock import Sleep
from sparrowmq.core.ids import pack_host
from sparrowmq.core.settings.servers import BrokerSettings
from sparrowmq.protocol.bodies import TopicConfig
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.frame import Command, FrameReader, encode
from sparrowmq.protocol.headers import SendMessageRequest, send_v2_to_ext
from sparrowmq.store.message_store import MessageStore

ADDRESS = "127.0.0.1:10911"
STORE_HOST = pack_host("127.0.0.1", 10911)


LOG_FILE_BYTES = 1 << 20


class Rig:
    """A broker's parts as the server makes them, with a real store; `close` when done.

    The test moves the clock, name servers are a counter. No background task runs."""

    def __init__(
        self,
        root: Path,
        *,
        clock: FakeClock | None = None,
        sleep: Sleep = asyncio.sleep,
        **settings: Any,
    ) -> None:
        small: dict[str, Any] = {
            "mapped_file_size_commit_log": LOG_FILE_BYTES,
            "mapped_file_size_timer_log": 4096,
            "flush_interval_commit_log": 50,
        }
        self.settings = BrokerSettings(store_path_root_dir=root, **small | settings)
        self.clock = clock or FakeClock()
        self.pool = ThreadPoolExecutor(1)
        self.registration = FakeRegistration()
        self.store = MessageStore.open(store_settings(self.settings), self.clock, store_host=STORE_HOST)
        self.parts = parts = BrokerParts(
            self.settings,
            self.store,
            background=Background(self.clock, self.pool, sleep),
            registration=lambda topics: self.registration,
            reign=Reign(self.settings, ADDRESS),
        )
        self.tables = parts.tables
        self.topics = parts.topics
        self.groups = parts.groups
        self.clients = parts.clients
        self.offsets = parts.offsets
        self.filters = parts.filters
        self.flusher = parts.flusher
        self.locks = parts.locks
        self.fence = parts.fence
        self.pulling = parts.pulling
        self.deletions = parts.deletions
        self.inner = parts.inner
        self.delayed = parts.delayed
        self.sending = parts.sending

    def make_topic(self, name: str, queues: int) -> None:
        """A topic with this many queues, on disk."""
        self.put_topic(TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues))

    def put_topic(self, config: TopicConfig) -> None:
        """Create or change a topic, on disk."""
        self.topics.put_soon(config)
        self.topics.save()

    def close(self) -> None:
        if self.delayed.timers is not None:
            self.delayed.timers.close()
        self.store.close()
        self.pool.shutdown()

    def kill(self) -> None:
        """Stop as `kill -9` does."""
        if self.delayed.timers is not None:
            self.delayed.timers.abandon()
        self.store.abandon()
        self.pool.shutdown()


def send_header(**fields: Any) -> SendMessageRequest:
    """The header of a send to `TopicTest`, queue 0, with changes."""
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
    """Header and body of a command as they are in a frame."""
    _, header, body = FrameReader().feed(encode(command))[0]
    return header, body


def pull_ext(**fields: Any) -> Mapping[str, str]:
    """Header fields of a pull from `TopicTest`, queue 0, with subscription `*`."""
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
    """Change one byte of the record at a physical offset: of its `body` or of the body's `length`."""
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
    """A connection that records what is written to it."""
    return FakeConnection(port)
