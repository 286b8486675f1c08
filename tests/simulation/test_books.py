"""Each acknowledged message has a place that somebody counts, whatever users and operators do.

A failing walk names its seed and the fewest steps that fail; `tests.simulation.whole.walk` runs it again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.conftest import LONG
from tests.simulation.whole.books import Books, Counted
from tests.simulation.whole.walk import EVERYDAY, KINDS, failure, run_steps

from sparrowmq.aio import SimpleConsumer
from sparrowmq.broker.delay.send_back import SendBackRequests
from sparrowmq.broker.housekeeping.unread import UnreadDeletions
from sparrowmq.broker.pop.revive import Reviver
from sparrowmq.broker.tables.topics import Topic

WALKS = 200 if LONG else 12
"""Of each kind."""


@pytest.mark.parametrize("acts", KINDS, ids=" ".join)
def test_books_balance(acts: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(1, WALKS + 1):
        text = failure(seed, tmp_path / "walk", monkeypatch, (*EVERYDAY, *acts))
        assert not text, text


# What they find


def test_a_broker_that_drops_failed_messages_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SendBackRequests, "_returned", lambda *_: None)
    found = run_steps([("create", 0), ("send", 2), ("wait", 2)], tmp_path / "walk", monkeypatch)
    assert any("group concurrent" in text and "0 (plain to A/0)" in text for text in found), found


def test_a_broker_that_takes_offsets_of_an_earlier_topic_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group's member is paused while its topic is deleted and created again, and has more messages."""
    send, pause, wait = ("send_to_queue", 0), ("pause", 0), ("wait", 2)
    again = [pause, ("delete", 0), ("create", 0), send, send, pause, wait]
    steps = [("create", 0), send, wait, *again]
    assert run_steps(steps, tmp_path / "walk", monkeypatch) == []
    monkeypatch.setattr(Topic, "is_earlier", lambda *_: False)
    found = run_steps(steps, tmp_path / "walk", monkeypatch)
    assert any("group concurrent" in text for text in found), found


@pytest.mark.parametrize("act", ["set_broker_clock", "set_client_clock"])
def test_members_that_pop_do_not_compare_clocks(
    act: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One clock is ten minutes ahead of the other, or behind."""
    popped: list[int] = []
    pop = SimpleConsumer.receive

    async def receive(consumer: SimpleConsumer, *given: Any, **named: Any) -> Any:
        found = await pop(consumer, *given, **named)
        popped.append(len(found))
        return found

    monkeypatch.setattr(SimpleConsumer, "receive", receive)
    for number in (0, 1):
        popped.clear()
        steps = [("create", 0), (act, number), ("send_to_queue", 0), ("wait", 3), ("wait", 3)]
        assert run_steps(steps, tmp_path / "walk", monkeypatch) == []
        assert sum(popped) == 3 and len(popped) < 50, "the member waits for messages at the broker"


def test_a_broker_that_does_not_bring_back_what_was_popped_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Reviver, "_bring_back", lambda *_: 0)
    found = run_steps([("create", 0), ("send", 2), ("wait", 2)], tmp_path / "walk", monkeypatch)
    assert any("group popped" in text for text in found), found


def test_a_broker_that_does_not_count_what_retention_took_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group has committed an offset before it leaves."""
    steps = [
        ("create", 0),
        ("send_to_queue", 0),
        ("wait", 3),
        ("leave", 0),
        *[("send_big", 0)] * 8,
        ("expire", 0),
    ]
    assert run_steps(steps, tmp_path / "walk", monkeypatch) == []
    monkeypatch.setattr(UnreadDeletions, "adding", lambda *_: iter(()))
    found = run_steps(steps, tmp_path / "walk", monkeypatch)
    assert any("unread from group concurrent" in text for text in found), found


def test_places_of_messages() -> None:
    books = Books(["g"])
    sent = books.new("A", "plain", failures=1)
    assert books.problems(Counted()) == [], "nobody acknowledged it"
    sent.is_acknowledged = True
    assert books.problems(Counted({("g", "A", 0): 1})) == []
    assert books.problems(Counted(dead={"g": {0}})) == []
    assert "has not handled 1 messages: 0 (plain to A/0)" in books.problems(Counted({("g", "A", 0): 0}))[0]
    assert books.problems(Counted({("g", "A", 0): -1}))[0] == "group g has a lag of -1 in A/0"
    assert [books.fails("g", 0), books.fails("g", 0)] == [True, False]
    assert books.problems(Counted()) == []


def test_an_act_takes_what_it_names() -> None:
    books = Books(["g", "h"])
    assert "it lost 1 messages" in books.problems(Counted(lost=1))[0]
    for topic in ("A", "B"):
        books.new(topic, "plain").is_acknowledged = True
    books.lose("its topic was deleted", topic="A", groups=["g"])
    assert (books.open("g"), books.open("h")) == ([1], [0, 1])
    assert books.problems(Counted({("g", "B", 0): 1, ("h", "A", 0): 2}, lost=1)) == []


def test_a_message_that_was_rolled_back_is_found() -> None:
    books = Books(["g"])
    books.new("A", "half").is_wanted = False
    books.fails("g", 0)
    assert "which were rolled back" in books.problems(Counted())[0]
