"""What users may set on clients: frozen values, checked when they are made.

Times are seconds, sizes bytes. Names follow RocketMQ's where the meaning is the same (client:B.1, D.1); the
docstrings give RocketMQ's name when it differs.
"""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal

from sparrowmq.client.hooks import Hook
from sparrowmq.client.offsets import OffsetStore
from sparrowmq.client.setting_types import check_types
from sparrowmq.core.allocation import AllocateStrategy, Averagely
from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import BODY_BYTES_MAX, MessageQueue
from sparrowmq.core.names import check_namespace, check_topic
from sparrowmq.protocol.trace import TRACE_TOPIC
from sparrowmq.transport.signing import Credentials

ConsumeFrom = Literal["last", "first"] | datetime
"""Where a group without stored offsets starts: the end, the beginning, or a point in time (client:C.10)."""

Compression = Literal["zlib", "lz4", "zstd"]
Model = Literal["clustering", "broadcasting"]
"""Whether the members of a group share the messages or each gets all of them (client:D.12)."""
QueueListener = Callable[[str, list[MessageQueue], list[MessageQueue]], Any]
"""Called with a topic, all its queues and the member's own; may be `async def` (client:E-46)."""

AccessChannel = Literal["local", "cloud"]
"""Where traces go: one topic, or one of the service provider's for each region (client:B-110)."""

Compat = Literal["5.x", "4.9"]
"""Whose ways to follow where RocketMQ's clients 4.9 and 5.x differ (client:G)."""

