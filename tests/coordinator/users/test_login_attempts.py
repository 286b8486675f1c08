from __future__ import annotations

import pytest
from tests.support import about

from sparrowmq.coordinator.users import login_attempts
from sparrowmq.coordinator.users.login_attempts import (
    ADDRESS_TRIES_MAX,
    FAILURES_MAX,
    NAME_FAILURES_MAX,
    TRIES_MAX,
    UNDERWAY_MAX,
    WINDOW_SECONDS,
    LoginAttempts,
    origin,
)
from sparrowmq.core.errors import RefusedError

HERE, THERE = "10.0.0.1", "10.0.0.2"


def fail(found: LoginAttempts, name: str, now: float, address: str = HERE) -> bool:
    found.begin(name, address, now)
    return found.failed(name, address, now)


def far(number: int) -> str:
    return f"192.0.2.{number}"


def test_name_is_locked_after_failures_until_the_window_ends() -> None:
    found = LoginAttempts()
    for number in range(FAILURES_MAX):
        fail(found, "ann", 100.0 + number)
    with pytest.raises(RefusedError, check=about(status=429, value="ann", retry_seconds=50)):
        found.begin("ann", HERE, 110.0)
    found.begin("bob", HERE, 110.0)
    found.begin("ann", HERE, 100.0 + WINDOW_SECONDS)


def test_failed_logins_from_another_address_block_no_login_here() -> None:
    found = LoginAttempts()
    assert [fail(found, "admin", 1.0, THERE) for _ in range(FAILURES_MAX)][-1]
    with pytest.raises(RefusedError, check=about(value="admin")):
        found.begin("admin", THERE, 2.0)
    found.begin("admin", HERE, 2.0)


def test_refused_attempts_do_not_reduce_the_limits_of_others() -> None:
    found = LoginAttempts()
    for _ in range(FAILURES_MAX):
        fail(found, "ann", 1.0)
    for _ in range(2 * TRIES_MAX):
        with pytest.raises(RefusedError, check=about(value="ann")):
            found.begin("ann", HERE, 1.0)
    assert not fail(found, "bob", 1.0)
    assert not found.storms


def test_simultaneous_attempts_count_before_they_have_failed() -> None:
    found = LoginAttempts()
    for _ in range(FAILURES_MAX):
        found.begin("ann", HERE, 1.0)
    with pytest.raises(RefusedError, check=about(value="ann")):
        found.begin("ann", HERE, 1.0)
    found.broken("ann", HERE)
    found.begin("ann", HERE, 1.0)
    assert [found.failed("ann", HERE, 1.0) for _ in range(FAILURES_MAX)] == [False] * (FAILURES_MAX - 1) + [
        True
    ]
    with pytest.raises(RefusedError, check=about(value="ann")):
        found.begin("ann", HERE, 1.0)
    found.begin("ann", HERE, 1.0 + WINDOW_SECONDS)
    assert found._underway == {("ann", HERE): 1}


def test_simultaneous_attempts_leave_threads_to_others() -> None:
    found = LoginAttempts()
    for number in range(UNDERWAY_MAX):
        found.begin(str(number), far(number), 1.0)
    with pytest.raises(RefusedError, check=about(limit=UNDERWAY_MAX, retry_seconds=1)):
        found.begin("ann", HERE, 1.0)
    found.broken("0", far(0))
    found.begin("ann", HERE, 1.0)


def test_success_resets_failures() -> None:
    found = LoginAttempts()
    for _ in range(10):
        for _ in range(FAILURES_MAX - 1):
            fail(found, "ann", 1.0)
        found.begin("ann", HERE, 1.0)
        found.succeeded("ann", HERE)


def test_storm_from_one_address_is_bounded_and_counted_once() -> None:
    found = LoginAttempts()
    for number in range(ADDRESS_TRIES_MAX):
        fail(found, str(number), 500.0, THERE)
    for _ in range(3):
        with pytest.raises(RefusedError, check=about(value=THERE, retry_seconds=60)):
            found.begin("another", THERE, 500.0)
    assert found.storms == 1
    found.begin("another", HERE, 500.0)
    found.begin("another", THERE, 500.0 + WINDOW_SECONDS)


def test_login_storm_is_bounded_and_known_addresses_can_still_log_in() -> None:
    found = LoginAttempts()
    found.begin("ann", HERE, 1.0)
    found.succeeded("ann", HERE)
    for number in range(TRIES_MAX):
        fail(found, str(number), 500.0, far(number))
    with pytest.raises(RefusedError, check=about(value=None, limit=None, retry_seconds=60)):
        found.begin("another", THERE, 500.0)
    assert found.storms == 1
    found.begin("ann", HERE, 500.0)
    with pytest.raises(RefusedError, check=about(value=None, limit=None, retry_seconds=60)):
        found.begin("ann", THERE, 500.0)
    found.begin("another", THERE, 500.0 + WINDOW_SECONDS)


def test_guesses_of_one_name_from_many_addresses_are_limited() -> None:
    found = LoginAttempts()
    found.begin("admin", HERE, 1.0)
    found.succeeded("admin", HERE)
    for number in range(NAME_FAILURES_MAX):
        fail(found, "admin", 1.0, far(number))
    with pytest.raises(RefusedError, check=about(value="admin", retry_seconds=60)):
        found.begin("admin", THERE, 1.0)
    assert not fail(found, "bob", 1.0, THERE)
    found.begin("admin", HERE, 1.0)


def test_number_of_remembered_names_and_addresses_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_attempts, "NAMES_MAX", 3)
    found = LoginAttempts()
    for number in range(10):
        fail(found, str(number), 1.0, far(number))
        found.succeeded(str(number), far(number))
        found.failed(str(number), far(number), 1.0)
    assert {len(one) for one in (found._failures, found._of_address, found._known)} == {3}
    assert list(found._known) == [(str(number), far(number)) for number in (7, 8, 9)]
    assert not found._underway


@pytest.mark.parametrize(
    ("address", "counted"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:0db8:0001:0002"),
        ("2001:db8:1:2:ffff::", "2001:0db8:0001:0002"),
        ("fe80::1%eth0", "fe80:0000:0000:0000"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("", ""),
        ("a socket", "a socket"),
    ],
)
def test_ipv6_addresses_count_by_network(address: str, counted: str) -> None:
    assert origin(address) == counted
