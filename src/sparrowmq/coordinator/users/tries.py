"""How often somebody may try a password: bounded per name and address, per address, per name and in all, so
that a storm costs little and locks out nobody but who makes it (pure).

Known and unknown names are counted alike: an attacker must not learn which names there are. Whoever logged in
from an address before is not kept out there by what others do elsewhere; behind one address, as on the
machine itself or behind one proxy, people share its limits, and tokens that were made before go on.
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
"""Failed tries of a name from one address per window."""
NAME_FAILURES_MAX: Final = 50
"""Failed tries of a name from all addresses where it never logged in, per window."""
ADDRESS_TRIES_MAX: Final = 60
"""Tries from one address per window."""
TRIES_MAX: Final = 120
"""Tries of everybody together per window: each costs tens of milliseconds of a processor."""
UNDERWAY_MAX: Final = 8
"""Tries at once: each holds a thread, of which other requests need some."""
NAMES_MAX: Final = 10_000

Key = tuple[str, str]


class _Counts:
    """How often something happened to each key since its window began."""

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
class Tries:
    """Counts tries. Times are monotonic seconds. `storms` counts windows in which all logins, or those from
    one address, became too many.
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
        """Count a try, which `failed`, `succeeded` or `broken` ends. Raises `RefusedError` (429) when there
        were too many; those that are underway count as failures, or many at once would pass. A try that is
        refused counts for nothing else.
        """
        key = _key(name, address)
        underway = self._underway.get(key, 0)
        start, failed = self._failures.of(key, now)
        if failed + underway >= FAILURES_MAX:
            raise _refused(f"{name[:64]!r}", start, now)
        start, tried = self._of_address.of(key[1], now)
        if tried >= ADDRESS_TRIES_MAX:
            self._storm(key[1], now)
            raise _refused(f"all logins from {address[:64]}", start, now)
        if key not in self._known:
            self._stranger(name, now)
        if sum(self._underway.values()) >= UNDERWAY_MAX:
            raise RefusedError("too many tries of all logins at once; try again in a second", status=429)
        self._of_address.add(key[1], now)
        self._of_all.add("", now)
        self._underway[key] = underway + 1

    def failed(self, name: str, address: str, now: float) -> bool:
        """Count a failure of the name; whether it is the one that locks it for the address."""
        self.broken(name, address)
        key = _key(name, address)
        if key not in self._known:
            self._of_name.add(name, now)
        return self._failures.add(key, now) == FAILURES_MAX

    def succeeded(self, name: str, address: str) -> None:
        """Forget the name's failures from there, and that it is a stranger there."""
        self.broken(name, address)
        key = _key(name, address)
        self._failures.forget(key)
        self._known.pop(key, None)
        self._known[key] = None
        while len(self._known) > NAMES_MAX:
            self._known.popitem(last=False)

    def broken(self, name: str, address: str) -> None:
        """A try that ended without an answer: the database did not say."""
        key = _key(name, address)
        underway = self._underway.pop(key, 0) - 1
        if underway > 0:
            self._underway[key] = underway

    def _stranger(self, name: str, now: float) -> None:
        start, failed = self._of_name.of(name, now)
        if failed >= NAME_FAILURES_MAX:
            raise _refused(f"{name[:64]!r}", start, now)
        start, tried = self._of_all.of("", now)
        if tried >= TRIES_MAX:
            self._storm("", now)
            raise _refused("all logins", start, now)

    def _storm(self, where: str, now: float) -> None:
        self.storms += self._told.add(where, now) == 1


def _key(name: str, address: str) -> Key:
    return name, origin(address)


def origin(address: str) -> str:
    """What counts as one address: of IPv6 the network, because whoever has one has all of it."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, IPv6Address):
        return str(found.ipv4_mapped or found.exploded[:19])
    return str(found)


def _refused(who: str, start: float, now: float) -> RefusedError:
    wait = max(1, round(start + WINDOW_SECONDS - now))
    return RefusedError(f"too many tries of {who}; wait {wait} s", status=429)
