# ruff: noqa: RUF009 - rows of frozen dataclasses are made by one function
"""The settings of broker and name server: names, types, ranges, defaults, and the conversion from text.

Each field of `BrokerSettings` and `NameServerSettings` is one row of the table: the wire name is RocketMQ's
own (broker:15), the attribute its snake_case form. `core.settings.without_effect` lists the names that
RocketMQ has but that have no effect here. This module reads no files and no environment variables: callers
pass in the texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final, TypeVar

from sparrowmq.core.delay import DELAY_LEVELS, DelayLevels
from sparrowmq.core.errors import SettingsError
from sparrowmq.core.settings import shared_rows
from sparrowmq.core.settings.addresses import DEFAULT_ADDRESS
from sparrowmq.core.settings.addresses import split_addresses as split_addresses
from sparrowmq.core.settings.coordinator import CoordinatorSettings as CoordinatorSettings
from sparrowmq.core.settings.proxy import ProxySettings as ProxySettings
from sparrowmq.core.settings.rows import INT_MAX, check_ranges
from sparrowmq.core.settings.rows import Setting as Setting
from sparrowmq.core.settings.rows import row as _row
from sparrowmq.core.settings.rows import table as table
from sparrowmq.core.settings.text import (
    environment_name,
    parse_hours,
    parse_levels,
)
from sparrowmq.core.settings.without_effect import (
    BROKER_WITHOUT_EFFECT,
    LATER,
    NAMESERVER_WITHOUT_EFFECT,
    RENAMED,
    LaterSetting,
)

MIB: Final = 1024 * 1024
PROBLEMS_TOLD: Final = 20
"""Maximum names and values in one error message."""
ANY_ADDRESS: Final = "0.0.0.0"


class SettingStatus(Enum):
    """The effect of a known name in this release."""

    IN_FORCE = "in force"
    WITHOUT_EFFECT = "without effect"
    LATER = "only its default is accepted"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings(shared_rows.MetricsSettings):
    """A broker's settings; names and defaults as RocketMQ's except where the help says so."""

    broker_name: str = _row("broker-a", "name of the master and its slaves; RocketMQ: the host name")
    broker_cluster_name: str = _row("DefaultCluster", "name of the cluster")
    broker_id: int = _row(0, "0 for a master, 1 or more for its slaves", low=0, high=INT_MAX)
    broker_role: str = _row(
        "ASYNC_MASTER",
        "SYNC_MASTER: sends wait for a slave; SLAVE: this broker copies its master's log",
        choices=("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"),
    )
    broker_ip1: str = _row(DEFAULT_ADDRESS, "address that clients use; loopback by default", name="brokerIP1")
    bind_address: str = shared_rows.bind_address()
    listen_port: int = shared_rows.listen_port(10911)
    namesrv_addr: str = _row("", "name servers, host:port;host:port")
    store_path_root_dir: Path = _row(Path("sparrow-data"), "directory of the store; RocketMQ: ~/store")
    store_path_commit_log: Path | None = _row(None, "directory of the commit log; default: root/commitlog")
    mapped_file_size_commit_log: int = _row(
        1024 * MIB, "bytes of one commit log file", low=4096, high=INT_MAX
    )
    mapped_file_size_consume_queue: int = _row(
        6_000_000, "bytes of one consume queue file, rounded up to a multiple of 20", low=20, high=INT_MAX
    )
    flush_disk_type: str = _row(
        "ASYNC_FLUSH", "whether sends wait for an fsync", choices=("ASYNC_FLUSH", "SYNC_FLUSH")
    )
    flush_interval_commit_log: int = _row(500, "ms between flushes of the log", low=1, high=60_000)
    flush_interval_consume_queue: int = _row(1000, "ms between flushes of the queues", low=1, high=600_000)
    sync_flush_timeout: int = _row(5000, "ms a send waits for its fsync", low=1, high=600_000)
    max_message_size: int = _row(4 * MIB, "bytes of a message's body", low=1, high=15 * MIB)
    file_reserved_time: int = _row(
        72, "hours a file of the log is kept after its last write", low=0, high=1_000_000
    )
    delete_when: str = _row("04", "hours (local time) at which expired files are deleted; 04;16 for two")
    disk_max_used_space_ratio: int = _row(
        75, "percent: above it, expired files are deleted at any hour", low=1, high=100
    )
    disk_space_clean_forcibly_ratio: int = _row(
        85, "percent: above it, the oldest files are deleted whatever their age", low=1, high=100
    )
    disk_space_warning_level_ratio: int = _row(90, "percent: above it, sends are refused", low=1, high=100)
    clean_file_forcibly_enable: bool = _row(True, "whether diskSpaceCleanForciblyRatio deletes")
    clean_resource_interval: int = _row(10_000, "ms between checks for expired files", low=10, high=3_600_000)
    delete_file_batch_max: int = _row(10, "most log files that one check deletes", low=1, high=1000)
    delete_commit_log_files_interval: int = _row(
        100, "ms between two deletions of one check", low=0, high=60_000
    )
    message_index_enable: bool = _row(True, "whether messages can be found by key")
    max_hash_slot_num: int = _row(5_000_000, "hash slots of one index file", low=1, high=100_000_000)
    max_index_num: int = _row(20_000_000, "entries of one index file", low=2, high=85_000_000)
    max_msgs_num_batch: int = _row(
        64, "maximum number of messages that a query by key returns", low=1, high=10_000
    )
    default_query_max_num: int = _row(32, "the same for a query by unique key", low=1, high=10_000)
    max_transfer_bytes_on_message_in_memory: int = _row(
        256 * 1024, "bytes of the response to one pull", low=1, high=8 * MIB
    )
    max_transfer_count_on_message_in_memory: int = _row(
        32, "messages in the response to one pull", low=1, high=100_000
    )
    access_message_in_memory_max_ratio: int = _row(
        40, "percent of memory that counts as cached log", low=0, high=100
    )
    max_filter_message_size: int = _row(16_000, "bytes of queue entries a pull scans", low=20, high=16 * MIB)
    max_producer_states: int = _row(
        50_000, "most pairs of idempotent producer and queue; ours", low=1, high=10_000_000
    )
    producer_state_expire_hours: int = _row(
        168, "hours until an idle producer is forgotten; ours", low=1, high=87_600
    )
    broker_permission: int = _row(6, "4 read, 2 write, 6 both; limits all topics", choices=(2, 4, 6))
    default_topic_queue_nums: int = _row(8, "most queues of a topic created by a send", low=1, high=1024)
    auto_create_topic_enable: bool = _row(True, "whether a send creates its topic")
    auto_create_subscription_group: bool = _row(True, "whether a consumer creates its group")
    trace_on: bool = _row(True, "sent to clients with each response to a send")
    trace_topic_enable: bool = _row(False, "whether the topic for clients' traces is created at the start")
    msg_trace_topic_name: str = _row("RMQ_SYS_TRACE_TOPIC", "that topic's name")
    region_id: str = _row("DefaultRegion", "sent to clients with each response to a send")
    register_name_server_period: int = _row(30_000, "ms between registrations", low=1000, high=60_000)
    register_broker_timeout_mills: int = _row(24_000, "ms that a registration may take", low=100, high=60_000)
    flush_consumer_offset_interval: int = _row(
        5000, "ms between writes of the consumer offsets", low=10, high=600_000
    )
    message_delay_level: str = _row(
        DELAY_LEVELS, "delays of levels 1, 2, 3 …, with s, m, h or d, separated by single blanks"
    )
    flush_delay_offset_interval: int = _row(
        10_000, "ms between writes of the progress of delay levels", low=10, high=600_000
    )
    timer_wheel_enable: bool = _row(True, "whether messages may be sent for delivery at an exact time")
    timer_max_delay_sec: int = _row(259_200, "longest delay of a message in s", low=1, high=366 * 86_400)
    timer_roll_window_slot: int = _row(
        172_800,
        "seconds that the timer wheel covers; later messages are scheduled again",
        low=2,
        high=604_740,
    )
    revive_queue_num: int = _row(
        8,
        "queues of the topic with the check points of POP; change it only while none is out",
        low=1,
        high=64,
    )
    enable_retry_topic_v2: bool = _row(
        False, "whether retries of POP go to %RETRY%group+topic instead of %RETRY%group_topic"
    )
    retrieve_message_from_pop_retry_topic_v1: bool = _row(
        True, "whether POP also reads %RETRY%group_topic while enableRetryTopicV2 is on"
    )
    pop_from_retry_probability: int = _row(
        20, "percent of POP requests that look into the retry topic first", low=0, high=100
    )
    default_message_request_mode: str = _row(
        "PULL",
        "how groups read whose queues the broker assigns (request 400), unless request 401 set it",
        choices=("PULL", "POP"),
    )
    default_pop_share_queue_num: int = _row(
        -1,
        "with POP: from how many further members' queues each member receives; 0 or less: from all",
        low=-1,
        high=INT_MAX,
    )
    timer_flush_interval_ms: int = _row(1000, "ms between flushes of the timer files", low=10, high=60_000)
    mapped_file_size_timer_log: int = _row(100 * MIB, "bytes of one timer log file", low=4096, high=INT_MAX)
    recall_message_enable: bool = _row(False, "whether producers may recall timed messages")
    transaction_time_out: int = _row(
        6000, "ms until a half message without its own time is checked", low=0, high=86_400_000
    )
    transaction_check_interval: int = _row(
        30_000, "ms between checks of half messages", low=10, high=86_400_000
    )
    transaction_check_max: int = _row(15, "maximum of checks of a half message", low=1, high=100_000)
    reject_transaction_message: bool = _row(False, "whether half messages are refused")
    store_reply_message_enable: bool = _row(True, "whether replies are stored in the reply topic")
    use_server_side_reset_offset: bool = _row(
        True, "whether the broker resets offsets; false notifies clients, like RocketMQ 4.9"
    )
    slave_read_enable: bool = _row(
        False,
        "at a master: whether groups that read uncached messages are sent to a slave; "
        "at a slave: whether it answers pulls",
    )
    ha_listen_port: int = _row(
        0,
        "a master's port for slaves; 0: listenPort + 1, or any free one if that is in use or listenPort is 0",
        low=0,
        high=65535,
    )
    ha_master_address: str = _row("", "a slave's master, host:haListenPort; default: as the name server says")
    ha_allowed_addresses: str = _row(
        "",
        "addresses of slaves, such as 10.0.0.* or 10.0.1-20.*, separated by ';'; default: all, with "
        "access control or required TLS only this machine; ours",
    )
    ha_copy_from: str = _row(
        "FIRST_FILE",
        "where an empty slave begins: at its master's oldest or newest log file; RocketMQ: newest; ours",
        choices=("FIRST_FILE", "LAST_FILE"),
    )
    ha_send_heartbeat_interval: int = _row(
        5000, "ms without traffic after which master and slave send a heartbeat", low=100, high=60_000
    )
    ha_housekeeping_interval: int = _row(
        20_000, "ms of silence after which master and slave disconnect", low=500, high=600_000
    )
    ha_transfer_batch_size: int = _row(
        32 * 1024, "maximum bytes of the log in one packet to a slave", low=1024, high=2 * MIB
    )
    ha_max_gap_not_in_sync: int = _row(
        256 * MIB, "a slave that is more bytes behind is not in sync", low=0, high=INT_MAX
    )
    ha_max_time_slave_not_catchup: int = _row(
        15_000, "ms behind after which a slave leaves the in-sync set", low=100, high=INT_MAX
    )
    in_sync_replicas: int = _row(
        2,
        "at a SYNC_MASTER: copies of a message that its send waits for, the master's included; RocketMQ: "
        "1, so no slave",
        low=1,
        high=16,
    )
    min_in_sync_replicas: int = _row(
        1, "with fewer brokers in sync, the master included, a SYNC_MASTER refuses sends", low=1, high=16
    )
    slave_timeout: int = _row(3000, "maximum ms that a send waits for slaves", low=1, high=600_000)
    real_time_notify_consumer_change: bool = _row(
        True, "whether members are notified of changes at once; false: every 15 s"
    )
    enable_property_filter: bool = _row(True, "whether SQL92 filters are allowed; RocketMQ: false")
    filter_data_clean_time_span: int = _row(
        86_400_000,
        "ms that a group's filter is remembered after its last member left",
        low=1000,
        high=INT_MAX,
    )
    max_error_rate_of_bloom_filter: int = _row(20, "percent; for consumerFilter.json", low=1, high=99)
    expect_consumer_num_use_filter: int = _row(
        32, "groups; for the bloom filter in consumerFilter.json", low=1, high=100_000
    )
    long_polling_enable: bool = _row(True, "whether pulls are held; false: only for shortPollingTimeMills")
    short_polling_time_mills: int = _row(1000, "ms of a held pull without long polling", low=1, high=60_000)
    server_channel_max_idle_time_seconds: int = _row(
        120, "seconds without traffic after which a connection is closed", low=1, high=86_400
    )
    frame_bytes_max: int = _row(16 * MIB, "bytes of one request; ours", low=64 * 1024, high=256 * MIB)
    connections_max: int = shared_rows.connections_max()
    connection_memory_max: int = _row(
        128 * MIB,
        "bytes for all connections: partial and waiting requests, unread responses; ours",
        low=32 * MIB,
        high=INT_MAX,
    )
    unauthenticated_memory_max: int = _row(
        32 * MIB,
        "bytes of these for partial requests of unauthenticated connections; ours",
        low=32 * MIB,
        high=INT_MAX,
    )
    connections_per_address_max: int = shared_rows.connections_per_address_max()
    topics_max: int = _row(100_000, "topics, including retry topics; ours", low=100, high=INT_MAX)
    queues_max: int = _row(500_000, "queues of all topics; ours", low=2000, high=INT_MAX)
    groups_max: int = _row(100_000, "consumer groups; ours", low=100, high=INT_MAX)
    members_max: int = _row(
        200_000, "members of all groups; a client is one of each of its groups; ours", low=100, high=INT_MAX
    )
    held_pulls_max: int = _row(
        100_000, "pulls that wait for messages; others are answered at once; ours", low=100, high=INT_MAX
    )
    open_transactions_max: int = _row(
        500_000, "transactions that have not ended, 130 bytes each; ours", low=100, high=INT_MAX
    )
    consumer_offsets_max: int = _row(
        1_000_000, "offsets of groups, one for each queue that a group consumed; ours", low=100, high=INT_MAX
    )

    tls_server_mode: str = shared_rows.tls_server_mode()
    tls_config_file: Path | None = shared_rows.tls_config_file()
    use_tls: bool = _row(False, "whether connections to name servers use TLS", name="useTLS")
    producer_group_permission_enable: bool = _row(
        False, "whether producer groups in heartbeats need Pub; ours"
    )
    authentication_enabled: bool = _row(False, "access control of 5.x: requests need a user's signature")
    authorization_enabled: bool = _row(False, "requests also need a policy of the user")
    auth_config_path: Path | None = _row(None, "directory of users and policies; default: root/config/auth")
    init_authentication_user: str = _row(
        "", 'first user, a super user: {"username":"…","password":"…"}', secret=True
    )
    inner_client_authentication_credentials: str = _row(
        "", 'user with which this broker signs its requests: {"accessKey":"…","secretKey":"…"}', secret=True
    )
    authentication_whitelist: str = _row("", "request codes that need no signature, separated by commas")
    authorization_whitelist: str = _row("", "request codes that need no policy, separated by commas")
    log_level: str = shared_rows.log_level()
    log_format: str = shared_rows.log_format()
    slow_request_time: int = shared_rows.slow_request_time()
    metrics_prom_exporter_port: int = shared_rows.metrics_prom_exporter_port(5557)
    metrics_lag_by_queue: bool = _row(False, "metrics of a group's lag in each queue; ours")

    def __post_init__(self) -> None:
        check_ranges(self)
        split_addresses(self.namesrv_addr)
        parse_hours("deleteWhen", self.delete_when)
        shared_rows.check_metrics(self)
        parse_levels(self.log_level)
        try:
            DelayLevels.parse(self.message_delay_level)
        except ValueError as error:
            raise SettingsError(
                f"messageDelayLevel={self.message_delay_level}: {error}",
                "messageDelayLevel",
                self.message_delay_level,
            ) from None
        if not self.broker_name or "@" in self.broker_name:
            raise SettingsError(
                f"brokerName={self.broker_name}: must not be empty or have '@'",
                "brokerName",
                self.broker_name,
            )
        self._check_role()
        if self.authorization_enabled and not self.authentication_enabled:
            raise SettingsError(
                "authorizationEnabled=true: authorization requires authentication; "
                "set authenticationEnabled=true too",
                "authorizationEnabled",
                other="authenticationEnabled",
            )

    def _check_role(self) -> None:
        if self.ha_master_address:
            split_addresses(self.ha_master_address)
        if self.is_slave and not self.broker_id:
            raise SettingsError(
                "brokerRole=SLAVE with brokerId=0: 0 is the master; give the slave an id of 1 or more",
                "brokerId",
                self.broker_id,
                other="brokerRole",
            )
        if self.broker_id and not self.is_slave:
            raise SettingsError(
                f"brokerId={self.broker_id} with brokerRole={self.broker_role}: a master has the id 0; set "
                "brokerRole=SLAVE for a slave",
                "brokerId",
                self.broker_id,
                other="brokerRole",
            )
        if self.min_in_sync_replicas > self.in_sync_replicas:
            raise SettingsError(
                f"minInSyncReplicas={self.min_in_sync_replicas} is more than "
                f"inSyncReplicas={self.in_sync_replicas}: raise inSyncReplicas too",
                "minInSyncReplicas",
                self.min_in_sync_replicas,
                other="inSyncReplicas",
            )

    @property
    def is_slave(self) -> bool:
        """Whether this broker copies another one's log."""
        return self.broker_role == "SLAVE"

    @property
    def auth_directory(self) -> Path:
        """The directory of users and policies."""
        return self.auth_config_path or self.store_path_root_dir / "config" / "auth"

    @property
    def delay_levels(self) -> DelayLevels:
        """The delays of `messageDelayLevel`."""
        return DelayLevels.parse(self.message_delay_level)

    @property
    def name_servers(self) -> tuple[str, ...]:
        """The name servers' addresses, each host:port."""
        return split_addresses(self.namesrv_addr)


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServerSettings(shared_rows.MetricsSettings):
    """A name server's settings (broker:15.4)."""

    bind_address: str = shared_rows.bind_address()
    listen_port: int = shared_rows.listen_port(9876)
    kv_config_path: Path | None = _row(None, "file of the key-value table; default: only in memory")
    connection_memory_max: int = _row(
        64 * MIB,
        "bytes for all connections: partial and waiting requests, unread responses; ours",
        low=32 * MIB,
        high=INT_MAX,
    )
    connections_max: int = shared_rows.connections_max()
    connections_per_address_max: int = shared_rows.connections_per_address_max()
    topics_max: int = _row(200_000, "topics of all brokers; ours", low=100, high=INT_MAX)
    routes_max: int = _row(
        500_000, "pairs of a topic and a broker that serves it; ours", low=100, high=INT_MAX
    )
    tls_server_mode: str = shared_rows.tls_server_mode()
    tls_config_file: Path | None = shared_rows.tls_config_file()
    log_level: str = shared_rows.log_level()
    log_format: str = shared_rows.log_format()
    slow_request_time: int = shared_rows.slow_request_time()
    metrics_prom_exporter_port: int = shared_rows.metrics_prom_exporter_port(5558)

    def __post_init__(self) -> None:
        check_ranges(self)
        shared_rows.check_metrics(self)
        parse_levels(self.log_level)


