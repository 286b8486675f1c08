"""Groups whose members allocate queues themselves: the list of permitted members; managed groups are
excluded."""

from __future__ import annotations

import pytest
from tests.coordinator.services.watched import MadeUpKeeper
from tests.support import run

from sparrowmq.client.admin.types import GroupConnections, GroupMemberInfo
from sparrowmq.coordinator.groups.initial_state import Terms
from sparrowmq.coordinator.groups.plan import AdmissionRules, Candidate
from sparrowmq.coordinator.groups.unfenced import UnfencedGroups, listed
from sparrowmq.core.dynamic_settings import SettingPlace, SettingValue
from sparrowmq.protocol.managed import GroupPolicy, QueueGrant


class Seen(MadeUpKeeper):
    """A cluster where members are online, by their addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.online: dict[str, str] = {}
        self.told = 0

    async def group_connections(self, group: str) -> GroupConnections | None:
        if not self.online:
            return None
        members = [GroupMemberInfo(name, f"{at}:5000", "JAVA", 475) for name, at in self.online.items()]
        return GroupConnections(members, {}, "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET")

    async def set_group_policy(
        self, policy: GroupPolicy, *, cluster: str | None = None, broker: str | None = None
    ) -> None:
        self.told += 1
        await super().set_group_policy(policy, cluster=cluster, broker=broker)

    def members(self) -> list[str] | None:
        first, second = (self.policies[name]["g"].members for name in ("a", "b"))
        assert first == second, "brokers say the same"
        return first


def looked(cluster: Seen, terms: Terms | None, epoch: int = 7, *, led: bool = False) -> list[str]:
    groups = UnfencedGroups(cluster, epoch, lambda group: led)
    return run(groups.look({} if terms is None else {"g": terms}))


def test_list_keeps_its_order_and_new_members_are_appended() -> None:
    online = [Candidate(name, "10.0.0.1:1") for name in "pqr"]
    assert listed(online, AdmissionRules(), ["r"]) is None
    assert listed(online, AdmissionRules(maximum=2), []) == ["p", "q"]
    assert listed(online, AdmissionRules(maximum=2), ["r", "gone", "q"]) == ["r", "q"]
    assert listed(online, AdmissionRules.parse(deny=["10.0.0.1"]), ["p"]) == []


@pytest.mark.proves("MUST-72")
def test_rules_become_a_list_that_is_sent_when_it_changes_and_nobody_advances_before() -> None:
    cluster = Seen()
    cluster.online = {"q": "10.0.0.2", "p": "10.0.0.1"}
    assert looked(cluster, Terms(rules=AdmissionRules(maximum=1))) == ["g"]
    assert (cluster.members(), cluster.told) == (["p"], 2)
    assert looked(cluster, Terms(rules=AdmissionRules(maximum=1))) == ["g"]
    assert cluster.told == 2, "it is so already"
    cluster.online["a"] = "10.0.0.3"
    looked(cluster, Terms(rules=AdmissionRules(maximum=1)), epoch=8)
    assert (cluster.members(), cluster.told) == (["p"], 2), "a newcomer stands by, whatever its name"
    del cluster.online["p"]
    looked(cluster, Terms(rules=AdmissionRules(maximum=1)), epoch=8)
    assert cluster.members() == ["a"]
    looked(cluster, Terms(rules=AdmissionRules.parse(allow=["10.0.0.2/32"])), epoch=8)
    assert cluster.members() == ["q"]
    cluster.online = {}
    looked(cluster, Terms(rules=AdmissionRules(maximum=1)), epoch=8)
    assert cluster.members() == []


def test_everybody_may_consume_when_no_rule_is_set_any_more() -> None:
    cluster = Seen()
    cluster.online = {"p": "10.0.0.1"}
    groups = UnfencedGroups(cluster, 7, lambda group: False)
    pause = SettingValue("pause", SettingPlace(topic="T"), True, reason="repair")
    assert run(groups.look({"g": Terms(rules=AdmissionRules(maximum=1), settings=(pause,))})) == ["g"]
    (rule,) = cluster.policies["a"]["g"].pauses
    assert (rule.topic, rule.reason) == ("T", "repair")
    assert run(groups.look({})) == []
    policy = cluster.policies["a"]["g"]
    assert (policy.members, policy.maximum, policy.pauses) == (None, 0, [])
    told = cluster.told
    assert run(groups.look({})) == []
    assert cluster.told == told


def test_settings_removed_without_a_leader_end_with_the_next_leader() -> None:
    cluster = Seen()
    cluster.online = {"p": "10.0.0.1"}
    pause = SettingValue("pause", SettingPlace(topic="T"), True)
    assert looked(cluster, Terms(rules=AdmissionRules(maximum=1), settings=(pause,)), epoch=7) == ["g"]
    theirs = GroupPolicy("other", 0, 4, members=["p"], maximum=1)
    cluster.policies["a"]["other"] = theirs
    cluster.down = {"b"}
    groups = UnfencedGroups(cluster, 8, lambda group: False)
    assert run(groups.look({})) == []
    assert cluster.policies["a"]["g"].pauses, "brokers did not say yet"
    cluster.down = set()
    assert run(groups.look({})) == []
    policies = [cluster.policies[name]["g"] for name in ("a", "b")]
    assert [(one.members, one.maximum, one.pauses) for one in policies] == [(None, 0, [])] * 2
    assert cluster.policies["a"]["other"] is theirs, "an operator's own policy is left alone"


def test_managed_groups_are_excluded() -> None:
    cluster = Seen()
    cluster.online = {"p": "10.0.0.1"}
    assert looked(cluster, Terms(rules=AdmissionRules(maximum=1)), led=True) == []
    grant = QueueGrant("T", "a", 0, 3, "")
    cluster.policies["a"]["g"] = GroupPolicy("g", 3, 1, members=[], queues=[grant])
    assert looked(cluster, Terms(rules=AdmissionRules(maximum=1))) == []
    assert cluster.told == 0, "what was granted is kept until somebody deletes it"
    del cluster.policies["a"]["g"]
    assert looked(cluster, Terms(rules=AdmissionRules(maximum=1))) == ["g"]


def test_broker_that_is_down_is_updated_in_the_next_round(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Seen()
    cluster.online = {"p": "10.0.0.1"}
    cluster.down = {"b"}
    assert looked(cluster, Terms(rules=AdmissionRules(maximum=1))) == []
    assert "settings could not be applied to the unmanaged members of group g" in caplog.text
    cluster.down = set()
    assert looked(cluster, Terms(rules=AdmissionRules(maximum=1))) == ["g"]
    assert cluster.members() == ["p"]
