"""What each interpreter of Spark's loads of ours: several are started for every query, and each pays for it.

The sets are bounds: a module that comes into one of them must be needed by every reader or writer of that
kind. What few need (filters in SQL92, compressed bodies that cannot be opened, formats of bodies, members of
groups, administration, traces) is loaded by those who do. Packages, which hold a docstring, do not count.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest

import sparrowmq as mq
from sparrowmq.testing import LocalCluster

_ALWAYS = """
    import sys
    import pyspark.sql.datasource
    from pyspark.sql.types import _parse_datatype_string
    from pyspark.sql.types import StructType, StructField, BinaryType
    from sparrowmq.spark.source import RocketMQSource
    READ = {{"nameServer": {namesrv!r}, "subscribe": "t", "startingOffsets": "earliest"}}
    schema = StructType([StructField("body", BinaryType())])
    def loaded():
        ours = sorted(name for name in sys.modules if name.partition(".")[0] == "sparrowmq")
        print(*ours)
        print(*(name for name in ours if not hasattr(sys.modules[name], "__path__")))
"""
_NEVER = (
    "sparrowmq.client.admin.admin",
    "sparrowmq.client.push.member",
    "sparrowmq.client.consumer.managed",
    "sparrowmq.client.pull.pull_member",
    "sparrowmq.client.push.push_consumer",
    "sparrowmq.client.consumer.rebalance",
    "sparrowmq.client.cluster.request_reply",
    "sparrowmq.client.tracing.dispatcher",
    "sparrowmq.client.producer.transaction",
    "sparrowmq.coordinator",
    "sparrowmq.core.grants",
    "sparrowmq.files",
    "sparrowmq.protocol.managed",
    "sparrowmq.protocol.sql92",
    "sparrowmq.protocol.trace",
    "sparrowmq.spark.bodies.avro",
    "sparrowmq.spark.bodies.codecs",
    "sparrowmq.spark.bodies.protobuf",
    "sparrowmq.spark.pipelines",
    "sparrowmq.spark.bodies.undecompressable",
)
"""With what is below them."""
_DECODES = ("sparrowmq.columnar.decode", "sparrowmq.spark.read.fetch")
_SENDS = ("sparrowmq.client.producer.producer", "sparrowmq.columnar.encode", "sparrowmq.spark.write.writer")
_ASKS = ("sparrowmq.spark.read.follow", "sparrowmq.spark.read.lookup")


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    with LocalCluster() as cluster:
        cluster.create_topic("t", queues=1)
        with mq.Producer("filler", namesrv=cluster.namesrv) as producer:
            producer.send_batch([mq.Message("t", b"x", tags="a", keys="k")] * 103)
        yield cluster.namesrv


@pytest.mark.parametrize(
    ("program", "most", "never"),
    [
        pytest.param(
            "RocketMQSource(READ).schema()\nloaded()",
            16,
            (*_NEVER, *_DECODES, *_SENDS, *_ASKS, "sparrowmq.client"),
            id="the schema of a read",
        ),
        pytest.param(
            """
            import json
            reader = RocketMQSource(READ).streamReader(schema)
            start = reader.initialOffset()
            reader.prepareForTriggerAvailableNow()
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
            assert reader.partitions(start, end) and reader.reportLatestOffset()
            assert "pyarrow.compute" not in sys.modules
            loaded()
            """,
            95,
            (*_NEVER, *_DECODES, *_SENDS),
            id="the driver of a stream",
        ),
        pytest.param(
            """
            assert RocketMQSource(READ).reader(schema).partitions()
            assert "pyarrow.compute" not in sys.modules
            loaded()
            """,
            88,
            (*_NEVER, *_DECODES, *_SENDS, "sparrowmq.spark.read.follow"),
            id="the plan of a batch read",
        ),
        pytest.param(
            """
            from sparrowmq.core.message import MessageQueue
            from sparrowmq.spark.offsets.offsets import Span
            from sparrowmq.spark.read.reader import SpansPartition
            reader = RocketMQSource(READ).streamReader(schema)
            task = SpansPartition((Span(MessageQueue("t", "broker-a", 0), 0, 3),))
            assert sum(batch.num_rows for batch in reader.read(task)) == 3
            loaded()
            """,
            105,
            (*_NEVER, *_SENDS, *_ASKS),
            id="a task that reads",
        ),
        pytest.param(
            """
            import pyarrow as pa
            writer = RocketMQSource({{"nameServer": {namesrv!r}, "topic": "t"}}).writer(schema, False)
            sent = writer.write(iter([pa.record_batch({{"body": pa.array([b"a", b"b"])}})]))
            assert sent.messages == {{"t": 2}}
            loaded()
            """,
            115,
            (*_NEVER, *_DECODES, *_ASKS),
            id="a task that writes",
        ),
    ],
)
def test_an_interpreter_loads_what_it_needs(
    namesrv: str, program: str, most: int, never: tuple[str, ...]
) -> None:
    text = textwrap.dedent(_ALWAYS).format(namesrv=namesrv) + textwrap.dedent(program).format(namesrv=namesrv)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    names, modules = (line.split() for line in done.stdout.splitlines())
    strange = [name for name in names if any(name == one or name.startswith(f"{one}.") for one in never)]
    assert strange == []
    assert len(modules) <= most, f"{len(modules)} modules of ours: {' '.join(modules)}"


_WATCHED = """
    import sys
    import pyspark.sql.datasource
    from pyspark.sql.types import *
    from sparrowmq.core.message import MessageQueue
    from sparrowmq.spark.offsets.offsets import Span
    from sparrowmq.spark.read.reader import SpansPartition
    from sparrowmq.spark.source import RocketMQSource

    class Asked:
        found = []
        def find_spec(self, name, path=None, target=None):
            if name == "pandas":
                self.found.append(name)

    sys.meta_path.insert(0, Asked())
