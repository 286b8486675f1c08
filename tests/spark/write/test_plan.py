"""Option `delivery=exactlyOnce`: what may be stored twice is refused before it runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.bodies.schema import sink_columns
from sparrowmq.spark.options.table import WriteOptions
from sparrowmq.spark.write import plan
from sparrowmq.spark.write.queue_choice import QueueChoice

KEYED = {"jobId": "j", "idempotenceKey": "keys", "planLocation": "/p"}
OURS = json.dumps({"queues": {"T": {"b": {"0": 1}}}, "tasks": [1, 2, 0]})


def struct(columns: str) -> StructType:
    kinds = {"string": StringType(), "int": IntegerType()}
    pairs = [column.split() for column in columns.split(", ")]
    return StructType([StructField(name, kinds[kind]) for name, kind in pairs])


@pytest.fixture(autouse=True)
def judging_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparrowmq.spark.write.guarantees.broker_without_states", lambda options: "")


def batch(schema: str = "body string, keys string", **given: str) -> None:
    named = {"nameServer": "h:1", "topic": "T", "delivery": "exactlyOnce", **given}
    options = WriteOptions.parse({name: text for name, text in named.items() if text}, {})
    plan.check_batch(options, sink_columns(struct(schema), options))


def test_a_batch_whose_rows_and_plan_are_known_is_taken() -> None:
    batch(**KEYED)
    batch(delivery="")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"jobId": ""}, "a batch write needs the option jobId"),
        (
            {"idempotenceKey": ""},
            "into other partitions when it runs again; identify rows with option idempotenceKey",
        ),
        ({"planLocation": ""}, "option planLocation is missing"),
        ({"topic": "", "schema": "body string, keys string, topic string"}, "give option topic"),
        ({"schema": "body string, keys string, delay_level int"}, "rows with delay_level"),
        (
            {"schema": "body string, keys string, msg_id string"},
            "column msg_id and option idempotenceKey both identify rows",
        ),
    ],
)
def test_a_batch_that_may_be_stored_twice_is_refused(given: dict[str, str], text: str) -> None:
    with pytest.raises(SettingsError, match=f"option delivery=exactlyOnce: .*{text}"):
        batch(**{**KEYED, **given})


def stream(checkpoint: Path, offsets: list[str], **given: str) -> None:
    folder = checkpoint / "offsets"
    folder.mkdir(exist_ok=True)
    (folder / "4").write_text("\n".join(["v1", "{}", *offsets]))
    named = {
        "nameServer": "h:1",
        "topic": "T",
        "delivery": "exactlyOnce",
        "checkpointLocation": str(checkpoint),
    }
    options = WriteOptions.parse({**named, **given}, {})
    choice = QueueChoice(4, "T", (MessageQueue("T", "b", 0),))
    plan.check_stream(options, sink_columns(struct("body string, keys string"), options), choice)


def test_a_stream_of_sources_that_plan_their_batches_is_taken(tmp_path: Path) -> None:
    stream(tmp_path, [OURS])
    stream(tmp_path, [OURS, OURS])
    stream(tmp_path, ["5"], delivery="atLeastOnce")
    stream(tmp_path, ["5"], idempotenceKey="keys")


@pytest.mark.parametrize("foreign", ["5", '{"logOffset":3}', "-", '{"queues":{}}'])
def test_a_stream_of_other_sources_needs_a_key(tmp_path: Path, foreign: str) -> None:
    with pytest.raises(SettingsError, match=r"do not define how a batch is divided .* option idempotenceKey"):
        stream(tmp_path, [OURS, foreign])


def test_a_stream_without_a_plan_is_refused(tmp_path: Path) -> None:
    options = WriteOptions.parse({"nameServer": "h:1", "topic": "T", "delivery": "exactlyOnce"}, {})
    columns = sink_columns(struct("body string"), options)
    with pytest.raises(SettingsError, match="the writer's option checkpointLocation is missing"):
        plan.check_stream(options, columns, None)
