"""Tables and decisions of the name server."""

from __future__ import annotations

from typing import Any

import pytest

from sparrowmq.core.route import PERM_READ, PERM_WRITE, BrokerData, QueueData
from sparrowmq.nameserver.registry import BROKER_SECONDS, FLAG_UNIT, Registered, Registry
from sparrowmq.protocol.bodies import DataVersion, TopicConfig, TopicConfigTable, TopicList
from sparrowmq.protocol.headers import RegisterBrokerRequest

V1, V2 = DataVersion(1, 0, 1000), DataVersion(2, 0, 2000)
SYSTEM = ("TBW102", "SELF_TEST_TOPIC")


def topics(*names: str, version: DataVersion = V1, **options: Any) -> TopicConfigTable:
    options = {"read_queue_nums": 4, "write_queue_nums": 4, **options}
    return TopicConfigTable(version, {name: TopicConfig(topic_name=name, **options) for name in names})


def register(
    registry: Registry,
    table: TopicConfigTable | None = None,
    *,
    name: str = "broker-a",
    number: int = 0,
    address: str = "10.0.0.1:10911",
    cluster: str = "C",
    connection: int = 1,
    now: float = 0.0,
    zone: str | None = None,
    **options: Any,
) -> Registered | None:
    request = RegisterBrokerRequest(
        broker_name=name,
        broker_id=number,
        broker_addr=address,
        cluster_name=cluster,
        ha_server_addr=address.replace("10911", "10912"),
        **options,
    )
    return registry.register(
        request, topics(*SYSTEM) if table is None else table, connection=connection, now=now, zone=zone
    )


def perms(registry: Registry, topic: str) -> dict[str, int]:
    route = registry.route(topic)
    return {} if route is None else {data.broker_name: data.perm for data in route.queues}


class TestRegister:
    def test_a_master_brings_its_topics(self) -> None:
        registry = Registry()
        assert register(registry) == Registered()
        route = registry.route("TBW102")
        assert route is not None
        assert route.queues == (QueueData("broker-a", 4, 4, 6, 0),)
        assert route.brokers == (BrokerData("C", "broker-a", {0: "10.0.0.1:10911"}),)
        assert route.order_topic_conf is None

    def test_a_single_topic_of_an_unknown_broker_is_refused_and_leaves_no_trace(self) -> None:
        registry = Registry()
        assert register(registry, topics("OnlyOne")) is None
        assert registry.cluster_info().brokers == {}
        assert registry.cluster_info().clusters == {}
        assert registry.topics() == []

    def test_no_topics_are_fine(self) -> None:
        registry = Registry()
        assert register(registry, TopicConfigTable()) == Registered()
        assert registry.cluster_info().clusters == {"C": ["broker-a"]}

    def test_a_known_broker_may_bring_one_changed_topic_and_keeps_the_others(self) -> None:
        registry = Registry()
        register(registry)
        assert register(registry, topics("New", version=V2)) == Registered()
        assert sorted(registry.topics()) == ["New", "SELF_TEST_TOPIC", "TBW102"]
        assert registry.data_version("C", "10.0.0.1:10911") == V2

    def test_an_unknown_id_of_a_known_name_is_refused_with_one_topic(self) -> None:
        registry = Registry()
        register(registry)
        assert register(registry, topics("T"), number=1, address="10.0.0.2:10911") is None
        assert registry.member_group("C", "broker-a").addresses == {0: "10.0.0.1:10911"}

    def test_topics_change_with_the_version_only(self) -> None:
        registry = Registry()
        register(registry)
        register(registry, topics(*SYSTEM, perm=4))
        assert perms(registry, "TBW102") == {"broker-a": 6}
        register(registry, topics(*SYSTEM, perm=4, version=V2))
        assert perms(registry, "TBW102") == {"broker-a": 4}

    def test_a_topic_that_is_unknown_for_the_broker_is_taken_without_a_new_version(self) -> None:
        registry = Registry()
        register(registry)
        registry.delete_topic("TBW102")
        register(registry)
        assert perms(registry, "TBW102") == {"broker-a": 6}

    def test_the_same_address_moves_to_another_id(self) -> None:
        registry = Registry()
        register(registry, number=1)
        register(registry, number=0)
        assert registry.member_group("C", "broker-a").addresses == {0: "10.0.0.1:10911"}

    def test_an_address_does_not_replace_one_with_a_greater_state_version(self) -> None:
        registry = Registry()
        register(registry, topics(*SYSTEM, version=DataVersion(1, 5, 1)))
        late = topics(*SYSTEM, version=DataVersion(9, 4, 9))
        assert register(registry, late, address="10.0.0.2:10911") == Registered()
        assert registry.member_group("C", "broker-a").addresses == {0: "10.0.0.1:10911"}
        assert registry.data_version("C", "10.0.0.2:10911") is None
        newer = topics(*SYSTEM, version=DataVersion(1, 6, 1))
        register(registry, newer, address="10.0.0.2:10911", connection=2)
        assert registry.member_group("C", "broker-a").addresses == {0: "10.0.0.2:10911"}
        registry.connection_lost(1)
        assert registry.member_group("C", "broker-a").addresses == {0: "10.0.0.2:10911"}, "the loser's end"

    def test_a_slave_learns_its_master_and_brings_no_topics(self) -> None:
        registry = Registry()
        assert register(registry, topics("S", "T"), number=1, address="10.0.0.2:10911") == Registered()
        assert registry.topics() == []
        register(registry)
        told = register(registry, topics("S", "T"), number=1, address="10.0.0.2:10911")
        assert told == Registered("10.0.0.1:10911", "10.0.0.1:10912")
        assert registry.route("S") is None
        route = registry.route("TBW102")
        assert route is not None
        assert route.brokers[0].addresses == {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}

    def test_the_first_slave_may_act_for_a_missing_master_without_writes(self) -> None:
        registry = Registry()
        register(registry, number=1, address="10.0.0.2:10911", enable_acting_master=True)
        assert perms(registry, "TBW102") == {"broker-a": PERM_READ}
        register(
            registry, topics("Late", "Later"), number=2, address="10.0.0.3:10911", enable_acting_master=True
        )
        assert registry.route("Late") is None, "the second slave does not act"

    def test_a_slave_that_knows_the_role_but_may_not_act_keeps_the_write_bit(self) -> None:
        registry = Registry()
        register(registry, number=1, enable_acting_master=False)
        assert perms(registry, "TBW102") == {"broker-a": 6}