SettingsT = TypeVar("SettingsT", BrokerSettings, NameServerSettings, CoordinatorSettings, ProxySettings)


@dataclass(frozen=True, slots=True)
class Layer:
    """Texts by wire name from one place; `source` names it in errors. Later layers win."""

    source: str
    values: Mapping[str, str]


def without_effect(settings_class: type) -> frozenset[str]:
    """RocketMQ's names for this server that have no effect here."""
    if settings_class in (CoordinatorSettings, ProxySettings):
        return frozenset()
    return BROKER_WITHOUT_EFFECT if settings_class is BrokerSettings else NAMESERVER_WITHOUT_EFFECT


def _later(settings_class: type) -> Mapping[str, LaterSetting]:
    return LATER if settings_class is BrokerSettings else {}


def status(settings_class: type, name: str) -> SettingStatus | None:
    """The effect of the name in this release, or None when RocketMQ does not know it."""
    if name in table(settings_class):
        return SettingStatus.IN_FORCE
    if name in _later(settings_class):
        return SettingStatus.LATER
    return SettingStatus.WITHOUT_EFFECT if name in without_effect(settings_class) else None


def nearest(settings_class: type, name: str) -> str | None:
    """The known name most similar to `name` (ignoring case and underscores), or None."""
    import difflib

    rows, later = table(settings_class), _later(settings_class)
    known = {known.lower(): known for known in (*without_effect(settings_class), *later, *rows)}
    found = difflib.get_close_matches(name.replace("_", "").replace("-", "").lower(), known, 1, 0.75)
    return known[found[0]] if found else None


