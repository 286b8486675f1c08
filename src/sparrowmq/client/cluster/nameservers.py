"""The name servers of one client: the current one, and the next one when it fails (client:A.10)."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from typing import Final, Protocol

from sparrowmq.core.errors import BrokerError, TransportError
from sparrowmq.protocol.codes import RequestCode, ResponseCode, request_name
from sparrowmq.protocol.frame import Command


class Caller(Protocol):
    """The required methods of the transport."""

    async def call(self, addr: str, command: Command, timeout: float) -> Command:
        """The response of `addr`, whatever its code."""

    def disconnect(self, addr: str, reason: str) -> None:
        """Close the connection to `addr`, if there is one."""


class ListSource(Protocol):
    """A source of the list."""

    url: str

    async def fetch(self) -> tuple[str, ...]:
        """The current name servers. Raises `ConnectError`."""


FOLLOW_FIRST_SECONDS: Final = 10.0
FOLLOW_SECONDS: Final = 120.0
"""Seconds between two lookups of the list (client:A-33)."""
_EVERY_NAME_SERVER_KNOWS: Final = frozenset(
    (
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    )
)


class NameServers:
    """A list of name servers. It keeps using one that works; a call tries all of them before it fails.

    The first choice is random, so that clients spread over the servers (client:A-72). Without `addresses`,
    the list comes from `source` when it is first needed.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        caller: Caller,
        rng: random.Random,
        source: ListSource | None = None,
    ) -> None:
        assert addresses or source is not None, "resolve_namesrv gives at least one"
        self._addresses = tuple(addresses)
        self._caller = caller
        self._rng = rng
        self._source = source
        self._current = rng.randrange(len(self._addresses)) if addresses else 0

    def __repr__(self) -> str:
        return f"<NameServers {';'.join(self._addresses)} current={self.current}>"

    @property
    def addresses(self) -> tuple[str, ...]:
        """All addresses, in the given order; empty before the first lookup."""
        return self._addresses

    @property
    def current(self) -> str:
        """The address to ask first; empty before the first lookup."""
        return self._addresses[self._current] if self._addresses else ""

    @property
    def origin(self) -> frozenset[str]:
        """The identity of the cluster: the source of the list, or else the list."""
        return frozenset(self._addresses) if self._source is None else frozenset({self._source.url})

    @property
    def is_followed(self) -> bool:
        """Whether the list comes from a source, and so may change."""
        return self._source is not None

    async def known(self) -> tuple[str, ...]:
        """All addresses; looks them up the first time. Raises `ConnectError`."""
        if not self._addresses:
            await self.follow()
        return self._addresses

    async def follow(self) -> bool:
        """Look the list up again. Returns whether it changed. Raises `ConnectError`, and keeps
        the list then.
        """
        return self._source is not None and self.replace(await self._source.fetch())

    def replace(self, addresses: Sequence[str]) -> bool:
        """Use a new list, shuffled. Returns whether it differs (client:A-71).

        The current server stays current if it is in the new list; otherwise the connection to it is closed.
        """
        if set(addresses) == set(self._addresses):
            return False
        before = self.current
        shuffled = list(addresses)
        self._rng.shuffle(shuffled)
        self._addresses = tuple(shuffled)
        self._current = shuffled.index(before) if before in shuffled else 0
        if before and before not in shuffled:
            self._caller.disconnect(before, "it is no longer in the list of name servers")
        return True

    async def call(self, command: Command, timeout: float) -> Command:
        """The response of the first name server that sends one, within `timeout` seconds for each.

        Raises the last `TransportError`, with a note that it concerns a name server, if none answers, and
        `BrokerError` if the server that answers is not a name server.
        """
        await self.known()
        last: TransportError | None = None
        tried: set[str] = set()
        while (address := self._next(tried)) is not None:
            tried.add(address)
            try:
                return _of_name_server(await self._caller.call(address, command, timeout), address, command)
            except TransportError as error:
                last = error
                if address == self.current:  # otherwise another call has already moved on, or the list is new
                    self._current = (self._current + 1) % len(self._addresses)
        assert last is not None
        who = "the name server did not answer"
        if len(self._addresses) > 1:
            who = f"none of the name servers {'; '.join(self._addresses)} answered"
        said = str(last)
        begin = f"{said} Start" if said.endswith("?") else f"{said}; start"
        step = "one (`sparrow up`), or give its address (namesrv, SPARROW_NAMESRV)"
        text = f"{who}: {begin} {step}"
        raise type(last)(text, address=last.address, value=last.value, limit=last.limit) from last

    def _next(self, tried: Collection[str]) -> str | None:
        """The first address, from the current one on, that was not tried; None after the last."""
        turned = (*self._addresses[self._current :], *self._addresses[: self._current])
        return next((address for address in turned if address not in tried), None)


def _of_name_server(answer: Command, address: str, command: Command) -> Command:
    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED and command.code in _EVERY_NAME_SERVER_KNOWS:
        said = (answer.remark or "").strip()
        remark = f"{said}; is it a broker? Give a name server's address, usually port 9876"
        raise BrokerError(answer.code, remark, address=address, request=request_name(command.code))
    return answer
