"""Each promise, broken in a history made by hand, is found, named, and nothing else is."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from tests.torture.histories import OTHER, QUEUE, Made, clean

from sparrowmq.torture.checker import PROMISES, TOLD_MAX, judge


def read_whole(made: Made, ids: list[str | None]) -> Made:
    made.read(ids)
    return made


def test_a_clean_history_is_clean() -> None:
    verdict = judge(clean().events)
    assert verdict.is_kept, verdict.broken
    assert verdict.broken_count == {}
    assert verdict.figures == {
        "sent": 8,
        "acknowledged": 4,
        "unknown": 3,
        "failed": 1,
        "received": 7,
        "committed": 4,
        "stored": 6,
        "queues": 2,
        "readers": 2,
    }


def test_an_empty_history_is_clean() -> None:
    assert judge([]).is_kept


def test_the_order_of_notes_in_the_file_does_not_matter() -> None:
    events = clean().events
    random.Random(1).shuffle(events)
    assert judge(events).is_kept


def lost_acknowledged() -> Made:
    made = Made()
    made.send("a")
    made.ack("a", 0)
    made.send("b")
    made.ack("b", 1)
    return read_whole(made, ["a"])


def acknowledged_elsewhere() -> Made:
    made = Made()
    made.send("a", once=False)
    made.ack("a", 0)
    made.send("b", client="q")
    made.unknown("b", client="q")
    made.read([None, "a"])
    return made


def lost_at_one_copy() -> Made:
    made = Made()
    made.send("a")
    made.ack("a", 0)
    made.read(["a"], reader="reader of the master")
    made.read([], reader="reader of the slave")
    return made


def two_at_an_offset() -> Made:
    made = Made()
    made.send("a")
    made.send("b", client="q")
    made.ack("a", 0)
    made.ack("b", 0, client="q")
    return read_whole(made, ["a"])


def received_another() -> Made:
    made = Made()
    made.send("a")
    made.unknown("a")
    made.send("b")
    made.ack("b", 0)
    made.receive("a", 0)
    return read_whole(made, ["b"])


def copies_differ() -> Made:
    made = Made()
    made.send("a")
    made.send("b", client="q")
    made.read(["a"], reader="reader of the master")
    made.read(["b"], reader="reader of the slave")
    return made


def later_below() -> Made:
    made = Made()
    made.send("a")
    made.ack("a", 1)
    made.send("b", client="q")
    made.ack("b", 0, client="q")
    return read_whole(made, ["b", "a"])


def unknown_below() -> Made:
    made = Made()
    made.send("a")
    made.ack("a", 1)
    made.send("b", client="q")
    made.unknown("b", client="q")
    return read_whole(made, ["b", "a"])


def from_nowhere() -> Made:
    made = Made()
    made.receive("ghost", 0)
    return read_whole(made, ["ghost"])


def received_before_it_was_sent() -> Made:
    made = Made()
    made.receive("a", 0)
    made.send("a")
    made.ack("a", 0)
    return read_whole(made, ["a"])


def unknown_twice() -> Made:
    made = Made()
    made.send("a")
    made.unknown("a")
    return read_whole(made, ["a", "a"])


def acknowledged_twice() -> Made:
    made = Made()
    made.send("a")
    made.ack("a", 0)
    made.read(["a"])
    made.read(["a"], OTHER)
    return made


def failed_but_stored() -> Made:
    made = Made()
    made.send("a")
    made.failed("a")
    return read_whole(made, ["a"])


def wrong_way_round() -> Made:
    made = Made()
    for id_ in ("a", "b"):
        made.send(id_, in_order=True)
        made.unknown(id_)
    return read_whole(made, ["b", "a"])


def hole() -> Made:
    made = Made()
    for id_ in ("a", "b"):
        made.send(id_)
        made.unknown(id_)
    return read_whole(made, ["a", None, "b"])


def received_and_gone() -> Made:
    made = Made()
    made.send("a")
    made.unknown("a")
    made.receive("a", 0)
    return read_whole(made, [])


def skipped() -> Made:
    made = Made()
    for offset, id_ in enumerate("abc"):
        made.send(id_)
        made.ack(id_, offset)
    made.receive("a", 0)
    made.receive("c", 2)
    return read_whole(made, ["a", "b", "c"])


def skipped_the_first() -> Made:
    made = Made()
    for offset, id_ in enumerate("ab", 7):
        made.send(id_)
        made.ack(id_, offset)
    made.receive("b", 8)
    made.read(["a", "b"], first=7)
    return made


def missed() -> Made:
    made = Made()
    for offset, id_ in enumerate("abc"):
        made.send(id_)
        made.ack(id_, offset)
    made.receive("a", 0, in_order=False)
    made.receive("c", 2, in_order=False)
    made.commit(3)
    return read_whole(made, ["a", "b", "c"])


def committed_too_soon() -> Made:
    made = Made()
    made.send("a")
    made.ack("a", 0)
    made.commit(1)
    made.receive("a", 0)
    return read_whole(made, ["a"])


def beyond_the_end() -> Made:
    made = Made()
    made.send("a")
    made.ack("a", 0)
    made.receive("a", 0)
    made.commit(2)
    return read_whole(made, ["a"])


def committed_another() -> Made:
    """A group got another message at that offset, from a master that was replaced."""
    made = Made()
    made.send("a")
    made.unknown("a")
    made.receive("a", 0)
    made.commit(1)
    made.send("b", client="q")
    made.ack("b", 0, client="q")
    return read_whole(made, ["b"])


FAULTS: list[tuple[Callable[[], Made], set[str], str]] = [
    (lost_acknowledged, {"acknowledged-is-stored"}, "message b, acknowledged to p at 0.003 s as offset 1 of"),
    (acknowledged_elsewhere, {"acknowledged-is-stored", "no-holes"}, "it is at offset 1 of"),
    (lost_at_one_copy, {"acknowledged-is-stored"}, "is not found there by reader of the slave"),
    (two_at_an_offset, {"one-message-per-offset", "acknowledged-is-stored"}, "has two messages: a"),
    (received_another, {"one-message-per-offset"}, "received by c1 at 0.004 s"),
    (copies_differ, {"one-message-per-offset"}, "has two messages: a"),
    (later_below, {"acknowledged-in-real-time-order"}, "a was acknowledged before, at 0.001 s"),
    (unknown_below, {"acknowledged-in-real-time-order"}, "with the higher offset 1"),
    (from_nowhere, {"nothing-from-nowhere"}, "nobody sent it"),
    (received_before_it_was_sent, {"nothing-from-nowhere"}, "it was sent later"),
    (unknown_twice, {"stored-once"}, "is stored 2 times: offset 0 of T/broker-a/0, offset 1 of T/broker-a/0"),
    (acknowledged_twice, {"stored-once"}, "offset 0 of T/broker-a/1"),
    (failed_but_stored, {"failed-is-not-stored"}, "whose send failed for p at 0.001 s (no route)"),
    (wrong_way_round, {"sent-in-order"}, "the other way round: offsets 0 and 1"),
    (hole, {"no-holes"}, "found nothing at 1 offsets, the first 1"),
    (received_and_gone, {"received-stays"}, "received by c1 at 0.002 s as offset 0"),
    (skipped, {"received-in-order"}, "right after a (offset 0): it skipped 1 from 1 on"),
    (skipped_the_first, {"received-in-order"}, "right after the beginning: it skipped 1 from 7 on"),
    (missed, {"nothing-missed"}, "received b at offset 1 never"),
    (committed_too_soon, {"nothing-missed"}, "received a at offset 0 only at 0.003 s"),
    (committed_another, {"one-message-per-offset", "nothing-missed"}, "received b at offset 0 never"),
    (beyond_the_end, {"commits-below-the-end"}, "the queue ends at 1"),
]


@pytest.mark.parametrize(("make", "promises", "text"), FAULTS, ids=[make.__name__ for make, *_ in FAULTS])
def test_what_is_broken_is_found(make: Callable[[], Made], promises: set[str], text: str) -> None:
    verdict = judge(make().events)
    assert {one.promise for one in verdict.broken} == promises
    assert any(text in str(one) for one in verdict.broken), [str(one) for one in verdict.broken]
    assert all(one.queue in (QUEUE, OTHER) and one.offset is not None for one in verdict.broken)


def test_every_promise_has_a_history_that_breaks_it() -> None:
    assert {name for _, names, _ in FAULTS for name in names} == set(PROMISES)


@pytest.mark.parametrize("make", [make for make, *_ in FAULTS], ids=[make.__name__ for make, *_ in FAULTS])
def test_it_is_found_among_many_others(make: Callable[[], Made]) -> None:
    """The same in a long history of other queues."""
    alone, made = judge(make().events), make()
    for number in range(300):
        made.send(f"x{number}", client="x")
        made.ack(f"x{number}", number, "T/broker-b/0", client="x")
        made.receive(f"x{number}", number, "T/broker-b/0")
        made.commit(number + 1, "T/broker-b/0")
    readers = {event.client for event in made.events if type(event).__name__ == "QueueExtent"}
    for reader in readers:
        made.read([f"x{number}" for number in range(300)], "T/broker-b/0", reader=reader)
    assert [str(one) for one in judge(made.events).broken] == [str(one) for one in alone.broken]


def test_what_came_at_the_same_time_may_have_any_order() -> None:
    made = Made()
    made.send("a")
    made.send("b", client="q")
    made.ack("a", 1)
    made.ack("b", 0, client="q")
    assert judge(read_whole(made, ["b", "a"]).events).is_kept


def test_a_message_that_may_be_repeated_is_stored_any_number_of_times() -> None:
    made = Made()
    made.send("a", once=False)
    made.ack("a", 2)
    assert judge(read_whole(made, ["a", "a", "a"]).events).is_kept


def test_a_group_may_go_back() -> None:
    made = Made()
    for offset, id_ in enumerate("abc"):
        made.send(id_)
        made.ack(id_, offset)
    for offset, id_ in [(0, "a"), (1, "b"), (0, "a"), (1, "b"), (2, "c")]:
        made.receive(id_, offset, client=f"c{offset % 2}")
    made.commit(3)
    made.commit(1)
    assert judge(read_whole(made, ["a", "b", "c"]).events).is_kept


def test_a_judgement_keeps_some_and_counts_all() -> None:
    made = Made()
    for number in range(100):
        made.send(f"m{number}")
        made.ack(f"m{number}", number)
    verdict = judge(read_whole(made, []).events)
    assert len(verdict.broken) == TOLD_MAX
    assert verdict.broken_count == {"acknowledged-is-stored": 100}
    assert verdict.broken[0].as_json() == {
        "promise": "acknowledged-is-stored",
        "text": verdict.broken[0].text,
        "messages": ["m0"],
        "queue": QUEUE,
        "offset": 0,
        "at": 0.001,
    }


def twice_sent(made: Made) -> None:
    made.send("a")


def twice_answered(made: Made) -> None:
    made.unknown("a")


def answered_and_not_sent(made: Made) -> None:
    made.ack("b", 1)


def twice_read(made: Made) -> None:
    made.read(["a"])
    made.read(["a"])


@pytest.mark.parametrize("spoil", [twice_sent, twice_answered, answered_and_not_sent, twice_read])
def test_a_history_that_cannot_be_is_refused(spoil: Callable[[Made], None]) -> None:
    made = Made()
    made.send("a")
    made.ack("a", 0)
    spoil(made)
    with pytest.raises(ValueError, match="the history has"):
        judge(made.events)