def _unknown(settings_class: type, source: str, name: str, *, looks: bool) -> str:
    """The error for an unknown name. It omits the value, which may be a secret with a mistyped name."""
    near = nearest(settings_class, name) if looks else None
    hint = f"did you mean {near}?" if near else "remove it"
    return f"{source}: {name}: there is no such setting; {hint}"


def _typed(row: Setting, source: str, text: str) -> tuple[Any, str | None]:
    told = "" if row.secret else f"={text}"
    try:
        value = row.parse(text)
    except (ValueError, KeyError):
        value = None
    if value is None and not (text.strip() == "" and row.default is None):
        return None, f"{source}: {row.name}{told}: must be {row.range_text}"
    if value is not None and not row.allows(value):
        return None, f"{source}: {row.name}{told}: must be {row.range_text}"
    return value, None


@dataclass(frozen=True, slots=True)
class _Sorted:
    values: dict[str, Any]
    idle: list[str]
    problems: list[str]
    renamed: list[str]


def _sort(settings_class: type, layers: Iterable[Layer]) -> _Sorted:
    rows, later = table(settings_class), _later(settings_class)
    idle_names = without_effect(settings_class)
    result = _Sorted({}, [], [], [])
    for layer in layers:
        for given, text in layer.values.items():
            name = RENAMED.get(given, given)
            if name != given and name in rows:
                result.renamed.append(f"{layer.source}: {given} is now called {name}; rename it there")
                if name in layer.values:
                    continue  # the new name decides
            row = rows.get(name)
            if row is not None:
                value, problem = _typed(row, layer.source, text)
                if problem:
                    result.problems.append(problem)
                else:
                    result.values[row.attribute] = value
            elif name in later:
                if not later[name].allows(text):
                    result.problems.append(f"{layer.source}: {later[name].refusal(name, text)}")
            elif name in idle_names:
                result.idle.append(name)
            else:
                looks = len(result.problems) < PROBLEMS_TOLD
                result.problems.append(_unknown(settings_class, layer.source, name, looks=looks))
    return result


