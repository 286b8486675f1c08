from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from dataclasses import replace
from typing import Any

import pytest
from tests.spark.stubs import StubBroker, many_queues
from tests.support import about, run

from sparrowmq.core.errors import (
    BrokerError,
    ConnectionLostError,
    InvalidExpressionError,
    NoRouteError,
    SettingsError,
    SparrowError,
    TransportError,
)
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.subscription import Sql
from sparrowmq.spark.cluster.faults import DataLossError
from sparrowmq.spark.offsets.offsets import Span
from sparrowmq.spark.offsets.pushdown import TIME_MARGIN_MS, Wanted
from sparrowmq.spark.options.table import DISCOVERY_SECONDS, ReadOptions
from sparrowmq.spark.read.lookup import Lookup
from sparrowmq.spark.read.missing import Absence

OPTIONS = ReadOptions(name_server="stub:1", subscribe=("t",), retries=3, retry_interval=0.001)


def _lookup(broker: StubBroker, **options: Any) -> Lookup:
    return Lookup(broker, broker.admin, replace(OPTIONS, **options))


def _broker() -> tuple[StubBroker, MessageQueue, MessageQueue]:
    """Queue 0 holds offsets 10 to 29, queue 1 holds 0 to 4; offset n is stored at 1_700_000_000_001 + n."""
    broker = StubBroker()
    return broker, broker.add(0, 20, first=10), broker.add(1, 5)


def test_queues_of_topics_assignments_and_patterns() -> None:
    broker, first, second = _broker()
    other = broker.add(0, 1, topic="other")
    retry = broker.add(0, 1, topic="%RETRY%g")
    assert run(_lookup(broker, subscribe=("t", "other")).queues()) == [other, first, second]
    assert run(_lookup(broker, subscribe=(), assign=(second,)).queues()) == [second]
    assert run(_lookup(broker, subscribe=(), subscribe_pattern="t|o.*").queues()) == [other, first, second]
    assert run(_lookup(broker, subscribe=(), subscribe_pattern="%RETRY%.*").queues()) == [retry]


def test_what_is_not_there_is_an_error() -> None:
    broker, *_ = _broker()
    missing = MessageQueue("t", "broker-a", 9)
    options: dict[str, object]
    facts: dict[str, object]
    for options, facts in (
        ({"subscribe": ("nope",)}, {"what": "subscribe", "topic": "nope"}),
        (
            {"subscribe": (), "assign": (MessageQueue("nope", "broker-a", 0),)},
            {"what": "assign", "topic": "nope"},
        ),
        ({"subscribe": (), "subscribe_pattern": "x.*"}, {"what": "subscribePattern", "value": "x.*"}),
        ({"subscribe": (), "assign": (missing,)}, {"what": "assign", "value": [missing]}),
    ):
        with pytest.raises(NoRouteError, check=about(**facts)):
            run(_lookup(broker, **options).queues())


def test_a_misspelt_topic_leads_to_the_right_one() -> None:
    broker = StubBroker()
    broker.add(0, 1, topic="orders-eu")
    with pytest.raises(NoRouteError, match="no broker serves topic 'order-eu'; there is a topic 'orders-eu'"):
        run(_lookup(broker, subscribe=("order-eu",)).queues())
    broker.fault = lambda queue, offset: None
    with pytest.raises(NoRouteError, match=r"no broker serves topic 'xyz'$"):
        run(_lookup(broker, subscribe=("xyz",)).queues())


def _states(lookup: Lookup, *queues: MessageQueue) -> dict[MessageQueue, Absence]:
    missing = run(lookup.missing(dict.fromkeys(queues, 0)))
    return {queue: found.state for queue, found in missing.items()}


