from __future__ import annotations

from tests.coordinator.services.flowing import at, broker, look, queue

from sparrowmq.coordinator.cluster.flow import FlowSample
from sparrowmq.coordinator.history.grains import Figure, Series
from sparrowmq.coordinator.services.housekeeping.meter import HELD_SECONDS, READ_MAX, Arrivals, Meter


def told(meter: Meter, one: FlowSample, queues: int = 32, **stored: int) -> dict[tuple[str, str], float]:
    """The figures of a sample, by figure and name; messages of every queue were stored at `stored`."""
    unknown = meter.unknown(one)
    known = {(group, where): stored["all"] for group, where, _ in unknown} if stored else {}
    return {(key.figure.value, key.name): value for key, value in meter.figures(one, known, queues).items()}


def test_rates_are_differences_between_two_samples() -> None:
    meter = Meter()
    first = told(meter, look(100.0, {"g": [at(queue(), 100, 90), at(queue(number=1), 10, 10)]}))
    assert ("topic-in", "T") not in first and ("topic-out", "T") not in first
    rows = [at(queue(), 150, 120), at(queue(number=1), 60, 10)]
    found = told(meter, look(110.0, {"g": rows, "h": [at(queue(), 150, 0)]}))
    assert found["topic-in", "T"] == 10.0
    assert found["topic-out", "T"] == 3.0, "a group that is new has consumed nothing yet"


def test_missing_or_recreated_queue_leaves_a_gap() -> None:
    meter = Meter()
    both = [at(queue(), 100, 0), at(queue(broker="b"), 100, 0)]
    told(meter, look(0.0, {"g": both}))
    gone = told(meter, look(10.0, {"g": both[:1]}, failed={"b": "it is down"}))
    assert {
        ("topic-in", "T"),
        ("topic-out", "T"),
        ("group-lag", "g"),
        ("group-age", "g"),
    } & gone.keys() == set()
    assert gone["queue-lag", "g T/a/0"] == 100
    back = told(meter, look(20.0, {"g": both}))
    assert ("topic-in", "T") not in back and back["group-lag", "g"] == 200
    anew = told(meter, look(30.0, {"g": [at(queue(), 5, 0), at(queue(broker="b"), 105, 0)]}))
    assert ("topic-in", "T") not in anew


def test_topic_without_groups_keeps_its_rate_until_its_next_sample() -> None:
    meter = Meter()
    topics = frozenset({"quiet"})

    def turn(seconds: float, end: int | None) -> dict[tuple[str, str], float]:
        ends = {} if end is None else {"quiet": {queue("quiet"): end}}
        return told(meter, look(seconds, ends=ends, topics=topics))

    assert turn(0.0, 100) == {}
    assert turn(10.0, None) == {("topic-out", "quiet"): 0.0}
    assert turn(20.0, 300)["topic-in", "quiet"] == 10.0
    assert turn(30.0, None)["topic-in", "quiet"] == 10.0
    assert ("topic-in", "quiet") not in turn(20.0 + HELD_SECONDS + 1, None)


def test_lag_includes_all_queues_except_dead_letters_and_single_ones_up_to_a_bound() -> None:
    rows = [at(queue(), 10, 4), at(queue(number=1), 3, 5), at(queue("%DLQ%g"), 9, 0)]
    found = told(Meter(), look(0.0, {"g": rows, "CID_RMQ_SYS_x": rows}), queues=2)
    assert found["group-lag", "g"] == 6.0
    assert found["queue-lag", "g T/a/0"] == 6.0 and found["queue-lag", "g T/a/1"] == 0.0
    assert {name for _, name in found} == {"g", "g T/a/0", "g T/a/1"}
    assert ("queue-lag", "g T/a/0") not in told(Meter(), look(0.0, {"g": rows}), queues=1)


def test_message_that_arrived_between_two_samples_is_as_old_as_the_first() -> None:
    meter = Meter()
    assert told(meter, look(100.0, {"g": [at(queue(), 10, 10)]}))["group-age", "g"] == 0.0
    waits = [at(queue(), 11, 10, last_ms=5000)]
    assert told(meter, look(110.0, {"g": waits}))["group-age", "g"] == 10.0
    assert told(meter, look(120.0, {"g": waits}))["group-age", "g"] == 20.0
    recent = [at(queue(), 20, 19, last_ms=129_000)]
    assert told(meter, look(130.0, {"g": recent}))["group-age", "g"] == 1.0, "the one before it came later"


def test_message_from_before_the_first_sample_is_read_once_and_unknown_until_then() -> None:
    meter = Meter()
    rows = {"g": [at(queue(), 10, 4)]}
    assert ("group-age", "g") not in told(meter, look(100.0, rows))
    assert [(group, offset) for group, _, offset in meter.unknown(look(101.0, rows))] == [("g", 4)]
    assert told(meter, look(110.0, rows), all=50_000)["group-age", "g"] == 60.0
    assert meter.unknown(look(120.0, {"g": [at(queue(), 10, 5, last_ms=55_000)]})) == []
    assert told(meter, look(120.0, {"g": [at(queue(), 10, 5, last_ms=55_000)]}))["group-age", "g"] == 65.0


def test_few_messages_are_read_per_sample() -> None:
    rows = {"g": [at(queue(number=number), 10, 4) for number in range(100)]}
    assert len(Meter().unknown(look(0.0, rows))) == READ_MAX


def test_arrivals_are_bounded_and_never_make_a_message_younger() -> None:
    arrivals = Arrivals()
    for tick in range(1000):
        arrivals.note(tick * 10, tick)
    for offset in range(0, 999, 7):
        since = arrivals.since(offset)
        assert since is not None and since <= offset * 10
    assert arrivals.since(998) == 9980
    arrivals.note(20_000, 3)
    assert arrivals.since(2) is None and arrivals.since(3) == 20_000


def test_broker_figures_and_the_sum_of_answering_masters_are_recorded() -> None:
    disk = "Total : 100.0 GiB, Free : 25.0 GiB."
    brokers = [
        broker("a", putTps="3.5 1 1", getTransferredTps="2 1 1", commitLogDirCapacity=disk,
               commitLogMinOffset="10", commitLogMaxOffset="30"),
        broker("a", 1, putTps="9 1 1"),
        broker("b", error="it is down"),
        broker("c"),
    ]  # fmt: skip
    found = told(Meter(), look(0.0, brokers=brokers))
    assert found == {
        ("broker-in", "a"): 3.5,
        ("broker-out", "a"): 2.0,
        ("broker-disk", "a"): 75.0,
        ("broker-log", "a"): 20.0,
        ("broker-in", "a#1"): 9.0,
        ("cluster-in", ""): 3.5,
        ("cluster-out", ""): 2.0,
    }


def test_figures_name_their_objects() -> None:
    assert Series(Figure.GROUP_LAG, "g") != Series(Figure.GROUP_AGE, "g")
