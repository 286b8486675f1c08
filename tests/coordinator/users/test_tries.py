from __future__ import annotations

import pytest

from sparrowmq.coordinator.users import tries
from sparrowmq.coordinator.users.tries import FAILURES_MAX, TRIES_MAX, WINDOW_SECONDS, Tries
from sparrowmq.core.errors import RefusedError


def fail(found: Tries, name: str, now: float) -> None:
    found.begin(name, now)
    found.failed(name, now)


def test_a_name_is_locked_after_failures_until_the_window_ends() -> None:
    found = Tries()
    for number in range(FAILURES_MAX):
        fail(found, "ann", 100.0 + number)
    with pytest.raises(RefusedError, match="too many tries of 'ann'; wait 50 s") as caught:
        found.begin("ann", 110.0)
    assert caught.value.status == 429
    found.begin("bob", 110.0)
    found.begin("ann", 100.0 + WINDOW_SECONDS)


def test_tries_at_once_count_before_they_have_failed() -> None:
    found = Tries()
    for _ in range(FAILURES_MAX):
        found.begin("ann", 1.0)
    with pytest.raises(RefusedError, match="too many tries of 'ann'"):
        found.begin("ann", 1.0)
    found.broken("ann")
    found.begin("ann", 1.0)
    assert [found.failed("ann", 1.0) for _ in range(FAILURES_MAX)] == [False] * (FAILURES_MAX - 1) + [True]
    with pytest.raises(RefusedError, match="too many tries of 'ann'"):
        found.begin("ann", 1.0)
    found.begin("ann", 1.0 + WINDOW_SECONDS)
    assert found._underway == {"ann": 1}


def test_a_success_forgets_failures() -> None:
    found = Tries()
    for _ in range(10):
        for _ in range(FAILURES_MAX - 1):
            fail(found, "ann", 1.0)
        found.begin("ann", 1.0)
        found.succeeded("ann")


def test_a_storm_of_all_names_is_bounded() -> None:
    found = Tries()
    for number in range(TRIES_MAX):
        found.begin(str(number), 500.0)
    with pytest.raises(RefusedError, match="too many tries of all logins; wait 60 s"):
        found.begin("another", 500.0)
    found.begin("another", 500.0 + WINDOW_SECONDS)


def test_names_are_remembered_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tries, "NAMES_MAX", 3)
    found = Tries()
    for number in range(10):
        found.failed(str(number), 1.0)
    assert list(found._failures) == ["7", "8", "9"]