def test_a_topic_that_is_gone_does_not_hide_the_others() -> None:
    broker, first, second = _broker()
    other = broker.add(0, 1, topic="other")
    for options in (
        {"subscribe": ("t", "other")},
        {"subscribe": (), "subscribe_pattern": "t|other"},
        {"subscribe": (), "assign": (other, first, second)},
    ):
        lookup = _lookup(broker, **options)
        everything = [first, second, other]
        assert run(lookup.queues()) == sorted(everything)
        assert _states(lookup, *everything) == {}
        stored = broker.queues_.pop(other)
        assert run(lookup.queues(fresh=True, all_there=False)) == [first, second]
        assert _states(lookup, *everything) == {other: Absence.DELETED}
        broker.brokers_away = frozenset({"broker-a"})
        assert _states(lookup, *everything) == {other: Absence.AWAY}
        broker.brokers_away = frozenset()
        broker.queues_[other] = stored
        run(lookup.queues(fresh=True))
        assert _states(lookup, *everything) == {}


def test_without_any_topic_there_is_no_route_and_all_are_deleted() -> None:
    broker, first, _ = _broker()
    for options in ({}, {"subscribe": (), "subscribe_pattern": "t"}):
        lookup = _lookup(broker, **options)
        run(lookup.queues())
        kept, broker.queues_ = broker.queues_, {}
        with pytest.raises(NoRouteError):
            run(lookup.queues(fresh=True, all_there=False))
        assert _states(lookup, first) == {first: Absence.DELETED}
        broker.queues_ = kept


def test_topics_that_are_not_asked_for_are_not_missed() -> None:
    broker, first, _ = _broker()
    lookup = _lookup(broker)
    run(lookup.queues())
    assert _states(lookup, first, MessageQueue("former", "broker-a", 0)) == {}


def test_the_broker_of_a_queue_that_the_route_lacks_is_asked_for_its_end() -> None:
    broker, first, second = _broker()
    third = broker.add(2, 1)
    broker.retired.add(first)
    broker.unrouted.add(second)
    lookup = _lookup(broker)
    assert run(lookup.queues()) == [third]
    assert run(lookup.missing({first: 12, second: 2, third: 0})) == {
        first: (Absence.RETIRED, 30, ""),
        second: (Absence.READABLE, 5, ""),
    }
    broker.fault = lambda queue, offset: BrokerError(16, "pulling is forbidden")
    found = run(lookup.missing({first: 12}))[first]
    assert found.state is Absence.AWAY and "pulling is forbidden" in found.why


def test_queues_that_left_their_topic_are_read_as_far_as_brokers_serve_them() -> None:
    broker, first, second = _broker()
    third, seventh, away = broker.add(2, 7), broker.add(6, 3), broker.add(5, 2)
    broker.unrouted |= {third, seventh, broker.add(3, 0)}
    broker.retired.add(away)  # Apache's brokers serve none
    lookup = _lookup(broker)
    assert run(lookup.starts("earliest")) == {first: 10, second: 0, third: 0, seventh: 0}
    assert run(lookup.stops()) == {first: 30, second: 5, third: 7, seventh: 3}
    assert run(_lookup(broker).starts("latest")) == {first: 30, second: 5}
    assert run(_lookup(broker, subscribe=(), assign=(second,)).starts("earliest")) == {second: 0}
    time = 1_700_000_000_001
    of_time = {first: 10, second: 4, third: 4, seventh: 3}
    assert run(_lookup(broker, starting_timestamp=time + 4).starts("earliest")) == of_time
    for places in ({first: 15, second: 1}, {first: 15, second: 1, third: 4}):
        assert run(_lookup(broker, starting_offsets=places).starts("earliest")) == places
    with pytest.raises(SettingsError, check=about(setting="endingOffsets", value=[third, seventh])):
        lookup = _lookup(broker, ending_offsets={first: -1, second: -1})
        run(lookup.starts("earliest"))
        run(lookup.stops())


def test_a_broker_that_does_not_answer_hides_no_queue_that_left() -> None:
    broker, *_ = _broker()
    broker.unrouted.add(broker.add(2, 7))
    broker.fault = lambda queue, offset: BrokerError(2, "busy") if queue.queue_id == 2 else None
    with pytest.raises(BrokerError, check=about(code=2)):
        run(_lookup(broker).starts("earliest"))