def _settle_addresses(values: dict[str, Any]) -> None:
    """Derive brokerIP1 or bindAddress from the other if it was not given (broker:15.1)."""
    told, bound = values.get("broker_ip1"), values.get("bind_address")
    if told is not None and bound is None and not is_loopback(told):
        values["bind_address"] = ANY_ADDRESS
    elif told is None and bound is not None:
        if bound in (ANY_ADDRESS, "::"):
            raise SettingsError(
                f"bindAddress={bound}: set brokerIP1 too, the address under which clients reach this broker",
                "bindAddress",
                bound,
                other="brokerIP1",
            )
        values["broker_ip1"] = bound


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach the address."""
    return address == "localhost" or address.startswith("127.") or address == "::1"


def load(settings_class: type[SettingsT], layers: Sequence[Layer]) -> tuple[SettingsT, list[str]]:
    """The settings from the layers, and warnings: one for names without effect, one for each renamed name.

    Raises `SettingsError` naming unknown names, wrong types and values out of range, the first 20. With only
    `brokerIP1`, the broker listens on all addresses of the machine unless `brokerIP1` is loopback. With only
    `bindAddress`, clients get that address.
    """
    found = _sort(settings_class, layers)
    if found.problems:
        more = len(found.problems) - PROBLEMS_TOLD
        told = found.problems[:PROBLEMS_TOLD] + ([f"and {more} more"] if more > 0 else [])
        raise SettingsError("\n".join(told))
    if settings_class is BrokerSettings:
        _settle_addresses(found.values)
    warnings = found.renamed
    if found.idle:
        warnings.append(
            "known to RocketMQ, without effect in this release: " + ", ".join(sorted(set(found.idle)))
        )
    return settings_class(**found.values), warnings


def from_environment(
    settings_class: type, environment: Mapping[str, str], prefix: str = "SPARROW_"
) -> dict[str, str]:
    """The settings in the environment, by wire name. Other variables are ignored."""
    if not any(variable.startswith(prefix) for variable in environment):
        return {}
    names = (*table(settings_class), *_later(settings_class), *without_effect(settings_class), *RENAMED)
    pairs = ((name, environment_name(name, prefix)) for name in names)
    return {name: environment[variable] for name, variable in pairs if variable in environment}
