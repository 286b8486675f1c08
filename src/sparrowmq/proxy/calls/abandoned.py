"""Requests that brokers hold for calls that clients have given up: they cannot be cancelled.

A client that starts receives and resets them could make brokers hold any number of requests, because its
limit of calls does not count calls that it has reset.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, Final

from sparrowmq.core.errors import ProxyRefusal
from sparrowmq.proxy.definition.messages import Code

ABANDONED_MAX: Final = 2_000
"""Maximum number of such requests for the clients of one address; beyond it, its receives and pulls are
refused.
"""


class Abandoned:
    """Their number by the address (host) of the client."""

    def __init__(self) -> None:
        self._of_host: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._of_host.total()

    def check(self, host: str) -> None:
        """Refuse a call when too many are held for its client's address."""
        if self._of_host[host] >= ABANDONED_MAX:
            raise ProxyRefusal(
                Code.TOO_MANY_REQUESTS,
                f"brokers hold {ABANDONED_MAX} requests for calls that clients of this address gave up; wait "
                "until they end",
            )

    def add(self, host: str, asking: asyncio.Future[Any]) -> None:
        """The client gave up the call for which a broker is asked."""
        if asking.done():
            return
        self._of_host[host] += 1
        asking.add_done_callback(lambda done: self._ended(host, done))

    def _ended(self, host: str, done: asyncio.Future[Any]) -> None:
        self._of_host[host] -= 1
        if not self._of_host[host]:
            del self._of_host[host]
        if not done.cancelled():
            done.exception()  # no client waits for it
