from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import sparrowmq as mq

if TYPE_CHECKING:
    from tests.cli.conftest import Sparrow

    from sparrowmq.testing import LocalCluster


def test_the_trace_of_a_message(sparrow: Sparrow, cluster: LocalCluster) -> None:
    sparrow("topic", "create", "Traces", "--queues", "1")
    settings = mq.ProducerSettings(namesrv=cluster.namesrv, trace=True, trace_topic="Traces")
    with mq.Producer("tracers", settings=settings) as producer:
        sent = producer.send(mq.Message("Traced", b"x", keys="own"))
    rows = sparrow("trace", sent.message_id, "--topic", "Traces", "--json").values  # closing wrote them
    (row,) = [one for one in rows if one["record"] == "Pub"]
    assert (row["topic"], row["group"], row["message_id"]) == ("Traced", "tracers", sent.message_id)
    shown = sparrow("message", "trace", "own", "--topic", "Traces").lines[-1].split()
    assert shown[2:6] == ["Pub", "tracers", "Traced", "success"]


def test_a_message_without_trace(sparrow: Sparrow) -> None:
    sparrow("topic", "create", "OtherTraces", "--queues", "1")
    missing = sparrow("trace", "0" * 32, "--topic", "OtherTraces", status=1)
    assert f"no trace of '{'0' * 32}' in OtherTraces" in missing.err
    assert "`trace` on" in missing.err


@pytest.mark.parametrize("options", [("--topic", "Trcaes"), ()])
def test_a_topic_for_traces_that_is_not_there_is_named(sparrow: Sparrow, options: tuple[str, ...]) -> None:
    missing = sparrow("trace", "abc", *options, status=1)
    topic = options[1] if options else "RMQ_SYS_TRACE_TOPIC"
    assert f"no trace of 'abc': there is no topic {topic}; " in missing.err
    assert "traceTopicEnable" in missing.err and "--topic" in missing.err
