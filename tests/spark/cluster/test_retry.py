from __future__ import annotations

import asyncio
import logging

import pytest

from sparrowmq.core.backoff import Backoff
from sparrowmq.core.errors import ConnectionLostError
from sparrowmq.loops.event_loop import loop_thread
from sparrowmq.spark.cluster import retry
from sparrowmq.spark.cluster.retry import WARN_SECONDS, Retries
from sparrowmq.spark.options.table import ReadOptions, WriteOptions


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "BACKOFF", Backoff(first=0.0001, most=0.0001))
    monkeypatch.setitem(loop_thread()._kept, retry._Complaints, retry._Complaints())


def test_reads_and_writes_are_equally_patient() -> None:
    given = {"nameServer": "h:1", "subscribe": "t", "topic": "t"}
    assert ReadOptions.parse(given, None, {}).broker_timeout == 120.0
    assert WriteOptions.parse(given, {}).broker_timeout == 120.0
    given["brokerTimeoutMs"] = "1500"
    assert ReadOptions.parse(given, None, {}).broker_timeout == 1.5
    assert WriteOptions.parse(given, {}).broker_timeout == 1.5


def test_tries_end_with_the_fault_and_say_which_option_ends_them() -> None:
    clock = [100.0]
    one = Retries(30.0, lambda: clock[0], if_lost="option lostBrokers=b")
    fault = ConnectionLostError("gone")
    for clock[0] in (100.0, 115.0, 129.9):
        asyncio.run(one.pause("a send", fault))
    clock[0] = 130.0
    with pytest.raises(ConnectionLostError, match="gone") as failed:
        asyncio.run(one.pause("a send", fault))
    (note,) = failed.value.__notes__
    assert note.startswith("a send was given up after 30.0 s; option brokerTimeoutMs is 30000")
    assert note.endswith("If the broker is lost for good: option lostBrokers=b")


def test_long_waits_are_seen_and_short_ones_are_not(caplog: pytest.LogCaptureFixture) -> None:
    clock = [0.0]
    one = Retries(120.0, lambda: clock[0])
    with caplog.at_level(logging.INFO, "sparrowmq.spark"):
        asyncio.run(one.pause("a pull", ConnectionLostError("gone")))
        assert [record.levelno for record in caplog.records] == [logging.INFO]
        for clock[0] in (WARN_SECONDS, WARN_SECONDS + 1):
            asyncio.run(one.pause("a pull", ConnectionLostError("gone")))
    warned = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert warned == [
        "a pull has failed for 5 s and is retried for at most 120 s (option brokerTimeoutMs): gone"
    ]
