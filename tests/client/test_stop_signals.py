from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from sparrowmq.client.stop_signals import StopSignals
from sparrowmq.core.errors import InvalidStateError

NUMBERS = (signal.SIGUSR1, signal.SIGUSR2)


@pytest.fixture
def before() -> Iterator[list[int]]:
    """What the handlers that were there before are told."""
    told: list[int] = []
    old = {number: signal.signal(number, lambda number, _: told.append(number)) for number in NUMBERS}
    yield told
    for number, handler in old.items():
        signal.signal(number, handler)


def test_the_first_signal_begins_to_close_and_the_second_does_what_it_did(before: list[int]) -> None:
    signals, begun = StopSignals(), list[str]()
    for name in ("a", "b"):
        signals.add(NUMBERS, lambda name=name: begun.append(name) is None)
    signal.raise_signal(signal.SIGUSR1)
    assert (begun, before) == (["a", "b"], [])
    signal.raise_signal(signal.SIGUSR1)
    assert (begun, before) == (["a", "b"], [signal.SIGUSR1])


def test_when_nothing_is_left_to_close_a_signal_does_what_it_did(before: list[int]) -> None:
    signals = StopSignals()
    signals.add(NUMBERS, lambda: False)
    signal.raise_signal(signal.SIGUSR1)
    assert before == [signal.SIGUSR1]
    signal.raise_signal(signal.SIGUSR2)
    assert before == list(NUMBERS)


def test_what_closed_by_itself_puts_the_handlers_back(before: list[int]) -> None:
    signals, own = StopSignals(), [signal.getsignal(number) for number in NUMBERS]

    def begin() -> bool:
        return True

    signals.add(NUMBERS, begin)
    signals.add(NUMBERS[:1], other := lambda: True)
    signals.remove(begin)
    assert signal.getsignal(NUMBERS[0]) != own[0]
    assert signal.getsignal(NUMBERS[1]) == own[1]
    signals.remove(other)
    assert [signal.getsignal(number) for number in NUMBERS] == own


def test_a_thread_takes_itself_out_and_the_next_signal_is_as_before(before: list[int]) -> None:
    signals, begun = StopSignals(), list[None]()

    def begin() -> bool:
        begun.append(None)
        return True

    signals.add(NUMBERS, begin)
    thread = threading.Thread(target=signals.remove, args=(begin,))
    thread.start()
    thread.join()
    for number in NUMBERS:
        signal.raise_signal(number)
    assert (begun, before) == ([], list(NUMBERS))


def test_handlers_that_came_later_stay(before: list[int]) -> None:
    signals = StopSignals()
    signals.add(NUMBERS[:1], begin := lambda: True)
    later = signal.signal(NUMBERS[0], signal.SIG_IGN)
    signals.remove(begin)
    assert signal.getsignal(NUMBERS[0]) is signal.SIG_IGN
    signal.signal(NUMBERS[0], later)


def test_who_comes_after_a_stranger_is_told_all_the_same(before: list[int]) -> None:
    signals, begun = StopSignals(), list[None]()
    signals.add(NUMBERS[:1], lambda: True)
    signal.signal(NUMBERS[0], signal.SIG_IGN)
    signals.add(NUMBERS[:1], lambda: begun.append(None) is None)
    signal.raise_signal(NUMBERS[0])
    assert begun == [None]
    assert signal.getsignal(NUMBERS[0]) is signal.SIG_IGN


def test_other_threads_are_refused_with_what_to_do() -> None:
    signals, raised = StopSignals(), list[InvalidStateError]()

    def work() -> None:
        with pytest.raises(InvalidStateError) as caught:
            signals.add(NUMBERS, lambda: True)
        raised.append(caught.value)

    thread = threading.Thread(target=work, name="helper")
    thread.start()
    thread.join()
    assert str(raised[0]) == (
        "signals reach the main thread only, this is helper; call close_on_signals there, or close the "
        "consumer from a handler of your own"
    )


def test_a_forked_child_closes_nothing_of_its_parent(
    before: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    signals, begun = StopSignals(), list[str]()
    signals.add(NUMBERS, lambda: begun.append("parent's") is None)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    signal.raise_signal(NUMBERS[0])
    assert (begun, before) == ([], [NUMBERS[0]])
    signals.add(NUMBERS, lambda: begun.append("child's") is None)
    for number in NUMBERS:
        signal.raise_signal(number)
    assert (begun, before) == (["child's", "child's"], [NUMBERS[0]])