def test_queues_of_brokers_that_are_lost_for_good_are_left_out() -> None:
    broker, first, second = _broker()
    lost = broker.add(0, 9, broker="broker-b")
    without = frozenset({"broker-b"})
    for options in ({}, {"subscribe": (), "assign": (first, second, lost)}):
        lookup = _lookup(broker, lost_brokers=without, **options)
        broker.brokers_away = frozenset()
        assert run(lookup.queues()) == [first, second]
        broker.brokers_away = without
        assert run(lookup.starts("earliest")) == {first: 10, second: 0}
        assert run(lookup.stops()) == {first: 30, second: 5}
        assert run(lookup.missing({lost: 3})) == {}
    with pytest.raises(SettingsError, check=about(setting="lostBrokers", value="broker-a,broker-b")):
        run(_lookup(broker, lost_brokers=frozenset({"broker-a", "broker-b"})).queues())


def test_the_error_of_a_broker_that_does_not_answer_says_how_to_read_without_it() -> None:
    broker, first, _ = _broker()
    lost = broker.add(0, 9, broker="broker-b")
    broker.brokers_away = frozenset({"broker-b"})
    for ask in (Lookup.firsts, Lookup.ends):
        with pytest.raises(
            TransportError, match=f"{lost}: .* lost for good, option lostBrokers=broker-b reads"
        ):
            run(ask(_lookup(broker), [first, lost]))


def test_ten_thousand_queues_are_asked_a_part_at_a_time() -> None:
    broker, queues = many_queues()
    peak = now = 0
    plain = broker.max_offset

    async def counted(queue: MessageQueue) -> int:
        nonlocal now, peak
        now += 1
        peak = max(peak, now)
        await asyncio.sleep(0)
        now -= 1
        return await plain(queue)

    broker.max_offset = counted  # type: ignore[method-assign]
    lookup = _lookup(broker)
    assert run(lookup.reachable_ends(run(lookup.queues()))) == dict.fromkeys(queues, 2)
    assert 1 < peak <= 512
    assert run(lookup.record_bytes(dict.fromkeys(queues, 0)))
    assert len(broker.pulls) <= 32


def test_queues_are_remembered_for_a_while() -> None:
    now = 1000.0
    broker, first, second = _broker()
    lookup = Lookup(broker, broker.admin, OPTIONS, lambda: now)
    assert run(lookup.queues()) == [first, second]
    third = broker.add(2, 1)
    assert run(lookup.queues()) == [first, second]
    assert run(lookup.queues(fresh=True)) == [first, second, third]
    fourth = broker.add(3, 1)
    now += DISCOVERY_SECONDS
    assert fourth in run(lookup.queues())


def test_words_say_where_to_start() -> None:
    broker, first, second = _broker()
    assert run(_lookup(broker).starts("latest")) == {first: 30, second: 5}
    assert run(_lookup(broker).starts("earliest")) == {first: 10, second: 0}
    assert run(_lookup(broker, starting_offsets="earliest").starts("latest")) == {first: 10, second: 0}


def test_offsets_say_where_to_start() -> None:
    broker, first, second = _broker()
    assert run(_lookup(broker, starting_offsets={first: 15, second: -2}).starts("latest")) == {
        first: 15,
        second: 0,
    }
    assert run(_lookup(broker, starting_offsets={first: -1, second: 5}).starts("latest")) == {
        first: 30,
        second: 5,
    }


def test_offsets_that_do_not_fit_are_errors() -> None:
    broker, first, second = _broker()
    strange = MessageQueue("t", "broker-z", 0)
    with pytest.raises(SettingsError, check=about(setting="startingOffsets", value=[second])):
        run(_lookup(broker, starting_offsets={first: 15}).starts("latest"))
    with pytest.raises(SettingsError, check=about(setting="startingOffsets", value=[strange])):
        run(_lookup(broker, starting_offsets={first: 15, second: 0, strange: 0}).starts("latest"))
    with pytest.raises(SettingsError, check=about(setting="startingOffsets", value=31, limit=30)):
        run(_lookup(broker, starting_offsets={first: 31, second: 0}).starts("latest"))
    with pytest.raises(DataLossError, check=about(value=Span(first, 5, 10))):
        run(_lookup(broker, starting_offsets={first: 5, second: 0}).starts("latest"))


