"""The options of the data source as typed values, named as in Spark's Kafka source where they mean the same.

Options are parsed on the driver, once for each reader or writer, and travel to executors as these objects.
Every error names option, value and what is allowed; an unknown option names the nearest known one (spark:13).
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Annotated, Any, Final, Literal, Self, get_type_hints

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.results import ReadFrom
from sparrowmq.core.subscription import Expression, Sql
from sparrowmq.spark.options import registry as registries
from sparrowmq.spark.options import values as kinds
from sparrowmq.spark.options.registry import CONFLUENT, RegistrySettings
from sparrowmq.spark.options.values import (
    ALWAYS,
    AT_LEAST_ONCE,
    EARLIEST,
    EXACTLY_ONCE,
    FAIL,
    GROUP,
    LATEST,
    NEVER,
    SKIP,
    UNUSED,
    Place,
)

log = logging.getLogger("sparrowmq.spark")

Use = Literal["batch", "stream", "write"]

MIB: Final = 1024 * 1024
BULK_BYTES_MAX: Final = 8 * MIB
MESSAGE_BYTES_MAX: Final = 15 * MIB
"""The largest `maxMessageSize` that a broker may have: a request has at most 16 MiB."""
DISCOVERY_SECONDS: Final = 10.0
_COUNT_MAX: Final = 2**62
_JOB_BATCH_MAX: Final = 2**40
_SPARK_OWN: Final = frozenset({"path", "paths", "checkpointlocation", "queryname", "outputmode"})
HADOOP_PREFIX: Final = "fs."
_SPARK_PREFIXES: Final = ("spark.", "_", "asyncprogress", HADOOP_PREFIX)
BODY_FORMATS: Final = ("binary", "text", "json", "avro", "protobuf")
CORRUPT_RECORD: Final = "_corrupt_record"
CORRUPT_REASON: Final = "_corrupt_reason"
BODY_MODES: Final = ("permissive", "dropmalformed", "failfast")
_TABLE_HINT: Final = (
    "; of a table made with CREATE TABLE Spark does not hand the options on: give them in the query "
    "(SELECT … FROM t WITH (…)) or use a temporary view"
)

_SECRET: Final = re.compile(r"secret|password|token|access.?key|^kafka\.(sasl|ssl)\.", re.IGNORECASE)
"""Options whose values are never shown: the words of Spark's own rule, and Kafka's options with credentials.
"""


@dataclass(frozen=True, slots=True)
class Option:
    """One field: its name in Spark, its parser, and whether it is only for some uses."""

    name: str
    parse: Callable[[str, str], Any]
    only: Use | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """How to connect to a cluster. Missing values come from the environment, as for every client."""

    name_server: Annotated[str, Option("nameServer", kinds.name_servers)] = ""
    """`host:port;…`; by default from `SPARROW_NAMESRV` or `NAMESRV_ADDR` of the driver's environment."""
    access_key: Annotated[str | None, Option("accessKey", kinds.secret)] = field(default=None, repr=False)
    """Access key of the account that signs every request; needs `secretKey`."""
    secret_key: Annotated[str | None, Option("secretKey", kinds.secret)] = field(default=None, repr=False)
    security_token: Annotated[str | None, Option("securityToken", kinds.secret)] = field(
        default=None, repr=False
    )
    tls: Annotated[bool | None, Option("tls", kinds.switch)] = None
    tls_ca: Annotated[str | None, Option("tlsCa", kinds.text)] = None
    """PEM file, on the driver and on every executor; the same holds for the next two."""
    tls_cert: Annotated[str | None, Option("tlsCert", kinds.text)] = None
    tls_key: Annotated[str | None, Option("tlsKey", kinds.text)] = None
    tls_key_password: Annotated[str | None, Option("tlsKeyPassword", kinds.secret)] = field(
        default=None, repr=False
    )
    tls_verify: Annotated[bool, Option("tlsVerify", kinds.switch)] = True
    """False accepts any certificate: for tests only."""
    broker_timeout: Annotated[float, Option("brokerTimeoutMs", kinds.millis)] = 120.0
    """A task gives up if a broker that it reads from or writes to has not answered successfully for this
    long.
    """

    def _check_connection(self) -> None:
        _together("accessKey", self.access_key, "secretKey", self.secret_key)
        _together("tlsCert", self.tls_cert, "tlsKey", self.tls_key)
        if self.security_token is not None and self.access_key is None:
            raise kinds.needs("securityToken", "accessKey", why=" and secretKey")
        if not self.tls:
            for name, value in (("tlsCa", self.tls_ca), ("tlsCert", self.tls_cert)):
                if value is not None:
                    raise kinds.needs(name, "tls", value, why="=true")