"""
_READS = """
    texts = ("topic", "broker", "msg_id", "tags", "keys")
    schema = StructType([StructField(name, StringType()) for name in texts])
    schema.add("queue_id", IntegerType()).add("queue_offset", LongType()).add("body", BinaryType())
    schema.add("store_timestamp", TimestampType()).add("properties", MapType(StringType(), StringType()))
    reader = RocketMQSource({{"nameServer": {namesrv!r}, "subscribe": "t"}}).streamReader(schema)
    queue = MessageQueue("t", "broker-a", 0)
    for span in (Span(queue, 0, 3), Span(queue, 3, 103)):
        assert sum(batch.num_rows for batch in reader.read(SpansPartition((span,)))) == len(span)
    print(*Asked.found)
"""


def test_a_task_that_reads_does_not_ask_for_pandas(namesrv: str) -> None:
    """Installed or not: few and many records are decoded in different ways."""
    assert _asked_for(_READS, namesrv) == []


_WRITES = """
    import pyarrow as pa
    names = ("body", "keys", "tags", "topic", "properties")
    types = [BinaryType(), *[StringType()] * 3, MapType(StringType(), StringType())]
    schema = StructType([StructField(name, kind) for name, kind in zip(names, types)])
    kinds = [pa.binary(), *[pa.string()] * 3, pa.map_(pa.string(), pa.string())]
    def two(kind, both):
        bounds = pa.py_buffer(b"".join(end.to_bytes(4, sys.byteorder) for end in (0, 1, 2)))
        return pa.Array.from_buffers(kind, 2, [None, bounds, pa.py_buffer(both)])
    columns = [two(pa.binary(), b"ab"), *(two(pa.string(), b"tt") for _ in range(3)), pa.nulls(2, kinds[4])]
    rows = pa.record_batch(columns, schema=pa.schema(list(zip(names, kinds))))
    for more in ({{}}, {{"jobId": "one"}}):
        writer = RocketMQSource({{"nameServer": {namesrv!r}, **more}}).writer(schema, False)
        assert sum(writer.write(iter([rows])).messages.values()) == 2
    print(*Asked.found)
"""


def test_a_task_that_writes_does_not_ask_for_pandas(namesrv: str) -> None:
    """Installed or not, and whether rows are numbered or not."""
    assert _asked_for(_WRITES, namesrv) == []


def _asked_for(program: str, namesrv: str) -> list[str]:
    text = textwrap.dedent(_WATCHED) + textwrap.dedent(program).format(namesrv=namesrv)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()
