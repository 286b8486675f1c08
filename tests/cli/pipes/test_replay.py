"""`sparrow pipe replay` where no Spark is needed; tests/spark/commands/test_pipe_replay.py runs it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support import about

import sparrowmq as mq
from sparrowmq.cli.pipes.replay import span
from sparrowmq.core.errors import SparrowError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.offsets.offsets import Span
from sparrowmq.testing import LocalCluster

if TYPE_CHECKING:
    from tests.cli.conftest import Sparrow


@pytest.fixture(scope="module", autouse=True)
def topic(cluster: LocalCluster) -> str:
    for name in ("Replayed", "ReplayedTo"):
        cluster.create_topic(name, queues=2)
    with mq.Producer("replayed", namesrv=cluster.namesrv) as producer:
        producer.send_batch([mq.Message("Replayed", b"x") for _ in range(7)])
    return "Replayed"


def test_a_plan(sparrow: Sparrow, tmp_path: Path) -> None:
    home = tmp_path / "home"
    asked = ["pipe", "replay", "Replayed", "--to", "ReplayedTo", "--home", str(home), "--plan"]
    shown = sparrow(*asked, "--rate", "50", "--spread", "--tags", "a || b").out
    assert shown.startswith("replay: 3 steps, 7 messages at most\n")
    assert "tags: a || b" in shown
    assert "send to ReplayedTo" in shown
    assert "promise: exactly once" in shown
    assert "order: spread over all queues, without order" in shown
    assert "rate: 50 messages a second at most" in shown
    assert not home.exists()
    (value,) = sparrow(*asked, "--json").values
    assert [step["action"] for step in value["steps"]] == ["read", "send to"]
    assert value["rows"] == 7


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "a replay needs a target topic"),
        (["--to", "ReplayedTo"], "a replay needs a source"),
        (["Replayed", "--to", "ReplayedTo", "--rate", "0"], "rate=0: must be 1 or more"),
        (["Replayed", "--to", "ReplayedTo", "--set", "topic='x'"], "values has 'topic'; it may have body"),
        (["Replayed", "--to", "ReplayedTo", "--since", "now"], "'now' is not a time"),
        (["--range", "x=1-2", "--to", "ReplayedTo"], "give TOPIC/BROKER/QUEUE=FIRST-END"),
        (
            ["--range", "Replayed/broker-a/0=0-999", "--to", "ReplayedTo"],
            "some of these offsets do not exist",
        ),
        (["Nowhere", "--to", "ReplayedTo"], "Nowhere"),
        (["--archive", "nowhere", "--to", "ReplayedTo"], "does not contain an archive"),
        (["--dead-letters", "nobody", "--to", "ReplayedTo"], "group 'nobody' has no dead letters"),
    ],
)
def test_what_is_wrong_is_said(sparrow: Sparrow, tmp_path: Path, arguments: list[str], text: str) -> None:
    done = sparrow("pipe", "replay", *arguments, "--home", str(tmp_path / "home"), status=1)
    assert text in done.err
    assert done.err.startswith("sparrow: ")
    assert not (tmp_path / "home").exists()


def test_ranges_are_read() -> None:
    assert span("%DLQ%g/broker-a/3=0-12") == Span(MessageQueue("%DLQ%g", "broker-a", 3), 0, 12)
    for text in ("", "T=1-2", "T/b/0=5", "T/b/0=5-5", "T/b/x=1-2", "T/b/0=-1-2"):
        with pytest.raises(SparrowError, check=about(what="--range", value=text)):
            span(text)
