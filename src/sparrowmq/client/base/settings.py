"""The settings of clients: frozen values, checked when they are made; all problems are reported at once.

Times are seconds, sizes bytes. Names follow RocketMQ's where the meaning is the same (client:B.1, D.1); the
docstrings give RocketMQ's name when it differs.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

from sparrowmq.client.base.hooks import Hook
from sparrowmq.client.base.offset_store_protocol import OffsetStore
from sparrowmq.client.base.setting_types import ValueRange, check_settings
from sparrowmq.core.allocation import AllocateStrategy, Averagely
from sparrowmq.core.clock import epoch_ms
from sparrowmq.core.errors import SettingsError, SparrowError
from sparrowmq.core.message import BODY_BYTES_MAX, POP_MAX, MessageQueue
from sparrowmq.core.names import TRACE_TOPIC, check_namespace, check_topic
from sparrowmq.transport.signing import Credentials

ConsumeFrom = Literal["last", "first"] | datetime | int
"""Where a group without stored offsets starts: the end, the beginning, or a time: an aware datetime or epoch
milliseconds (client:C.10).
"""

Compression = Literal["zlib", "lz4", "zstd"]
Model = Literal["clustering", "broadcasting"]
"""Whether the members of a group share the messages or each gets all of them (client:D.12)."""
QueueListener = Callable[[str, list[MessageQueue], list[MessageQueue]], Any]
"""Called with a topic, all its queues and those assigned to this member; may be `async def` (client:E-46)."""

AccessChannel = Literal["local", "cloud"]
"""Where traces go: one topic, or one of the service provider's for each region (client:B-110)."""

Compat = Literal["5.x", "4.9"]
"""Which version's behaviour to follow where RocketMQ's clients 4.9 and 5.x differ (client:G)."""

MIB: Final = 1024 * 1024
RETRY_CODES: Final[dict[str, frozenset[int]]] = {
    "4.9": frozenset({1, 14, 16, 17, 204, 205}),
    "5.x": frozenset({1, 2, 14, 16, 17, 204, 205, 1500}),
}
"""Response codes after which a send is retried (client:B-41, G-01)."""


def check_range(name: str, value: float, low: float, high: float, unit: str = "") -> None:
    """Raise `SettingsError` unless `value` is a number and `low <= value <= high`."""
    try:
        problem = ValueRange(low, high, unit).problem(name, value)
    except TypeError:
        text = f"{name}={value!r} is of type {type(value).__name__}; must be a number"
        problem = SettingsError(text, name, value)
    if problem is not None:
        raise problem


def _together(name: str, value: object, other: str, other_value: object) -> Iterator[SettingsError]:
    """A problem if only one of two settings is given."""
    if (value is None) != (other_value is None):
        missing, given = (name, other) if value is None else (other, name)
        text = f"{missing} is missing: {name} and {other} must be given together"
        yield SettingsError(text, missing, other=given)


def _apart(setting: str, *others: tuple[str, bool]) -> Iterator[SettingsError]:
    """A problem for each of `others` that is given although `setting` excludes it."""
    name = setting.partition("=")[0]
    for other, given in others:
        if given:
            text = f"{setting} cannot be combined with {other}; leave one of them out"
            yield SettingsError(text, name, other=other.partition("=")[0])


