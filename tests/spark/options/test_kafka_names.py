"""The page for those who come from Spark's Kafka source leaves nothing out, and what it names is there."""

from __future__ import annotations

import re

import pytest
from tests.pages import ROOT, Page

from sparrowmq.spark.bodies.schema import KAFKA_COLUMNS, SINK_COLUMNS, SOURCE_COLUMNS
from sparrowmq.spark.options.kafka_names import HERE, NOT_NEEDED, what_it_is_here
from sparrowmq.spark.options.table import ReadOptions, WriteOptions, known_options

PAGE = Page(ROOT / "docs" / "from-kafka.md")
SOURCE = """
    assign subscribe subscribePattern kafka.bootstrap.servers startingTimestamp startingOffsetsByTimestamp
    startingOffsets endingTimestamp endingOffsetsByTimestamp endingOffsets failOnDataLoss
    kafkaConsumer.pollTimeoutMs fetchOffset.numRetries fetchOffset.retryIntervalMs maxOffsetsPerTrigger
    minOffsetsPerTrigger maxTriggerDelay minPartitions maxRecordsPerPartition groupIdPrefix kafka.group.id
    includeHeaders startingOffsetsByTimestampStrategy
    kafka.auto.offset.reset kafka.enable.auto.commit kafka.interceptor.classes
    kafka.key.deserializer kafka.value.deserializer
""".split()
"""The options of the source in the guide of Spark 4.3, and those of Kafka that it does not allow."""
SINK = """
    kafka.bootstrap.servers topic includeHeaders kafka.partitioner.class kafka.key.serializer
    kafka.value.serializer
""".split()
SESSION = """
    spark.kafka.consumer.cache.capacity spark.kafka.consumer.cache.timeout
    spark.kafka.consumer.cache.evictorThreadRunInterval spark.kafka.consumer.cache.jmx.enable
    spark.kafka.consumer.fetchedData.cache.timeout
    spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval spark.kafka.producer.cache.timeout
    spark.kafka.producer.cache.evictorThreadRunInterval spark.sql.streaming.kafka.useDeprecatedOffsetFetching
    spark.kafka.clusters.${cluster}.* spark.security.credentials.kafka.enabled
""".split()
COLUMNS_READ = "key value topic partition offset timestamp timestampType headers".split()
COLUMNS_WRITTEN = "key value topic partition headers".split()
READ = {option.name for option in known_options(ReadOptions).values()}
WRITTEN = {option.name for option in known_options(WriteOptions).values()}


def words(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def rows(heading: str) -> dict[str, list[str]]:
    """Kafka's name → what is here, of the table below a heading."""
    return {name: words(row[1]) for row in PAGE.table(heading) for name in words(row[0])}


@pytest.mark.parametrize(
    ("heading", "names"),
    [
        ("## Options of the source", SOURCE),
        ("## Options of the sink", SINK),
        ("## Settings of the session", SESSION),
        ("## Columns that are read", COLUMNS_READ),
        ("## Columns that are written", COLUMNS_WRITTEN),
    ],
)
def test_every_name_of_kafka_s_source_is_on_the_page(heading: str, names: list[str]) -> None:
    assert set(names) - set(rows(heading)) == set()


@pytest.mark.parametrize(
    ("heading", "ours"),
    [
        ("## Options of the source", READ),
        ("## Options of the sink", WRITTEN),
        ("## Columns that are read", {*SOURCE_COLUMNS, *KAFKA_COLUMNS}),
        ("## Columns that are written", set(SINK_COLUMNS)),
    ],
)
def test_what_the_page_says_is_here_is(heading: str, ours: set[str]) -> None:
    assert {name for names in rows(heading).values() for name in names} - ours == set()


def test_every_option_anywhere_on_the_page_exists() -> None:
    """Words like `maxBytesPerTrigger`, wherever they are: options of ours or names of Kafka's."""
    kafkas = {*SOURCE, *SINK, *COLUMNS_READ, *HERE, *NOT_NEEDED}
    others = {"maxMessageSize", "fileReservedTime", "flushDiskType", "queueId"}  # a broker's settings
    metrics = {
        "minOffsetsBehindLatest",
        "maxOffsetsBehindLatest",
        "avgOffsetsBehindLatest",
        "estimatedTotalBytesBehindLatest",
        "offsetOutOfRange",
        "dataLoss",
    }
    named = {word.partition("=")[0] for word in words(PAGE.prose)}
    camel = {word for word in named if re.fullmatch(r"[a-z]+[A-Z]\w*", word)}
    assert camel - READ - WRITTEN - kafkas - others - metrics == set()
    assert "maxBytesPerTrigger" in camel


def test_options_of_the_same_name_are_those_that_errors_pass_over() -> None:
    for name in SOURCE:
        assert (name in READ) != (
            name in HERE or name in NOT_NEEDED or name == "kafka.interceptor.classes"
        ), name


def test_errors_and_the_page_say_the_same() -> None:
    source, sink = rows("## Options of the source"), rows("## Options of the sink")
    for name, here in HERE.items():
        told = {tuple(table[name]) for table in (source, sink) if table.get(name)}
        assert here in told, name
    for name in NOT_NEEDED:
        assert (source | sink)[name] == [], name


def test_what_a_name_is_here() -> None:
    assert what_it_is_here("KAFKA.BOOTSTRAP.SERVERS", READ) == "use nameServer"
    assert what_it_is_here("kafka.sasl.mechanism", READ) == "use accessKey and secretKey"
    assert what_it_is_here("kafka.request.timeout.ms", READ) == "use brokerTimeoutMs"
    assert what_it_is_here("kafka.request.timeout.ms", WRITTEN) == "use sendTimeoutMs and brokerTimeoutMs"
    assert what_it_is_here("includeHeaders", WRITTEN) == "leave it out: includeProperties does not apply here"
    assert what_it_is_here("kafka.x", READ) == "leave it out; docs/from-kafka.md lists what to use instead"
    assert what_it_is_here("startingOffset", READ) == ""
