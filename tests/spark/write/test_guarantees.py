"""What a write promises is said once, at its start and with its result."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support import about

from sparrowmq.core.errors import SettingsError, SparrowError
from sparrowmq.core.message import MessageQueue
from sparrowmq.loops.event_loop import loop_thread
from sparrowmq.spark.options.table import WriteOptions
from sparrowmq.spark.write import guarantees, log_once, queue_choice
from sparrowmq.spark.write.guarantees import (
    announce,
    batch_choice,
    broker_without_states,
    report,
    stream_choice,
)
from sparrowmq.spark.write.queue_choice import Folder, QueueChoice
from sparrowmq.spark.write.writer import Sent

QUEUES = [MessageQueue("t", "b", 0)]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    monkeypatch.setitem(loop_thread()._kept, log_once._Logged, log_once._Logged())
    monkeypatch.setitem(loop_thread()._kept, guarantees._Checkpoints, guarantees._Checkpoints())
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    monkeypatch.setattr(
        guarantees,
        "_choose",
        lambda folder, batch, options, scope: queue_choice.choose(
            queue_choice.folder_at(folder, options.hadoop), batch, options.topic, lambda: QUEUES
        ),
    )
    monkeypatch.setattr(guarantees, "broker_without_states", lambda options: "")
    with caplog.at_level(logging.INFO):
        yield


def options(**more: str) -> WriteOptions:
    return WriteOptions.parse({"nameServer": "h:1", "topic": "t", **more}, {})


@pytest.mark.parametrize(
    ("more", "stream", "level", "text"),
    [
        ({}, False, logging.WARNING, "at least once: a batch write needs the option jobId"),
        (
            {"jobId": "j", "delivery": "atLeastOnce"},
            False,
            logging.WARNING,
            "at least once: option delivery is atLeastOnce",
        ),
        ({"delivery": "atLeastOnce"}, True, logging.WARNING, "at least once: option delivery is atLeastOnce"),
        ({"jobId": "j"}, False, logging.WARNING, "exactly once on SparrowMQ brokers as long as a retry"),
        ({}, True, logging.WARNING, "it may not; then rows are written at least once"),
        (
            {"idempotenceKey": "id", "checkpointLocation": "/c"},
            True,
            logging.INFO,
            "exactly once on SparrowMQ brokers, rows identified by",
        ),
        (
            {"idempotenceKey": "id", "jobId": "j", "planLocation": "/p"},
            False,
            logging.INFO,
            "exactly once on SparrowMQ brokers, rows identified by",
        ),
        ({"idempotenceKey": "id"}, True, logging.WARNING, "option checkpointLocation is missing"),
        ({"idempotenceKey": "id", "jobId": "j"}, False, logging.WARNING, "option planLocation is missing"),
    ],
)
def test_a_write_says_what_it_promises(
    more: dict[str, str], stream: bool, level: int, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        announce(options(**more), stream=stream)
    assert text in caplog.text and [record.levelno for record in caplog.records] == [level]


def test_rows_with_ids_of_their_own_are_not_identified_by_a_key(caplog: pytest.LogCaptureFixture) -> None:
    announce(options(idempotenceKey="id", checkpointLocation="/c"), stream=True, keyed=False)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "column msg_id identifies the rows, not the key" in caplog.text


def test_a_broker_that_does_not_judge_is_named_at_the_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(guarantees, "broker_without_states", lambda options: "broker-x")
    announce(options(jobId="j"), stream=False)
    assert "at least once: its broker broker-x does not support idempotent producers" in caplog.text


def test_brokers_that_do_not_tell_are_asked_no_more(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse(options: WriteOptions) -> None:
        raise SparrowError("admins only")

    monkeypatch.setattr(guarantees, "admin", refuse)
    assert broker_without_states(options(jobId="j")) == ""
    assert "do not state whether they detect repeated rows: admins only" in caplog.text
    assert broker_without_states(WriteOptions.parse({"nameServer": "h:1"}, {})) == ""


def test_the_first_result_that_may_be_there_twice_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    sure, unsure = Sent({"t": 1}, True), Sent({"t": 1}, False)
    for number, messages in enumerate([[sure, None, Sent()], [sure, unsure], [unsure]]):
        report(options(checkpointLocation="/c"), f"batch {number} wrote 2 messages to t", messages)
    assert [(record.levelno, record.message) for record in caplog.records] == [
        (logging.INFO, "batch 0 wrote 2 messages to t"),
        (
            logging.WARNING,
            "batch 1 wrote 2 messages to t (at least once: some rows may be stored twice; see the tasks' "
            "logs)",
        ),
        (logging.INFO, "batch 2 wrote 2 messages to t (at least once)"),
    ]


def test_results_need_not_say_again_what_was_announced(caplog: pytest.LogCaptureFixture) -> None:
    announce(options(delivery="atLeastOnce"), stream=True)
    report(options(delivery="atLeastOnce"), "wrote 1 message", [Sent({"t": 1}, False)])
    assert [record.levelno for record in caplog.records] == [logging.WARNING, logging.INFO]


def test_a_streams_queues_stand_beside_its_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "4").touch()
    found = stream_choice(options(checkpointLocation=str(tmp_path)))
    assert found is not None and (found.batch, list(found.queues)) == (4, QUEUES)
    assert (tmp_path / "sparrowmq-queues" / "4.json").exists()
    elsewhere = tmp_path / "plans"
    assert stream_choice(options(checkpointLocation=str(tmp_path), planLocation=str(elsewhere))) == found
    assert (elsewhere / "4.json").exists()


def test_a_batchs_queues_stand_below_its_plan_location(tmp_path: Path) -> None:
    found = batch_choice(options(jobId="j", planLocation=str(tmp_path)))
    assert found is not None and list(found.queues) == QUEUES
    assert (tmp_path / "j" / "0.json").exists()


def test_without_a_place_nothing_is_written_and_it_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert stream_choice(options(checkpointLocation=str(tmp_path))) is None
    assert "is not a checkpoint with offsets" in caplog.text
    assert batch_choice(options(jobId="j")) is None
    assert "option planLocation is not given" in caplog.text


@pytest.mark.parametrize("more", [{"delivery": "atLeastOnce"}, {"topic": ""}])
def test_writes_that_need_no_choice_make_none(tmp_path: Path, more: dict[str, str]) -> None:
    given = {"nameServer": "h:1", "topic": "t", "jobId": "j", "planLocation": str(tmp_path), **more}
    parsed = WriteOptions.parse({name: text for name, text in given.items() if text}, {})
    assert batch_choice(parsed) is None and stream_choice(parsed) is None
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").touch()
    (tmp_path / "file").touch()
    with pytest.raises(SparrowError, check=about(what="checkpointLocation", value=str(tmp_path))):
        stream_choice(options(checkpointLocation=str(tmp_path), planLocation=str(tmp_path / "file" / "x")))
    place = str(tmp_path / "file" / "x")
    with pytest.raises(SparrowError, check=about(what="planLocation", value=place)):
        batch_choice(options(jobId="j", planLocation=place))


def test_rows_for_later_are_told_to_be_at_least_once(caplog: pytest.LogCaptureFixture) -> None:
    announce(options(jobId="later"), stream=False, delayed=True)
    assert "writing to t: rows with delay_level or deliver_at at least once, one request each" in caplog.text


def test_a_checkpoint_out_of_reach_ends_no_query_and_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looks: list[str] = []

    def refuse(location: str, hadoop: Mapping[str, str]) -> Folder:
        looks.append(location)
        assert hadoop == {"fs.x": "1"}
        raise SettingsError(f"Hadoop cannot access {location}: no such class")

    monkeypatch.setattr(queue_choice, "folder_at", refuse)
    given = {"checkpointLocation": "abfss://c@a/ck", "fs.x": "1"}
    assert [stream_choice(options(**given)) for _ in range(3)] == [None] * 3
    assert looks == ["abfss://c@a/ck/offsets"], "not with each batch"
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "Hadoop cannot access abfss://c@a/ck/offsets: no such class. Spark may access" in record.message
    assert "options fs.… of the writer" in record.message
    assert record.message.endswith("its rows are written at least once")


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("s3a://b/ck", "S3AFileSystem not found"),
        ("abfss://c@a.dfs.core.windows.net/ck", "SecureAzureBlobFileSystem not found"),
        ("oss://b/ck", 'No FileSystem for scheme "oss"'),
        ("hdfs://127.0.0.1:1/ck", "Connection refused"),
        ("viewfs://other/ck", "Empty Mount table in config for viewfs://other/"),
        ("nosuch://b/ck", 'No FileSystem for scheme "nosuch"'),
    ],
)
def test_no_scheme_of_a_checkpoint_ends_a_query(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, location: str, why: str
) -> None:
    def refuse(location: str) -> Folder:
        raise SettingsError(f"{location!r} is not a directory that Arrow can access")

    monkeypatch.setattr(queue_choice, "ArrowFolder", refuse)  # it would look for servers
    given = replace(options(checkpointLocation=location), hadoop={"ipc.client.connect.max.retries": "0"})
    assert [stream_choice(given) for _ in range(2)] == [None] * 2
    (record,) = caplog.records
    assert record.levelno == logging.WARNING and why in record.message
    assert record.message.endswith("its rows are written at least once")


def test_a_checkpoint_on_a_file_system_of_hadoop_has_the_queues(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "ck" / "offsets").mkdir(parents=True)
    (tmp_path / "ck" / "offsets" / "4").touch()
    mount = {"fs.viewfs.mounttable.ns.link./lake": f"file:{tmp_path}"}
    given = options(checkpointLocation="viewfs://ns/lake/ck", **mount)
    found = stream_choice(given)
    assert found is not None and (found.batch, list(found.queues)) == (4, QUEUES)
    assert (tmp_path / "ck" / "sparrowmq-queues" / "4.json").exists()
    assert stream_choice(given) == found and not caplog.records


def test_a_checkpoint_that_was_reached_before_is_an_error_when_it_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers: list[list[int] | OSError] = [[4], OSError("503 slow down")]

    class Remote:
        location = "s3a://b/ck/offsets"

        def numbers(self, suffix: str = "") -> list[int]:
            answer = answers.pop(0)
            if isinstance(answer, OSError):
                raise answer
            return answer

    chosen = QueueChoice(4, "t", (QUEUES[0],))
    monkeypatch.setattr(queue_choice, "folder_at", lambda location, hadoop: Remote())
    monkeypatch.setattr(guarantees, "_choose", lambda *given: chosen if given[1] == 4 else None)
    assert stream_choice(options(checkpointLocation="s3a://b/ck")) == chosen
    with pytest.raises(SparrowError, check=about(what="checkpointLocation", value="s3a://b/ck")):
        stream_choice(options(checkpointLocation="s3a://b/ck"))
