"""`sparrow spark`: a query that is stopped by a lost broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparrowmq.core.message import MessageQueue

pytest.importorskip("pyspark")

if TYPE_CHECKING:
    from tests.cli.conftest import Sparrow

QUEUES = [MessageQueue("Bills", broker, 0) for broker in ("broker-a", "broker-b")]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Of a query that began batch 7 over two brokers."""
    from sparrowmq.spark.write.queue_choice import FOLDER, ArrowFolder, choose

    choose(ArrowFolder(str(tmp_path / FOLDER)), 7, "Bills", lambda: QUEUES)
    return tmp_path


def test_a_lost_broker_is_noted_beside_the_checkpoint(sparrow: Sparrow, checkpoint: Path) -> None:
    done = sparrow("spark", "lost-broker", "broker-b", "--checkpoint", str(checkpoint), "--yes")
    file = checkpoint / "sparrowmq-queues" / "7.json"
    assert done.out == (
        f"saved in {file}: rows for Bills that were meant for broker-b go to Bills/broker-a/0; start the "
        "query again\n"
    )
    assert json.loads(file.read_text())["lost"] == ["broker-b"]
    plans = str(checkpoint / "sparrowmq-queues")
    (found,) = sparrow("spark", "lost-broker", "broker-a", "--plans", plans, "--yes", "--json").values
    assert found == {"topic": "Bills", "file": str(file), "lost": ["broker-a", "broker-b"], "left": []}


def test_a_broker_without_a_part_and_a_place_that_is_no_checkpoint_are_told(
    sparrow: Sparrow, checkpoint: Path
) -> None:
    given = ("spark", "lost-broker", "broker-c", "--yes")
    unknown = sparrow(*given, "--checkpoint", str(checkpoint), status=1).err
    assert "the brokers are broker-a, broker-b" in unknown
    nowhere = sparrow(*given, "--checkpoint", str(checkpoint / "nowhere"), status=1).err
    assert "has no queues of any batch" in nowhere
    assert "--checkpoint or --plans" in sparrow(*given, status=2).err
    assert "--checkpoint" in sparrow("spark", "lost-broker", "--help").out


def test_it_asks_first(sparrow: Sparrow, checkpoint: Path) -> None:
    sparrow("spark", "lost-broker", "broker-b", "--checkpoint", str(checkpoint), status=1)
    assert "lost" not in json.loads((checkpoint / "sparrowmq-queues" / "7.json").read_text())