class TestLeaving:
    def test_what_only_one_broker_served_goes_with_it(self) -> None:
        registry = Registry()
        register(registry)
        register(registry, topics("TBW102", "B"), name="broker-b", address="10.0.0.2:10911")
        registry.unregister("C", "broker-a", "10.0.0.1:10911")
        assert perms(registry, "TBW102") == {"broker-b": 6}
        assert sorted(registry.topics()) == ["B", "TBW102"]
        assert registry.cluster_info().clusters == {"C": ["broker-b"]}
        registry.unregister("C", "broker-b", "10.0.0.2:10911")
        assert registry.topics() == []
        assert registry.cluster_info().clusters == {}

    def test_an_unknown_broker_may_say_goodbye(self) -> None:
        registry = Registry()
        register(registry)
        registry.unregister("C", "broker-z", "10.0.0.9:1")
        registry.unregister("C", "broker-a", "10.0.0.9:1")
        assert registry.route("TBW102") is not None

    def test_topics_stay_while_a_slave_lives(self) -> None:
        registry = Registry()
        register(registry, connection=1)
        register(registry, number=1, address="10.0.0.2:10911", connection=2)
        assert [member.address for member in registry.connection_lost(1)] == ["10.0.0.1:10911"]
        route = registry.route("TBW102")
        assert route is not None
        assert route.brokers[0].addresses == {1: "10.0.0.2:10911"}
        assert perms(registry, "TBW102") == {"broker-a": 6}

    def test_slaves_that_act_lose_the_write_bit_with_their_master(self) -> None:
        registry = Registry()
        register(registry, enable_acting_master=True)
        register(registry, number=1, address="10.0.0.2:10911", enable_acting_master=True)
        registry.unregister("C", "broker-a", "10.0.0.1:10911")
        assert perms(registry, "TBW102") == {"broker-a": PERM_READ}

    def test_only_brokers_of_the_lost_connection_go(self) -> None:
        registry = Registry()
        register(registry, connection=1)
        register(registry, name="broker-b", address="10.0.0.2:10911", connection=2)
        assert [member.broker_name for member in registry.connection_lost(2)] == ["broker-b"]
        assert registry.connection_lost(3) == []
        assert registry.cluster_info().clusters == {"C": ["broker-a"]}

    def test_a_broker_that_came_back_outlives_its_old_connection(self) -> None:
        registry = Registry()
        register(registry, connection=1)
        register(registry, connection=2)
        assert registry.connection_lost(1) == []
        assert registry.route("TBW102") is not None

    def test_silence_is_measured_from_the_last_sign_of_life(self) -> None:
        registry = Registry()
        register(registry, now=100.0)
        assert registry.expire(100.0 + BROKER_SECONDS) == []
        registry.heard("C", "10.0.0.1:10911", 150.0)
        registry.heard("C", "10.0.0.9:1", 150.0)
        assert registry.expire(150.0 + BROKER_SECONDS) == []
        assert [m.connection for m in registry.expire(150.1 + BROKER_SECONDS)] == [1]
        assert registry.route("TBW102") is None
        assert registry.expire(1e9) == []

    def test_a_broker_may_name_its_own_time(self) -> None:
        registry = Registry()
        register(registry, now=0.0, heartbeat_timeout_millis=10_000)
        assert registry.expire(10.0) == []
        assert len(registry.expire(10.1)) == 1


