"""What users may set on clients: frozen values, checked when they are made.

Times are seconds, sizes bytes. Names follow RocketMQ's where the meaning is the same (client:B.1, D.1); the
docstrings give RocketMQ's name when it differs.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import BODY_BYTES_MAX

ConsumeFrom = Literal["last", "first"] | datetime
"""Where a group without stored offsets starts: the end, the beginning, or a point in time (client:C.10)."""

Compression = Literal["zlib", "lz4", "zstd"]

MIB: Final = 1024 * 1024
RETRY_CODES: Final = frozenset({1, 2, 14, 16, 17, 204, 205, 1500})
"""Broker answers after which a send is tried again (client:B-41, G-01)."""


def check_range(name: str, value: float, low: float, high: float, unit: str = "") -> None:
    """Raise `SettingsError` unless `low <= value <= high`."""
    if not low <= value <= high:
        raise SettingsError(
            f"{name}={value!r} is out of range: it takes {low:g} to {high:g}{f' {unit}' if unit else ''}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """What producers, consumers and admin clients share.

    `namesrv` is one or more `host:port`, separated by `;`; None reads `SPARROW_NAMESRV`, then `NAMESRV_ADDR`
    when the client starts. `instance_name` and `client_ip` make up the client id; leave them alone unless an
    id must stay the same across restarts (client:A.1).
    """

    namesrv: str | None = None
    instance_name: str | None = None
    client_ip: str | None = None
    unit_name: str | None = None
    connect_timeout: float = 3.0
    request_timeout: float = 3.0
    """Routes, heartbeats, member lists (`mqClientApiTimeout`)."""
    route_interval: float = 30.0
    """Seconds between refreshes of routes (`pollNameServerInterval`)."""
    heartbeat_interval: float = 30.0
    close_timeout: float = 10.0
    """Seconds `close` may take; what is not done by then is cut off."""

    def __post_init__(self) -> None:
        for name in ("connect_timeout", "request_timeout", "route_interval", "heartbeat_interval"):
            check_range(name, getattr(self, name), 0.01, 3600, "seconds")
        check_range("close_timeout", self.close_timeout, 0, 3600, "seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings(ClientSettings):
    """Settings of a producer (client:B.1)."""

    send_timeout: float = 3.0
    """Seconds for one send with all its tries (`sendMsgTimeout`)."""
    retries: int = 2
    """Further tries after the first (`retryTimesWhenSendFailed`)."""
    retry_codes: frozenset[int] = RETRY_CODES
    retry_not_stored_ok: bool = False
    """Try another broker when a message was stored but not flushed or replicated in time."""
    compress_over: int = 4096
    """Bodies of this size or more are compressed (`compressMsgBodyOverHowmuch`)."""
    compression: Compression = "zlib"
    compression_level: int = 5
    message_bytes_max: int = BODY_BYTES_MAX
    """Limit of a body before compression, and of an encoded batch (`maxMessageSize`)."""
    create_topic_key: str = "TBW102"
    create_topic_queues: int = 4
    """Queues per broker when a send creates its topic (`defaultTopicQueueNums`)."""
    in_flight_max: int = 10_000
    """Sends that may wait for their answer at once (`backPressureForAsyncSendNum`)."""
    in_flight_bytes_max: int = 100 * MIB

    def __post_init__(self) -> None:
        ClientSettings.__post_init__(self)
        check_range("send_timeout", self.send_timeout, 0.001, 3600, "seconds")
        check_range("retries", self.retries, 0, 100)
        check_range("compress_over", self.compress_over, 1, 2**31 - 1, "bytes")
        check_range("compression_level", self.compression_level, 0, 22)
        check_range("message_bytes_max", self.message_bytes_max, 1, 15 * MIB, "bytes")
        check_range("create_topic_queues", self.create_topic_queues, 1, 65535)
        check_range("in_flight_max", self.in_flight_max, 1, 65535)
        check_range("in_flight_bytes_max", self.in_flight_bytes_max, MIB, 2**40, "bytes")
        if self.compression not in ("zlib", "lz4", "zstd"):
            raise SettingsError(f"compression={self.compression!r} is unknown; choose zlib, lz4 or zstd")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings(ClientSettings):
    """Settings of a push consumer (client:D.1)."""

    consume_from: ConsumeFrom = "last"
    threads: int = 20
    """Handlers at work at once: threads for plain functions, tasks for async ones (`consumeThreadMax`)."""
    batch: int = 1
    """Messages a handler gets; above 1 it gets a list (`consumeMessageBatchMaxSize`)."""
    pull_batch: int = 32
    """Messages asked for in one pull (`pullBatchSize`); Apache's brokers give 32 at most."""
    pull_batch_behind: int = 512
    """The same while a queue is further behind than that, of brokers that give more: SparrowMQ's own."""
    pull_bytes: int = 256 * 1024
    """Bytes asked for in one pull (`pullBatchSizeInBytes`)."""
    pull_hold: float = 15.0
    """Seconds a broker may hold a pull until messages come."""
    pull_timeout: float = 30.0
    pull_interval: float = 0.0
    queue_messages_max: int = 1000
    """Messages of one queue in hand above which pulling pauses (`pullThresholdForQueue`)."""
    queue_bytes_max: int = 100 * MIB
    """Bytes of one queue in hand above which pulling pauses (`pullThresholdSizeForQueue`)."""
    queue_span_max: int = 2000
    """Distance between smallest and largest offset in hand above which pulling pauses
    (`consumeConcurrentlyMaxSpan`)."""
    max_reconsume_times: int = 16
    """Retries before a message becomes a dead letter."""
    consume_timeout: float = 15 * 60.0
    """Seconds a message may stay in hand before it goes to retry."""
    redeliver_delay: float = 5.0
    """Seconds until a message that could not be sent back is delivered again here (client:D-54)."""
    persist_interval: float = 5.0
    """Seconds between commits of consumer offsets (`persistConsumerOffsetInterval`)."""
    rebalance_interval: float = 20.0
    rebalance_interval_min: float = 1.0
    """Least seconds between two rebalances, and the wait after one that did not settle (client:C-07)."""
    error_delay: float = 1.0
    """Seconds a queue rests after a failed pull (`pullTimeDelayMillsWhenException`)."""

    def __post_init__(self) -> None:
        ClientSettings.__post_init__(self)
        if isinstance(self.consume_from, str) and self.consume_from not in ("last", "first"):
            raise SettingsError(
                f"consume_from={self.consume_from!r} is unknown; give 'last', 'first' or a datetime"
            )
        check_range("threads", self.threads, 1, 1000)
        check_range("batch", self.batch, 1, 1024)
        check_range("pull_batch", self.pull_batch, 1, 1024)
        check_range("pull_batch_behind", self.pull_batch_behind, 1, 65535)
        check_range("pull_bytes", self.pull_bytes, 1, 8 * MIB, "bytes")
        check_range("pull_hold", self.pull_hold, 0, 3600, "seconds")
        check_range("pull_timeout", self.pull_timeout, self.pull_hold + 0.5, 7200, "seconds")
        check_range("pull_interval", self.pull_interval, 0, 65.535, "seconds")
        check_range("queue_messages_max", self.queue_messages_max, 1, 65535)
        check_range("queue_bytes_max", self.queue_bytes_max, 1, 1024 * MIB, "bytes")
        check_range("queue_span_max", self.queue_span_max, 1, 65535)
        check_range("max_reconsume_times", self.max_reconsume_times, 0, 2**31 - 1)
        for name in ("consume_timeout", "redeliver_delay", "persist_interval", "rebalance_interval"):
            check_range(name, getattr(self, name), 0.001, 86400, "seconds")
        check_range("rebalance_interval_min", self.rebalance_interval_min, 0, 3600, "seconds")
        check_range("error_delay", self.error_delay, 0.001, 3600, "seconds")
