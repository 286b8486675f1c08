"""`sparrow pipe mirror` where no Spark is needed; tests/spark/commands/test_pipe_mirror.py runs it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sparrowmq as mq
from sparrowmq.testing import LocalCluster

if TYPE_CHECKING:
    from tests.cli.conftest import Sparrow

NAMES = ("--source", "paris", "--target", "tokyo")


@pytest.fixture(scope="module", autouse=True)
def topic(cluster: LocalCluster) -> str:
    cluster.create_topic("Mirrored", queues=2)
    with mq.Producer("mirrored", namesrv=cluster.namesrv) as producer:
        producer.send_batch([mq.Message("Mirrored", b"x") for _ in range(7)])
    return "Mirrored"


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    with LocalCluster() as cluster:
        yield cluster.namesrv


def test_a_plan(sparrow: Sparrow, target: str, tmp_path: Path) -> None:
    where = tmp_path / "mirror"
    options = ("Mirrored", "--to", target, "--dir", str(where), *NAMES, "--group", "g", "--follow")
    shown = sparrow("pipe", "mirror", *options, "--plan").out
    assert shown.startswith("mirror: 4 steps, 7 messages wait\n")
    assert "create Mirrored at tokyo\n     queues: 0 now, 2 then\n" in shown
    assert "deliver exactly once on SparrowMQ's brokers" in shown
    assert "a batch every 1 s until stopped" in shown
    assert "move groups at tokyo that are not online there\n     groups: g\n" in shown
    (value,) = sparrow("pipe", "mirror", *options, "--no-create", "--plan", "--json").values
    assert [step["action"] for step in value["steps"]] == ["send", "deliver", "move"]
    assert not where.exists()
    with mq.Admin(namesrv=target) as admin:
        assert admin.topics.list() == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "a mirror needs either topics or a pattern"),
        (["Mirrored", "--start", "now"], "start='now': must be earliest or latest"),
        (["Mirrored", "--target", "paris"], "both called 'paris'"),
        (["%RETRY%g"], "belong to consumers"),
        (["Mirrored", "--target-option", "x"], "--target-option 'x': give NAME=VALUE"),
        (["Mirrored", "--target-option", "retry=5", "--plan"], "option retry='5' is unknown for writes"),
        (["Nowhere", "--plan"], "Nowhere"),
    ],
)
def test_what_is_wrong_is_said(
    sparrow: Sparrow, target: str, tmp_path: Path, arguments: list[str], text: str
) -> None:
    options = ("--to", target, "--dir", str(tmp_path / "m"), *NAMES)
    done = sparrow("pipe", "mirror", *options, *arguments, status=1)
    assert text in done.err
    assert done.err.startswith("sparrow: ")


def test_a_cluster_cannot_be_mirrored_to_itself(
    sparrow: Sparrow, cluster: LocalCluster, tmp_path: Path
) -> None:
    options = ("--to", cluster.namesrv, "--dir", str(tmp_path / "m"), *NAMES)
    assert (
        "source and target are the same cluster"
        in sparrow("pipe", "mirror", "Mirrored", *options, "--plan", status=1).err
    )
