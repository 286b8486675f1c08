"""`sparrow pipe audit` where no Spark is needed; tests/spark/commands/test_pipe_commands.py runs it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sparrowmq as mq
from sparrowmq.testing import LocalCluster

if TYPE_CHECKING:
    from tests.cli.conftest import Sparrow


@pytest.fixture(scope="module", autouse=True)
def topic(cluster: LocalCluster) -> str:
    cluster.create_topic("Audited", queues=2)
    with mq.Producer("audited", namesrv=cluster.namesrv) as producer:
        producer.send_batch([mq.Message("Audited", b"x") for _ in range(7)])
    return "Audited"


def test_a_plan(sparrow: Sparrow, tmp_path: Path) -> None:
    where = tmp_path / "audit"
    command = ("pipe", "audit", "Audited", "--group", "g=A || B", "--to", str(where), "--plan")
    shown = sparrow(*command).out
    assert shown.startswith("audit: 5 steps, 7 messages wait\n")
    assert f"write {where}/verdict.json" in shown
    (value,) = sparrow(*command, "--no-sends", "--json").values
    actions = [step["action"] for step in value["steps"]]
    assert actions == ["read traces", "read stored", "compare", "write"]
    assert not where.exists()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["Audited", "--allow", "lots=1"], "'lots' is not a kind of finding"),
        (["Audited", "--allow", "lost=x"], "--allow lost=x: give a number"),
        (["Audited", "--offsets", "x"], "give JSON such as"),
        (["Audited", "--since", "yesterday"], "'yesterday' is not a time"),
        (["Audited", "--no-live"], "without the live log an audit needs an archive"),
        (["Nowhere"], "Nowhere"),
    ],
)
def test_what_is_wrong_is_said(sparrow: Sparrow, tmp_path: Path, arguments: list[str], text: str) -> None:
    done = sparrow("pipe", "audit", *arguments, "--to", str(tmp_path / "a"), status=2)
    assert text in done.err
    assert done.err.startswith("sparrow: ")
