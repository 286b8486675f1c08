"""Progress over HTTP in Prometheus' format."""

from __future__ import annotations

import urllib.request

import pytest
from tests.support import free_port

from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.metrics.http import address
from sparrowmq.spark.pipelines.common.prometheus import serve
from sparrowmq.spark.pipelines.common.watch import Progress, TopicLag, Watch


def scrape(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


def test_figures_follow_the_run() -> None:
    with serve("127.0.0.1", 0) as (report, port):
        watch = Watch(report, now=lambda: 1000.0)
        watch.begin("archive")
        assert 'sparrow_pipe_lag_messages{pipeline="archive"}' not in scrape(port)
        watch.batch(10, 400, 1.5)
        watch.waiting(3)
        assert scrape(port) == {
            f'sparrow_pipe_{name}{{pipeline="archive"}}': value
            for name, value in (
                ("rows", 10.0),
                ("bytes", 400.0),
                ("batches", 1.0),
                ("lag_messages", 3.0),
                ("last_batch_seconds", 1.5),
                ("last_progress_timestamp_seconds", 1000.0),
            )
        }


def test_what_waits_topic_by_topic() -> None:
    with serve("127.0.0.1", 0) as (report, port):
        watch = Watch(report)
        watch.begin("mirror")
        watch.topics([TopicLag("S", 4), TopicLag("T", 5, 1.5)])
        found = scrape(port)
        labels = 'pipeline="mirror",topic="T"'
        assert found[f"sparrow_pipe_topic_lag_messages{{{labels}}}"] == 5
        assert found[f"sparrow_pipe_topic_lag_seconds{{{labels}}}"] == 1.5
        assert 'sparrow_pipe_topic_lag_seconds{pipeline="mirror",topic="S"}' not in found
        assert found['sparrow_pipe_lag_messages{pipeline="mirror"}'] == 9


def test_the_port_is_free_afterwards_and_taken_meanwhile() -> None:
    port = free_port()
    for _ in range(2):
        with serve("127.0.0.1", port) as (report, served):
            assert served == port
            report(Progress("x"))
            error = pytest.raises(SettingsError, match=rf"127\.0\.0\.1:{port} .* another port")
            with error, serve("127.0.0.1", port):
                raise AssertionError("served twice")


def test_addresses() -> None:
    assert address("9101") == ("127.0.0.1", 9101)
    assert address("0.0.0.0:0") == ("0.0.0.0", 0)
    assert address("[::1]:80") == ("::1", 80)
    for text in ("", "host", "host:", "host:x", "host:65536", ":-1"):
        with pytest.raises(SettingsError, match="HOST:PORT"):
            address(text)
