"""The latency fault strategy: tables, items, choices of both versions."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.client.base.settings import ProducerSettings
from sparrowmq.client.send.encoding import SendTarget
from sparrowmq.client.send.fault_strategy import (
    LATENCY_MAX,
    NOT_AVAILABLE,
    FaultItem,
    FaultStrategy,
    rest_ms,
)
from sparrowmq.client.send.queue_selection import PublishInfo
from sparrowmq.core.errors import BrokerError, ClientError, ConnectError, NoRoomError, SettingsError
from sparrowmq.core.message import MessageQueue


def info_of(*brokers: str, queues: int = 2) -> PublishInfo:
    targets = [
        SendTarget(
            MessageQueue("T", name, n), f"{name}:1", group="g", create_topic_key="k", create_topic_queues=4
        )
        for name in brokers
        for n in range(queues)
    ]
    return PublishInfo("T", targets, 0)


def brokers_of(strategy: FaultStrategy, info: PublishInfo, now: float, last: str | None = None) -> set[str]:
    return {strategy.choose(info, last, now).queue.broker_name for _ in range(20)}


@pytest.mark.proves("client:B-57", "client:B-59", "client:G-02")
@pytest.mark.parametrize(
    ("version", "latency", "rest"),
    [
        ("4.9", 16_000, 600_000),
        ("4.9", 15_000, 600_000),
        ("4.9", 14_999, 180_000),
        ("4.9", 8_000, 180_000),
        ("4.9", 3_000, 180_000),
        ("4.9", 2_000, 120_000),
        ("4.9", 1_000, 60_000),
        ("4.9", 700, 30_000),
        ("4.9", 550, 30_000),
        ("4.9", 549, 0),
        ("4.9", 49, 0),
        ("5.x", 16_000, 30_000),
        ("5.x", 8_000, 10_000),
        ("5.x", 5_000, 10_000),
        ("5.x", 4_999, 6_000),
        ("5.x", 2_000, 5_000),
        ("5.x", 1_800, 5_000),
        ("5.x", 1_799, 2_000),
        ("5.x", 550, 2_000),
        ("5.x", 549, 0),
        ("5.x", 0, 0),
    ],
)
def test_latency_determines_the_isolation_time(version: str, latency: int, rest: int) -> None:
    assert rest_ms(latency, LATENCY_MAX[version], NOT_AVAILABLE[version]) == rest
    strategy = FaultStrategy(compat=version)
    strategy.note("b", latency, 1000)
    assert strategy.is_available("b", 1000 + rest)
    assert not rest or not strategy.is_available("b", 999 + rest)


@pytest.mark.proves("client:B-58", "client:B-36", "client:B-37", "client:B-38", "client:B-40")
@pytest.mark.parametrize(
    ("version", "error", "rest", "reachable"),
    [
        ("4.9", ConnectError("x"), 600_000, True),
        ("4.9", BrokerError(2, "x"), 600_000, False),
        ("4.9", ClientError("x"), 600_000, True),
        ("4.9", KeyboardInterrupt(), 0, True),
        ("5.x", ConnectError("x"), 10_000, True),
        ("5.x", NoRoomError("x"), 10_000, True),
        ("5.x", BrokerError(2, "x"), 10_000, False),
        ("5.x", ClientError("x"), 0, True),
        ("5.x", KeyboardInterrupt(), 0, True),
    ],
)
def test_failures_isolate_their_broker(
    version: str, error: BaseException, rest: int, reachable: bool
) -> None:
    strategy = FaultStrategy(compat=version)
    strategy.note("b", 5, 0, error)
    assert strategy.is_available("b", rest)
    assert not rest or not strategy.is_available("b", rest - 1)
    assert strategy.is_reachable("b") is reachable
    if isinstance(error, ConnectError):
        watched = FaultStrategy(compat=version, detector=True)
        watched.note("b", 5, 0, error)
        assert not watched.is_reachable("b"), "the detector will find out"
        watched.note("b", 5, 0)
        assert watched.is_reachable("b")


@pytest.mark.proves("client:B-60")
def test_fast_answer_ends_the_isolation_only_with_the_old_strategy() -> None:
    old, new = FaultStrategy(compat="4.9"), FaultStrategy()
    for strategy in (old, new):
        strategy.note("b", 20_000, 0)
        strategy.note("b", 1, 10)
        assert strategy.items["b"].latency_ms == 1
    assert old.is_available("b", 10)
    assert not new.is_available("b", 29_999)
    new.note("b", 600, 10)  # a shorter rest that ends earlier changes nothing
    assert not new.is_available("b", 29_999) and new.is_available("b", 30_000)
    new.note("b", 20_000, 100)
    assert not new.is_available("b", 30_099) and new.is_available("b", 30_100)


@pytest.mark.proves("client:B-56")
def test_items_are_sorted_by_availability_latency_and_return_time() -> None:
    items = [
        FaultItem("resting, quick", 1, 900),
        FaultItem("slow", 9, 0),
        FaultItem("quick, later", 5, 90),
        FaultItem("quick", 5, 10),
    ]
    items.sort(key=lambda item: item.rank(100))
    assert [item.name for item in items] == ["quick", "quick, later", "slow", "resting, quick"]
    assert items[0].rank(100)[0] is False


@pytest.mark.proves("client:B-62", "client:G-03", "client:B-65")
def test_new_mode_prefers_available_then_reachable_then_any_and_avoids_the_last() -> None:
    strategy, info = FaultStrategy(rng=random.Random(1)), info_of("a", "b", "c")
    assert brokers_of(strategy, info, 0) == {"a", "b", "c"}
    strategy.note("c", 0, 0, ConnectError("x"))
    assert brokers_of(strategy, info, 0) == {"a", "b"}, "the bad link is avoided"
    assert brokers_of(strategy, info, 0, last="a") == {"b"}
    assert brokers_of(strategy, info, 10_000) == {"a", "b", "c"}, "and tried again after a while"
    for name in ("a", "b"):
        strategy.note(name, 0, 0, BrokerError(1, "x"))
    assert brokers_of(strategy, info, 0) == {"c"}, "nobody is available, but it answers"
    assert brokers_of(strategy, info, 0, last="c") == {"a", "b", "c"}, "plain turns when nothing is left"


@pytest.mark.proves("client:B-61", "client:G-03", "client:B-60")
def test_old_mode_takes_the_first_available_then_rotates_over_the_better_half() -> None:
    strategy, info = FaultStrategy(compat="4.9", rng=random.Random(1)), info_of("a", "b", "c", "d")
    assert brokers_of(strategy, info, 0, last="a") == {"a", "b", "c", "d"}
    for latency, name in enumerate("dcba"):
        strategy.note(name, latency, 0, ConnectError("x"))
    assert brokers_of(strategy, info, 0) == {"d", "c"}, "the quicker half, in turn"
    chosen = [strategy.choose(info, None, 0) for _ in range(4)]
    assert {target.queue.queue_id for target in chosen} == {0, 1}
    assert strategy.pick_one_at_least(0) in ("c", "d")
    strategy.note("d", 0, 0)
    assert brokers_of(strategy, info, 0) == {"d"}
    one = info_of("z")
    strategy.note("z", 0, 0, ConnectError("x"))
    for name in "abcd":
        strategy.forget(name)
    assert brokers_of(strategy, one, 0) == {"z"}


@pytest.mark.proves("client:B-60")
def test_old_mode_forgets_a_broker_without_queues_of_the_topic() -> None:
    strategy, info = FaultStrategy(compat="4.9"), info_of("a")
    strategy.note("a", 9, 0, ConnectError("x"))
    strategy.note("elsewhere", 1, 0, ConnectError("x"))
    assert strategy.choose(info, None, 0).queue.broker_name == "a"
    assert set(strategy.items) == {"a"}
    assert FaultStrategy(compat="4.9").pick_one_at_least(0) is None


@pytest.mark.proves("client:B-63")
def test_at_least_one_means_any_reachable() -> None:
    strategy = FaultStrategy(rng=random.Random(3))
    assert strategy.pick_one_at_least(0) is None
    strategy.note("a", 1, 0, BrokerError(1, "x"))
    assert strategy.pick_one_at_least(0) is None
    for name in ("b", "c"):
        strategy.note(name, 1, 0)
    assert {strategy.pick_one_at_least(0) for _ in range(30)} == {"b", "c"}


@pytest.mark.proves("client:B-64")
def test_brokers_are_probed_when_due_and_reachable_when_they_answer() -> None:
    strategy = FaultStrategy(detector=True)
    strategy.note("a", 1, 0, ConnectError("x"))
    assert strategy.due(0, 2000) == ["a"]
    assert strategy.due(1999, 2000) == []
    assert strategy.due(2000, 2000) == ["a"]
    assert not strategy.is_reachable("a")
    strategy.answered("a")
    strategy.answered("unknown")
    assert strategy.is_reachable("a")
    assert not strategy.is_available("a", 9_999), "its rest goes on"
    strategy.forget("a")
    strategy.forget("a")
    assert not strategy.items and "[]" in repr(strategy)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 1e5), st.booleans()), max_size=30),
    st.sampled_from(["4.9", "5.x"]),
    st.sampled_from([None, "a", "b", "c"]),
)
def test_queue_to_try_always_exists(
    events: list[tuple[str, float, bool]], version: str, last: str | None
) -> None:
    strategy, info = FaultStrategy(compat=version, rng=random.Random(0)), info_of("a", "b", "c")
    for now, (name, latency, failed) in enumerate(events):
        strategy.note(name, latency, now, ConnectError("x") if failed else None)
    target = strategy.choose(info, last, len(events))
    assert target in info.targets
    free = {n for n in "abc" if strategy.is_available(n, len(events))}
    if free - ({last} if version == "5.x" else set()):
        assert target.queue.broker_name in free


@pytest.mark.proves("client:B-57")
def test_both_tables_can_be_replaced_together() -> None:
    strategy = FaultStrategy(latency_max=[10], not_available=[7])
    strategy.note("a", 10, 0)
    assert not strategy.is_available("a", 6) and strategy.is_available("a", 7)
    made = ProducerSettings(latency_fault=True, detector=True, latency_max=(1, 2), not_available=(0, 5))
    assert made.latency_max == (1, 2)
    for values, text in (
        ({"latency_max": (1,)}, "must be given together"),
        ({"latency_max": (1, 2), "not_available": (1,)}, "2 entries and not_available 1"),
        ({"latency_max": (), "not_available": ()}, "at least one"),
        ({"latency_max": (2, 1), "not_available": (1, 2)}, "must ascend"),
        ({"latency_max": (1,), "not_available": (-1,)}, "must not be negative"),
        ({"detector": True}, "without latency_fault"),
    ):
        with pytest.raises(SettingsError, match=text):
            ProducerSettings(**values)


@pytest.mark.proves("client:B-57")
def test_tables_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match=r"shorter|longer"):
        rest_ms(-1, (1, 2), (3,))


@pytest.mark.proves("client:B-60")
def test_only_an_isolation_changes_when_a_broker_returns() -> None:
    strategy = FaultStrategy(latency_max=[10, 20], not_available=[0, 1])
    strategy.note("b", 10, 500)
    assert (strategy.items["b"].latency_ms, strategy.items["b"].start_ms) == (10, 0)
    strategy.note("b", 20, 600)
    assert strategy.items["b"].start_ms == 601
    strategy.note("b", 10, 700)
    assert strategy.items["b"].start_ms == 601


@pytest.mark.proves("client:B-62")
def test_new_mode_starts_at_a_random_queue_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    shuffled: list[random.Random] = []
    monkeypatch.setattr(PublishInfo, "shuffle", lambda self, rng: shuffled.append(rng))
    rng = random.Random(1)
    strategy, info = FaultStrategy(rng=rng), info_of("a", "b")
    strategy.choose(info, None, 0)
    assert shuffled == []
    strategy.choose(info, "a", 0)
    assert shuffled == [rng]


@pytest.mark.proves("client:B-63")
def test_old_mode_rotates_upwards() -> None:
    strategy = FaultStrategy(compat="4.9", rng=random.Random(1))
    for latency, name in enumerate("abcdef"):
        strategy.note(name, latency, 0, ConnectError("x"))
    picked = ["abc".index(strategy.pick_one_at_least(0) or "") for _ in range(5)]
    assert all((later - earlier) % 3 == 1 for earlier, later in pairwise(picked))
