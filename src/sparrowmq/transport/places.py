"""The connection limits of a server, in total and per address, and which connection is closed for a new one.
No I/O.

If there is no free place, the oldest idle connection is closed: of the same address if that has used its
share, otherwise of the address with the most connections. A connection with a request in progress is never
closed for this.
"""

from __future__ import annotations

import ipaddress
from typing import Final, Generic, Protocol, TypeVar

LOOKS_MAX: Final = 64
"""Connections of an address that are checked per new connection; the next check continues after them."""
SHARE: Final = 2
"""By default one address may have one of this many places."""


class PlacedConnection(Protocol):
    """A connection that has a place."""

    def gives_way(self) -> bool:
        """Whether it is idle."""


G = TypeVar("G", bound=PlacedConnection)


def source_of(host: str) -> str:
    """The unit of address limits: an IPv4 address, or the /64 network of an IPv6 address, which one machine
    usually has.
    """
    if ":" not in host:
        return host
    try:
        return str(ipaddress.ip_network((host.partition("%")[0], 64), strict=False))
    except ValueError:
        return host


def is_own_machine(host: str) -> bool:
    """Whether a connection comes from the server's own machine."""
    return host == "::1" or host.startswith("127.")


class Places(Generic[G]):
    """The places of one server: `most` in total, `share` per address.

    Without `share` it is half of all, except for the local machine, where all clients have the same address.
    """

    def __init__(self, most: int, share: int = 0) -> None:
        self.most = most
        self.share = share
        self._hosts: dict[G, str] = {}
        self._guests: dict[str, dict[G, None]] = {}
        self._by_size: dict[int, dict[str, None]] = {}
        self._largest = 0

    def __repr__(self) -> str:
        return f"<Places {len(self._hosts)} of {self.most} taken>"

    def __len__(self) -> int:
        return len(self._hosts)

    def limit(self, most: int) -> None:
        """Set the total number of places."""
        self.most = most

    def share_of(self, host: str) -> int:
        """How many connections an address may have."""
        if self.share:
            return min(self.share, self.most)
        return self.most if is_own_machine(host) else max(1, self.most // SHARE)

    def enter(self, guest: G, host: str) -> tuple[G | None, str]:
        """Give a place to a connection from `host`. Returns the connection that lost its place, and the
        reason if there is none.

        The text is empty when there is one.
        """
        source, share = source_of(host), self.share_of(host)
        loser: G | None = None
        if len(self._guests.get(source, ())) >= share and share < self.most:
            loser = self._idle_of(source)
            if loser is None:
                return None, f"{host} has {share} connections, which is the limit for one address"
        elif len(self._hosts) >= self.most:
            largest = next(iter(self._by_size[self._largest]))
            loser = self._idle_of(largest) or self._idle_of(source)
            if loser is None:
                return None, f"{self.most} connections are open, which is the limit"
        if loser is not None:
            self.leave(loser)
        self._hosts[guest] = source
        self._resize(source, 1)
        self._guests.setdefault(source, {})[guest] = None
        return loser, ""

    def leave(self, guest: G) -> None:
        """Release a place; does nothing without one."""
        source = self._hosts.pop(guest, None)
        if source is None:
            return
        self._resize(source, -1)
        guests = self._guests[source]
        del guests[guest]
        if not guests:
            del self._guests[source]

    def _idle_of(self, source: str) -> G | None:
        """The oldest idle connection of an address; active ones move to the end of the order."""
        guests = self._guests.get(source)
        for _ in range(min(LOOKS_MAX, len(guests or ()))):
            assert guests is not None
            guest = next(iter(guests))
            if guest.gives_way():
                return guest
            del guests[guest]
            guests[guest] = None
        return None

    def _resize(self, source: str, step: int) -> None:
        """An address has one more or one less: keep which has the most."""
        size = len(self._guests.get(source, ()))
        if size:
            same = self._by_size[size]
            del same[source]
            if not same:
                del self._by_size[size]
        if size + step:
            self._by_size.setdefault(size + step, {})[source] = None
        if step > 0:
            self._largest = max(self._largest, size + step)
        elif size == self._largest and size not in self._by_size:
            self._largest = size - 1
