# ruff: noqa: RUF009 - rows of frozen dataclasses are made by one function
"""The settings of broker and name server: names, types, ranges, defaults, and how texts become them.

Each field of `BrokerSettings` and `NameServerSettings` is one row of the table: the wire name is RocketMQ's
own (broker:15), the attribute its snake_case form. `core.settings_names` lists the names that RocketMQ knows
and that change nothing here. This module reads no file and no environment: callers hand in texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from pathlib import Path
from typing import Any, Final, TypeVar

from sparrowmq.core.delay import DELAY_LEVELS, DelayLevels
from sparrowmq.core.errors import SettingsError
from sparrowmq.core.settings_names import (
    BROKER_WITHOUT_EFFECT,
    LATER,
    NAMESERVER_WITHOUT_EFFECT,
    Later,
)
from sparrowmq.core.settings_text import environment_name, parse_hours, port_number
from sparrowmq.core.tls_settings import MODES

MIB: Final = 1024 * 1024
INT_MAX: Final = 2**31 - 1
DEFAULT_ADDRESS: Final = "127.0.0.1"
ANY_ADDRESS: Final = "0.0.0.0"


class Status(Enum):
    """What a known name does in this release."""

    IN_FORCE = "in force"
    WITHOUT_EFFECT = "without effect"
    LATER = "only its default is accepted"


@dataclass(frozen=True, slots=True)
class Setting:
    """One row: the wire name, the attribute, the type and the bounds (both included) or choices.

    The value of a `secret` one is never told.
    """

    name: str
    attribute: str
    kind: str
    default: Any
    low: int | None
    high: int | None
    choices: tuple[Any, ...]
    help: str
    secret: bool = False

    @property
    def range_text(self) -> str:
        """What values are allowed, in words."""
        if self.choices:
            return "one of " + ", ".join(str(choice) for choice in self.choices)
        if self.kind == "bool":
            return "true or false"
        if self.kind == "int":
            return f"a whole number from {self.low} to {self.high}"
        return "a path" if "Path" in self.kind else "a text"

    def parse(self, text: str) -> Any:
        """The typed value of `text`; raises ValueError when it has the wrong form."""
        text = text.strip()
        if self.kind == "int":
            return int(text)
        if self.kind == "bool":
            return {"true": True, "false": False}[text.lower()]
        if "Path" in self.kind:
            return Path(text).expanduser() if text else self.default
        return text

    def allows(self, value: Any) -> bool:
        """Whether `value` has the type and lies in the range."""
        if self.choices:
            return value in self.choices
        if self.kind == "int":
            number = isinstance(value, int) and not isinstance(value, bool)
            return number and (self.low or 0) <= value <= (INT_MAX if self.high is None else self.high)
        if self.kind == "bool":
            return isinstance(value, bool)
        return True


def _row(
    default: Any,
    help_text: str,
    *,
    low: int | None = None,
    high: int | None = None,
    choices: tuple[Any, ...] = (),
    name: str = "",
    secret: bool = False,
) -> Any:
    metadata = {"help": help_text, "low": low, "high": high, "choices": choices, "name": name}
    return field(default=default, metadata=metadata, repr=not secret)


def _wire_name(attribute: str) -> str:
    first, *rest = attribute.split("_")
    return first + "".join(part.capitalize() for part in rest)


_tables: dict[type, dict[str, Setting]] = {}


def table(settings_class: type) -> Mapping[str, Setting]:
    """The rows of `BrokerSettings` or `NameServerSettings` by wire name."""
    if settings_class not in _tables:
        rows = {}
        for item in fields(settings_class):
            meta = item.metadata
            name = meta["name"] or _wire_name(item.name)
            rows[name] = Setting(
                name,
                item.name,
                str(item.type),
                item.default,
                meta["low"],
                meta["high"],
                meta["choices"],
                meta["help"],
                not item.repr,
            )
        _tables[settings_class] = rows
    return _tables[settings_class]


def _check_ranges(settings: object) -> None:
    problems = [
        f"{row.name}={value}: must be {row.range_text}"
        for row in table(type(settings)).values()
        if not row.allows(value := getattr(settings, row.attribute))
    ]
    if problems:
        raise SettingsError("\n".join(problems))


def split_addresses(text: str) -> tuple[str, ...]:
    """`host:port;host:port` as a tuple; raises `SettingsError` naming a part without a valid port."""
    parts = tuple(part.strip() for part in text.split(";") if part.strip())
    for part in parts:
        host, _, port = part.rpartition(":")
        if not host or port_number(port) is None:
            raise SettingsError(
                f"{part!r} is not an address; write host:port, several joined with ';', "
                "for example 127.0.0.1:9876"
            )
    return parts


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """A broker's settings; names and defaults as RocketMQ's except where the help says so."""

    broker_name: str = _row("broker-a", "name of the master and its slaves; RocketMQ takes the host name")
    broker_cluster_name: str = _row("DefaultCluster", "name of the cluster")
    broker_id: int = _row(0, "0 is the master; slaves are not in this release", low=0, high=0)
    broker_ip1: str = _row(DEFAULT_ADDRESS, "address clients are told; loopback by default", name="brokerIP1")
    bind_address: str = _row(DEFAULT_ADDRESS, "address to listen on; loopback by default")
    listen_port: int = _row(10911, "port; 0 takes any free one", low=0, high=65535)
    namesrv_addr: str = _row("", "name servers, host:port;host:port")
    store_path_root_dir: Path = _row(Path("sparrow-data"), "directory of the store; RocketMQ takes ~/store")
    store_path_commit_log: Path | None = _row(None, "directory of the commit log; default root/commitlog")
    mapped_file_size_commit_log: int = _row(
        1024 * MIB, "bytes of one commit log file", low=4096, high=INT_MAX
    )
    mapped_file_size_consume_queue: int = _row(
        6_000_000, "bytes of one consume queue file, rounded up to a multiple of 20", low=20, high=INT_MAX
    )
    flush_disk_type: str = _row(
        "ASYNC_FLUSH", "whether sends wait for fsync", choices=("ASYNC_FLUSH", "SYNC_FLUSH")
    )
    flush_interval_commit_log: int = _row(500, "ms between flushes of the log", low=1, high=60_000)
    flush_interval_consume_queue: int = _row(1000, "ms between flushes of the queues", low=1, high=600_000)
    sync_flush_timeout: int = _row(5000, "ms a send waits for its fsync", low=1, high=600_000)
    max_message_size: int = _row(4 * MIB, "bytes of a message's body", low=1, high=15 * MIB)
    file_reserved_time: int = _row(
        72, "hours a file of the log is kept after its last write", low=0, high=1_000_000
    )
    delete_when: str = _row("04", "hours of the day (local time) at which expired files go, 04;16 for two")
    disk_max_used_space_ratio: int = _row(
        75, "percent: above it expired files go at any hour", low=1, high=100
    )
    disk_space_clean_forcibly_ratio: int = _row(
        85, "percent: above it the oldest files go whatever their age", low=1, high=100
    )
    disk_space_warning_level_ratio: int = _row(90, "percent: above it sends are refused", low=1, high=100)
    clean_file_forcibly_enable: bool = _row(True, "whether diskSpaceCleanForciblyRatio deletes")
    clean_resource_interval: int = _row(10_000, "ms between looks for expired files", low=10, high=3_600_000)
    delete_file_batch_max: int = _row(10, "files of the log that one look deletes at most", low=1, high=1000)
    delete_commit_log_files_interval: int = _row(
        100, "ms between two deletions of one look", low=0, high=60_000
    )
    message_index_enable: bool = _row(True, "whether messages can be found by key")
    max_hash_slot_num: int = _row(5_000_000, "hash slots of one index file", low=1, high=100_000_000)
    max_index_num: int = _row(20_000_000, "entries of one index file", low=2, high=85_000_000)
    max_msgs_num_batch: int = _row(64, "messages that one query by key gives at most", low=1, high=10_000)
    default_query_max_num: int = _row(32, "the same for a query by unique key", low=1, high=10_000)
    max_transfer_bytes_on_message_in_memory: int = _row(
        256 * 1024, "bytes of one pull's answer", low=1, high=8 * MIB
    )
    max_transfer_count_on_message_in_memory: int = _row(
        32, "messages of one pull's answer", low=1, high=100_000
    )
    access_message_in_memory_max_ratio: int = _row(
        40, "percent of memory that counts as cached log", low=0, high=100
    )
    max_filter_message_size: int = _row(
        16_000, "bytes of queue entries one pull scans", low=20, high=16 * MIB
    )
    max_producer_states: int = _row(
        50_000, "pairs of idempotent producer and queue that are kept; ours", low=1, high=10_000_000
    )
    producer_state_expire_hours: int = _row(
        168, "hours an idempotent producer is remembered after its last message; ours", low=1, high=87_600
    )
    broker_permission: int = _row(6, "4 read, 2 write, 6 both; ANDed into every topic's", choices=(2, 4, 6))
    default_topic_queue_nums: int = _row(8, "most queues of a topic made by a send", low=1, high=1024)
    auto_create_topic_enable: bool = _row(True, "whether a send makes its topic")
    auto_create_subscription_group: bool = _row(True, "whether a consumer makes its group")
    trace_on: bool = _row(True, "told to clients with each answer to a send")
    trace_topic_enable: bool = _row(False, "whether there is a topic for clients' traces from the start")
    msg_trace_topic_name: str = _row("RMQ_SYS_TRACE_TOPIC", "that topic's name")
    region_id: str = _row("DefaultRegion", "told to clients with each answer to a send")
    register_name_server_period: int = _row(30_000, "ms between registrations", low=1000, high=60_000)
    register_broker_timeout_mills: int = _row(24_000, "ms one registration may take", low=100, high=60_000)
    flush_consumer_offset_interval: int = _row(
        5000, "ms between writes of the consumer offsets", low=10, high=600_000
    )
    message_delay_level: str = _row(
        DELAY_LEVELS, "delays of the levels 1, 2, 3 …, with s, m, h or d; one blank between"
    )
    flush_delay_offset_interval: int = _row(
        10_000, "ms between writes of the levels' progress", low=10, high=600_000
    )
    timer_wheel_enable: bool = _row(True, "whether messages may be sent for an exact time")
    timer_max_delay_sec: int = _row(259_200, "seconds a message may be timed ahead", low=1, high=366 * 86_400)
    timer_roll_window_slot: int = _row(
        172_800, "seconds the timer wheel plans ahead; later ones are planned again", low=2, high=604_740
    )
    timer_flush_interval_ms: int = _row(1000, "ms between flushes of the timer files", low=10, high=60_000)
    mapped_file_size_timer_log: int = _row(100 * MIB, "bytes of one timer log file", low=4096, high=INT_MAX)
    recall_message_enable: bool = _row(False, "whether producers may take timed messages back")
    transaction_time_out: int = _row(
        6000, "ms before a half message without its own time is checked", low=0, high=86_400_000
    )
    transaction_check_interval: int = _row(
        30_000, "ms between the checks of half messages", low=10, high=86_400_000
    )
    transaction_check_max: int = _row(
        15, "checks of a half message before it is given up", low=1, high=100_000
    )
    reject_transaction_message: bool = _row(False, "whether half messages are refused")
    store_reply_message_enable: bool = _row(True, "whether replies are kept in the reply topic")
    use_server_side_reset_offset: bool = _row(
        True, "whether a reset happens on the broker; false tells the clients, as RocketMQ 4.9"
    )
    slave_read_enable: bool = _row(
        False, "whether groups that read what is no longer cached are sent to a slave"
    )
    real_time_notify_consumer_change: bool = _row(
        True, "whether members are told of changes at once; false tells them every 15 s"
    )
    enable_property_filter: bool = _row(True, "whether SQL92 filters are taken; RocketMQ takes false")
    filter_data_clean_time_span: int = _row(
        86_400_000, "ms a group's filter is remembered after its last member went", low=1000, high=INT_MAX
    )
    max_error_rate_of_bloom_filter: int = _row(20, "percent; for consumerFilter.json", low=1, high=99)
    expect_consumer_num_use_filter: int = _row(
        32, "groups; for the bloom filter in consumerFilter.json", low=1, high=100_000
    )
    long_polling_enable: bool = _row(True, "whether pulls are held; false holds them shortPollingTimeMills")
    short_polling_time_mills: int = _row(1000, "ms a pull is held without long polling", low=1, high=60_000)
    server_channel_max_idle_time_seconds: int = _row(
        120, "seconds without traffic after which a connection is closed", low=1, high=86_400
    )
    frame_bytes_max: int = _row(16 * MIB, "bytes of one request; ours", low=64 * 1024, high=256 * MIB)
    connections_max: int = _row(10_000, "connections at one time; ours", low=1, high=1_000_000)

    tls_server_mode: str = _row(
        "permissive", "TLS on the port: none, beside plain, or only", choices=MODES, name="tls.server.mode"
    )
    tls_config_file: Path | None = _row(
        None, "tls.properties with the certificates; no TLS without it", name="tls.config.file"
    )
    use_tls: bool = _row(False, "whether name servers are spoken to over TLS", name="useTLS")
    acl_enable: bool = _row(False, "access control of 4.x: accounts in plain_acl.yml")
    acl_path: Path | None = _row(None, "directory of plain_acl.yml and acl/*.yml; ours; default: root/config")
    authentication_enabled: bool = _row(False, "access control of 5.x: requests need a user's signature")
    authorization_enabled: bool = _row(False, "users need a policy for what they do, as well")
    auth_config_path: Path | None = _row(None, "directory of users and policies; default: root/config/auth")
    init_authentication_user: str = _row(
        "", 'first user, a super user: {"username":"…","password":"…"}', secret=True
    )
    inner_client_authentication_credentials: str = _row(
        "", 'user this broker signs as: {"accessKey":"…","secretKey":"…"}', secret=True
    )
    authentication_whitelist: str = _row("", "request codes that need no signature, joined with commas")
    authorization_whitelist: str = _row("", "request codes that need no policy, joined with commas")

    def __post_init__(self) -> None:
        _check_ranges(self)
        split_addresses(self.namesrv_addr)
        parse_hours("deleteWhen", self.delete_when)
        try:
            DelayLevels.parse(self.message_delay_level)
        except ValueError as error:
            raise SettingsError(f"messageDelayLevel={self.message_delay_level}: {error}") from None
        if not self.broker_name or "@" in self.broker_name:
            raise SettingsError(f"brokerName={self.broker_name}: must not be empty or have '@'")
        if self.acl_enable and self.authentication_enabled:
            raise SettingsError("aclEnable and authenticationEnabled exclude each other; choose one")
        if self.authorization_enabled and not self.authentication_enabled:
            raise SettingsError(
                "authorizationEnabled=true: policies of users that nobody checks mean nothing; "
                "set authenticationEnabled=true too"
            )

    @property
    def delay_levels(self) -> DelayLevels:
        """The delays of `messageDelayLevel`."""
        return DelayLevels.parse(self.message_delay_level)

    @property
    def name_servers(self) -> tuple[str, ...]:
        """The name servers' addresses, each host:port."""
        return split_addresses(self.namesrv_addr)


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServerSettings:
    """A name server's settings (broker:15.4)."""

    bind_address: str = _row(DEFAULT_ADDRESS, "address to listen on; loopback by default")
    listen_port: int = _row(9876, "port; 0 takes any free one", low=0, high=65535)
    kv_config_path: Path | None = _row(None, "file of the key-value table; kept in memory without it")
    tls_server_mode: str = _row(
        "permissive", "TLS on the port: none, beside plain, or only", choices=MODES, name="tls.server.mode"
    )
    tls_config_file: Path | None = _row(
        None, "tls.properties with the certificates; no TLS without it", name="tls.config.file"
    )

    def __post_init__(self) -> None:
        _check_ranges(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorSettings:
    """A coordinator's settings. RocketMQ has none: the names are this project's."""

    bind_address: str = _row(DEFAULT_ADDRESS, "address of the HTTP API; loopback by default")
    listen_port: int = _row(9877, "port of the HTTP API; 0 takes any free one", low=0, high=65535)
    database_url: str = _row(
        "", "database, such as postgresql://user:password@host/name; SQLite below --data without", secret=True
    )
    namesrv_addr: str = _row("127.0.0.1:9876", "name servers of the cluster that is watched")
    members_port: int = _row(
        0,
        "port for members of managed groups, who find it at the name servers; 0 takes any",
        low=0,
        high=65535,
    )
    members_address: str = _row(
        "", "address members are told; bindAddress, or how brokers are reached, without"
    )
    tls_server_mode: str = _row(
        "permissive",
        "TLS on the members' port: none, beside plain, or only",
        choices=MODES,
        name="tls.server.mode",
    )
    tls_config_file: Path | None = _row(
        None,
        "tls.properties with the certificates of the members' port; no TLS there without it",
        name="tls.config.file",
    )
    lease_time: int = _row(15_000, "ms a leader's lease runs without renewal", low=300, high=600_000)
    lease_renew_interval: int = _row(5_000, "ms between renewals, and tries of others", low=50, high=300_000)
    lease_margin: int = _row(2_000, "ms before its lease ends that a leader stops", low=10, high=300_000)
    alarm_webhook: str = _row("", "address notices are posted to as JSON; it may hold a key", secret=True)
    alarm_email_to: str = _row("", "receivers of every notice, joined with commas")
    smtp_host: str = _row("", "mail server; no mails without it")
    smtp_port: int = _row(587, "its port", low=1, high=65535)
    smtp_tls: str = _row(
        "starttls",
        "how mails are kept from listeners; certificates are checked",
        choices=("none", "starttls", "always"),
    )
    smtp_from: str = _row("sparrowmq@localhost", "sender of mails")
    smtp_user: str = _row("", "login at the mail server")
    smtp_password: str = _row("", "its password", secret=True)

    def __post_init__(self) -> None:
        _check_ranges(self)
        split_addresses(self.namesrv_addr)


SettingsT = TypeVar("SettingsT", BrokerSettings, NameServerSettings, CoordinatorSettings)


@dataclass(frozen=True, slots=True)
class Layer:
    """Texts by wire name from one place; `source` names it in errors. Later layers win."""

    source: str
    values: Mapping[str, str]


def without_effect(settings_class: type) -> frozenset[str]:
    """The names RocketMQ knows for this server that change nothing here."""
    if settings_class is CoordinatorSettings:
        return frozenset()
    return BROKER_WITHOUT_EFFECT if settings_class is BrokerSettings else NAMESERVER_WITHOUT_EFFECT


def _later(settings_class: type) -> Mapping[str, Later]:
    return LATER if settings_class is BrokerSettings else {}


def status(settings_class: type, name: str) -> Status | None:
    """What the name does in this release, or None when RocketMQ does not know it."""
    if name in table(settings_class):
        return Status.IN_FORCE
    if name in _later(settings_class):
        return Status.LATER
    return Status.WITHOUT_EFFECT if name in without_effect(settings_class) else None


def nearest(settings_class: type, name: str) -> str | None:
    """The known name most like `name` (case and underscores do not count), or None."""
    import difflib

    rows, later = table(settings_class), _later(settings_class)
    known = {known.lower(): known for known in (*without_effect(settings_class), *later, *rows)}
    found = difflib.get_close_matches(name.replace("_", "").replace("-", "").lower(), known, 1, 0.75)
    return known[found[0]] if found else None


def _unknown(settings_class: type, source: str, name: str, value: str) -> str:
    near = nearest(settings_class, name)
    hint = f"did you mean {near}?" if near else "remove it"
    return f"{source}: {name}={value}: there is no such setting; {hint}"


def _typed(row: Setting, source: str, text: str) -> tuple[Any, str | None]:
    try:
        value = row.parse(text)
    except (ValueError, KeyError):
        value = None
    if value is None and not (text.strip() == "" and row.default is None):
        return None, f"{source}: {row.name}={text}: must be {row.range_text}"
    if value is not None and not row.allows(value):
        return None, f"{source}: {row.name}={text}: must be {row.range_text}"
    return value, None


@dataclass(frozen=True, slots=True)
class _Sorted:
    values: dict[str, Any]
    idle: list[str]
    problems: list[str]


def _sort(settings_class: type, layers: Iterable[Layer]) -> _Sorted:
    rows, later = table(settings_class), _later(settings_class)
    idle_names = without_effect(settings_class)
    result = _Sorted({}, [], [])
    for layer in layers:
        for name, text in layer.values.items():
            row = rows.get(name)
            if row is not None:
                value, problem = _typed(row, layer.source, text)
                if problem:
                    result.problems.append(problem)
                else:
                    result.values[row.attribute] = value
            elif name in later:
                if not later[name].allows(text):
                    result.problems.append(
                        f"{layer.source}: {name}={text}: {later[name].feature} is not in this release; "
                        f"only {name}={later[name].accepted} is accepted"
                    )
            elif name in idle_names:
                result.idle.append(name)
            else:
                result.problems.append(_unknown(settings_class, layer.source, name, text))
    return result


def _settle_addresses(values: dict[str, Any]) -> None:
    """Fill in the one of brokerIP1 and bindAddress that was not given (broker:15.1)."""
    told, bound = values.get("broker_ip1"), values.get("bind_address")
    if told is not None and bound is None and not is_loopback(told):
        values["bind_address"] = ANY_ADDRESS
    elif told is None and bound is not None:
        if bound in (ANY_ADDRESS, "::"):
            raise SettingsError(
                f"bindAddress={bound}: set brokerIP1 too, the address under which clients reach this broker"
            )
        values["broker_ip1"] = bound


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach the address."""
    return address == "localhost" or address.startswith("127.") or address == "::1"


def load(settings_class: type[SettingsT], layers: Sequence[Layer]) -> tuple[SettingsT, list[str]]:
    """Settings made of the layers, and warnings (at most one).

    Raises `SettingsError` naming every unknown name, wrong type and value out of range at once. Given
    `brokerIP1` alone, the broker listens on that machine's every address if it is not loopback; given
    `bindAddress` alone, clients are told that address.
    """
    found = _sort(settings_class, layers)
    if found.problems:
        raise SettingsError("\n".join(found.problems))
    if settings_class is BrokerSettings:
        _settle_addresses(found.values)
    warnings = []
    if found.idle:
        warnings.append(
            "known to RocketMQ, without effect in this release: " + ", ".join(sorted(set(found.idle)))
        )
    return settings_class(**found.values), warnings


def from_environment(
    settings_class: type, environment: Mapping[str, str], prefix: str = "SPARROW_"
) -> dict[str, str]:
    """The settings that stand in the environment, by wire name. Other variables are none of our business."""
    if not any(variable.startswith(prefix) for variable in environment):
        return {}
    names = (*table(settings_class), *_later(settings_class), *without_effect(settings_class))
    pairs = ((name, environment_name(name, prefix)) for name in names)
    return {name: environment[variable] for name, variable in pairs if variable in environment}