def test_deleted_offsets_are_passed_over_when_asked_to(caplog: pytest.LogCaptureFixture) -> None:
    broker, first, second = _broker()
    lookup = _lookup(broker, starting_offsets={first: 5, second: 0}, fail_on_data_loss=False)
    with caplog.at_level(logging.WARNING, "sparrowmq.spark"):
        assert run(lookup.starts("latest")) == {first: 10, second: 0}
    assert "offsets 5 to 9" in caplog.text


def test_a_time_says_where_to_start_and_end() -> None:
    broker, first, second = _broker()
    time = 1_700_000_000_001
    assert run(_lookup(broker, starting_timestamp=time + 3).starts("latest")) == {first: 10, second: 3}
    with pytest.raises(SettingsError, check=about(setting="startingTimestamp", value=time + 12)):
        run(_lookup(broker, starting_timestamp=time + 12).starts("latest"))
    lookup = _lookup(broker, starting_timestamp=time + 12, starting_strategy="latest")
    assert run(lookup.starts("latest")) == {first: 12, second: 5}
    empty = broker.add(2, 0)
    assert run(_lookup(broker, starting_timestamp=time + 3).starts("latest"))[empty] == 0
    assert run(_lookup(broker, ending_timestamp=time + 12).stops())[first] == 12


def test_times_per_queue_say_where_to_start_and_end() -> None:
    broker, first, second = _broker()
    time = 1_700_000_000_001
    times = {first: time + 12, second: time + 3}
    assert run(_lookup(broker, starting_times=times).starts("latest")) == {first: 12, second: 3}
    assert run(_lookup(broker, ending_times=times).stops()) == {first: 12, second: 3}
    with pytest.raises(SettingsError, check=about(setting="startingOffsetsByTimestamp", value=[second])):
        run(_lookup(broker, starting_times={first: time}).starts("latest"))
    strange = MessageQueue("t", "broker-a", 9)
    with pytest.raises(SettingsError, check=about(setting="endingOffsetsByTimestamp", value=[strange])):
        run(_lookup(broker, ending_times=times | {strange: 1}).stops())
    late = {first: time, second: time + 5}
    with pytest.raises(SettingsError, check=about(setting="startingOffsetsByTimestamp", value=time + 5)):
        run(_lookup(broker, starting_times=late).starts("latest"))


def test_what_is_wanted_cuts_spans_by_offset_and_time() -> None:
    broker, first, second = _broker()
    time = 1_700_000_000_001
    found = [Span(first, 10, 30), Span(second, 0, 5)]
    lookup = _lookup(broker)
    assert run(lookup.cut(found, Wanted())) == found
    assert run(lookup.cut(found, Wanted(queue_ids=frozenset({1}), first_offset=2))) == [Span(second, 2, 5)]
    margin = TIME_MARGIN_MS
    between = Wanted(stored_from=time + 12 + margin, stored_to=time + 14 - margin)
    assert run(lookup.cut(found, between)) == [Span(first, 12, 15)]
    calls = broker.calls
    assert run(lookup.cut([], between)) == []
    assert broker.calls == calls


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            BrokerError(1, "The broker does not support consumer to filter message by SQL92"),
            r"option sql92='a > ': .*Set enablePropertyFilter=true at the broker",
        ),
        (BrokerError(23, "parse failed"), "option sql92='a > ': .*It must be a condition on properties"),
        (InvalidExpressionError("wrong at column 5"), "option sql92='a > ': wrong at column 5. It must be"),
        (BrokerError(16, "no permission"), "no permission"),
    ],
)
def test_a_filter_is_tried_before_anything_runs(error: SparrowError, text: str) -> None:
    broker, *_ = _broker()
    lookup = _lookup(broker, sql92="a > ", retries=50)
    assert run(lookup.starts("earliest"))
    assert [offset for queue, offset, _ in broker.pulls if queue in broker.queues_] == [5]
    broker.filters = lambda expression: error if isinstance(expression, Sql) else None
    broker.pulls.clear()
    with pytest.raises((SettingsError, BrokerError), match=text):
        run(lookup.retried(lambda: lookup.starts("earliest")))
    assert len(broker.pulls) == 1


