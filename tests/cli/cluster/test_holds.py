"""`sparrow hold` against a running cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sparrowmq as mq
from sparrowmq.testing import LocalCluster

if TYPE_CHECKING:
    from tests.cli.conftest import Sparrow


def test_a_hold_from_begin_to_end(sparrow: Sparrow, cluster: LocalCluster) -> None:
    cluster.create_topic("Held", queues=1)
    assert sparrow("hold", "list", "--json").values == []
    done = sparrow("hold", "set", "Held", "archive_of_held", "--hours", "12", "--size-max", "1000")
    assert done.out == "messages of Held are kept until archive_of_held has consumed them, up to 12 hours\n"
    (hold,) = sparrow("hold", "list", "--json").values
    assert (hold["topic"], hold["group"], hold["hours"], hold["messages"]) == (
        "Held",
        "archive_of_held",
        12,
        0,
    )
    assert hold["oldest_ms"] is None

    with mq.Producer("holders", namesrv=cluster.namesrv) as producer:
        producer.send_batch([mq.Message("Held", b"x" * 2000)])
    shown = sparrow("hold", "list").lines
    assert "gave way: " in shown[-1] and "the limit is 1000" in shown[-1]
    sparrow("hold", "set", "Held", "archive_of_held")
    assert sparrow("hold", "list").lines[-1].endswith("holds")
    assert sparrow("hold", "release", "Held").out == "the hold on messages of Held is released\n"
    assert sparrow("hold", "list", "--json").values == []


def test_wrong_holds(sparrow: Sparrow) -> None:
    assert "hours=0" in sparrow("hold", "set", "Held", "g", "--hours", "0", status=1).err
    assert "NoSuchTopic" in sparrow("hold", "set", "NoSuchTopic", "g", status=1).err