def _together(name: str, value: object, other: str, other_value: object) -> None:
    if (value is None) != (other_value is None):
        raise kinds.half(*((other, name) if other_value is None else (name, other)))


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyOptions:
    """How the bodies of a read are decoded; fields as in `ReadOptions`."""

    format: str
    schema: str
    avro_schema: str
    protobuf_descriptor: bytes = field(repr=False)
    protobuf_message: str
    mode: str
    corrupt_column: str
    reason_column: str
    tells_reasons: bool
    """Whether a read without a schema has the column of reasons."""
    registry: RegistrySettings | None = None
    zone: str = "UTC"

    def check(self) -> None:
        """Raise `SettingsError` on options that the format does not allow or requires."""
        for name, value, formats in (
            ("bodySchema", self.schema, ("json", "avro", "protobuf")),
            ("avroSchema", self.avro_schema, ("avro",)),
            ("protobufDescriptor", self.protobuf_descriptor, ("protobuf",)),
            ("protobufMessage", self.protobuf_message, ("protobuf",)),
        ):
            if value and self.format not in formats:
                raise kinds.other_format(name, formats, self.format)
            if self._is_the_registrys(name):
                continue
            if not value and name != "bodySchema" and self.format in formats:
                raise kinds.needs("bodyFormat", name, self.format)

        if self.registry is not None:
            if self.format not in (formats := ("avro", "protobuf", "json")):
                raise kinds.other_format("schemaRegistry", formats, self.format)
            self.registry.check()

    def _is_the_registrys(self, name: str) -> bool:
        """Whether a schema registry supplies the schema instead of the option."""
        if self.registry is None:
            return False
        if name == "protobufMessage":
            return not self.protobuf_descriptor
        return name == "avroSchema" or self.registry.kind == CONFLUENT

    def needed_schema(self) -> str:
        """The option `bodySchema`. Raises `SettingsError` without it."""
        if not self.schema:
            why = ", such as id bigint, name string, or a schema of the read with a column body"
            raise kinds.needs("bodyFormat", "bodySchema", self.format, why=why)
        return self.schema


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions(ConnectionOptions):
    """Options of reads. Times are seconds here, even if the option has another unit."""

    subscribe: Annotated[tuple[str, ...], Option("subscribe", kinds.topics)] = ()
    subscribe_pattern: Annotated[str, Option("subscribePattern", kinds.pattern)] = ""
    assign: Annotated[tuple[MessageQueue, ...], Option("assign", kinds.assignment)] = ()
    starting_offsets: Annotated[
        Place | None, Option("startingOffsets", kinds.place(EARLIEST, LATEST, GROUP))
    ] = None
    """Default: `earliest` for batches, `latest` for streams."""
    starting_timestamp: Annotated[int | None, Option("startingTimestamp", kinds.time)] = None
    """Epoch milliseconds (store time); takes precedence over the next one."""
    starting_times: Annotated[
        dict[MessageQueue, int] | None, Option("startingOffsetsByTimestamp", kinds.times)
    ] = None
    """Epoch milliseconds per queue; takes precedence over `startingOffsets`."""
    starting_strategy: Annotated[
        str, Option("startingOffsetsByTimestampStrategy", kinds.one_of(("error", LATEST)))
    ] = "error"
    """What to do in a queue without a message at or after the starting time."""
    ending_offsets: Annotated[Place | None, Option("endingOffsets", kinds.place(LATEST), "batch")] = None
    ending_timestamp: Annotated[int | None, Option("endingTimestamp", kinds.time, "batch")] = None
    ending_times: Annotated[
        dict[MessageQueue, int] | None, Option("endingOffsetsByTimestamp", kinds.times, "batch")
    ] = None
    fail_on_data_loss: Annotated[bool, Option("failOnDataLoss", kinds.switch)] = True
    accept_loss: Annotated[frozenset[str], Option("acceptLoss", kinds.loss_tokens, "stream")] = frozenset()
    """Tokens of losses to accept, as errors give them: each is of one loss."""
    lost_brokers: Annotated[frozenset[str], Option("lostBrokers", kinds.names)] = frozenset()
    """Brokers that are lost for good: the others are read without them."""
    max_offsets: Annotated[
        int | None, Option("maxOffsetsPerTrigger", kinds.number(1, _COUNT_MAX), "stream")
    ] = None
    min_offsets: Annotated[
        int | None, Option("minOffsetsPerTrigger", kinds.number(1, _COUNT_MAX), "stream")
    ] = None
    max_trigger_delay: Annotated[float, Option("maxTriggerDelay", kinds.seconds, "stream")] = 900.0
    max_bytes: Annotated[int | None, Option("maxBytesPerTrigger", kinds.number(1, _COUNT_MAX), "stream")] = (
        None
    )
    """Approximate: from the average size of stored records at the read position."""
    poll_interval: Annotated[float, Option("pollIntervalMs", kinds.millis, "stream")] = 0.1
    """How long the last known ends of queues are cached (spark:S-24)."""
    discovery_interval: Annotated[float, Option("discoveryIntervalMs", kinds.millis, "stream")] = (
        DISCOVERY_SECONDS
    )
    """How long the known topics and queues are cached; it limits how late new ones are found."""
    min_partitions: Annotated[int | None, Option("minPartitions", kinds.number(1, 100_000))] = None
    max_partitions: Annotated[int | None, Option("maxPartitions", kinds.number(1, 100_000))] = None
    max_records_per_partition: Annotated[
        int | None, Option("maxRecordsPerPartition", kinds.number(1, _COUNT_MAX))
    ] = None
    group_id: Annotated[str | None, Option("groupId", kinds.group)] = None
    """Consumer group for `startingOffsets=group`, to which a stream also commits its progress."""
    commit_to_group: Annotated[
        str, Option("commitToGroup", kinds.one_of((UNUSED, ALWAYS, NEVER)), "stream")
    ] = UNUSED
    """Whether a stream commits to `groupId`: only while no other client consumes there, always, or never."""
    tags: Annotated[frozenset[str], Option("tags", kinds.tags)] = frozenset()
    sql92: Annotated[str, Option("sql92", kinds.text)] = ""
    """SQL92 filter over message properties, evaluated by the brokers; an alternative to `tags`."""
    include_properties: Annotated[bool, Option("includeProperties", kinds.switch)] = True
    include_body: Annotated[bool, Option("includeBody", kinds.switch)] = True
    kafka_columns: Annotated[bool, Option("kafkaColumns", kinds.switch)] = False
    """Whether a read without a schema has `key`, and `value` in place of `body`."""
    body_format: Annotated[str, Option("bodyFormat", kinds.one_of(BODY_FORMATS))] = "binary"
    body_schema: Annotated[str, Option("bodySchema", kinds.text)] = ""
    """Fields of the decoded body as in SQL, `id bigint, name string`; a schema of the read takes precedence.
    """
    time_zone: Annotated[str, Option("timeZone", kinds.zone)] = "UTC"
    """Of times without a zone in JSON."""
    avro_schema: Annotated[str, Option("avroSchema", kinds.text)] = ""
    """The writers' Avro schema, JSON."""
    protobuf_descriptor: Annotated[bytes, Option("protobufDescriptor", kinds.content)] = field(
        default=b"", repr=False
    )
    """A file on the driver, as written by `protoc --include_imports --descriptor_set_out`."""
    protobuf_message: Annotated[str, Option("protobufMessage", kinds.text)] = ""
    body_mode: Annotated[str, Option("mode", kinds.one_of(BODY_MODES))] = ""
    """How to handle bodies that do not have the format and schema, as in Spark's readers."""
    corrupt_column: Annotated[str, Option("columnNameOfCorruptRecord", kinds.text)] = CORRUPT_RECORD
    reason_column: Annotated[str, Option("columnNameOfCorruptReason", kinds.text)] = ""
    """Column for the reason why a body is bad; without a schema of the read only when this is set."""
    schema_registry: Annotated[tuple[str, ...], Option("schemaRegistry", registries.addresses)] = ()
    """A schema registry: bodies begin with the id of their schema."""
    registry_kind: Annotated[str, Option("schemaRegistryType", kinds.one_of(registries.KINDS))] = CONFLUENT
    registry_subject: Annotated[str, Option("schemaRegistrySubject", kinds.text)] = ""
    """Subject whose newest schema is the reader's; by default that of the topic, if exactly one is read."""
    registry_user: Annotated[str, Option("schemaRegistryUser", kinds.text)] = ""
    registry_password: Annotated[str, Option("schemaRegistryPassword", kinds.secret)] = field(
        default="", repr=False
    )
    registry_token: Annotated[str, Option("schemaRegistryToken", kinds.secret)] = field(
        default="", repr=False
    )
    registry_ca: Annotated[str, Option("schemaRegistryCa", kinds.text)] = ""
    """PEM file, on the driver and on every executor; the same holds for the next two."""
    registry_cert: Annotated[str, Option("schemaRegistryCert", kinds.text)] = ""
    registry_key: Annotated[str, Option("schemaRegistryKey", kinds.text)] = ""
    registry_timeout: Annotated[float, Option("schemaRegistryTimeoutMs", kinds.millis)] = 10.0
    """Timeout for one schema, including retries."""
    batch_rows: Annotated[int, Option("batchRows", kinds.number(100, 100_000))] = 8000
    batch_bytes: Annotated[int, Option("batchBytes", kinds.number(64 * 1024, BULK_BYTES_MAX))] = (
        BULK_BYTES_MAX
    )
    prefetch_batches: Annotated[int, Option("prefetchBatches", kinds.number(0, 64))] = 2
    pulls_in_flight: Annotated[int, Option("pullsInFlight", kinds.number(1, 1024))] = 64
    """Number of concurrent pulls from brokers whose answers are small."""
    read_from: Annotated[ReadFrom | None, Option("readFrom", kinds.one_of(("master", "slave")))] = None
    """Which broker of a name serves messages; None is the one that the master suggests."""
    retries: Annotated[int, Option("fetchOffset.numRetries", kinds.number(0, 1000))] = 10
    retry_interval: Annotated[float, Option("fetchOffset.retryIntervalMs", kinds.millis)] = 0.2
    """The first pause between the driver's attempts; pauses double up to 5 s."""
    push_filters: Annotated[bool, Option("pushFilters", kinds.switch, "batch")] = True
    """Whether conditions of the query narrow the spans that tasks read, and so the plan of tasks."""
    store: Annotated[str, Option("store", kinds.word, "batch")] = ""
    """A store directory to read instead of a cluster; all executors must see it under this path."""
    broker_name: Annotated[str, Option("brokerName", kinds.word, "batch")] = ""
    """With `store`: the value of column `broker`; a store does not know its broker's name."""
    check_crc: Annotated[bool, Option("checkCrc", kinds.switch, "batch")] = True
    """With `store`: whether bodies are checked against their CRC."""
    damaged_records: Annotated[str, Option("damagedRecords", kinds.one_of((FAIL, SKIP)), "batch")] = FAIL
    """With `store`: fail on bytes that are not a record, or skip to the next record and warn."""

    @property
    def body(self) -> BodyOptions:
        """How bodies are decoded."""
        return BodyOptions(
            format=self.body_format,
            schema=self.body_schema,
            avro_schema=self.avro_schema,
            protobuf_descriptor=self.protobuf_descriptor,
            protobuf_message=self.protobuf_message,
            mode=self.body_mode or ("failfast" if self.body_format == "binary" else "permissive"),
            corrupt_column=self.corrupt_column,
            reason_column=self.reason_column or CORRUPT_REASON,
            tells_reasons=bool(self.reason_column),
            registry=self._registry,
            zone=self.time_zone,
        )

    @property
    def _registry(self) -> RegistrySettings | None:
        if not self.schema_registry:
            return None
        topics = {*self.subscribe, *(queue.topic for queue in self.assign)}
        usual = next(iter(topics)) if len(topics) == 1 else ""
        if usual and self.registry_kind == CONFLUENT:
            usual += "-value"
        return RegistrySettings(
            addresses=self.schema_registry,
            kind=self.registry_kind,
            subject=self.registry_subject or usual,
            user=self.registry_user,
            password=self.registry_password,
            token=self.registry_token,
            ca=self.registry_ca,
            cert=self.registry_cert,
            key=self.registry_key,
            timeout=self.registry_timeout,
        )

    def reads(self, topic: str) -> bool:
        """Whether the options select topics."""
        if self.subscribe_pattern:
            return re.fullmatch(self.subscribe_pattern, topic) is not None
        return topic in self.subscribe or any(queue.topic == topic for queue in self.assign)

    def is_lost(self, queue: MessageQueue) -> bool:
        """Whether the queue's broker is lost for good."""
        return queue.broker_name in self.lost_brokers

    def follows(self, queue: MessageQueue) -> bool:
        """Whether a queue of a checkpoint is read on."""
        return self.reads(queue.topic) and not self.is_lost(queue)

    @property
    def expression(self) -> Expression:
        """The filter that brokers apply."""
        return Sql(self.sql92) if self.sql92 else " || ".join(sorted(self.tags)) or "*"

    @classmethod
    def parse(
        cls, options: Mapping[str, str], use: Use | None, environ: Mapping[str, str] = os.environ
    ) -> Self:
        """The options of a read; `use` is their purpose, None if unknown.

        Raises `SettingsError`.
        """
        parsed = cls(**_values(cls, options, use))
        if parsed.store:
            parsed._check_store()
            return parsed
        parsed._check(use)
        return replace(parsed, name_server=_name_server(parsed.name_server, environ))

    def _check_store(self) -> None:
        if self.subscribe and self.subscribe_pattern:
            raise kinds.both("subscribe", "subscribePattern")
        for name, value in (
            ("assign", self.assign),
            ("startingOffsets", self.starting_offsets),
            ("endingOffsets", self.ending_offsets),
            ("startingOffsetsByTimestamp", self.starting_times),
            ("endingOffsetsByTimestamp", self.ending_times),
            ("groupId", self.group_id),
            ("readFrom", self.read_from),
            ("nameServer", self.name_server),
            ("sql92", self.sql92),
            ("bodyFormat", self.body_format != "binary"),
            ("schemaRegistry", self.schema_registry),
        ):
            if value:
                raise kinds.of_clusters(name, self.store)

    def _check(self, use: Use | None) -> None:
        self._check_connection()
        self._check_topics()
        self.body.check()
        self._check_registry()
        if self.tags and self.sql92:
            raise kinds.both("tags", "sql92", why="sql92 takes TAGS = 'a' as well")
        if use == "batch" and self.starting_offsets == LATEST:
            raise SettingsError(
                "option startingOffsets='latest': a batch read needs 'earliest', 'group' or JSON; 'latest' "
                "would read nothing",
                "startingOffsets",
                LATEST,
            )
        if self.starting_offsets == GROUP and self.group_id is None:
            raise kinds.needs("startingOffsets", "groupId", GROUP)
        _at_most("minOffsetsPerTrigger", self.min_offsets, "maxOffsetsPerTrigger", self.max_offsets)
        _at_most("minPartitions", self.min_partitions, "maxPartitions", self.max_partitions)

    def _check_registry(self) -> None:
        if self.schema_registry:
            return
        for name, value in (
            ("schemaRegistrySubject", self.registry_subject),
            ("schemaRegistryUser", self.registry_user),
            ("schemaRegistryPassword", self.registry_password),
            ("schemaRegistryToken", self.registry_token),
            ("schemaRegistryCa", self.registry_ca),
            ("schemaRegistryCert", self.registry_cert),
        ):
            if value:
                raise kinds.needs(name, "schemaRegistry", why=", the registry's address")

    def _check_topics(self) -> None:
        chosen = [
            name
            for name, value in (
                ("subscribe", self.subscribe),
                ("subscribePattern", self.subscribe_pattern),
                ("assign", self.assign),
            )
            if value
        ]
        if len(chosen) != 1:
            found = " and ".join(chosen) if chosen else "none"
            raise SettingsError(
                "a read needs exactly one of the options subscribe, subscribePattern and assign, "
                f"{found} given"
                f"{_TABLE_HINT}",
                "subscribe",
                other=" and ".join(chosen[1:]),
            )