def test_ends_of_batch_reads() -> None:
    broker, first, second = _broker()
    assert run(_lookup(broker).stops()) == {first: 30, second: 5}
    assert run(_lookup(broker, ending_offsets={first: 20, second: -1}).stops()) == {first: 20, second: 5}
    with pytest.raises(SettingsError, check=about(setting="endingOffsets", value=99, limit=30)):
        run(_lookup(broker, ending_offsets={first: 99, second: -1}).stops())


def test_a_group_says_where_to_start() -> None:
    broker, first, second = _broker()
    third = broker.add(2, 3)
    broker.commits = {first: 12, third: 99}
    lookup = _lookup(broker, starting_offsets="group", group_id="g")
    assert run(lookup.starts("latest")) == {first: 12, second: 0, third: 3}
    broker.commits = {first: 2}
    assert run(lookup.starts("latest"))[first] == 10


def test_a_group_that_was_never_there_is_told(caplog: pytest.LogCaptureFixture) -> None:
    broker, first, second = _broker()
    lookup = _lookup(broker, starting_offsets="group", group_id="biling")
    assert run(lookup.starts("latest")) == {first: 10, second: 0}
    (record,) = caplog.records
    assert "option groupId='biling': the group has no offsets" in record.getMessage()
    broker.commits = {second: 0}
    run(_lookup(broker, starting_offsets="group", group_id="billing").starts("latest"))
    assert len(caplog.records) == 1, "one that began somewhere is known"


def _flaky(broker: StubBroker, faults: int, error: Exception) -> None:
    left = faults

    def fault(queue: MessageQueue, offset: int) -> Any:
        nonlocal left
        left -= 1
        return error if left >= 0 else None

    broker.fault = fault


def test_passing_faults_are_waited_out() -> None:
    broker, first, _ = _broker()
    _flaky(broker, 3, ConnectionLostError("gone"))
    lookup = _lookup(broker)

    def ends() -> Awaitable[dict[MessageQueue, int]]:
        return lookup.ends([first])

    assert run(lookup.retried(ends)) == {first: 30}
    _flaky(broker, 4, ConnectionLostError("gone"))
    with pytest.raises(ConnectionLostError):
        run(lookup.retried(ends))


@pytest.mark.parametrize("error", [NoRouteError("no such topic"), BrokerError(16, "no permission")])
def test_lasting_faults_are_not_waited_out(error: Exception) -> None:
    broker, first, _ = _broker()
    _flaky(broker, 1, error)
    lookup = _lookup(broker)
    with pytest.raises(type(error)):
        run(lookup.retried(lambda: lookup.ends([first])))


def test_reachable_queues_are_told_without_the_others(caplog: pytest.LogCaptureFixture) -> None:
    broker, first, second = _broker()
    broker.fault = lambda queue, offset: ConnectionLostError("gone") if queue == second else None
    lookup = _lookup(broker)
    with caplog.at_level(logging.WARNING, "sparrowmq.spark"):
        for _ in range(5):
            assert run(lookup.reachable_ends([first, second])) == {first: 30}
    assert caplog.text.count("cannot read the end of t/broker-a/1 now: gone") == 1


def test_other_errors_of_a_poll_are_raised() -> None:
    broker, first, _ = _broker()
    broker.fault = lambda queue, offset: ZeroDivisionError("a bug")
    with pytest.raises(ZeroDivisionError):
        run(_lookup(broker).reachable_ends([first]))


def test_record_sizes_are_sampled() -> None:
    broker, first, second = _broker()
    size = len(broker.queues_[first].records[0])
    assert run(_lookup(broker).record_bytes({first: 10, second: 0})) == size
    assert run(_lookup(broker).record_bytes({second: 5})) is None
    assert run(_lookup(broker).record_bytes({})) is None


def test_progress_is_reported_as_far_as_possible(caplog: pytest.LogCaptureFixture) -> None:
    broker, first, second = _broker()
    broker.fault = lambda queue, offset: ConnectionLostError("gone") if queue == first else None
    with caplog.at_level(logging.WARNING, "sparrowmq.spark"):
        run(_lookup(broker, group_id="g").report({first: 11, second: 3}))
    assert broker.commits == {second: 3}
    assert "the offsets of group g could not be committed" in caplog.text