class TestRoutes:
    def test_an_unknown_topic_has_none(self) -> None:
        assert Registry().route("T") is None

    def test_all_brokers_of_a_topic_are_in_it(self) -> None:
        registry = Registry()
        register(registry)
        register(registry, topics("TBW102", "X", perm=4), name="broker-b", address="10.0.0.2:10911")
        assert perms(registry, "TBW102") == {"broker-a": 6, "broker-b": 4}

    def test_brokers_of_other_zones_are_left_out_unless_their_master_is_down(self) -> None:
        registry = Registry()
        register(registry, zone="East")
        register(registry, name="broker-b", address="10.0.0.2:10911", zone="west")
        register(registry, name="broker-c", address="10.0.0.3:10911")
        register(registry, name="broker-d", address="10.0.0.4:10911", zone="west", connection=4)
        register(registry, name="broker-d", number=1, address="10.0.0.5:10911", zone="west")
        registry.connection_lost(4)
        route = registry.route("TBW102", zone="east")
        assert route is not None
        assert [broker.broker_name for broker in route.brokers] == ["broker-a", "broker-d"]
        assert [data.broker_name for data in route.queues] == ["broker-a", "broker-d"]
        assert registry.route("TBW102", zone="north") is not None
        registry.unregister("C", "broker-d", "10.0.0.5:10911")
        assert registry.route("TBW102", zone="north") is None


class TestLists:
    def test_topics_of_a_cluster(self) -> None:
        registry = Registry()
        register(registry)
        register(registry, topics("TBW102", "B"), name="broker-b", address="10.0.0.2:10911", cluster="D")
        assert sorted(registry.topics_of_cluster("C")) == ["SELF_TEST_TOPIC", "TBW102"]
        assert sorted(registry.topics_of_cluster("D")) == ["B", "TBW102"]
        assert registry.topics_of_cluster("E") == []

    def test_names_of_clusters_and_brokers_are_topics(self) -> None:
        registry = Registry()
        assert registry.system_topics() == TopicList([], None)
        register(registry)
        assert registry.system_topics() == TopicList(["C", "broker-a"], "10.0.0.1:10911")

    def test_unit_flags(self) -> None:
        registry = Registry()
        register(registry, topics("U", "V", topic_sys_flag=1))
        register(registry, topics("W", "X"), name="broker-b", address="10.0.0.2:10911")
        assert sorted(registry.topics_by_flag(lambda flag: bool(flag & FLAG_UNIT))) == ["U", "V"]

    def test_members_of_a_broker_name(self) -> None:
        registry = Registry()
        register(registry)
        assert registry.member_group("C", "broker-a") == BrokerData("C", "broker-a", {0: "10.0.0.1:10911"})
        assert registry.member_group("C", "nobody") == BrokerData("C", "nobody", {})


class TestAdministration:
    def test_the_write_bit_is_taken_and_given_on_all_topics_of_a_broker_name(self) -> None:
        registry = Registry()
        register(registry, topics("A", "B", perm=7))
        register(registry, topics("A", "C"), name="broker-b", address="10.0.0.2:10911")
        assert registry.wipe_write_perm("broker-a") == 2
        assert perms(registry, "A") == {"broker-a": 5, "broker-b": 6}
        register(registry, topics("A", "B", perm=7))
        assert perms(registry, "A")["broker-a"] == 5, "the same version does not bring it back"
        assert registry.add_write_perm("broker-a") == 2
        assert perms(registry, "A")["broker-a"] == PERM_READ | PERM_WRITE
        assert registry.wipe_write_perm("nobody") == 0

    def test_a_topic_is_deleted_everywhere_or_in_one_cluster(self) -> None:
        registry = Registry()
        for number, cluster in enumerate("CD"):
            register(
                registry,
                topics("A", "B"),
                name=f"broker-{cluster}",
                address=f"10.0.0.{number}:10911",
                cluster=cluster,
            )
        registry.delete_topic("A", "C")
        assert perms(registry, "A") == {"broker-D": 6}
        registry.delete_topic("A", "nowhere")
        registry.delete_topic("A", "D")
        assert registry.topics() == ["B"]
        registry.delete_topic("B")
        registry.delete_topic("B")
        registry.delete_topic("B", "C")
        assert registry.topics() == []

    def test_one_topic_is_registered_when_all_its_brokers_are_known(self) -> None:
        registry = Registry()
        register(registry)
        mine, other = QueueData("broker-a", 2, 2, 6), QueueData("broker-b", 2, 2, 6)
        assert not registry.register_topic("T", [mine, other])
        assert not registry.register_topic("T", [])
        assert registry.route("T") is None
        assert registry.register_topic("T", [mine])
        assert registry.register_topic("T", [QueueData("broker-a", 8, 8, 4)])
        assert perms(registry, "T") == {"broker-a": 4}


@pytest.mark.parametrize("count", [0, 3])
def test_repr_counts(count: int) -> None:
    registry = Registry()
    for number in range(count):
        register(registry, name=f"b{number}", address=f"10.0.0.{number}:10911")
    assert repr(registry) == f"<Registry {count} brokers, {2 if count else 0} topics>"
