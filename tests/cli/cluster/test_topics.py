"""`sparrow topic …` against a running cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Sparrow

    from sparrowmq.testing import LocalCluster


def test_create_and_list(sparrow: Sparrow) -> None:
    assert sparrow("topic", "create", "Created", "--queues", "3").out == "Created: 3 queues on broker-a\n"
    assert "Created" in sparrow("topic", "list").lines
    assert "Created" in sparrow("topic", "list", "--json").values
    assert "TBW102" not in sparrow("topic", "list").lines
    assert "TBW102" in sparrow("topic", "list", "--all").lines


def test_what_is_not_given_stays_as_it_is(sparrow: Sparrow) -> None:
    sparrow("topic", "create", "Kept", "--queues", "3", "--perm", "4")
    changed = sparrow("topic", "create", "Kept", "--queues", "5").out
    assert changed == "Kept: read_queue_nums 3 to 5, write_queue_nums 3 to 5 on broker-a\n"
    (told,) = sparrow("topic", "create", "Kept", "--json").values
    assert (told["queues"], told["perm"], told["changed"]) == (5, 4, {"broker-a": {}})


def test_route(sparrow: Sparrow, cluster: LocalCluster) -> None:
    sparrow("topic", "create", "Routed", "--queues", "2", "--perm", "4")
    assert sparrow("topic", "route", "Routed", "--json").values == [
        {
            "cluster": "DefaultCluster",
            "broker": "broker-a",
            "addresses": {"0": cluster.broker_address},
            "read_queues": 2,
            "write_queues": 2,
            "perm": 4,
        }
    ]
    head, _, row = sparrow("topic", "route", "Routed").lines
    assert head.split() == ["cluster", "broker", "master", "read", "queues", "write", "queues", "permission"]
    assert row.split() == ["DefaultCluster", "broker-a", cluster.broker_address, "2", "2", "read"]


def test_attributes_are_set_shown_and_taken(sparrow: Sparrow) -> None:
    sparrow("topic", "create", "Shown", "--queues", "2", "--attribute", "message.type=FIFO")
    (row,) = sparrow("topic", "show", "Shown", "--json").values
    assert row == {
        "broker": "broker-a",
        "read_queues": 2,
        "write_queues": 2,
        "perm": 6,
        "filter": "SINGLE_TAG",
        "order": False,
        "attributes": {"message.type": "FIFO"},
    }
    assert sparrow("topic", "show", "Shown").lines[-1].split()[-1] == "message.type=FIFO"
    sparrow("topic", "create", "Shown", "--queues", "2", "--attribute", "message.type")
    assert sparrow("topic", "show", "Shown").lines[-1].split()[-1] == "–"
    for wrong in ("=x", "message.type=", "+message.type=FIFO"):
        assert "write KEY=VALUE" in sparrow("topic", "create", "Shown", "--attribute", wrong, status=2).err
    told = sparrow("topic", "create", "Other", "--attribute", "queue.type=BatchCQ", status=1).err
    assert "queue.type=BatchCQ is not supported by this broker; it supports SimpleCQ" in told


def test_status(sparrow: Sparrow) -> None:
    sparrow("topic", "create", "Counted", "--queues", "1")
    empty = sparrow("topic", "status", "Counted", "--json").values
    assert [(row["queue"], row["min"], row["max"], row["messages"]) for row in empty] == [(0, 0, 0, 0)]
    assert sparrow("topic", "status", "Counted").lines[-1].split() == ["broker-a", "0", "0", "0", "0", "–"]
    sparrow("send", "Counted", "one")
    (row,) = sparrow("topic", "status", "Counted", "--json").values
    assert (row["min"], row["max"], row["messages"]) == (0, 1, 1)
    assert row["last_update_ms"] > 0
    assert sparrow("topic", "status", "Counted").lines[-1].split()[:5] == ["broker-a", "0", "0", "1", "1"]


def test_delete(sparrow: Sparrow) -> None:
    sparrow("topic", "create", "Deleted")
    assert sparrow("topic", "delete", "Deleted").out == "Deleted deleted\n"
    assert "Deleted" not in sparrow("topic", "list").lines
    assert "no broker serves topic 'Deleted'" in sparrow("topic", "delete", "Deleted", status=1).err


@pytest.mark.proves("client:B-09")
def test_bad_names_and_numbers(sparrow: Sparrow) -> None:
    assert "may only have letters" in sparrow("topic", "create", "a b", status=1).err
    assert "RocketMQ's own" in sparrow("topic", "create", "TBW102", status=1).err
    sparrow("topic", "create", "T", "--queues", "0", status=2)
    assert (
        "there is no cluster 'Other'" in sparrow("topic", "create", "T", "--cluster", "Other", status=1).err
    )
