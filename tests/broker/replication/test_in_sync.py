"""The in-sync set of a managed master."""

from __future__ import annotations

from sparrowmq.broker.replication.in_sync import InSyncSet
from sparrowmq.broker.replication.replicas import SUCCESS, Replica, Replicas
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.store.log.commit_log import NOT_TOLD


def made(*members: str, number: int = 1) -> InSyncSet:
    found = InSyncSet("me", patience=10.0)
    found.ordered(("me", *members), number, 0.0)
    return found


def test_replica_that_has_everything_is_proposed_and_awaited_at_once() -> None:
    group = made()
    group.look({"a": 100}, 100, 50, 1.0)
    assert group.wanted == ("me", "a") and group.waited_for == {"a"}
    group = made()
    group.look({"a": 40}, 100, 50, 1.0)  # lacks what was acknowledged
    group.look({"a": 45}, 100, 50, 2.0)
    assert group.wanted == ("me",) and group.waited_for == frozenset()
    group.look({"a": 60}, 100, 50, 3.0)  # lacks what the log had at the last look
    assert group.wanted == ("me",)
    group.look({"a": 100}, 130, 50, 4.0)
    assert group.wanted == ("me", "a")


def test_replica_close_behind_is_awaited_before_it_is_proposed() -> None:
    """Otherwise a replica that is always some messages behind would never be proposed."""
    group = made()
    group.look({"a": 100}, 200, 0, 1.0)
    group.look({"a": 250}, 300, 300, 2.0)
    assert group.wanted == ("me",) and group.waited_for == {"a"}
    group.look({"a": 260}, 300, 300, 3.0)  # it did not go on
    assert group.wanted == ("me",) and group.waited_for == frozenset()
    group.look({"a": 310}, 400, 390, 4.0)
    assert group.waited_for == {"a"}
    group.look({"a": 405}, 500, 400, 5.0)
    assert group.wanted == ("me", "a") and group.waited_for == {"a"}


def test_proposal_stays_until_a_higher_number_arrives() -> None:
    """The coordinator may have written it."""
    group = made()
    group.look({"a": 100}, 100, 0, 1.0)
    group.look({}, 200, 0, 2.0)
    group.ordered(("me",), 1, 3.0)
    assert group.wanted == ("me", "a") and group.waited_for == {"a"}
    group.ordered(("me",), 2, 4.0)
    assert group.wanted == ("me",) and group.waited_for == frozenset()


def test_lagging_member_is_proposed_for_removal_but_awaited_until_ordered() -> None:
    group = made("a", "b")
    for second in range(1, 30):
        group.look({"a": second * 100, "b": 50}, second * 100, 0, float(second))
    assert group.wanted == ("me", "a") and group.waited_for == {"a", "b"}
    group.ordered(("me", "a"), 2, 30.0)
    assert group.waited_for == {"a"}
    group.look({"a": 3000, "b": 3000}, 3000, 2900, 31.0)
    assert group.wanted == ("me", "a", "b")


def test_member_that_catches_up_in_time_stays() -> None:
    group = made("a")
    group.look({}, 100, 0, 9.0)
    group.look({}, 100, 0, 11.0)
    assert group.wanted == ("me",)
    group.look({"a": 100}, 100, 0, 12.0)
    assert group.wanted == ("me", "a")


def test_too_small_a_set_refuses_sends() -> None:
    group = made("a")
    replicas = Replicas(needed=1, needed_before=2, gap_max=1000, timeout=3.0, members=group)
    assert replicas.refusal(0) is None
    group.ordered(("me",), 2, 0.0)
    assert "minInSyncReplicas is 2" in str(replicas.refusal(0))


