"""What a write promises is said once, at its start and with its result."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparrowmq.core.errors import SparrowError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark import delivery
from sparrowmq.spark.delivery import (
    announce,
    batch_choice,
    broker_without_states,
    delivered,
    stream_choice,
    told_once,
)
from sparrowmq.spark.options import WriteOptions
from sparrowmq.spark.writer import Sent

QUEUES = [MessageQueue("t", "b", 0)]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    monkeypatch.setattr(delivery, "_told", set())
    monkeypatch.setattr(
        delivery,
        "_choose",
        lambda folder, batch, options: delivery.choose(folder, batch, options.topic, lambda: QUEUES),
    )
    monkeypatch.setattr(delivery, "broker_without_states", lambda options: "")
    with caplog.at_level(logging.INFO):
        yield


def options(**more: str) -> WriteOptions:
    return WriteOptions.parse({"nameServer": "h:1", "topic": "t", **more}, {})


@pytest.mark.parametrize(
    ("more", "stream", "text"),
    [
        ({}, False, "at least once: a batch write needs the option jobId"),
        ({"jobId": "j", "idempotent": "false"}, False, "at least once: option idempotent is false"),
        ({"idempotent": "false"}, True, "at least once: option idempotent is false"),
        ({"jobId": "j"}, False, "exactly once on SparrowMQ brokers where a further try has the same rows"),
        ({}, True, "no shuffle before the write"),
        ({"idempotenceKey": "id"}, True, "exactly once on SparrowMQ brokers, rows named by column id"),
    ],
)
def test_a_write_says_what_it_promises(
    more: dict[str, str], stream: bool, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        announce(options(**more), stream=stream)
    assert text in caplog.text and len(caplog.records) == 1


def test_a_broker_that_does_not_judge_is_named_at_the_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(delivery, "broker_without_states", lambda options: "broker-x")
    announce(options(jobId="j"), stream=False)
    assert "at least once: its broker broker-x knows no idempotent producers" in caplog.text


def test_brokers_that_do_not_tell_are_asked_no_more(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse(options: WriteOptions) -> None:
        raise SparrowError("admins only")

    monkeypatch.setattr(delivery, "admin", refuse)
    assert broker_without_states(options(jobId="j")) == ""
    assert "do not tell whether they judge repeated rows: admins only" in caplog.text
    assert broker_without_states(WriteOptions.parse({"nameServer": "h:1"}, {})) == ""


def test_a_result_says_when_it_may_be_there_twice() -> None:
    sure, unsure = Sent({"t": 1}, True), Sent({"t": 1}, False)
    assert delivered([sure, None, Sent()]) == ""
    assert delivered([sure, unsure]) == " (at least once)"


def test_what_was_told_is_forgotten_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "_TOLD_MAX", 2)
    assert [told_once(number) for number in (1, 1, 2, 3, 1)] == [True, False, True, True, True]


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
    assert "names no checkpoint" in caplog.text
    assert batch_choice(options(jobId="j")) is None
    assert "option planLocation is not given" in caplog.text


@pytest.mark.parametrize("more", [{"idempotent": "false"}, {"topic": ""}])
def test_writes_that_need_no_choice_make_none(tmp_path: Path, more: dict[str, str]) -> None:
    given = {"nameServer": "h:1", "topic": "t", "jobId": "j", "planLocation": str(tmp_path), **more}
    parsed = WriteOptions.parse({name: text for name, text in given.items() if text}, {})
    assert batch_choice(parsed) is None and stream_choice(parsed) is None
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").touch()
    (tmp_path / "file").touch()
    with pytest.raises(SparrowError, match="give option planLocation"):
        stream_choice(options(checkpointLocation=str(tmp_path), planLocation=str(tmp_path / "file" / "x")))
    with pytest.raises(SparrowError, match="a directory that the driver can write to"):
        batch_choice(options(jobId="j", planLocation=str(tmp_path / "file" / "x")))


def test_rows_for_later_are_told_to_be_at_least_once(caplog: pytest.LogCaptureFixture) -> None:
    announce(options(jobId="later"), stream=False, later=True)
    assert "writing to t: rows with delay_level or deliver_at at least once, one request each" in caplog.text
