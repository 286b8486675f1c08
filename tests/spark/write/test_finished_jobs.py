"""The record of a finished job in `planLocation`: what it holds, and when it is not believed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support import about

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.options.table import WriteOptions
from sparrowmq.spark.write import finished_jobs
from sparrowmq.spark.write.finished_jobs import DoneFile, Tally, find
from sparrowmq.spark.write.finished_places import JobPlaces
from sparrowmq.spark.write.identity import first_epoch

TALLY = Tally(3, 7)
PLACES = JobPlaces({MessageQueue("t", "a", 0): 3}, 1_700_000_000_000)


def options(root: Path, **more: str) -> WriteOptions:
    given = {"nameServer": "h:1", "topic": "t", "jobId": "j", "planLocation": str(root), **more}
    return WriteOptions.parse(given, {})


@pytest.fixture(autouse=True)
def cluster(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """What the brokers know of the job, and whether its rows are there."""
    known: dict[str, object] = {"ends": {}, "there": True}
    monkeypatch.setattr(finished_jobs, "_end", lambda *_: known["ends"])
    monkeypatch.setattr(finished_jobs, "still_there", lambda *_: known["there"])
    monkeypatch.setattr(finished_jobs, "places_now", lambda *_: PLACES)
    return known


def test_a_record_is_read_as_it_was_written() -> None:
    made = DoneFile(TALLY, "t", PLACES)
    assert DoneFile.decode(made.encode(2), "here") == made
    assert DoneFile.decode(TALLY.note(2).encode(), "here") == DoneFile(TALLY), "of an earlier release"
    assert DoneFile.decode(b"anything", "here") is None


@pytest.mark.parametrize(
    ("data", "what", "value"),
    [
        (b"{", "job", "here"),
        (b'{"version": 1}', "job", "here"),
        (json.dumps({**json.loads(DoneFile(TALLY).encode(0)), "version": 2}).encode(), "version", 2),
    ],
)
def test_a_record_that_cannot_be_used_is_told(data: bytes, what: str, value: object) -> None:
    with pytest.raises(SettingsError, check=about(what=what, value=value)):
        DoneFile.decode(data, "here")


def test_a_job_is_done_where_its_rows_are(tmp_path: Path, cluster: dict[str, object]) -> None:
    assert find(options(tmp_path)) is None
    finished_jobs.keep(options(tmp_path), TALLY)
    assert find(options(tmp_path)) == TALLY and find(options(tmp_path, jobBatch="1")) is None
    with pytest.raises(SettingsError, check=about(setting="jobId", value="j")):
        find(options(tmp_path, topic="u"))
    cluster["there"] = False
    assert find(options(tmp_path)) is None
    cluster["ends"] = {"a": (first_epoch(2), "")}
    with pytest.raises(SettingsError, check=about(setting="jobBatch", value=0)):
        find(options(tmp_path))


def test_brokers_that_do_not_know_a_finished_job_are_named(
    cluster: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    given = WriteOptions.parse({"nameServer": "h:1", "topic": "t", "jobId": "j"}, {})
    done = (first_epoch(1), TALLY.note(0))
    cluster["ends"] = {"a": done, "b": done}
    assert find(given) == TALLY and not caplog.records
    cluster["ends"] = {"a": done, "b": (0, ""), "c": (0, "")}
    assert find(given) == TALLY
    (record,) = caplog.records
    assert "according to other brokers of t, but b, c do not know it" in record.getMessage()
    assert "with planLocation, lost rows are an error" in record.getMessage()
