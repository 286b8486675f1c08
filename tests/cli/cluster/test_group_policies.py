from __future__ import annotations

from typing import TYPE_CHECKING

import sparrowmq as mq

if TYPE_CHECKING:
    from tests.cli.conftest import Sparrow

    from sparrowmq.testing import LocalCluster


def test_a_policy_is_made_changed_shown_and_deleted(sparrow: Sparrow) -> None:
    policy = ("group", "policy", "ruled")
    assert "no broker has a policy for group ruled" in sparrow(*policy).out
    (first,) = sparrow(*policy, "--maximum", "2", "--member", "p", "--member", "q", "--json").values
    assert (first["revision"], first["members"], first["maximum"]) == (1, ["p", "q"], 2)
    paused = sparrow(*policy, "--pause", "Orders", "--pause", "Bills/3", "--reason", "repair").out
    assert "p, q, 2 at once" in paused
    assert "Bills/3" in paused
    assert paused.count("repair") == 2
    (shorter,) = sparrow(*policy, "--pause", "Orders", "--minutes", "5", "--json").values
    assert [pause["place"] for pause in shorter["pauses"]] == ["Bills/3", "Orders"]
    assert shorter["pauses"][1]["until"] > 0
    (resumed,) = sparrow(*policy, "--resume", "Bills/3", "--resume", "Orders", "--everybody", "--json").values
    assert (resumed["pauses"], resumed["members"], resumed["revision"]) == ([], None, 4)
    assert "revision 0.4; everybody, 2 at once" in sparrow(*policy).out
    assert sparrow(*policy, "--delete").out == "the policy of group ruled is deleted\n"
    assert "no broker has a policy" in sparrow(*policy).out


def test_what_is_wrong_is_refused_and_changes_nothing(sparrow: Sparrow, cluster: LocalCluster) -> None:
    policy = ("group", "policy", "strict")
    wrong = sparrow(*policy, "--pause", "Orders/x", status=1).err
    assert "'Orders/x' cannot be paused; write TOPIC, TOPIC/QUEUE" in wrong
    assert "exclude each other" in sparrow(*policy, "--everybody", "--member", "p", status=1).err
    assert "maximum=-1 is out of range" in sparrow(*policy, "--maximum", "-1", status=1).err
    assert "all is not paused" in sparrow(*policy, "--resume", "all", status=1).err
    assert sparrow(*policy, "--json").values == []
    with mq.Admin(cluster.namesrv) as admin:
        grant = mq.QueueGrant("Orders", "broker-a", 0, 7, "p")
        admin.policies.set(mq.GroupPolicy("strict", epoch=3, queues=[grant]))
    for option, value in (("--maximum", "1"), ("--member", "p"), ("--pause", "all")):
        assert "sparrow setting set strict maximum N" in sparrow(*policy, option, value, status=1).err
    assert "fenced" in sparrow(*policy).out
