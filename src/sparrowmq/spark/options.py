"""The options of the data source as typed values, named as in Spark's Kafka source where they mean the same.

Options are parsed on the driver, once for each reader or writer, and travel to executors as these objects.
Every error names option, value and what is allowed; an unknown option names the nearest known one (spark:13).
"""

from __future__ import annotations

import difflib
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
from sparrowmq.spark import option_types as kinds
from sparrowmq.spark.option_types import EARLIEST, FAIL, GROUP, LATEST, SKIP, Place

log = logging.getLogger("sparrowmq.spark")

Use = Literal["batch", "stream", "write"]

MIB: Final = 1024 * 1024
BULK_BYTES_MAX: Final = 8 * MIB
DISCOVERY_SECONDS: Final = 10.0
_COUNT_MAX: Final = 2**62
_JOB_BATCH_MAX: Final = 2**40
_SPARK_OWN: Final = frozenset({"path", "paths", "checkpointlocation", "queryname", "outputmode"})
_SPARK_PREFIXES: Final = ("spark.", "_", "asyncprogress")
BODY_FORMATS: Final = ("binary", "text", "json", "avro", "protobuf")
BODY_MODES: Final = ("permissive", "dropmalformed", "failfast")
_TABLE_HINT: Final = (
    "; of a table made with CREATE TABLE Spark does not hand the options on: give them in the query "
    "(SELECT … FROM t WITH (…)) or use a temporary view"
)

_SECRET: Final = re.compile("secret|password|token|access.?key", re.IGNORECASE)
"""Options whose values are never shown; the same words as in Spark's own rule."""
_KAFKA_NAMES: Final = {
    "kafka.bootstrap.servers": "nameServer",
    "kafka.group.id": "groupId",
    "groupidprefix": "groupId",
    "includeheaders": "includeProperties",
    "kafkaconsumer.polltimeoutms": "pullTimeoutMs",
}


@dataclass(frozen=True, slots=True)
class Option:
    """How one field is called in Spark, how its text is read, and what it is only for."""

    name: str
    parse: Callable[[str, str], Any]
    only: Use | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """How to reach a cluster. What is not given comes from the environment, as for every client."""

    name_server: Annotated[str, Option("nameServer", kinds.name_servers)] = ""
    """`host:port;…`; by default from `SPARROW_NAMESRV` or `NAMESRV_ADDR` of the driver's environment."""
    access_key: Annotated[str | None, Option("accessKey", kinds.secret)] = field(default=None, repr=False)
    """Account that signs every request, with `secretKey`."""
    secret_key: Annotated[str | None, Option("secretKey", kinds.secret)] = field(default=None, repr=False)
    security_token: Annotated[str | None, Option("securityToken", kinds.secret)] = field(
        default=None, repr=False
    )
    tls: Annotated[bool | None, Option("tls", kinds.switch)] = None
    tls_ca: Annotated[str | None, Option("tlsCa", kinds.text)] = None
    """PEM file, on the driver and on every executor; so are the next two."""
    tls_cert: Annotated[str | None, Option("tlsCert", kinds.text)] = None
    tls_key: Annotated[str | None, Option("tlsKey", kinds.text)] = None
    tls_key_password: Annotated[str | None, Option("tlsKeyPassword", kinds.secret)] = field(
        default=None, repr=False
    )
    tls_verify: Annotated[bool, Option("tlsVerify", kinds.switch)] = True
    """False takes any certificate: for tests only."""

    def _check_connection(self) -> None:
        _together("accessKey", self.access_key, "secretKey", self.secret_key)
        _together("tlsCert", self.tls_cert, "tlsKey", self.tls_key)
        if self.security_token is not None and self.access_key is None:
            raise SettingsError("option securityToken needs the options accessKey and secretKey")
        if not self.tls:
            for name, value in (("tlsCa", self.tls_ca), ("tlsCert", self.tls_cert)):
                if value is not None:
                    raise SettingsError(f"option {name}={value!r} needs the option tls=true")


