"""Runs of a batch whose rows have keys: counted, and where earlier ones may have stored their rows."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.support import about

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.offsets.resets import SKEW_MS
from sparrowmq.spark.write.batch_runs import next_run
from sparrowmq.spark.write.queue_choice import ArrowFolder, KeyedRun

ONE, TWO = MessageQueue("t", "a", 0), MessageQueue("t", "b", 0)
NOW = 1_700_000_000_000


class Queues:
    """Their ends, and offsets of messages by time."""

    def __init__(self, root: Path, ends: dict[MessageQueue, int]) -> None:
        self.folder = ArrowFolder(str(root))
        self.ends = ends
        self.stored: dict[MessageQueue, int] = {}
        """The first message that was stored since the first run; others are older."""
        self.asked: list[int] = []

    def since(self, queues: Iterable[MessageQueue], at_ms: int) -> dict[MessageQueue, int]:
        self.asked.append(at_ms)
        return {queue: self.stored.get(queue, self.ends[queue]) for queue in queues}

    def run(self, now_ms: int = NOW, topic: str = "t") -> KeyedRun:
        return next_run(self.folder, 7, topic, lambda: self.ends, self.since, now_ms=now_ms)


def test_runs_are_counted_and_begin_where_the_first_one_did(tmp_path: Path) -> None:
    queues = Queues(tmp_path, {ONE: 100, TWO: 5})
    assert queues.run() == KeyedRun(1, {ONE: 100, TWO: 5}) and not queues.asked
    queues.ends = {ONE: 180, TWO: 5}
    assert queues.run(NOW + 9_000) == KeyedRun(2, {ONE: 100, TWO: 5})
    assert queues.run(NOW + 99_000) == KeyedRun(3, {ONE: 100, TWO: 5})
    assert queues.asked == [NOW - SKEW_MS] * 2, "the time of the first run"


def test_a_queue_that_was_made_anew_is_read_from_its_beginning(tmp_path: Path) -> None:
    queues = Queues(tmp_path, {ONE: 100, TWO: 5})
    queues.run()
    queues.ends = {ONE: 99, TWO: 6}
    assert queues.run().begins == {ONE: 0, TWO: 5}


def test_a_queue_that_lost_its_end_and_grew_again_is_read_from_the_time_of_the_first_run(
    tmp_path: Path,
) -> None:
    """A slave without the last 10 messages became the master, and got rows of the batch in their places."""
    queues = Queues(tmp_path, {ONE: 100, TWO: 5})
    queues.run()
    queues.ends, queues.stored = {ONE: 140, TWO: 5}, {ONE: 90}
    assert queues.run().begins == {ONE: 90, TWO: 5}


def test_a_broker_that_is_away_is_not_asked(tmp_path: Path) -> None:
    queues = Queues(tmp_path, {ONE: 100, TWO: 5})
    queues.run()
    del queues.ends[TWO]
    assert queues.run().begins == {ONE: 100, TWO: 5}


def test_runs_of_earlier_releases_have_no_time(tmp_path: Path) -> None:
    queues = Queues(tmp_path, {ONE: 100, TWO: 5})
    queues.run()
    data = json.loads(queues.folder.read(7))
    del data["beganMs"]
    queues.folder.write(7, json.dumps(data).encode())
    queues.stored = {ONE: 90}
    assert queues.run() == KeyedRun(2, {ONE: 100, TWO: 5}) and not queues.asked


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({"begins": [["a"]]}, {"what": "run"}),
        ({"version": 2}, {"what": "version", "value": 2, "limit": 1}),
        ({"topic": "u"}, {"what": "topic", "value": "u", "limit": "t"}),
    ],
)
def test_a_run_that_cannot_be_used_is_told(
    tmp_path: Path, changes: dict[str, object], facts: dict[str, object]
) -> None:
    queues = Queues(tmp_path, {ONE: 100, TWO: 5})
    queues.run()
    queues.folder.write(7, json.dumps(json.loads(queues.folder.read(7)) | changes).encode())
    with pytest.raises(SettingsError, check=about(**facts)):
        queues.run()
