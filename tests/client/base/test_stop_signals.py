from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from sparrowmq.client.base.stop_signals import StopSignals
from sparrowmq.core.errors import InvalidStateError

NUMBERS = (signal.SIGUSR1, signal.SIGUSR2)


@pytest.fixture
def before() -> Iterator[list[int]]:
    """The calls of the previous signal handlers."""
    told: list[int] = []
    old = {number: signal.signal(number, lambda number, _: told.append(number)) for number in NUMBERS}
    yield told
    for number, handler in old.items():
        signal.signal(number, handler)


def test_first_signal_closes_and_the_second_has_its_previous_effect(before: list[int]) -> None:
    signals, begun = StopSignals(), list[str]()
    for name in ("a", "b"):
        signals.add(NUMBERS, lambda name=name: begun.append(name) is None)
    signal.raise_signal(signal.SIGUSR1)
    assert (begun, before) == (["a", "b"], [])
    signal.raise_signal(signal.SIGUSR1)
    assert (begun, before) == (["a", "b"], [signal.SIGUSR1])


def test_signal_has_its_previous_effect_when_nothing_is_left_to_close(before: list[int]) -> None:
    signals = StopSignals()
    signals.add(NUMBERS, lambda: False)
    signal.raise_signal(signal.SIGUSR1)
    assert before == [signal.SIGUSR1]
    signal.raise_signal(signal.SIGUSR2)
    assert before == list(NUMBERS)


def test_closed_client_restores_the_signal_handlers(before: list[int]) -> None:
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


def test_thread_unregisters_and_the_next_signal_is_as_before(before: list[int]) -> None:
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


def test_later_handlers_stay(before: list[int]) -> None:
    signals = StopSignals()
    signals.add(NUMBERS[:1], begin := lambda: True)
    later = signal.signal(NUMBERS[0], signal.SIG_IGN)
    signals.remove(begin)
    assert signal.getsignal(NUMBERS[0]) is signal.SIG_IGN
    signal.signal(NUMBERS[0], later)


def test_client_registered_after_a_foreign_handler_still_gets_signals(before: list[int]) -> None:
    signals, begun = StopSignals(), list[None]()
    signals.add(NUMBERS[:1], lambda: True)
    signal.signal(NUMBERS[0], signal.SIG_IGN)
    signals.add(NUMBERS[:1], lambda: begun.append(None) is None)
    signal.raise_signal(NUMBERS[0])
    assert begun == [None]
    assert signal.getsignal(NUMBERS[0]) is signal.SIG_IGN


def test_other_threads_are_refused_with_the_next_step() -> None:
    signals, raised = StopSignals(), list[InvalidStateError]()

    def work() -> None:
        with pytest.raises(InvalidStateError) as caught:
            signals.add(NUMBERS, lambda: True)
        raised.append(caught.value)

    thread = threading.Thread(target=work, name="helper")
    thread.start()
    thread.join()
    assert str(raised[0]) == (
        "only the main thread receives signals, and this is helper; call close_on_signals there, or close "
        "the consumer in your own signal handler"
    )


def test_forked_child_closes_nothing_of_its_parent(
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
