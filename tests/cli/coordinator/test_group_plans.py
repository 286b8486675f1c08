from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support import until_sync

import sparrowmq as mq

if TYPE_CHECKING:
    from tests.cli.conftest import Sparrow

    from sparrowmq.testing import LocalCluster


@pytest.mark.proves("MUST-72")
def test_a_plan_is_previewed_from_what_members_have(sparrow: Sparrow, cluster: LocalCluster) -> None:
    sparrow("topic", "create", "Planned", "--queues", "4")
    with mq.PushConsumer("planners", namesrv=cluster.namesrv) as consumer:
        consumer.subscribe("Planned", handler=lambda message: None)
        until_sync(lambda: sum(queue.topic == "Planned" for queue in consumer.assignment) == 4)
        me = consumer.client_id
        (now,) = sparrow("group", "plan", "planners", "--json").values
        assert (now["group"], now["moves"]) == ("planners", 0)
        assert now["members"] == [{"client": me, "standing": "active", "reason": ""}]
        assert {row["owner"] for row in now["queues"]} == {me}
        (more,) = sparrow("group", "plan", "planners", "--join", "1", "--json").values
        assert sorted(row["owner"] for row in more["queues"] if row["topic"] == "Planned") == sorted(
            [me, me, "new-1", "new-1"]
        )
        moving = [row for row in more["queues"] if row["moves"] and row["topic"] == "Planned"]
        assert [row["reason"] for row in moving] == [f"{me} had 4 of 4; each of 2 has 2"] * 2
        alone = sparrow("group", "plan", "planners", "--join", "1", "--maximum", "1").out
        assert "standby" in alone
        assert "0 of " in alone
        denied = sparrow("group", "plan", "planners", "--deny", "127.0.0.0/8").out
        assert "deny list: 127.0.0.1 is in 127.0.0.0/8" in denied
        gone = sparrow("group", "plan", "planners", "--without", me, "--join", "1").out
        assert f"{me} left the group; each of 1 has 4" in gone
        wrong = sparrow("group", "plan", "planners", "--without", "x", status=1).err
        assert "'x' is not a member of planners" in wrong


def test_what_cannot_be_planned_says_so(sparrow: Sparrow, cluster: LocalCluster) -> None:
    assert "no member of group 'none' is online" in sparrow("group", "plan", "none", status=1).err
    wrong = sparrow("group", "plan", "none", "--allow", "10.0.0", status=1).err
    assert "'10.0.0' is neither an IP address nor a network" in wrong
    sparrow("topic", "create", "Broadcast", "--queues", "1")
    with mq.PushConsumer("everybody", namesrv=cluster.namesrv, model="broadcasting") as consumer:
        consumer.subscribe("Broadcast", handler=lambda message: None)
        until_sync(lambda: len(consumer.assignment) == 1)
        assert "is broadcasting" in sparrow("group", "plan", "everybody", status=1).err