MIB: Final = 1024 * 1024
RETRY_CODES: Final[dict[str, frozenset[int]]] = {
    "4.9": frozenset({1, 14, 16, 17, 204, 205}),
    "5.x": frozenset({1, 2, 14, 16, 17, 204, 205, 1500}),
}
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
    namesrv_domain: str | None = None
    """Web server that is asked for the list of name servers when none is given (client:A-70), `host` or
    `host:port`; None reads `SPARROW_NAMESRV_DOMAIN`. No server of the internet is asked by default."""
    namesrv_subgroup: str | None = None
    """Page of that server (`nsaddr`); None reads `SPARROW_NAMESRV_SUBGROUP`."""
    instance_name: str | None = None
    client_ip: str | None = None
    unit_name: str | None = None
    connect_timeout: float = 3.0
    request_timeout: float = 3.0
    """Routes, heartbeats, member lists (`mqClientApiTimeout`)."""
    route_interval: float = 30.0
    """Seconds between refreshes of routes (`pollNameServerInterval`)."""
    heartbeat_interval: float = 30.0
    heartbeat_v2: bool = False
    """Leave subscriptions that did not change out of periodic heartbeats to brokers that know this, which are
    ours and Apache's since 5.1 (`useHeartbeatV2`, client:A-63)."""
    close_timeout: float = 10.0
    """Seconds `close` may take; what is not done by then is cut off."""
    compat: Compat = "5.x"
    """Whose ways to follow where RocketMQ's clients differ (client:G)."""
    hooks: Sequence[Hook] = ()
    """Called around sends, requests and consumption, in this order (`sparrowmq.client.hooks`). Clients that
    share an `instance_name` share the request hooks of the first."""
    unit_mode: bool = False
    """Marks requests and groups as part of a unit of a larger whole (client:A-75)."""
    vip_channel: bool = False
    """Use the brokers' port for urgent requests, two below the usual one (`vipChannelEnabled`)."""
    trace: bool = False
    """Write what this client does with messages into `trace_topic` (`enableTrace`)."""
    trace_topic: str = TRACE_TOPIC
    access_channel: AccessChannel = "local"
    """`cloud`: traces go to the topics `rmq_sys_TRACE_DATA_<region>` of the regions that the brokers name,
    whatever `trace_topic` says (`accessChannel`)."""
    trace_batch: int = 10
    """Records in one trace message (`traceMsgBatchNum`); fewer leave after 5 s."""
    namespace: str | None = None
    """Name space that topics and groups are in: `<namespace>%<name>` at the brokers (client:B.23)."""
    namespace_v2: str | None = None
    """Name space told in header fields, for servers that know these; names stay (client:B-126)."""
    access_key: str | None = None
    """Account that signs every request, with `secret_key` (`AclClientRPCHook`, client:B.24).

    None: `SPARROW_ACCESS_KEY` and `SPARROW_SECRET_KEY`, if they are set when the client starts.
    """
    secret_key: str | None = field(default=None, repr=False)
    security_token: str | None = field(default=None, repr=False)
    tls: bool | ssl.SSLContext | None = None
    """Speak TLS with name servers and brokers: True as the settings below say, or a context of your own.

    None: as `SPARROW_CLIENT_TLS` says when the client starts; without it plain.
    """
    tls_ca: str | Path | None = None
    """PEM file of the authority that signed the servers' certificates; None: the system's authorities."""
    tls_cert: str | Path | None = None
    """PEM file of the certificate to show to servers that ask for one, with `tls_key`."""
    tls_key: str | Path | None = None
    tls_key_password: str | None = field(default=None, repr=False)
    tls_verify: bool = True
    """False takes any certificate, as RocketMQ's clients do by default: for tests only."""

    def __post_init__(self) -> None:
        check_types(self)
        self._check_client_ip()
        self._check_security()
        check_topic(self.trace_topic)
        check_range("trace_batch", self.trace_batch, 1, 20)
        if self.compat not in ("5.x", "4.9"):
            raise SettingsError(f"compat={self.compat!r} is unknown; choose '5.x' or '4.9'")
        if self.access_channel not in ("local", "cloud"):
            raise SettingsError(
                f"access_channel={self.access_channel!r} is unknown; choose 'local' or 'cloud'"
            )
        for name in ("connect_timeout", "request_timeout", "route_interval", "heartbeat_interval"):
            check_range(name, getattr(self, name), 0.01, 3600, "seconds")
        check_range("close_timeout", self.close_timeout, 0, 3600, "seconds")

    def _check_client_ip(self) -> None:
        if self.client_ip is None:
            return
        try:
            ipaddress.ip_address(self.client_ip.removeprefix("[").removesuffix("]"))
        except ValueError:
            raise SettingsError(
                f"client_ip={self.client_ip!r} is no IP address; it names this client to brokers, give one "
                "such as 10.0.0.5 or leave it out"
            ) from None

    def _check_security(self) -> None:
        if (self.access_key is None) != (self.secret_key is None):
            missing = "secret_key" if self.secret_key is None else "access_key"
            raise SettingsError(f"{missing} is missing: access_key and secret_key go together")
        if self.access_key is not None and self.secret_key is not None:
            Credentials(self.access_key, self.secret_key)
        if (self.tls_cert is None) != (self.tls_key is None):
            raise SettingsError("tls_cert and tls_key go together; give both or none")
        if not self.tls and (self.tls_ca or self.tls_cert):
            raise SettingsError("tls_ca or tls_cert is given, but TLS is off; set tls=True")
        if self.namespace:
            check_namespace(self.namespace)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings(ClientSettings):
    """Settings of a producer (client:B.1)."""

    send_timeout: float = 3.0
    """Seconds for one send with all its tries (`sendMsgTimeout`)."""
    retries: int = 2
    """Further tries after the first (`retryTimesWhenSendFailed`)."""
    retries_async: int = 2
    """Further tries of asynchronous sends, after lost connections and missing answers only
    (`retryTimesWhenSendAsyncFailed`)."""
    retry_codes: frozenset[int] | None = None
    """Answers after which a send is tried again (`retryResponseCodes`); None: as `compat` has it."""
    try_timeout: float | None = None
    """Seconds for one try while further ones are left (`sendMsgMaxTimeoutPerRequest`); None: what is left of
    `send_timeout`."""
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
    """Bytes of them (`backPressureForAsyncSendSize`)."""
    topics: Sequence[str] = ()
    """Topics whose routes are loaded at the start, so that the first send does not wait for them."""
    latency_fault: bool = False
    """Avoid brokers that were slow or failed for a while (`sendLatencyFaultEnable`); messages of one key may
    then change queues (client:B.13)."""
    latency_max: Sequence[int] | None = None
    """Thresholds in ms, ascending (`latencyMax`); None: as `compat` has it."""
    not_available: Sequence[int] | None = None
    """For each threshold the ms a broker is then avoided (`notAvailableDuration`)."""
    detector: bool = False
    """Ask brokers that failed whether they are back (`startDetectorEnable`); needs `latency_fault`."""
    detect_timeout: float = 0.2
    detect_interval: float = 2.0
    linger: float = 0.0
    """Seconds asynchronous sends may wait for others to travel with them as one batch; 0: none do."""
    linger_bytes: int = 32 * 1024
    """Bytes after which such a batch leaves at once (`batchMaxBytes`)."""
    linger_total_bytes: int = 32 * MIB
    """Bytes that may wait in all; more are sent alone (`totalBatchMaxBytes`)."""

    idempotent: bool = False
    """Number the messages, so that a send that is repeated is stored once (on SparrowMQ's brokers)."""

    check_threads: int = 1
    """Plain `check` functions of a transaction listener at work at once (`checkThreadPoolMaxSize`)."""
    checks_max: int = 2000
    """Checks of transactions that may wait (`checkRequestHoldMax`)."""

    def __post_init__(self) -> None:
        ClientSettings.__post_init__(self)
        self._check_strategy()
        check_range("check_threads", self.check_threads, 1, 1000)
        check_range("checks_max", self.checks_max, 1, 10**6)
        check_range("send_timeout", self.send_timeout, 0.001, 3600, "seconds")
        check_range("retries", self.retries, 0, 100)
        check_range("compress_over", self.compress_over, 1, 2**31 - 1, "bytes")
        check_range("compression_level", self.compression_level, 0, 9 if self.compression == "zlib" else 22)
        check_range("message_bytes_max", self.message_bytes_max, 1, 15 * MIB, "bytes")
        check_range("create_topic_queues", self.create_topic_queues, 1, 65535)
        check_range("in_flight_max", self.in_flight_max, 1, 65535)
        check_range("in_flight_bytes_max", self.in_flight_bytes_max, MIB, 2**40, "bytes")
        check_range("retries_async", self.retries_async, 0, 100)
        if self.try_timeout is not None:
            check_range("try_timeout", self.try_timeout, 0.001, 3600, "seconds")
        check_range("linger", self.linger, 0, 30, "seconds")
        check_range("linger_bytes", self.linger_bytes, 1, 2 * MIB, "bytes")
        check_range("linger_total_bytes", self.linger_total_bytes, 1, 2**40, "bytes")
        if self.compression not in ("zlib", "lz4", "zstd"):
            raise SettingsError(f"compression={self.compression!r} is unknown; choose zlib, lz4 or zstd")

    def _check_strategy(self) -> None:
        """The settings of the latency fault strategy agree."""
        check_range("detect_timeout", self.detect_timeout, 0.001, 60, "seconds")
        check_range("detect_interval", self.detect_interval, 0.01, 3600, "seconds")
        if self.detector and not self.latency_fault:
            raise SettingsError("detector=True does nothing without latency_fault=True; set both or none")
        if (self.latency_max is None) != (self.not_available is None):
            raise SettingsError("latency_max and not_available belong together; give both or none")
        if self.latency_max is not None and self.not_available is not None:
            if not self.latency_max or len(self.latency_max) != len(self.not_available):
                raise SettingsError(
                    f"latency_max has {len(self.latency_max)} entries and not_available "
                    f"{len(self.not_available)}; give as many of each, at least one"
                )
            if list(self.latency_max) != sorted(self.latency_max) or min(*self.not_available, 0) < 0:
                raise SettingsError("latency_max must ascend, and not_available must not be negative")

    @property
    def codes_retried(self) -> frozenset[int]:
        """The answers after which a send is tried again."""
        return RETRY_CODES[self.compat] if self.retry_codes is None else self.retry_codes


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings(ClientSettings):
    """Settings of a push consumer (client:D.1)."""

    model: Model = "clustering"
    """`clustering`: the members of the group share the messages; `broadcasting`: each gets all of them."""
    ordered: bool = False
    """Handle the messages of each queue one after the other, in order (client:D.11)."""
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
    topic_messages_max: int | None = None
    """The same over all own queues: each gets its share of it (`pullThresholdForTopic`)."""
    topic_bytes_max: int | None = None
    """As above, for bytes (`pullThresholdSizeForTopic`)."""
    max_reconsume_times: int = -1
    """Retries before a message becomes a dead letter; -1: 16, and without end in ordered consumption."""
    suspend_time: float = 1.0
    """Seconds an ordered queue rests after a failure (`suspendCurrentQueueTimeMillis`); 0.01 to 30."""
    auto_commit: bool = True
    """False: ordered handlers commit by themselves, by returning `ConsumeResult.COMMIT` (client:D-66)."""
    consume_timeout: float = 15 * 60.0
    """Seconds a message may stay in hand before it goes to retry; an async handler is cancelled then."""
    redeliver_delay: float = 5.0
    """Seconds until a message that could not be sent back is delivered again here (client:D-54)."""
    persist_interval: float = 5.0
    """Seconds between commits of consumer offsets (`persistConsumerOffsetInterval`)."""
    rebalance_interval: float = 20.0
    rebalance_interval_min: float = 1.0
    """Least seconds between two rebalances, and the wait after one that did not settle (client:C-07)."""
    error_delay: float = 1.0
    """Seconds a queue rests after a failed pull (`pullTimeDelayMillsWhenException`)."""
    allocate: AllocateStrategy = Averagely()  # noqa: RUF009 - a strategy is frozen
    """Who reads which queue; all members of a group must have the same (`allocateMessageQueueStrategy`)."""
    lock_interval: float = 20.0
    """Seconds between renewals of the locks of ordered queues (`rocketmq.client.rebalance.lockInterval`)."""
    post_subscription: bool = False
    """Send the expression with every pull (`postSubscriptionWhenPull`)."""
    offset_store: OffsetStore | None = None
    """Where offsets are kept; by default at the brokers, in broadcasting in a file below `offset_dir`."""
    offset_dir: Path | str | None = None
    """Directory of broadcasting's files; `~/.rocketmq_offsets`, as RocketMQ's Java client has it."""
    queue_listener: QueueListener | None = None
    """Called with (topic, all its queues, own queues) when the own ones changed (`messageQueueListener`)."""
    server_assignment: bool = False
    """Ask the broker which queues to read (`clientRebalance` = false): Apache's from 5.0 on, ours for groups
    with a policy. Where it does not say, members divide the queues as usual."""
    managed: bool = False
    """Have a coordinator say which queues to read, with fences at SparrowMQ's brokers."""

    def __post_init__(self) -> None:
        ClientSettings.__post_init__(self)
        self._check_model()
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
        if self.topic_messages_max is not None:
            check_range("topic_messages_max", self.topic_messages_max, 1, 6553500)
        if self.topic_bytes_max is not None:
            check_range("topic_bytes_max", self.topic_bytes_max, 1, 102400 * MIB, "bytes")
        check_range("max_reconsume_times", self.max_reconsume_times, -1, 2**31 - 1)
        check_range("suspend_time", self.suspend_time, 0.01, 30, "seconds")
        for name in (
            "consume_timeout",
            "redeliver_delay",
            "persist_interval",
            "rebalance_interval",
            "lock_interval",
        ):
            check_range(name, getattr(self, name), 0.001, 86400, "seconds")
        check_range("rebalance_interval_min", self.rebalance_interval_min, 0, 3600, "seconds")
        check_range("error_delay", self.error_delay, 0.001, 3600, "seconds")

    def _check_model(self) -> None:
        """Model and order go together."""
        if self.model not in ("clustering", "broadcasting"):
            raise SettingsError(f"model={self.model!r} is unknown; give 'clustering' or 'broadcasting'")
        if self.model == "broadcasting" and self.ordered:
            raise SettingsError(
                "ordered=True does not go with model='broadcasting': order needs queues that are locked for "
                "one member, broadcasting gives every queue to all; leave one of the two"
            )
        if self.model == "broadcasting" and self.server_assignment:
            raise SettingsError("server_assignment=True does not go with model='broadcasting'; leave it out")
        if self.managed:
            _check_managed(
                ("model='broadcasting'", self.model == "broadcasting"),
                ("server_assignment=True", self.server_assignment),
                ("an offset_store of your own", self.offset_store is not None),
            )
        if self.ordered and self.server_assignment:
            raise SettingsError("server_assignment=True does not go with ordered=True; leave it out")
        if not self.auto_commit and not self.ordered:
            raise SettingsError("auto_commit=False is for ordered consumption; set ordered=True as well")