def test_acknowledgements_wait_for_all_members_and_the_minimum_of_brokers() -> None:
    group = made("a", "b")
    replicas = Replicas(needed=2, needed_before=1, gap_max=1000, timeout=3.0, begun=10, members=group)
    links = {name: Replica(f"h:{number}", name) for number, name in enumerate("abc")}
    for link in links.values():
        link.has(10)
        replicas.join(link)
    told: list[int] = []
    replicas.after(100, 0.0, told.append, 1)

    def arrived(name: str, position: int) -> None:
        for done in replicas.acknowledged(links[name], position):
            done(SUCCESS)

    arrived("c", 100)
    arrived("a", 100)
    assert told == [] and replicas.acknowledged_end == 10
    arrived("b", 100)
    assert told == [SUCCESS] and replicas.acknowledged_end == 100 and replicas.confirmed == 100
    replicas.leave(links["b"])
    replicas.after(200, 1.0, told.append, 1)
    arrived("a", 200)
    assert told == [SUCCESS]
    group.ordered(("me", "a"), 2, 2.0)
    for done in replicas.settle():
        done(SUCCESS)
    assert told == [SUCCESS, SUCCESS]
    for name in "ac":
        replicas.leave(links[name])
    replicas.after(300, 3.0, told.append, 1)
    assert told[2:] == [ResponseCode.SLAVE_NOT_AVAILABLE] and replicas.acknowledged_end == 200


def test_a_set_that_shrinks_to_the_master_answers_what_waited() -> None:
    group = made("a")
    replicas = Replicas(needed=1, needed_before=1, gap_max=0, timeout=3.0, members=group)
    told: list[int] = []
    for position in (100, 200):
        replicas.after(position, 0.0, told.append, 1)
    assert replicas.settle() == [] and told == []
    group.ordered(("me",), 2, 1.0)
    for done in replicas.settle():
        done(SUCCESS)
    assert told == [SUCCESS, SUCCESS] and replicas.acknowledged_end == 200


def test_set_with_only_the_master_waits_for_no_one_with_one_in_sync_replica() -> None:
    replicas = Replicas(needed=1, needed_before=1, gap_max=0, timeout=3.0, members=made())
    told: list[int] = []
    replicas.after(100, 0.0, told.append, 1)
    assert told == [SUCCESS] and replicas.acknowledged_end == 100


def test_consumers_read_what_every_broker_has_that_may_become_master() -> None:
    group = made("a")
    replicas = Replicas(needed=1, needed_before=1, gap_max=0, timeout=3.0, begun=500, members=group)
    links = {name: Replica(f"h:{name}", name) for name in "ab"}
    assert replicas.readable(500) == NOT_TOLD and replicas.promised(500) == 500
    replicas.join(links["a"])
    assert replicas.readable(500) == NOT_TOLD
    for position, readable in ((400, 400), (450, 450), (500, 500)):
        links["a"].has(position)
        assert replicas.readable(600) == readable
    replicas.leave(links["a"])
    assert replicas.readable(700) == 500
    group.ordered(("me",), 2, 1.0)
    assert replicas.readable(700) is None and replicas.promised(800) == 800
    links["b"].has(650)
    replicas.join(links["b"])
    group.look({"b": 650}, 650, replicas.promised(650), 2.0)
    group.look({"b": 650}, 800, replicas.promised(800), 3.0)
    assert group.wanted == ("me", "b")
    assert replicas.readable(800) == 800, "until now consumers may have read all"
    assert replicas.readable(900) == 800
    links["b"].has(850)
    assert replicas.readable(900) == replicas.promised(900) == 850
    replicas.unmanaged()
    assert replicas.readable(900) is None


def test_a_replica_is_not_in_sync_without_what_consumers_have_read() -> None:
    """Nothing of it may be acknowledged: the broker's own messages, and all of an ASYNC_MASTER."""
    group = made()
    replicas = Replicas(needed=1, needed_before=1, gap_max=0, timeout=3.0, members=group)
    assert replicas.readable(100) is None
    group.look({}, 90, replicas.promised(90), 1.0)
    group.look({"b": 95}, 100, replicas.promised(100), 2.0)
    assert group.wanted == ("me",) and group.waited_for == {"b"}