def _at_most(name: str, value: int | None, other: str, most: int | None) -> None:
    if most is not None and (value or 0) > most:
        raise kinds.above(name, value or 0, other, most)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions(ConnectionOptions):
    """Options of writes. Times are seconds here, even if the option has another unit."""

    topic: Annotated[str, Option("topic", kinds.topic)] = ""
    """Topic of every row; takes precedence over a column `topic`."""
    send_timeout: Annotated[float, Option("sendTimeoutMs", kinds.millis)] = 10.0
    retries: Annotated[int, Option("retries", kinds.number(0, 100))] = 3
    """Immediate retries, at other brokers, of a batch send that may go to any queue."""
    batch_bytes: Annotated[int, Option("batchBytes", kinds.number(1024, 4 * MIB))] = MIB // 2
    """Maximum size of a batch send, unless a single message is larger."""
    max_message_size: Annotated[int | None, Option("maxMessageSize", kinds.number(1, MESSAGE_BYTES_MAX))] = (
        None
    )
    """Largest body; None is the smallest `maxMessageSize` of the topic's brokers."""
    max_in_flight: Annotated[int, Option("maxInFlight", kinds.number(1, 256))] = 8
    """Batch sends of a task in flight; one per queue."""
    delivery: Annotated[str, Option("delivery", kinds.one_of((EXACTLY_ONCE, AT_LEAST_ONCE)))] = ""
    """`exactlyOnce` refuses a write that may store a row twice, before it runs if that is known then;
    `atLeastOnce` sends rows without numbers. By default the guarantee is the strongest that rows and options
    allow.
    """
    job_id: Annotated[str, Option("jobId", kinds.job_id)] = ""
    """Id of a batch write: a retry with the same id stores only what the first attempt did not."""
    job_batch: Annotated[int, Option("jobBatch", kinds.number(0, _JOB_BATCH_MAX))] = 0
    """Index of this write among the writes of a job; they must come in this order."""
    rate_limit: Annotated[int | None, Option("rateLimit", kinds.number(1, 10_000_000))] = None
    """Maximum messages per second that a task sends."""
    idempotence_key: Annotated[str, Option("idempotenceKey", kinds.some_text)] = ""
    """Column that identifies a row within its batch: for rows whose order differs in a retry."""
    plan_location: Annotated[str, Option("planLocation", kinds.some_text)] = ""
    """Directory in which the queues of a batch are recorded; by default below the checkpoint."""
    checkpoint_location: Annotated[str, Option("checkpointLocation", kinds.some_text)] = ""
    """Spark's own option, of streams."""
    lost_brokers: Annotated[frozenset[str], Option("lostBrokers", kinds.names)] = frozenset()
    """Brokers that are lost for good: rows of a batch that was started with them go to the other queues."""
    hadoop: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Options `fs.…`: settings of the file system of the two above, in the form that Spark's own writers
    take.
    """

    @property
    def exactly_once(self) -> bool:
        """Whether a row may never be stored twice."""
        return self.delivery == EXACTLY_ONCE

    @property
    def idempotent(self) -> bool:
        """Whether rows have numbers, so that a row sent again is stored once; needs a stream or `jobId`."""
        return self.delivery != AT_LEAST_ONCE

    @classmethod
    def parse(cls, options: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> Self:
        """The options of a write. Raises `SettingsError`."""
        options = _with_delivery(options)
        hadoop = {name: value for name, value in options.items() if name.lower().startswith(HADOOP_PREFIX)}
        parsed = cls(**_values(cls, options, "write"), hadoop=hadoop)
        parsed._check_connection()
        if parsed.job_batch and not parsed.job_id:
            raise kinds.needs("jobBatch", "jobId", parsed.job_batch)
        return replace(parsed, name_server=_name_server(parsed.name_server, environ))


_OLD_DELIVERY: Final = {"exactlyonce": ("true", EXACTLY_ONCE), "idempotent": ("false", AT_LEAST_ONCE)}
"""Earlier options: the value that asked for a guarantee, and that guarantee."""


def _with_delivery(options: Mapping[str, str]) -> dict[str, str]:
    """The options with `delivery` in place of `exactlyOnce` and `idempotent`, its earlier names."""
    found = {name: text for name, text in options.items() if name.lower() not in _OLD_DELIVERY}
    given = next(((name, text, text) for name, text in found.items() if name.lower() == "delivery"), None)
    for name, text in options.items():
        if name.lower() not in _OLD_DELIVERY:
            continue
        asked, delivery = _OLD_DELIVERY[name.lower()]
        if kinds.switch(name, text) is not (asked == "true"):
            continue
        other, value, guarantee = given = given or (name, text, delivery)
        if guarantee.strip().lower() != delivery.lower():
            raise SettingsError(
                f"option {name}={text} contradicts {other}={value}; leave one of them out",
                name,
                text,
                other=other,
            )
        found["delivery"] = delivery
        log.warning("option %s=%s is deprecated: use delivery=%s", name, text, delivery)
    return found


@cache
def known_options(kind: type) -> dict[str, Option]:
    """Field name → option, of `ReadOptions` or `WriteOptions`."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items() if hasattr(hint, "__metadata__")}


