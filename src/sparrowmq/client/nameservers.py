"""The name servers of one client: which one is asked, and going to the next when it fails (client:A.10)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol

from sparrowmq.core.errors import TransportError
from sparrowmq.protocol.frame import Command


class Caller(Protocol):
    """What is needed of the transport."""

    async def call(self, addr: str, command: Command, timeout: float) -> Command:
        """The answer of `addr`, whatever its code."""


class NameServers:
    """A list of name servers. Stays with one that works; one call walks through all before it fails.

    The first choice is random, so that clients spread over the servers (client:A-72).
    """

    def __init__(self, addresses: Sequence[str], caller: Caller, rng: random.Random) -> None:
        assert addresses, "resolve_namesrv gives at least one"
        self._addresses = tuple(addresses)
        self._caller = caller
        self._current = rng.randrange(len(self._addresses))

    def __repr__(self) -> str:
        return f"<NameServers {';'.join(self._addresses)} current={self.current}>"

    @property
    def addresses(self) -> tuple[str, ...]:
        """All addresses, in the order given."""
        return self._addresses

    @property
    def current(self) -> str:
        """The address asked first."""
        return self._addresses[self._current]

    async def call(self, command: Command, timeout: float) -> Command:
        """The answer of the first name server that gives one, `timeout` seconds for each.

        Raises the last `TransportError`, which says that it was a name server's, when none answers.
        """
        last: TransportError | None = None
        for _ in self._addresses:
            try:
                return await self._caller.call(self.current, command, timeout)
            except TransportError as error:
                last = error
                self._current = (self._current + 1) % len(self._addresses)
        assert last is not None
        who = "the name server did not answer"
        if len(self._addresses) > 1:
            who = f"none of the name servers {'; '.join(self._addresses)} answered"
        step = "start one (`sparrow up`), or give its address (namesrv, SPARROW_NAMESRV)"
        raise type(last)(f"{who}: {last}; {step}", address=last.address) from last
