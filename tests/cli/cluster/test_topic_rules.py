"""`sparrow topic perm|order|producers` against a running cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sparrowmq as mq

if TYPE_CHECKING:
    from tests.cli.conftest import Sparrow

    from sparrowmq.testing import LocalCluster


def test_permissions(sparrow: Sparrow) -> None:
    sparrow("topic", "create", "Ruled", "--queues", "2", "--attribute", "message.type=FIFO")
    assert sparrow("topic", "perm", "Ruled", "4").out == "Ruled: read on broker-a\n"
    (row,) = sparrow("topic", "show", "Ruled", "--json").values
    assert (row["perm"], row["read_queues"], row["attributes"]) == (4, 2, {"message.type": "FIFO"})
    (made,) = sparrow("topic", "perm", "Ruled", "6", "--broker", "broker-a", "--json").values
    assert made == {"topic": "Ruled", "perm": 6, "brokers": ["broker-a"]}
    assert "no master of broker 'x'" in sparrow("topic", "perm", "Ruled", "4", "--broker", "x", status=1).err
    sparrow("topic", "perm", "Ruled", "8", status=2)


def test_ordered_topics(sparrow: Sparrow) -> None:
    sparrow("topic", "create", "InOrder", "--queues", "2")
    assert sparrow("topic", "order", "InOrder").out == "InOrder is not an ordered topic\n"
    set_to = sparrow("topic", "order", "InOrder", "broker-a=2", "broker-b=3").out
    assert set_to == "InOrder: broker-a=2, broker-b=3\n"
    (shown,) = sparrow("topic", "order", "InOrder", "--json").values
    assert shown == {"topic": "InOrder", "queues": {"broker-a": 2, "broker-b": 3}}
    for wrong in ("broker-a", "=3", "broker-a=x", "broker-a=-1"):
        assert "is not a number of queues" in sparrow("topic", "order", "InOrder", wrong, status=1).err
    assert "either" in sparrow("topic", "order", "InOrder", "broker-a=1", "--clear", status=1).err
    assert sparrow("topic", "order", "InOrder", "--clear").out == "InOrder is not an ordered topic\n"


def test_producers_of_a_topic(sparrow: Sparrow, cluster: LocalCluster) -> None:
    with mq.Producer("shown", namesrv=cluster.namesrv) as producer:
        producer.send(mq.Message("Produced", b"x"))
        (row,) = sparrow("topic", "producers", "Produced", "shown", "--json").values
        assert row["language"] == "PYTHON"
        assert row["address"].startswith("127.0.0.1:")
        assert row["client"] in sparrow("topic", "producers", "Produced", "shown").out
    assert "nobody" in sparrow("topic", "producers", "Produced", "nobody", status=1).err


def test_queues_are_taken_away_only_when_they_are_read(sparrow: Sparrow, cluster: LocalCluster) -> None:
    with mq.Admin(namesrv=cluster.namesrv) as admin, mq.Producer("p", namesrv=cluster.namesrv) as producer:
        admin.topics.create("Shrinks", 4)
        admin.groups.create("g")
        kept = sparrow("topic", "create", "Shrinks", "--queues", "2", status=1).err
        assert "sparrow topic update Shrinks --write-queues 2" in " ".join(kept.split())
        for queue in producer.queues("Shrinks"):
            producer.send(mq.Message("Shrinks", b"x"), queue=queue)
            admin.groups.commit("g", queue, 0)
        told = sparrow("topic", "update", "Shrinks", "--write-queues", "2").out
        assert told == "Shrinks: 4 queues to read, 2 to write on broker-a\n"
        assert len(admin.topics.status("Shrinks")) == 4
        refused = sparrow("topic", "update", "Shrinks", "--read-queues", "2", status=1).err
        assert "2 of group g" in " ".join(refused.split())
        for status in admin.topics.status("Shrinks"):
            admin.groups.commit("g", status.queue, 1)
        (row,) = sparrow("topic", "update", "Shrinks", "--read-queues", "2", "--json").values
        assert row == {"broker": "broker-a", "read_queues": 2, "write_queues": 2}
        for numbers in (("--write-queues", "3"), ("--read-queues", "1")):
            refused = sparrow("topic", "update", "Shrinks", *numbers, status=1).err
            assert "no consumer would get the messages" in " ".join(refused.split())
        sparrow("topic", "update", "Shrinks", "--read-queues", "1", "--write-queues", "1", "--force")
        (queues,) = admin.topics.create("Shrinks", read_queues=3, write_queues=2).queues
        assert (queues.read_queue_nums, queues.write_queue_nums) == (3, 2)
    assert "give --read-queues" in sparrow("topic", "update", "Shrinks", status=1).err