def connection_options(options: Mapping[str, str]) -> dict[str, str]:
    """Those options of a read or a write that say how to connect to its cluster."""
    names = {option.name.lower() for option in known_options(ConnectionOptions).values()}
    return {name: value for name, value in options.items() if name.lower() in names}


def _values(kind: type, options: Mapping[str, str], use: Use | None) -> dict[str, Any]:
    known = {option.name.lower(): (field, option) for field, option in known_options(kind).items()}
    values: dict[str, Any] = {}
    other = WriteOptions if kind is ReadOptions else ReadOptions
    others = {option.name.lower() for option in known_options(other).values()}
    for key, text in options.items():
        lower = key.lower()
        if lower not in known and (lower in _SPARK_OWN or lower.startswith(_SPARK_PREFIXES)):
            continue
        if lower not in known:
            if lower not in others:
                raise _unknown(kind, key, text)
            purpose = "reads" if kind is ReadOptions else "writes"
            log.debug("option %s has no effect on %s", key, purpose)
            continue
        field, option = known[lower]
        if use == "stream" and option.only == "batch":
            raise SettingsError(
                f"option {option.name}={text!r} is for batch reads only; leave it out", option.name, text
            )
        if use == "batch" and option.only == "stream":
            log.warning("option %s=%r has no effect on a batch read", option.name, text)
        values[field] = option.parse(option.name, text)
    return values


def _unknown(kind: type, key: str, text: str) -> SettingsError:
    shown = "***" if _SECRET.search(key) else repr(text)
    purpose = "writes" if kind is WriteOptions else "reads"
    names = {option.name.lower(): option.name for option in known_options(kind).values()}
    from sparrowmq.spark.options.kafka_names import what_it_is_here

    if kafka := what_it_is_here(key, names.values()):
        return SettingsError(f"option {key}={shown} is an option of the Kafka source; {kafka}", key)
    from difflib import get_close_matches

    near = get_close_matches(key.lower(), names, 1, 0.75)
    hint = f"did you mean {names[near[0]]}?" if near else f"known are {', '.join(sorted(names.values()))}"
    return SettingsError(f"option {key}={shown} is unknown for {purpose}; {hint}", key)


def _name_server(given: str, environ: Mapping[str, str]) -> str:
    if given:
        return given
    for variable in ("SPARROW_NAMESRV", "NAMESRV_ADDR"):
        if environ.get(variable):
            return kinds.name_servers(f"nameServer (from {variable})", environ[variable])
    raise SettingsError(
        f"option nameServer is missing: give host:port of a name server{_TABLE_HINT}", "nameServer"
    )