def _raised(check: Callable[..., object], *values: object) -> Iterator[SparrowError]:
    """The problem that `check` raises."""
    try:
        check(*values)
    except SparrowError as error:
        yield error


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """What producers, consumers and admin clients share.

    `namesrv` is one or more `host:port`, separated by `;`; None reads `SPARROW_NAMESRV`, then `NAMESRV_ADDR`
    when the client starts. `instance_name` and `client_ip` form the client id; set them only if the id must
    stay the same across restarts (client:A.1).
    """

    namesrv: str | None = None
    namesrv_domain: str | None = None
    """Web server that provides the list of name servers when none is configured (client:A-70), `host` or
    `host:port`; None reads `SPARROW_NAMESRV_DOMAIN`. By default no server is asked.
    """
    namesrv_subgroup: str | None = None
    """Path on that server (`nsaddr`); None reads `SPARROW_NAMESRV_SUBGROUP`."""
    instance_name: str | None = None
    client_ip: str | None = None
    unit_name: str | None = None
    connect_timeout: Annotated[float, ValueRange(0.01, 3600, "seconds")] = 3.0
    request_timeout: Annotated[float, ValueRange(0.01, 3600, "seconds")] = 3.0
    """Seconds for requests for routes, heartbeats and member lists (`mqClientApiTimeout`)."""
    route_interval: Annotated[float, ValueRange(0.01, 3600, "seconds")] = 30.0
    """Seconds between refreshes of routes (`pollNameServerInterval`)."""
    heartbeat_interval: Annotated[float, ValueRange(0.01, 3600, "seconds")] = 30.0
    heartbeat_v2: bool = False
    """Omit unchanged subscriptions from periodic heartbeats to brokers that support this: SparrowMQ's, and
    Apache's since 5.1 (`useHeartbeatV2`, client:A-63).
    """
    close_timeout: Annotated[float, ValueRange(0, 3600, "seconds")] = 10.0
    """Seconds `close` may take; unfinished work is then cancelled."""
    compat: Compat = "5.x"
    """Which version's behaviour to follow where RocketMQ's clients differ (client:G)."""
    hooks: Sequence[Hook] = ()
    """Called around sends, requests and consumption, in this order (classes of `hooks`). Clients that
    share an `instance_name` share the request hooks of the first."""
    unit_mode: bool = False
    """Marks requests and groups as belonging to a unit (RocketMQ's unit mode) (client:A-75)."""
    vip_channel: bool = False
    """Use the brokers' port for urgent requests, two below the usual one (`vipChannelEnabled`)."""
    trace: bool = False
    """Record sends and consumption as traces in `trace_topic` (`enableTrace`)."""
    trace_topic: str = TRACE_TOPIC
    access_channel: AccessChannel = "local"
    """`cloud`: traces go to the topics `rmq_sys_TRACE_DATA_<region>` of the brokers' regions, regardless of
    `trace_topic` (`accessChannel`).
    """
    trace_batch: Annotated[int, ValueRange(1, 20)] = 10
    """Records in one trace message (`traceMsgBatchNum`); fewer are sent after 5 s."""
    namespace: str | None = None
    """Namespace of topics and groups: their names are `<namespace>%<name>` at the brokers (client:B.23)."""
    namespace_v2: str | None = None
    """Namespace sent in header fields, for servers that support it; names are unchanged (client:B-126)."""
    access_key: str | None = None
    """Account that signs every request, with `secret_key` (`AclClientRPCHook`, client:B.24).

    None reads `SPARROW_ACCESS_KEY` and `SPARROW_SECRET_KEY` when the client starts.
    """
    secret_key: str | None = field(default=None, repr=False)
    security_token: str | None = field(default=None, repr=False)
    tls: bool | ssl.SSLContext | None = None
    """Use TLS for name servers and brokers: True uses the settings below; an SSL context is used as it is.

    None reads `SPARROW_CLIENT_TLS` when the client starts; without it connections are not encrypted.
    """
    tls_ca: str | Path | None = None
    """PEM file of the CA that signed the servers' certificates; None uses the system's CAs."""
    tls_cert: str | Path | None = None
    """PEM file of the client certificate for servers that request one, with `tls_key`."""
    tls_key: str | Path | None = None
    tls_key_password: str | None = field(default=None, repr=False)
    tls_verify: bool = True
    """False accepts any certificate, as RocketMQ's clients do by default; only for tests."""

    def __post_init__(self) -> None:
        check_settings(self, self._conflicts)

    def _conflicts(self) -> Iterator[SparrowError]:
        """What is wrong beyond the types and ranges of single settings."""
        yield from _raised(check_topic, self.trace_topic)
        if self.client_ip is not None:
            yield from _raised(_check_address, self.client_ip)
        yield from _together("access_key", self.access_key, "secret_key", self.secret_key)
        if self.access_key is not None and self.secret_key is not None:
            yield from _raised(Credentials, self.access_key, self.secret_key)
        yield from _together("tls_cert", self.tls_cert, "tls_key", self.tls_key)
        if not self.tls and (self.tls_ca or self.tls_cert):
            text = "tls_ca or tls_cert is given, but TLS is off; set tls=True"
            yield SettingsError(text, "tls", False)
        if self.namespace:
            yield from _raised(check_namespace, self.namespace)


