"""Spark 4.0 and 4.1: batches and streams without limits, with an error for limits; 4.2: everything."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.versions.conftest import interpreter, run

import sparrowmq as mq
from sparrowmq.testing import LocalCluster

TOOLS = (
    "pytest>=8.4",
    "pytest-timeout>=2.3",
    "hypothesis>=6.120",
    "psutil>=6",
    "fastavro>=1.9",
    "protobuf>=5.26",
    "prometheus-client>=0.20",
    "prompt-toolkit>=3.0.40",
)
VERSIONS: dict[str, tuple[str, ...]] = {
    "4.0.5": (),
    "4.1.4": ("pyspark[pipelines]",),
    "4.2.1": ("pyspark[pipelines]", *TOOLS),
}
"""What is tested, and what it needs besides."""


@pytest.mark.parametrize("version", VERSIONS)
def test_the_source_and_the_sink_work(cluster: LocalCluster, version: str, tmp_path: Path) -> None:
    topic, out = f"In-{version.replace('.', '-')}", f"Out-{version.replace('.', '-')}"
    for name in (topic, out):
        cluster.create_topic(name, queues=2)
    with mq.Producer("versions", namesrv=cluster.namesrv) as producer:
        for queue in producer.queues(topic):
            first = 10 * queue.queue_id
            messages = [mq.Message(topic, b'{"id": %d}' % number) for number in range(first, first + 10)]
            producer.send_batch(messages, queue=queue)
    python = interpreter(version, *VERSIONS[version])
    arguments = (cluster.namesrv, topic, out, str(tmp_path))
    found = json.loads(run(python, "-m", "tests.versions.smoke", *arguments).splitlines()[-1])
    limit, sink = found.pop("limit"), found.pop("sink")
    assert found == {
        "version": version,
        "rows": 20,
        "ids": list(range(20)),
        "pruned": 3,
        "streamed": 20,
        "files": 20,
        "view": 20,
    }
    if version.startswith(("4.0", "4.1")):
        assert f"option maxOffsetsPerTrigger=5 needs Spark 4.2 or later, this is {version}" in limit
    else:
        assert limit == ""
    if version.startswith("4.0"):
        assert f"streaming writes need Spark 4.1 or later, this is {version}" in sink
    else:
        assert sink == ""
    with mq.Admin(cluster.namesrv) as admin:
        stored = sum(status.max_offset for status in admin.topics.status(out))
    assert stored == (20 if sink else 40)


def test_all_tests_of_the_source_pass_on_4_2() -> None:
    """With the newest Spark of that line."""
    python = interpreter("4.2.1", *VERSIONS["4.2.1"])
    ignored = ("--ignore=tests/spark/commands/test_demo.py",)
    run(python, "-m", "pytest", "-q", "tests/spark", *ignored, timeout=3000)
