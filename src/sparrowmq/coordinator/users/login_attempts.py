"""Limits of password attempts, per name and address, per address, per name and in total, so that an attack
costs little and locks out only the attacker (pure).

Existing and unknown names are counted in the same way, so that an attacker cannot find out which names exist.
A user who has logged in from an address before is not locked out there by attempts from other addresses.
Users behind one address, such as on the machine itself or behind one proxy, share its limits, and existing
tokens stay valid.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address
from typing import Final

from sparrowmq.core.errors import RefusedError

WINDOW_SECONDS: Final = 60.0
FAILURES_MAX: Final = 5
"""Failed attempts for a name from one address per window."""
NAME_FAILURES_MAX: Final = 50
"""Failed attempts for a name from all addresses where it never logged in, per window."""
ADDRESS_TRIES_MAX: Final = 60
"""Attempts from one address per window."""
TRIES_MAX: Final = 120
"""Attempts in total per window: each costs tens of milliseconds of CPU time."""
UNDERWAY_MAX: Final = 8
"""Concurrent attempts: each occupies a thread, and other requests need some."""
NAMES_MAX: Final = 10_000

Key = tuple[str, str]


class _Counts:
    """Number of events for each key since its window began."""

    def __init__(self) -> None:
        self._rows: OrderedDict[Hashable, tuple[float, int]] = OrderedDict()

    def of(self, key: Hashable, now: float) -> tuple[float, int]:
        start, count = self._rows.get(key, (now, 0))
        return (start, count) if now - start < WINDOW_SECONDS else (now, 0)

    def add(self, key: Hashable, now: float) -> int:
        start, count = self.of(key, now)
        self._rows.pop(key, None)
        self._rows[key] = (start, count + 1)
        while len(self._rows) > NAMES_MAX:
            self._rows.popitem(last=False)
        return count + 1

    def forget(self, key: Hashable) -> None:
        self._rows.pop(key, None)

    def __len__(self) -> int:
        return len(self._rows)


@dataclass(slots=True)
class LoginAttempts:
    """Counts attempts. Times are monotonic seconds. `storms` counts windows in which all logins, or those
    from one address, exceeded their limit.
    """

    storms: int = 0
    _failures: _Counts = field(default_factory=_Counts)
    _of_name: _Counts = field(default_factory=_Counts)
    _of_address: _Counts = field(default_factory=_Counts)
    _of_all: _Counts = field(default_factory=_Counts)
    _told: _Counts = field(default_factory=_Counts)
    _known: OrderedDict[Key, None] = field(default_factory=OrderedDict)
    _underway: dict[Key, int] = field(default_factory=dict)

    def begin(self, name: str, address: str, now: float) -> None:
        """Count an attempt; `failed`, `succeeded` or `broken` ends it. Raises `RefusedError` (429) after too
        many; running attempts count as failures, otherwise many concurrent ones would pass. A refused attempt
        is not counted otherwise.
        """
        key = _key(name, address)
        underway = self._underway.get(key, 0)
        start, failed = self._failures.of(key, now)
        if failed + underway >= FAILURES_MAX:
            raise _refused(f"{name[:64]!r}", start, now, name)
        start, tried = self._of_address.of(key[1], now)
        if tried >= ADDRESS_TRIES_MAX:
            self._storm(key[1], now)
            raise _refused(f"all names from {address[:64]}", start, now, address)
        if key not in self._known:
            self._stranger(name, now)
        if sum(self._underway.values()) >= UNDERWAY_MAX:
            raise RefusedError(
                "too many login attempts at once; try again in a second",
                status=429,
                retry_seconds=1,
                limit=UNDERWAY_MAX,
            )
        self._of_address.add(key[1], now)
        self._of_all.add("", now)
        self._underway[key] = underway + 1

    def failed(self, name: str, address: str, now: float) -> bool:
        """Count a failure for the name; returns whether this failure locks it for the address."""
        self.broken(name, address)
        key = _key(name, address)
        if key not in self._known:
            self._of_name.add(name, now)
        return self._failures.add(key, now) == FAILURES_MAX

    def succeeded(self, name: str, address: str) -> None:
        """Reset the name's failures from the address, which is now known for it."""
        self.broken(name, address)
        key = _key(name, address)
        self._failures.forget(key)
        self._known.pop(key, None)
        self._known[key] = None
        while len(self._known) > NAMES_MAX:
            self._known.popitem(last=False)

    def broken(self, name: str, address: str) -> None:
        """An attempt that ended without a result: the database did not answer."""
        key = _key(name, address)
        underway = self._underway.pop(key, 0) - 1
        if underway > 0:
            self._underway[key] = underway

    def _stranger(self, name: str, now: float) -> None:
        start, failed = self._of_name.of(name, now)
        if failed >= NAME_FAILURES_MAX:
            raise _refused(f"{name[:64]!r}", start, now, name)
        start, tried = self._of_all.of("", now)
        if tried >= TRIES_MAX:
            self._storm("", now)
            raise _refused("all names", start, now)

    def _storm(self, where: str, now: float) -> None:
        self.storms += self._told.add(where, now) == 1


def _key(name: str, address: str) -> Key:
    return name, origin(address)


def origin(address: str) -> str:
    """The key of an address: for IPv6 the network, because one user has all its addresses."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, IPv6Address):
        return str(found.ipv4_mapped or found.exploded[:19])
    return str(found)


def _refused(who: str, start: float, now: float, value: str | None = None) -> RefusedError:
    wait = max(1, round(start + WINDOW_SECONDS - now))
    text = f"too many login attempts for {who}; wait {wait} s"
    return RefusedError(text, status=429, retry_seconds=wait, value=value)