def _check_address(client_ip: str) -> None:
    try:
        ipaddress.ip_address(client_ip.removeprefix("[").removesuffix("]"))
    except ValueError:
        raise SettingsError(
            f"client_ip={client_ip!r} is not an IP address; it identifies this client at brokers: "
            f"give one such as 10.0.0.5, or leave it out",
            "client_ip",
            client_ip,
        ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings(ClientSettings):
    """Settings of a producer (client:B.1)."""

    send_timeout: Annotated[float, ValueRange(0.001, 3600, "seconds")] = 3.0
    """Seconds for one send, including retries (`sendMsgTimeout`)."""
    retries: Annotated[int, ValueRange(0, 100)] = 2
    """Retries after the first attempt (`retryTimesWhenSendFailed`)."""
    retries_async: Annotated[int, ValueRange(0, 100)] = 2
    """Retries of asynchronous sends, only after lost connections and missing responses
    (`retryTimesWhenSendAsyncFailed`).
    """
    retry_codes: frozenset[int] | None = None
    """Response codes after which a send is retried (`retryResponseCodes`); None: depends on `compat`."""
    try_timeout: Annotated[float | None, ValueRange(0.001, 3600, "seconds")] = None
    """Seconds for one attempt, except the last (`sendMsgMaxTimeoutPerRequest`); None: the rest of
    `send_timeout`, shared with further attempts at other brokers.
    """
    retry_not_stored_ok: bool = False
    """Try another broker when a message was stored but not flushed or replicated in time."""
    compress_over: Annotated[int, ValueRange(1, 2**31 - 1, "bytes")] = 4096
    """Bodies of this size or more are compressed (`compressMsgBodyOverHowmuch`)."""
    compression: Compression = "zlib"
    compression_level: Annotated[int, ValueRange(0, 22)] = 5
    message_bytes_max: Annotated[int, ValueRange(1, 15 * MIB, "bytes")] = BODY_BYTES_MAX
    """Maximum size of a body before compression, and of an encoded batch (`maxMessageSize`)."""
    create_topic_key: str = "TBW102"
    create_topic_queues: Annotated[int, ValueRange(1, 65535)] = 4
    """Queues per broker when a send creates its topic (`defaultTopicQueueNums`)."""
    in_flight_max: Annotated[int, ValueRange(1, 65535)] = 10_000
    """Maximum number of sends in flight (`backPressureForAsyncSendNum`)."""
    in_flight_bytes_max: Annotated[int, ValueRange(MIB, 2**40, "bytes")] = 100 * MIB
    """Maximum bytes of sends in flight (`backPressureForAsyncSendSize`)."""
    topics: Sequence[str] = ()
    """Topics whose routes are loaded at start, so that the first send does not wait for them."""
    latency_fault: bool = False
    """Avoid brokers that were slow or failed for a while (`sendLatencyFaultEnable`); messages of one key may
    then change queues (client:B.13)."""
    latency_max: Sequence[int] | None = None
    """Thresholds in ms, ascending (`latencyMax`); None: depends on `compat`."""
    not_available: Sequence[int] | None = None
    """For each threshold, how many ms the broker is avoided (`notAvailableDuration`)."""
    detector: bool = False
    """Check whether failed brokers are available again (`startDetectorEnable`); needs `latency_fault`."""
    detect_timeout: Annotated[float, ValueRange(0.001, 60, "seconds")] = 0.2
    detect_interval: Annotated[float, ValueRange(0.01, 3600, "seconds")] = 2.0
    linger: Annotated[float, ValueRange(0, 30, "seconds")] = 0.0
    """Seconds an asynchronous send may wait for others to form a batch; 0 disables batching."""
    linger_bytes: Annotated[int, ValueRange(1, 2 * MIB, "bytes")] = 32 * 1024
    """Size at which such a batch is sent immediately (`batchMaxBytes`)."""
    linger_total_bytes: Annotated[int, ValueRange(1, 2**40, "bytes")] = 32 * MIB
    """Bytes that may wait in total; further messages are sent without batching (`totalBatchMaxBytes`)."""

    idempotent: bool = False
    """Number the messages, so that SparrowMQ's brokers store a repeated send only once."""

    check_threads: Annotated[int, ValueRange(1, 1000)] = 1
    """How many plain `check` functions of a transaction listener run at once (`checkThreadPoolMaxSize`)."""
    checks_max: Annotated[int, ValueRange(1, 10**6)] = 2000
    """Transaction checks that may be queued (`checkRequestHoldMax`)."""

    def _conflicts(self) -> Iterator[SparrowError]:
        yield from ClientSettings._conflicts(self)
        if self.compression == "zlib" and self.compression_level > 9:
            yield SettingsError(
                f"compression_level={self.compression_level} is out of range: zlib has 0 to 9; choose "
                "another level or compression",
                "compression_level",
                self.compression_level,
                limit=9,
                other="compression",
            )
        if self.detector and not self.latency_fault:
            yield SettingsError(
                "detector=True has no effect without latency_fault=True; set both or neither",
                "detector",
                other="latency_fault",
            )
        yield from _together("latency_max", self.latency_max, "not_available", self.not_available)
        if self.latency_max is not None and self.not_available is not None:
            if not self.latency_max or len(self.latency_max) != len(self.not_available):
                yield SettingsError(
                    f"latency_max has {len(self.latency_max)} entries and not_available "
                    f"{len(self.not_available)}; give the same number of each, at least one",
                    "latency_max",
                    self.latency_max,
                    other="not_available",
                )
            elif list(self.latency_max) != sorted(self.latency_max) or min(*self.not_available, 0) < 0:
                yield SettingsError(
                    "latency_max must ascend, and not_available must not be negative",
                    "latency_max",
                    self.latency_max,
                )

    @property
    def codes_retried(self) -> frozenset[int]:
        """The response codes after which a send is retried."""
        return RETRY_CODES[self.compat] if self.retry_codes is None else self.retry_codes


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings(ClientSettings):
    """Settings of a push consumer (client:D.1)."""

    model: Model = "clustering"
    """`clustering`: the members of the group share the messages; `broadcasting`: each member gets all."""
    ordered: bool = False
    """Handle the messages of each queue one at a time, in order (client:D.11)."""
    consume_from: ConsumeFrom = "last"
    threads: Annotated[int, ValueRange(1, 1000)] = 20
    """Maximum number of concurrent handlers: threads for plain functions, tasks for async ones
    (`consumeThreadMax`).
    """
    batch: Annotated[int, ValueRange(1, 1024)] = 1
    """Messages per handler call; above 1 the handler gets a list (`consumeMessageBatchMaxSize`)."""
    pull_batch: Annotated[int, ValueRange(1, 1024)] = 32
    """Messages requested per pull (`pullBatchSize`); Apache's brokers return at most 32."""
    pull_batch_behind: Annotated[int, ValueRange(1, 65535)] = 512
    """The same while the queue's backlog is larger than `pull_batch`; only SparrowMQ's brokers return more
    than 32.
    """
    pull_bytes: Annotated[int, ValueRange(1, 8 * MIB, "bytes")] = 256 * 1024
    """Bytes requested per pull (`pullBatchSizeInBytes`)."""
    pull_hold: Annotated[float, ValueRange(0, 3600, "seconds")] = 15.0
    """Seconds a broker may hold a pull while there are no messages."""
    pull_timeout: Annotated[float, ValueRange(0.5, 7200, "seconds")] = 30.0
    pull_interval: Annotated[float, ValueRange(0, 65.535, "seconds")] = 0.0
    queue_messages_max: Annotated[int, ValueRange(1, 65535)] = 1000
    """Pulling of a queue pauses above this number of its unfinished messages (`pullThresholdForQueue`)."""
    queue_bytes_max: Annotated[int, ValueRange(1, 1024 * MIB, "bytes")] = 100 * MIB
    """Pulling of a queue pauses above this many bytes of its unfinished messages
    (`pullThresholdSizeForQueue`).
    """
    queue_span_max: Annotated[int, ValueRange(1, 65535)] = 2000
    """Pulling pauses above this distance between the smallest and largest unfinished offset
    (`consumeConcurrentlyMaxSpan`).
    """
    topic_messages_max: Annotated[int | None, ValueRange(1, 6_553_500)] = None
    """The same limit for all assigned queues of a topic, divided among them (`pullThresholdForTopic`)."""
    topic_bytes_max: Annotated[int | None, ValueRange(1, 102_400 * MIB, "bytes")] = None
    """As above, for bytes (`pullThresholdSizeForTopic`)."""
    max_reconsume_times: Annotated[int, ValueRange(-1, 2**31 - 1)] = -1
    """Retries before a message becomes a dead letter; -1 means the group's own limit (`sparrow group create
    --retries`, 16 by default), and no limit in ordered consumption.
    """
    suspend_time: Annotated[float, ValueRange(0.01, 30, "seconds")] = 1.0
    """Seconds an ordered queue pauses after a failure (`suspendCurrentQueueTimeMillis`)."""
    auto_commit: bool = True
    """False: ordered handlers commit explicitly, by returning `ConsumeResult.COMMIT` (client:D-66)."""
    consume_timeout: Annotated[float, ValueRange(0.001, 86_400, "seconds")] = 15 * 60.0
    """Seconds a message may stay unfinished before it goes to retry; its async handler is then cancelled."""
    redeliver_delay: Annotated[float, ValueRange(0.001, 86_400, "seconds")] = 5.0
    """Seconds until a message that could not be sent back is redelivered locally (client:D-54)."""
    persist_interval: Annotated[float, ValueRange(0.001, 86_400, "seconds")] = 5.0
    """Seconds between commits of consumer offsets (`persistConsumerOffsetInterval`)."""
    rebalance_interval: Annotated[float, ValueRange(0.001, 86_400, "seconds")] = 20.0
    rebalance_interval_min: Annotated[float, ValueRange(0, 3600, "seconds")] = 1.0
    """Minimum seconds between two rebalances, and the delay after an incomplete one (client:C-07)."""
    error_delay: Annotated[float, ValueRange(0.001, 3600, "seconds")] = 1.0
    """Seconds a queue pauses after a failed pull (`pullTimeDelayMillsWhenException`)."""
    allocate: AllocateStrategy = Averagely()  # noqa: RUF009 - a strategy is frozen
    """Assigns queues to members; all members of a group must use the same strategy
    (`allocateMessageQueueStrategy`).
    """
    lock_interval: Annotated[float, ValueRange(0.001, 86_400, "seconds")] = 20.0
    """Seconds between renewals of the locks of ordered queues (`rocketmq.client.rebalance.lockInterval`)."""
    post_subscription: bool = False
    """Send the expression with every pull (`postSubscriptionWhenPull`)."""
    offset_store: OffsetStore | None = None
    """Where offsets are stored; by default at the brokers, for broadcasting in a file below `offset_dir`."""
    offset_dir: Path | str | None = None
    """Directory of the broadcasting offset files; by default `~/.rocketmq_offsets`, as in RocketMQ's Java
    client.
    """
    queue_listener: QueueListener | None = None
    """Called with (topic, all its queues, assigned queues) when the assigned queues changed
    (`messageQueueListener`).
    """
    server_assignment: bool = False
    """Ask the broker which queues to read, and whether by POP (`clientRebalance` = false), which operators
    set for a group. Needs RocketMQ 5 or SparrowMQ; if a broker does not decide, the members divide the queues
    as usual.
    """
    pop_invisible: Annotated[float, ValueRange(1, 3 * 86_400, "seconds")] = 60.0
    """Seconds that a message received by POP is hidden from other members; what is not handled by then comes
    again (`popInvisibleTime`).
    """
    pop_batch: Annotated[int, ValueRange(1, POP_MAX)] = 32
    """Messages requested per POP (`popBatchNums`)."""
    pop_unfinished_max: Annotated[int, ValueRange(1, 100_000)] = 96
    """Above this many unfinished messages of a topic at a broker no more are requested by POP
    (`popThresholdForQueue`).
    """
    managed: bool = False
    """Let a coordinator assign the queues, with fences at SparrowMQ's brokers."""

    def _conflicts(self) -> Iterator[SparrowError]:
        yield from ClientSettings._conflicts(self)
        yield from _raised(_check_consume_from, self.consume_from)
        yield from _above_hold(self.pull_timeout, self.pull_hold)
        if self.model == "broadcasting" and self.ordered:
            yield SettingsError(
                "ordered=True cannot be combined with model='broadcasting': order needs queues that one "
                "member has locked, and broadcasting gives every queue to all members",
                "ordered",
                other="model",
            )
        if self.server_assignment:
            yield from _apart(
                "server_assignment=True",
                ("model='broadcasting'", self.model == "broadcasting"),
                ("ordered=True", self.ordered),
            )
        if self.managed:
            yield from _apart(
                "managed=True",
                ("model='broadcasting'", self.model == "broadcasting"),
                ("server_assignment=True", self.server_assignment),
                ("a custom offset_store", self.offset_store is not None),
            )
        if not self.auto_commit and not self.ordered:
            yield SettingsError(
                "auto_commit=False needs ordered consumption; set ordered=True as well",
                "auto_commit",
                other="ordered",
            )


def _check_consume_from(start: ConsumeFrom) -> None:
    if not isinstance(start, str):
        epoch_ms("consume_from", start)


def _above_hold(timeout: float, hold: float) -> Iterator[SettingsError]:
    """A problem if a pull may be held for longer than its timeout."""
    if timeout < hold + 0.5:
        yield SettingsError(
            f"pull_timeout={timeout!r} is too short: must be {hold + 0.5:.15g} seconds or more, for pulls "
            f"that brokers hold for pull_hold={hold!r}",
            "pull_timeout",
            timeout,
            limit=hold + 0.5,
            other="pull_hold",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PullSettings(ClientSettings):
    """Settings of a pull consumer (client:E.1, E.3).

    The settings of unfinished messages, `poll` and commits apply to `subscribe` and `assign`, not to reading
    queues by offset.
    """

    model: Model = "clustering"
    """`clustering`: the members of the group share the queues; `broadcasting`: each member reads all."""
    allocate: AllocateStrategy = Averagely()  # noqa: RUF009 - a strategy is frozen
    """Assigns queues to members; all members of a group must use the same strategy
    (`allocateMessageQueueStrategy`).
    """
    offset_store: OffsetStore | None = None
    """Where offsets are stored; by default at the brokers, for broadcasting in a file below `offset_dir`."""
    offset_dir: Path | str | None = None
    """Directory of the broadcasting offset files; by default `~/.rocketmq_offsets`, as in RocketMQ's Java
    client.
    """
    consume_from: ConsumeFrom = "last"
    auto_commit: bool = True
    """Whether `poll` commits the messages of earlier polls every `auto_commit_interval` seconds."""
    auto_commit_interval: Annotated[float, ValueRange(1, 86_400, "seconds")] = 5.0
    pull_batch: Annotated[int, ValueRange(1, 1024)] = 10
    """Messages requested per pull (`pullBatchSize`), which is also the most one `poll` returns."""
    pull_bytes: Annotated[int, ValueRange(1, 8 * MIB, "bytes")] = 256 * 1024
    """Bytes requested per pull (`pullBatchSizeInBytes`)."""
    pull_hold: Annotated[float, ValueRange(0, 3600, "seconds")] = 20.0
    """Seconds a broker may hold a pull while there are no messages (`brokerSuspendMaxTimeMillis`)."""
    pull_timeout: Annotated[float, ValueRange(0.5, 7200, "seconds")] = 30.0
    """Timeout of such a pull in seconds (`consumerTimeoutMillisWhenSuspend`); must exceed `pull_hold`."""
    poll_timeout: Annotated[float, ValueRange(0, 86_400, "seconds")] = 5.0
    """Seconds `poll` waits for messages when called without `timeout` (`pollTimeoutMillis`)."""
    messages_max: Annotated[int, ValueRange(1, 2**31 - 1)] = 10_000
    """Pulling pauses above this number of unfinished messages of all queues (`pullThresholdForAll`)."""
    queue_messages_max: Annotated[int, ValueRange(1, 65535)] = 1000
    """Pulling of a queue pauses above this number of its unfinished messages (`pullThresholdForQueue`)."""
    queue_bytes_max: Annotated[int, ValueRange(1, 1024 * MIB, "bytes")] = 100 * MIB
    """Pulling of a queue pauses above this many bytes of its unfinished messages
    (`pullThresholdSizeForQueue`).
    """
    queue_span_max: Annotated[int, ValueRange(1, 65535)] = 2000
    """Pulling of a queue pauses above this distance between its smallest and largest unfinished offset
    (`consumeMaxSpan`).
    """
    topic_check_interval: Annotated[float, ValueRange(0.001, 86_400, "seconds")] = 30.0
    """Seconds between checks of topics with a change listener (`topicMetadataCheckIntervalMillis`)."""
    persist_interval: Annotated[float, ValueRange(0.001, 86_400, "seconds")] = 5.0
    """Seconds between two sends of committed offsets (`persistConsumerOffsetInterval`)."""
    announce: bool = True
    """Whether heartbeats announce the group from the start, as in RocketMQ's pull consumer. The first
    heartbeat creates the group, and the other members' strategies count this member. False announces it only
    when topics are subscribed or registered, or queues assigned; for tools that only observe a group.
    """
    managed: bool = False
    """Let a coordinator assign queues to this member, with fences at SparrowMQ's brokers. A queue moves when
    its messages are processed: at the next poll, or, for queues read by offset, when they are pulled or
    requested again.
    """
    rebalance: bool = True
    """Whether registered and subscribed topics are shared among the members (`enableRebalance`)."""
    rebalance_interval: Annotated[float, ValueRange(0.001, 86_400, "seconds")] = 20.0
    rebalance_interval_min: Annotated[float, ValueRange(0, 3600, "seconds")] = 1.0
    error_delay: Annotated[float, ValueRange(0.001, 86_400, "seconds")] = 1.0
    """Seconds a queue pauses after a failed pull (`pullTimeDelayMillsWhenException`)."""
    max_reconsume_times: Annotated[int, ValueRange(-1, 2**31 - 1)] = -1
    """Retries of a message returned with `send_back` before it becomes a dead letter; -1 means the group's
    own limit.
    """

    def _conflicts(self) -> Iterator[SparrowError]:
        yield from ClientSettings._conflicts(self)
        yield from _raised(_check_consume_from, self.consume_from)
        yield from _above_hold(self.pull_timeout, self.pull_hold)
        if self.managed:
            yield from _apart(
                "managed=True",
                ("model='broadcasting'", self.model == "broadcasting"),
                ("rebalance=False", not self.rebalance),
                ("a custom offset_store", self.offset_store is not None),
            )

    @classmethod
    def of(cls, settings: ClientSettings | None) -> PullSettings:
        """Return `settings`, or pull settings made from general client settings. Raises TypeError for those
        of other clients, because most of them would be lost.
        """
        if isinstance(settings, PullSettings):
            return settings
        if settings is None:
            return cls()
        if type(settings) is not ClientSettings:
            raise TypeError(
                f"settings={settings!r:.200} must be PullSettings or ClientSettings, or leave them out"
            )
        return cls(**{item.name: getattr(settings, item.name) for item in fields(ClientSettings)})


S = TypeVar("S", bound=ClientSettings)

OTHER_NAMES: Final = {"name_server": "namesrv", "retries": "max_reconsume_times"}
"""Keywords that are other names of settings. A producer's `retries` is a setting of its own."""


def settings_of(kind: type[S], settings: S | None, given: Mapping[str, Any]) -> S:
    """`settings`, by default those of `kind`, with the values of `given`: see `with_keywords`. Raises
    TypeError for settings of another kind.
    """
    if settings is None:
        return with_keywords(kind(), given)
    if not isinstance(settings, kind):
        raise TypeError(f"settings={settings!r:.200} must be {kind.__name__}, or leave them out")
    return with_keywords(settings, given)


def with_keywords(settings: S, given: Mapping[str, Any]) -> S:
    """`settings` with the values of `given`, which may have other names; None leaves a setting as it is.

    Raises TypeError for an unknown name, as a call does, and `SettingsError`, with the names that were given.
    """
    values = {name: value for name, value in given.items() if value is not None}
    known = {item.name for item in fields(settings)}
    others = {other: name for other, name in OTHER_NAMES.items() if name in known and other not in known}
    for name in given.keys() - known - others.keys():
        near = difflib.get_close_matches(name, [*known, *others], 1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; see the fields of {type(settings).__name__}"
        raise TypeError(f"there is no keyword argument or setting {name!r}{hint}")
    for other, name in others.items():
        value = values.pop(other, None)
        if value is not None and values.setdefault(name, value) != value:
            text = f"{other}={value!r} and {name}={values[name]!r} differ; give one of them"
            raise SettingsError(text, other, value, other=name)
    try:
        return replace(settings, **values) if values else settings
    except SettingsError as error:
        raise _as_given(error, {others[other]: other for other in others.keys() & given.keys()}) from None


def _as_given(error: SettingsError, names: Mapping[str, str]) -> SettingsError:
    """The same error with other names of settings."""
    text = str(error)
    for name, other in names.items():
        text = re.sub(rf"\b{name}=", f"{other}=", text)
    setting = names.get(error.setting, error.setting)
    return SettingsError(text, setting, error.value, limit=error.limit, other=error.other)