def _together(name: str, value: object, other: str, other_value: object) -> None:
    if (value is None) != (other_value is None):
        given, missing = (name, other) if other_value is None else (other, name)
        raise SettingsError(f"option {missing} is missing: {given} and {missing} go together")


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

    def check(self) -> None:
        """Raise `SettingsError` on options that do not belong to the format, or are missing for it."""
        for name, value, formats in (
            ("bodySchema", self.schema, ("json", "avro", "protobuf")),
            ("avroSchema", self.avro_schema, ("avro",)),
            ("protobufDescriptor", self.protobuf_descriptor, ("protobuf",)),
            ("protobufMessage", self.protobuf_message, ("protobuf",)),
        ):
            if value and self.format not in formats:
                raise SettingsError(
                    f"option {name} is for bodyFormat={' or '.join(formats)}, not {self.format}"
                )
            if not value and name != "bodySchema" and self.format in formats:
                raise SettingsError(f"bodyFormat={self.format} needs the option {name}")

    def needed_schema(self) -> str:
        """The option `bodySchema`. Raises `SettingsError` without it."""
        if not self.schema:
            raise SettingsError(
                f"bodyFormat={self.format} needs the option bodySchema, such as id bigint, name string, or a "
                "schema of the read with a column body"
            )
        return self.schema


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions(ConnectionOptions):
    """Options of reads. Times are seconds here, whatever the option's unit."""

    subscribe: Annotated[tuple[str, ...], Option("subscribe", kinds.topics)] = ()
    subscribe_pattern: Annotated[str, Option("subscribePattern", kinds.pattern)] = ""
    assign: Annotated[tuple[MessageQueue, ...], Option("assign", kinds.assignment)] = ()
    starting_offsets: Annotated[
        Place | None, Option("startingOffsets", kinds.place(EARLIEST, LATEST, GROUP))
    ] = None
    """Default: `earliest` for batches, `latest` for streams."""
    starting_timestamp: Annotated[int | None, Option("startingTimestamp", kinds.number(0, 2**53))] = None
    """Epoch milliseconds (store time); wins over the next one."""
    starting_times: Annotated[
        dict[MessageQueue, int] | None, Option("startingOffsetsByTimestamp", kinds.times)
    ] = None
    """Epoch milliseconds per queue; wins over `startingOffsets`."""
    starting_strategy: Annotated[
        str, Option("startingOffsetsByTimestampStrategy", kinds.one_of(("error", LATEST)))
    ] = "error"
    """What to do in a queue without a message at or after the starting time."""
    ending_offsets: Annotated[Place | None, Option("endingOffsets", kinds.place(LATEST), "batch")] = None
    ending_timestamp: Annotated[int | None, Option("endingTimestamp", kinds.number(0, 2**53), "batch")] = None
    ending_times: Annotated[
        dict[MessageQueue, int] | None, Option("endingOffsetsByTimestamp", kinds.times, "batch")
    ] = None
    fail_on_data_loss: Annotated[bool, Option("failOnDataLoss", kinds.switch)] = True
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
    """For so long the queues' last known ends are believed (spark:S-24)."""
    discovery_interval: Annotated[float, Option("discoveryIntervalMs", kinds.millis, "stream")] = (
        DISCOVERY_SECONDS
    )
    """For so long the known topics and queues are believed, so that new ones are read soon."""
    min_partitions: Annotated[int | None, Option("minPartitions", kinds.number(1, 100_000))] = None
    max_partitions: Annotated[int | None, Option("maxPartitions", kinds.number(1, 100_000))] = None
    max_records_per_partition: Annotated[
        int | None, Option("maxRecordsPerPartition", kinds.number(1, _COUNT_MAX))
    ] = None
    group_id: Annotated[str | None, Option("groupId", kinds.group)] = None
    """Consumer group for `startingOffsets=group`, and whose progress a stream reports."""
    tags: Annotated[frozenset[str], Option("tags", kinds.tags)] = frozenset()
    sql92: Annotated[str, Option("sql92", kinds.text)] = ""
    """SQL92 filter over the properties of messages, evaluated by the brokers; in place of `tags`."""
    include_properties: Annotated[bool, Option("includeProperties", kinds.switch)] = True
    include_body: Annotated[bool, Option("includeBody", kinds.switch)] = True
    body_format: Annotated[str, Option("bodyFormat", kinds.one_of(BODY_FORMATS))] = "binary"
    body_schema: Annotated[str, Option("bodySchema", kinds.text)] = ""
    """Fields of the decoded body as in SQL, `id bigint, name string`; a schema of the read wins over it."""
    avro_schema: Annotated[str, Option("avroSchema", kinds.text)] = ""
    """The writers' Avro schema, JSON."""
    protobuf_descriptor: Annotated[bytes, Option("protobufDescriptor", kinds.content)] = field(
        default=b"", repr=False
    )
    """A file on the driver, what `protoc --include_imports --descriptor_set_out` writes."""
    protobuf_message: Annotated[str, Option("protobufMessage", kinds.text)] = ""
    body_mode: Annotated[str, Option("mode", kinds.one_of(BODY_MODES))] = ""
    """What to do with bodies that are not of the format and schema, as in Spark's readers."""
    corrupt_column: Annotated[str, Option("columnNameOfCorruptRecord", kinds.text)] = "_corrupt_record"
    batch_rows: Annotated[int, Option("batchRows", kinds.number(100, 100_000))] = 8000
    batch_bytes: Annotated[int, Option("batchBytes", kinds.number(64 * 1024, BULK_BYTES_MAX))] = (
        BULK_BYTES_MAX
    )
    prefetch_batches: Annotated[int, Option("prefetchBatches", kinds.number(0, 64))] = 2
    pulls_in_flight: Annotated[int, Option("pullsInFlight", kinds.number(1, 1024))] = 64
    """Pulls at once from brokers whose answers are small."""
    pull_timeout: Annotated[float, Option("pullTimeoutMs", kinds.millis)] = 120.0
    """A task gives up when a queue's broker has not answered well for so long."""
    read_from: Annotated[ReadFrom | None, Option("readFrom", kinds.one_of(("master", "slave")))] = None
    """Which broker of a name gives messages; None is the one that the master suggests."""
    retries: Annotated[int, Option("fetchOffset.numRetries", kinds.number(0, 1000))] = 10
    retry_interval: Annotated[float, Option("fetchOffset.retryIntervalMs", kinds.millis)] = 0.2
    """The first pause between tries of the driver; pauses double up to 5 s."""
    push_filters: Annotated[bool, Option("pushFilters", kinds.switch, "batch")] = True
    """Whether conditions of the query narrow what tasks read, and so which task reads what."""
    store: Annotated[str, Option("store", kinds.word, "batch")] = ""
    """A store directory to read instead of a cluster; all executors see it under this name."""
    broker_name: Annotated[str, Option("brokerName", kinds.word, "batch")] = ""
    """With `store`: what the column `broker` says; a store does not know its broker's name."""
    check_crc: Annotated[bool, Option("checkCrc", kinds.switch, "batch")] = True
    """With `store`: whether bodies are held against their CRC."""
    damaged_records: Annotated[str, Option("damagedRecords", kinds.one_of((FAIL, SKIP)), "batch")] = FAIL
    """With `store`: fail on bytes that hold no record, or go on at the next record and warn."""

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
        )

    def reads(self, topic: str) -> bool:
        """Whether the options ask for a topic."""
        if self.subscribe_pattern:
            return re.fullmatch(self.subscribe_pattern, topic) is not None
        return topic in self.subscribe or any(queue.topic == topic for queue in self.assign)

    @property
    def expression(self) -> Expression:
        """What brokers are asked for."""
        return Sql(self.sql92) if self.sql92 else " || ".join(sorted(self.tags)) or "*"

    @classmethod
    def parse(
        cls, options: Mapping[str, str], use: Use | None, environ: Mapping[str, str] = os.environ
    ) -> Self:
        """The options of a read; `use` is what they are for, None while that is not known.

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
            raise SettingsError("a read of a store takes subscribe or subscribePattern, not both")
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
        ):
            if value:
                raise SettingsError(
                    f"option {name} is for reads of a cluster and store={self.store!r} is given; leave one "
                    "out. A store is narrowed by subscribe, tags, startingTimestamp and endingTimestamp"
                )

    def _check(self, use: Use | None) -> None:
        self._check_connection()
        self._check_topics()
        self.body.check()
        if self.tags and self.sql92:
            raise SettingsError("options tags and sql92 are both given; sql92 takes TAGS = 'a' as well")
        if use == "batch" and self.starting_offsets == LATEST:
            raise SettingsError(
                "option startingOffsets='latest': a batch read takes 'earliest', 'group' or JSON; 'latest' "
                "would read nothing"
            )
        if self.starting_offsets == GROUP and self.group_id is None:
            raise SettingsError("option startingOffsets='group' needs the option groupId")
        _at_most("minOffsetsPerTrigger", self.min_offsets, "maxOffsetsPerTrigger", self.max_offsets)
        _at_most("minPartitions", self.min_partitions, "maxPartitions", self.max_partitions)

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
                f"{_TABLE_HINT}"
            )


def _at_most(name: str, value: int | None, other: str, most: int | None) -> None:
    if most is not None and (value or 0) > most:
        raise SettingsError(f"option {name}={value}: it takes at most {other}={most}")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions(ConnectionOptions):
    """Options of writes. Times are seconds here, whatever the option's unit."""

    topic: Annotated[str, Option("topic", kinds.topic)] = ""
    """Topic of every row; wins over a column `topic`."""
    send_timeout: Annotated[float, Option("sendTimeoutMs", kinds.millis)] = 10.0
    retries: Annotated[int, Option("retries", kinds.number(0, 100))] = 3
    batch_bytes: Annotated[int, Option("batchBytes", kinds.number(1024, 4 * MIB))] = MIB // 2
    """A batch send is at most so long, unless one message is longer."""
    max_in_flight: Annotated[int, Option("maxInFlight", kinds.number(1, 256))] = 8
    """Batch sends of a task that wait for their answer at once; one per queue."""
    idempotent: Annotated[bool, Option("idempotent", kinds.switch)] = True
    """Number the rows, so that a row which is sent again is stored once; needs a stream or `jobId`."""
    job_id: Annotated[str, Option("jobId", kinds.job_id)] = ""
    """What names a batch write: a further try with the same id stores what the first did not."""
    job_batch: Annotated[int, Option("jobBatch", kinds.number(0, _JOB_BATCH_MAX))] = 0
    """Which of a job's writes this is, when it has several: they come in this order."""
    rate_limit: Annotated[int | None, Option("rateLimit", kinds.number(1, 10_000_000))] = None
    """Messages a second that a task sends at most."""
    idempotence_key: Annotated[str, Option("idempotenceKey", kinds.some_text)] = ""
    """Column that names a row within its batch: for rows whose order is not the same in a further try."""
    plan_location: Annotated[str, Option("planLocation", kinds.some_text)] = ""
    """Directory in which the queues of a batch are written down; by default below the checkpoint."""
    checkpoint_location: Annotated[str, Option("checkpointLocation", kinds.some_text)] = ""
    """Spark's own option, of streams."""

    @classmethod
    def parse(cls, options: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> Self:
        """The options of a write. Raises `SettingsError`."""
        parsed = cls(**_values(cls, options, "write"))
        parsed._check_connection()
        if parsed.job_batch and not parsed.job_id:
            raise SettingsError(f"option jobBatch={parsed.job_batch} needs the option jobId")
        return replace(parsed, name_server=_name_server(parsed.name_server, environ))


@cache
def known_options(kind: type) -> dict[str, Option]:
    """Field name → option, of `ReadOptions` or `WriteOptions`."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items()}


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
            raise SettingsError(f"option {option.name}={text!r} is for batch reads only; leave it out")
        if use == "batch" and option.only == "stream":
            log.warning("option %s=%r has no effect on a batch read", option.name, text)
        values[field] = option.parse(option.name, text)
    return values


def _unknown(kind: type, key: str, text: str) -> SettingsError:
    shown = "***" if _SECRET.search(key) else repr(text)
    purpose = "writes" if kind is WriteOptions else "reads"
    instead = _KAFKA_NAMES.get(key.lower())
    if instead is not None:
        return SettingsError(f"option {key}={shown} is of the Kafka source; here it is {instead}")
    names = {option.name.lower(): option.name for option in known_options(kind).values()}
    near = difflib.get_close_matches(key.lower(), names, 1, 0.75)
    hint = f"did you mean {names[near[0]]}?" if near else f"known are {', '.join(sorted(names.values()))}"
    return SettingsError(f"option {key}={shown} is unknown for {purpose}; {hint}")


def _name_server(given: str, environ: Mapping[str, str]) -> str:
    if given:
        return given
    for variable in ("SPARROW_NAMESRV", "NAMESRV_ADDR"):
        if environ.get(variable):
            return kinds.name_servers(f"nameServer (from {variable})", environ[variable])
    raise SettingsError(f"option nameServer is missing: give host:port of a name server{_TABLE_HINT}")
