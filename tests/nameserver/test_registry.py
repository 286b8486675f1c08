"""Tables and decisions of the name server."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support import about, steps

from sparrowmq.core.errors import InvalidNameError, NoRoomError
from sparrowmq.core.route import PERM_READ, PERM_WRITE, BrokerData, QueueData
from sparrowmq.nameserver import registry as tables
from sparrowmq.nameserver.registry import (
    BROKER_SECONDS,
    FLAG_UNIT,
    TOPICS_PER_STEP,
    RegistrationResult,
    Registry,
)
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
) -> RegistrationResult | None:
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
    def test_route_has_the_topics_of_a_registered_master(self) -> None:
        registry = Registry()
        assert register(registry) == RegistrationResult()
        route = registry.route("TBW102")
        assert route is not None
        assert route.queues == (QueueData("broker-a", 4, 4, 6, 0),)
        assert route.brokers == (BrokerData("C", "broker-a", {0: "10.0.0.1:10911"}),)
        assert route.order_topic_conf is None

    def test_single_topic_of_an_unknown_broker_is_refused_and_stores_nothing(self) -> None:
        registry = Registry()
        assert register(registry, topics("OnlyOne")) is None
        assert registry.cluster_info().brokers == {}
        assert registry.cluster_info().clusters == {}
        assert registry.topics() == []

    def test_registration_without_topics_is_accepted(self) -> None:
        registry = Registry()
        assert register(registry, TopicConfigTable()) == RegistrationResult()
        assert registry.cluster_info().clusters == {"C": ["broker-a"]}

    def test_known_broker_can_register_one_changed_topic_and_keeps_the_others(self) -> None:
        registry = Registry()
        register(registry)
        assert register(registry, topics("New", version=V2)) == RegistrationResult()
        assert sorted(registry.topics()) == ["New", "SELF_TEST_TOPIC", "TBW102"]
        assert registry.data_version("C", "10.0.0.1:10911") == V2

    def test_unknown_id_of_a_known_broker_name_is_refused_with_a_single_topic(self) -> None:
        registry = Registry()
        register(registry)
        assert register(registry, topics("T"), number=1, address="10.0.0.2:10911") is None
        assert registry.member_group("C", "broker-a").addresses == {0: "10.0.0.1:10911"}

    def test_topics_change_only_with_a_new_version(self) -> None:
        registry = Registry()
        register(registry)
        register(registry, topics(*SYSTEM, perm=4))
        assert perms(registry, "TBW102") == {"broker-a": 6}
        register(registry, topics(*SYSTEM, perm=4, version=V2))
        assert perms(registry, "TBW102") == {"broker-a": 4}

    def test_missing_topic_of_a_broker_is_added_without_a_new_version(self) -> None:
        registry = Registry()
        register(registry)
        registry.delete_topic("TBW102")
        register(registry)
        assert perms(registry, "TBW102") == {"broker-a": 6}

    def test_same_address_moves_to_another_id(self) -> None:
        registry = Registry()
        register(registry, number=1)
        register(registry, number=0)
        assert registry.member_group("C", "broker-a").addresses == {0: "10.0.0.1:10911"}

    def test_address_does_not_replace_one_with_a_greater_state_version(self) -> None:
        registry = Registry()
        register(registry, topics(*SYSTEM, version=DataVersion(1, 5, 1)))
        late = topics(*SYSTEM, version=DataVersion(9, 4, 9))
        found = register(registry, late, address="10.0.0.2:10911")
        assert found == RegistrationResult(kept="10.0.0.1:10911")
        assert registry.member_group("C", "broker-a").addresses == {0: "10.0.0.1:10911"}
        assert registry.data_version("C", "10.0.0.2:10911") is None
        newer = topics(*SYSTEM, version=DataVersion(1, 6, 1))
        register(registry, newer, address="10.0.0.2:10911", connection=2)
        assert registry.member_group("C", "broker-a").addresses == {0: "10.0.0.2:10911"}
        list(registry.connection_lost(1))
        assert registry.member_group("C", "broker-a").addresses == {0: "10.0.0.2:10911"}, "the loser's end"

    def test_two_brokers_that_keep_claiming_one_name_are_rivals(self) -> None:
        registry, one, two = Registry(), "10.0.0.1:10911", "10.0.0.2:10911"
        for second, address in enumerate((one, two, one)):
            register(registry, address=address, now=30.0 * second)
        assert registry.rivals(60) == {}, "a broker may move, and move back"
        register(registry, address=two, now=90)
        assert registry.rivals(90) == {"broker-a": {0: one}}
        register(registry, address=two, now=230)
        assert registry.rivals(240) == {"broker-a": {0: one}}
        assert registry.rivals(241) == {}, "the other one ended"
        register(registry, address=one, now=300)
        assert registry.rivals(300) == {}

    def test_master_that_became_a_slave_is_no_rival(self) -> None:
        registry, one, two = Registry(), "10.0.0.1:10911", "10.0.0.2:10911"
        for second, address in enumerate((one, two, one, two)):
            register(registry, address=address, now=second)
        assert registry.rivals(4) == {"broker-a": {0: one}}
        register(registry, address=one, number=1, now=4)
        assert registry.rivals(4) == {}

    def test_broker_that_does_not_get_its_name_is_a_rival(self) -> None:
        registry = Registry()
        register(registry, topics(*SYSTEM, version=DataVersion(1, 5, 1)))
        for second in range(3):
            register(registry, address="10.0.0.2:10911", now=second)
        assert registry.rivals(3) == {"broker-a": {0: "10.0.0.2:10911"}}
        registry.unregister("C", "broker-a", "10.0.0.1:10911")
        assert registry.rivals(3) == {}

    def test_claims_are_forgotten_and_bounded(self) -> None:
        """Whoever may register can claim any number of ids."""
        registry, newer = Registry(), topics(*SYSTEM, version=DataVersion(9, 1, 1))

        def claim(number: int, now: float) -> int:
            register(registry, newer, address="10.0.0.1:1", number=number, now=now)
            register(registry, topics(*SYSTEM), address=f"10.0.0.2:{number}", number=number, now=now)
            return len(registry._brokers["broker-a"].claims)

        assert max(claim(number, 0) for number in range(1, 1000)) == tables.MEMBERS_MAX
        assert claim(1, 1000) == 1

    def test_slave_gets_its_masters_address_and_adds_no_topics(self) -> None:
        registry = Registry()
        assert (
            register(registry, topics("S", "T"), number=1, address="10.0.0.2:10911") == RegistrationResult()
        )
        assert registry.topics() == []
        register(registry)
        told = register(registry, topics("S", "T"), number=1, address="10.0.0.2:10911")
        assert told == RegistrationResult("10.0.0.1:10911", "10.0.0.1:10912")
        assert registry.route("S") is None
        route = registry.route("TBW102")
        assert route is not None
        assert route.brokers[0].addresses == {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}

    def test_first_slave_can_act_for_a_missing_master_without_writes(self) -> None:
        registry = Registry()
        register(registry, number=1, address="10.0.0.2:10911", enable_acting_master=True)
        assert perms(registry, "TBW102") == {"broker-a": PERM_READ}
        register(
            registry, topics("Late", "Later"), number=2, address="10.0.0.3:10911", enable_acting_master=True
        )
        assert registry.route("Late") is None, "the second slave does not act"

    def test_slave_that_may_not_act_as_master_keeps_the_write_bit(self) -> None:
        registry = Registry()
        register(registry, number=1, enable_acting_master=False)
        assert perms(registry, "TBW102") == {"broker-a": 6}


class TestLeaving:
    def test_topics_of_an_unregistered_broker_alone_are_removed(self) -> None:
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

    def test_unregistering_an_unknown_broker_changes_nothing(self) -> None:
        registry = Registry()
        register(registry)
        registry.unregister("C", "broker-z", "10.0.0.9:1")
        registry.unregister("C", "broker-a", "10.0.0.9:1")
        assert registry.route("TBW102") is not None

    def test_topics_stay_while_a_slave_is_registered(self) -> None:
        registry = Registry()
        register(registry, connection=1)
        register(registry, number=1, address="10.0.0.2:10911", connection=2)
        assert [member.address for member in registry.connection_lost(1)] == ["10.0.0.1:10911"]
        route = registry.route("TBW102")
        assert route is not None
        assert route.brokers[0].addresses == {1: "10.0.0.2:10911"}
        assert perms(registry, "TBW102") == {"broker-a": 6}

    def test_acting_slaves_lose_the_write_bit_with_their_master(self) -> None:
        registry = Registry()
        register(registry, enable_acting_master=True)
        register(registry, number=1, address="10.0.0.2:10911", enable_acting_master=True)
        registry.unregister("C", "broker-a", "10.0.0.1:10911")
        assert perms(registry, "TBW102") == {"broker-a": PERM_READ}

    def test_only_brokers_of_the_lost_connection_are_removed(self) -> None:
        registry = Registry()
        register(registry, connection=1)
        register(registry, name="broker-b", address="10.0.0.2:10911", connection=2)
        assert [member.broker_name for member in registry.connection_lost(2)] == ["broker-b"]
        assert list(registry.connection_lost(3)) == []
        assert registry.cluster_info().clusters == {"C": ["broker-a"]}

    def test_broker_that_reconnected_stays_when_its_old_connection_closes(self) -> None:
        registry = Registry()
        register(registry, connection=1)
        register(registry, connection=2)
        assert list(registry.connection_lost(1)) == []
        assert registry.route("TBW102") is not None

    @pytest.mark.parametrize("is_lost", [True, False])
    def test_broker_that_registers_again_between_two_steps_stays(self, is_lost: bool) -> None:
        registry = Registry()
        for number in range(3):
            register(registry, name=f"b{number}", address=f"10.0.0.{number}:1", connection=7, now=0.0)
        going = registry.connection_lost(7) if is_lost else registry.expire(1e6)
        assert next(going).broker_name == "b0"
        for number in range(2):
            register(registry, name=f"b{number}", address=f"10.0.0.{number}:1", connection=8, now=1e6)
        assert [member.broker_name for member in going] == ["b2"]
        assert set(perms(registry, "TBW102")) == {"b0", "b1"}

    def test_broker_expires_after_its_last_heartbeat(self) -> None:
        registry = Registry()
        register(registry, now=100.0)
        assert list(registry.expire(100.0 + BROKER_SECONDS)) == []
        registry.heard("C", "10.0.0.1:10911", 150.0)
        registry.heard("C", "10.0.0.9:1", 150.0)
        assert list(registry.expire(150.0 + BROKER_SECONDS)) == []
        assert [m.connection for m in registry.expire(150.1 + BROKER_SECONDS)] == [1]
        assert registry.route("TBW102") is None
        assert list(registry.expire(1e9)) == []

    def test_broker_can_set_its_own_heartbeat_timeout(self) -> None:
        registry = Registry()
        register(registry, now=0.0, heartbeat_timeout_millis=10_000)
        assert list(registry.expire(10.0)) == []
        assert len(list(registry.expire(10.1))) == 1


class TestRoutes:
    def test_unknown_topic_has_no_route(self) -> None:
        assert Registry().route("T") is None

    def test_route_has_all_brokers_of_a_topic(self) -> None:
        registry = Registry()
        register(registry)
        register(registry, topics("TBW102", "X", perm=4), name="broker-b", address="10.0.0.2:10911")
        assert perms(registry, "TBW102") == {"broker-a": 6, "broker-b": 4}

    def test_brokers_of_other_zones_are_omitted_unless_their_master_is_down(self) -> None:
        registry = Registry()
        register(registry, zone="East")
        register(registry, name="broker-b", address="10.0.0.2:10911", zone="west")
        register(registry, name="broker-c", address="10.0.0.3:10911")
        register(registry, name="broker-d", address="10.0.0.4:10911", zone="west", connection=4)
        register(registry, name="broker-d", number=1, address="10.0.0.5:10911", zone="west")
        list(registry.connection_lost(4))
        route = registry.route("TBW102", zone="east")
        assert route is not None
        assert [broker.broker_name for broker in route.brokers] == ["broker-a", "broker-d"]
        assert [data.broker_name for data in route.queues] == ["broker-a", "broker-d"]
        assert registry.route("TBW102", zone="north") is not None
        registry.unregister("C", "broker-d", "10.0.0.5:10911")
        assert registry.route("TBW102", zone="north") is None


class TestLists:
    def test_topics_of_a_cluster_are_listed(self) -> None:
        registry = Registry()
        register(registry)
        register(registry, topics("TBW102", "B"), name="broker-b", address="10.0.0.2:10911", cluster="D")
        assert sorted(registry.topics_of_cluster("C")) == ["SELF_TEST_TOPIC", "TBW102"]
        assert sorted(registry.topics_of_cluster("D")) == ["B", "TBW102"]
        assert registry.topics_of_cluster("E") == []

    def test_system_topics_are_the_names_of_clusters_and_brokers(self) -> None:
        registry = Registry()
        assert registry.system_topics() == TopicList([], None)
        register(registry)
        assert registry.system_topics() == TopicList(["C", "broker-a"], "10.0.0.1:10911")

    def test_topics_are_selected_by_unit_flag(self) -> None:
        registry = Registry()
        register(registry, topics("U", "V", topic_sys_flag=1))
        register(registry, topics("W", "X"), name="broker-b", address="10.0.0.2:10911")
        assert sorted(registry.topics_by_flag(lambda flag: bool(flag & FLAG_UNIT))) == ["U", "V"]

    def test_members_of_a_broker_name_are_listed(self) -> None:
        registry = Registry()
        register(registry)
        assert registry.member_group("C", "broker-a") == BrokerData("C", "broker-a", {0: "10.0.0.1:10911"})
        assert registry.member_group("C", "nobody") == BrokerData("C", "nobody", {})


class TestAdministration:
    def test_write_bit_is_removed_and_added_on_all_topics_of_a_broker_name(self) -> None:
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

    def test_topic_is_deleted_everywhere_or_in_one_cluster(self) -> None:
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

    def test_single_topic_is_registered_when_all_its_brokers_are_known(self) -> None:
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
def test_repr_shows_the_numbers_of_brokers_and_topics(count: int) -> None:
    registry = Registry()
    for number in range(count):
        register(registry, name=f"b{number}", address=f"10.0.0.{number}:10911")
    assert repr(registry) == f"<Registry {count} brokers, {2 if count else 0} topics>"


class TestCosts:
    """Registering and removing one broker does not cost more with many other brokers."""

    @staticmethod
    def filled(others: int) -> Registry:
        registry = Registry()
        for number in range(others):
            name, address = f"b{number}", f"10.0.0.{number}:1"
            register(
                registry,
                topics(f"T{number}", "A", "B"),
                name=name,
                address=address,
                connection=number,
                cluster=f"C{number}",
            )
        register(registry, topics("A", "B", "C"), name="mine", address="10.1.0.1:1", connection=-1)
        return registry

    @staticmethod
    def lost(registry: Registry, connection: int) -> int:
        return steps(lambda: list(registry.connection_lost(connection)))

    def test_lost_connection_costs_the_same_with_many_brokers(self) -> None:
        few, many = self.filled(3), self.filled(300)
        assert self.lost(few, 77_777) == self.lost(many, 77_777)
        assert self.lost(few, -1) == self.lost(many, -1)
        assert few.route("C") is many.route("C") is None
        assert set(perms(many, "A")) == {f"b{number}" for number in range(300)}

    def test_permission_change_costs_the_same_with_many_brokers(self) -> None:
        few, many = self.filled(3), self.filled(300)
        assert steps(lambda: few.wipe_write_perm("mine")) == steps(lambda: many.wipe_write_perm("mine"))
        assert perms(many, "A")["mine"] == PERM_READ

    def test_nothing_is_left_of_removed_brokers(self) -> None:
        registry = self.filled(20)
        for number in (*range(20), -1):
            list(registry.connection_lost(number))
        assert registry.topics() == []
        assert vars(registry) == vars(Registry())


def test_broker_removed_during_its_registration_adds_no_more_topics() -> None:
    many = topics(*(f"T{number}" for number in range(5 * TOPICS_PER_STEP)))
    request = RegisterBrokerRequest(
        broker_name="broker-a",
        broker_id=0,
        broker_addr="10.0.0.1:10911",
        cluster_name="C",
        ha_server_addr="",
    )
    registry = Registry()
    work = registry.registering(request, many, connection=1, now=0.0)
    next(work)
    assert 0 < len(registry.topics()) <= TOPICS_PER_STEP
    list(registry.connection_lost(1))
    with pytest.raises(StopIteration):
        next(work)
    assert registry.topics() == [] and registry.cluster_info().brokers == {}
    work = registry.registering(request, many, connection=1, now=0.0)
    next(work)
    register(registry, topics("A", "B", version=V2))  # the same broker, anew
    with pytest.raises(StopIteration):
        next(work)
    assert {"A", "B"} < set(registry.topics()) and len(registry.topics()) <= TOPICS_PER_STEP + 2


class TestLimits:
    """Brokers choose the names that they register: their number and length are limited."""

    def test_topics_and_routes_beyond_the_limit_are_omitted(self) -> None:
        registry = Registry(topics_max=5, routes_max=8)
        found = register(registry, topics(*(f"T{n}" for n in range(6)), "x" * 256))
        assert found is not None and found.left_out == 2
        assert registry.topics() == [f"T{n}" for n in range(5)]
        found = register(
            registry, topics(*(f"T{n}" for n in range(6))), name="b", address="10.0.0.2:10911", connection=2
        )
        assert found is not None and found.left_out == 3
        with pytest.raises(NoRoomError, check=about(limit=5)):
            registry.register_topic("T9", [QueueData("b", 1, 1, 6, 0)])
        list(registry.connection_lost(1))
        assert registry._routes == 3
        list(registry.connection_lost(2))
        assert (registry._routes, registry.topics()) == (0, [])

    def test_number_of_brokers_is_limited_and_known_ones_can_still_register(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tables, "BROKERS_MAX", 2)
        registry = Registry()
        register(registry, cluster="A")
        register(registry, name="b", address="10.0.0.2:10911", cluster="B")
        for name, address, cluster in (("b", "10.0.0.3:1", "A"), ("c", "10.0.0.2:10911", "B")):
            with pytest.raises(NoRoomError, check=about(limit=2)):
                register(registry, name=name, address=address, cluster=cluster)
        with pytest.raises(NoRoomError, check=about(limit=2)):
            register(registry, name="b", address="10.0.0.2:10911", cluster="C")
        assert register(registry, topics(*SYSTEM, version=V2), cluster="A") == RegistrationResult()
        with pytest.raises(InvalidNameError, check=about(limit=255)):
            register(registry, zone="z" * 256)

    def test_number_of_processes_of_one_broker_name_is_limited(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tables, "MEMBERS_MAX", 2)
        registry = Registry()
        for number in (0, 1):
            register(registry, number=number, address=f"10.0.0.{number}:1")
        with pytest.raises(NoRoomError, check=about(limit=2)):
            register(registry, number=2, address="10.0.0.2:1")
        assert register(registry, number=1, address="10.0.0.9:1") is not None
        assert register(registry, name="broker-b", address="10.0.0.2:1") is not None

    def test_broker_that_changes_its_name_is_removed_from_the_first(self) -> None:
        registry = Registry()
        register(registry)
        register(registry, name="broker-b")
        assert [*registry._brokers] == ["broker-b"]
