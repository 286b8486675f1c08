"""`sparrow cluster …` and `sparrow group …` against a running cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cli.conftest import Sparrow

    from sparrowmq.testing import LocalCluster


def test_cluster_list(sparrow: Sparrow, cluster: LocalCluster) -> None:
    (row,) = sparrow("cluster", "list", "--json").values
    assert (row["cluster"], row["broker"], row["id"]) == ("DefaultCluster", "broker-a", 0)
    assert row["address"] == cluster.broker_address
    last = sparrow("cluster", "list").lines[-1].split()
    assert last[:4] == ["DefaultCluster", "broker-a", "0", cluster.broker_address]


def test_groups_and_their_progress(sparrow: Sparrow) -> None:
    sparrow("topic", "create", "Progress", "--queues", "1")
    for body in ("a", "b", "c"):
        sparrow("send", "Progress", body)
    sparrow("consume", "Progress", "--group", "readers", "--from", "first", "--count", "2")
    assert "readers" in sparrow("group", "list").lines
    assert "readers" in sparrow("group", "list", "--json").values
    assert not [name for name in sparrow("group", "list").lines if name.startswith("CID_RMQ_SYS_")]
    assert len(sparrow("group", "list", "--all").lines) >= len(sparrow("group", "list").lines)
    (row,) = sparrow("group", "progress", "readers", "--topic", "Progress", "--json").values
    assert row == {
        "topic": "Progress",
        "broker": "broker-a",
        "queue": 0,
        "broker_offset": 3,
        "consumer_offset": 2,
        "lag": 1,
    }
    lines = sparrow("group", "progress", "readers", "--topic", "Progress").lines
    assert lines[-2].split() == ["Progress", "broker-a", "0", "3", "2", "1"]
    assert lines[-1] == "1 messages wait"


def test_progress_of_a_group_nobody_knows(sparrow: Sparrow) -> None:
    assert "no broker knows group 'nobody'" in sparrow("group", "progress", "nobody", status=1).err