def _check_managed(*settings: tuple[str, bool]) -> None:
    """What does not go with a coordinator's plans: (setting, whether it is so)."""
    for name, wrong in settings:
        if wrong:
            raise SettingsError(f"managed=True does not go with {name}; leave one of the two out")


@dataclass(frozen=True, slots=True, kw_only=True)
class PullSettings(ClientSettings):
    """Settings of a pull consumer (client:E.1, E.3).

    Those of queues in hand, `poll` and commits are for `subscribe` and `assign`; reading queues by offset
    needs none of them.
    """

    model: Model = "clustering"
    """`clustering`: the members of the group share the queues; `broadcasting`: each reads all."""
    allocate: AllocateStrategy = Averagely()  # noqa: RUF009 - a strategy is frozen
    """Who reads which queue; all members of a group must have the same (`allocateMessageQueueStrategy`)."""
    offset_store: OffsetStore | None = None
    """Where offsets are kept; by default at the brokers, in broadcasting in a file below `offset_dir`."""
    offset_dir: Path | str | None = None
    """Directory of broadcasting's files; `~/.rocketmq_offsets`, as RocketMQ's Java client has it."""
    consume_from: ConsumeFrom = "last"
    auto_commit: bool = True
    """Whether `poll` commits what earlier polls returned, each `auto_commit_interval` seconds."""
    auto_commit_interval: float = 5.0
    pull_batch: int = 10
    """Messages asked for in one pull (`pullBatchSize`), and so the most one `poll` returns."""
    pull_bytes: int = 256 * 1024
    """Bytes asked for in one pull (`pullBatchSizeInBytes`)."""
    pull_hold: float = 20.0
    """Seconds a broker may hold a pull until messages come (`brokerSuspendMaxTimeMillis`)."""
    pull_timeout: float = 30.0
    """Seconds for such a pull (`consumerTimeoutMillisWhenSuspend`); more than `pull_hold`."""
    poll_timeout: float = 5.0
    """Seconds `poll` waits for messages when it is given no time of its own (`pollTimeoutMillis`)."""
    messages_max: int = 10_000
    """Messages of all queues in hand above which pulling pauses (`pullThresholdForAll`)."""
    queue_messages_max: int = 1000
    """Messages of one queue in hand above which its pulling pauses (`pullThresholdForQueue`)."""
    queue_bytes_max: int = 100 * MIB
    """Bytes of one queue in hand above which its pulling pauses (`pullThresholdSizeForQueue`)."""
    queue_span_max: int = 2000
    """Distance between smallest and largest offset in hand above which a queue's pulling pauses
    (`consumeMaxSpan`)."""
    topic_check_interval: float = 30.0
    """Seconds between two looks at topics with a change listener (`topicMetadataCheckIntervalMillis`)."""
    persist_interval: float = 5.0
    """Seconds between two sends of committed offsets (`persistConsumerOffsetInterval`)."""
    announce: bool = True
    """Whether brokers are told of the group by heartbeats from the start, as RocketMQ's pull consumer does:
    that makes the group, and other members' strategies count this one. False: only once topics are
    subscribed or registered, or queues assigned; for those who look at a group from outside."""
    managed: bool = False
    """Have a coordinator say which queues are shared out to this member, with fences at SparrowMQ's brokers.
    A queue moves when what it gave is done: when polling goes on, for queues that are read by offset when
    they are pulled or asked for again."""
    rebalance: bool = True
    """Whether registered and subscribed topics are shared among the members (`enableRebalance`)."""
    rebalance_interval: float = 20.0
    rebalance_interval_min: float = 1.0
    error_delay: float = 1.0
    """Seconds a queue rests after a failed pull (`pullTimeDelayMillsWhenException`)."""
    max_reconsume_times: int = 16
    """Retries of a message given back with `send_back` before it becomes a dead letter."""

    def __post_init__(self) -> None:
        ClientSettings.__post_init__(self)
        if isinstance(self.consume_from, str) and self.consume_from not in ("last", "first"):
            raise SettingsError(
                f"consume_from={self.consume_from!r} is unknown; give 'last', 'first' or a datetime"
            )
        if self.model not in ("clustering", "broadcasting"):
            raise SettingsError(f"model={self.model!r} is unknown; give 'clustering' or 'broadcasting'")
        check_range("auto_commit_interval", self.auto_commit_interval, 1, 86400, "seconds")
        check_range("pull_batch", self.pull_batch, 1, 1024)
        check_range("pull_bytes", self.pull_bytes, 1, 8 * MIB, "bytes")
        check_range("pull_hold", self.pull_hold, 0, 3600, "seconds")
        check_range("pull_timeout", self.pull_timeout, self.pull_hold + 0.5, 7200, "seconds")
        check_range("poll_timeout", self.poll_timeout, 0, 86400, "seconds")
        check_range("messages_max", self.messages_max, 1, 2**31 - 1)
        check_range("queue_messages_max", self.queue_messages_max, 1, 65535)
        check_range("queue_bytes_max", self.queue_bytes_max, 1, 1024 * MIB, "bytes")
        check_range("queue_span_max", self.queue_span_max, 1, 65535)
        for name in ("topic_check_interval", "persist_interval", "rebalance_interval", "error_delay"):
            check_range(name, getattr(self, name), 0.001, 86400, "seconds")
        check_range("rebalance_interval_min", self.rebalance_interval_min, 0, 3600, "seconds")
        check_range("max_reconsume_times", self.max_reconsume_times, 0, 2**31 - 1)
        if self.managed:
            _check_managed(
                ("model='broadcasting'", self.model == "broadcasting"),
                ("rebalance=False", not self.rebalance),
                ("an offset_store of your own", self.offset_store is not None),
            )

    @classmethod
    def of(cls, settings: ClientSettings | None) -> PullSettings:
        """`settings` themselves, or made of what all clients share."""
        if isinstance(settings, PullSettings):
            return settings
        if settings is None:
            return cls()
        return cls(**{item.name: getattr(settings, item.name) for item in fields(ClientSettings)})
