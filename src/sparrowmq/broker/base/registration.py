"""Registration at the name servers: at start, every period, and when topics change (remoting:6.5)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from sparrowmq.broker.tables.coalesced_run import SharedRun
from sparrowmq.core.errors import TransportError
from sparrowmq.core.outside import one_line
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.headers import (
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    UnregisterBrokerRequest,
    from_ext,
    to_ext,
)
from sparrowmq.transport.occasional import OccasionalLog

if TYPE_CHECKING:
    from sparrowmq.transport.client import RemotingClient

log = logging.getLogger("sparrowmq.broker")
CHANGE_SECONDS_MAX: Final = 2.0
"""How long the answer to a topic change waits for the name servers."""
GOODBYE_SECONDS_MAX: Final = 1.0
RETRY_SECONDS: Final = 2.0
"""Retry interval for a name server that did not accept the registration."""


def _always() -> bool:
    """For brokers that need no lease."""
    return True


class Announcements(Protocol):
    """Keeps name servers informed about a broker."""

    @property
    def silent(self) -> Mapping[str, str]:
        """Why name servers did not accept the last registration, by their addresses."""

    async def start(self) -> None:
        """Register, then repeat it periodically."""

    async def changed(self) -> None:
        """Topics changed: wait until the name servers know the change, or until a timeout."""

    def changed_soon(self) -> None:
        """Topics changed: inform the name servers soon."""

    async def close(self) -> None:
        """Stop and unregister."""


class Registration:
    """Keeps every name server informed about one broker.

    While one does not accept the registration, all are informed every 2 s, so it is up to date soon after its
    return. `told` is called with the addresses in a response; a slave gets its master's address and HA
    address. While `may` returns False, no name server is informed.
    """

    def __init__(
        self,
        client: RemotingClient,
        addresses: tuple[str, ...],
        *,
        identity: RegisterBrokerRequest,
        body: Callable[[], bytes],
        period: float,
        timeout: float,
        told: Callable[[str | None, str | None], None] | None = None,
        may: Callable[[], bool] = _always,
    ) -> None:
        self._client = client
        self._addresses = addresses
        self._identity = identity
        self._body = body
        self._period = period
        self._timeout = timeout
        self._told = told
        self._may = may
        self._silent: dict[str, str] = {}
        self._occasional = OccasionalLog(log)
        self._sharing = SharedRun(self.register)
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def silent(self) -> Mapping[str, str]:
        """Why name servers did not accept the last registration, by their addresses."""
        return self._silent

    async def start(self) -> None:
        """Register everywhere once, then repeat it in the background."""
        await self.register()
        if self._addresses:
            self._task = asyncio.create_task(self._run())

    async def register(self) -> None:
        """Inform all name servers now; failures are logged, once per name server."""
        if self._addresses and self._may():
            body = self._body()
            await asyncio.gather(*(self._register_at(address, body) for address in self._addresses))

    async def changed(self) -> None:
        """Topics changed: inform the name servers; the caller waits for at most 2 s.

        Concurrent callers share a message.
        """
        try:
            await asyncio.wait_for(self._sharing.join(), CHANGE_SECONDS_MAX)
        except TimeoutError:
            self._wake.set()

    def changed_soon(self) -> None:
        """Topics changed: inform the name servers in the background; several changes share a message."""
        self._wake.set()

    async def close(self) -> None:
        """Stop and unregister, so that routes disappear at once."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        me = self._identity
        ext = to_ext(
            UnregisterBrokerRequest(
                broker_name=me.broker_name,
                broker_addr=me.broker_addr,
                cluster_name=me.cluster_name,
                broker_id=me.broker_id,
            )
        )
        goodbye = Command(RequestCode.UNREGISTER_BROKER, ext=ext)
        calls = (self._client.call(a, goodbye, GOODBYE_SECONDS_MAX) for a in self._addresses)
        await asyncio.gather(*calls, return_exceptions=True)

    @property
    def _pause(self) -> float:
        """Seconds until the next periodic registration."""
        return min(self._period, RETRY_SECONDS) if self._silent else self._period

    async def _run(self) -> None:
        while True:  # until cancelled by close
            try:
                # Not wait_for: it can swallow a cancellation that coincides with the wake-up.
                async with asyncio.timeout(self._pause):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            try:
                await self.register()
            except Exception as error:
                text = f"registration failed; retrying in {self._pause:.0f} s"
                self._occasional.write(logging.ERROR, "registering", text, error=error)

    async def _register_at(self, address: str, body: bytes) -> None:
        command = Command(RequestCode.REGISTER_BROKER, ext=to_ext(self._identity), body=body)
        try:
            reply = await self._client.call(address, command, self._timeout)
        except TransportError as error:
            self._complain(address, str(error))
            return
        if reply.code != ResponseCode.SUCCESS:
            self._complain(address, f"it answered {reply.code}: {reply.remark}")
            return
        found = from_ext(RegisterBrokerResponse, reply.ext)
        if found.sparrow_rival:
            self._warn(address, found.sparrow_rival)
        if self._told is not None:
            self._told(found.master_addr, found.ha_server_addr)
        if address in self._silent:
            del self._silent[address]
            log.info("registered at name server %s again", address)

    def _warn(self, address: str, rival: str) -> None:
        """Report another broker with this one's name and id; clients reach the one that registered last."""
        me = self._identity
        text = (
            f"name server {address} has another broker {me.broker_name} with id {me.broker_id} at {rival}, "
            f"this one is at {me.broker_addr}: if both run, clients lose sight of messages; one needs "
            "another brokerName or brokerId"
        )
        self._occasional.write(logging.WARNING, f"rival {address}", one_line(text))

    def _complain(self, address: str, why: str) -> None:
        is_new = address not in self._silent
        self._silent[address] = why
        if is_new:
            log.warning(
                "cannot register at name server %s: %s; clients find no routes there. Retrying every %.0f s",
                address,
                why,
                self._pause,
            )
