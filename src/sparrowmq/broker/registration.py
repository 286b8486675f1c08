"""Registration at the name servers: at start, every period, and when topics change (remoting:6.5)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from sparrowmq.broker.sharing import SharedRun
from sparrowmq.core.errors import TransportError
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.headers import RegisterBrokerRequest, UnregisterBrokerRequest, to_ext
from sparrowmq.transport.occasional import OccasionalLog

if TYPE_CHECKING:
    from sparrowmq.transport.client import RemotingClient

log = logging.getLogger("sparrowmq.broker")
CHANGE_SECONDS_MAX: Final = 2.0
"""How long the answer to a change of topics waits for the name servers to know it."""
GOODBYE_SECONDS_MAX: Final = 1.0
RETRY_SECONDS: Final = 2.0
"""How soon a name server that did not take the registration is asked again."""


class Registration:
    """Keeps every name server informed about one broker.

    While one does not take the registration all are told every 2 s, so it knows soon after it came back.
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
    ) -> None:
        self._client = client
        self._addresses = addresses
        self._identity = identity
        self._body = body
        self._period = period
        self._timeout = timeout
        self._silent: set[str] = set()
        self._occasional = OccasionalLog(log)
        self._sharing = SharedRun(self.register)
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Register everywhere once, then keep doing so in the background."""
        await self.register()
        if self._addresses:
            self._task = asyncio.create_task(self._run())

    async def register(self) -> None:
        """Tell all name servers now; failures are logged, once per name server."""
        if self._addresses:
            body = self._body()
            await asyncio.gather(*(self._register_at(address, body) for address in self._addresses))

    async def changed(self) -> None:
        """Topics changed: tell the name servers, for at most 2 s before the caller goes on.

        Many callers share a message.
        """
        try:
            await asyncio.wait_for(self._sharing.join(), CHANGE_SECONDS_MAX)
        except TimeoutError:
            self._wake.set()

    def changed_soon(self) -> None:
        """Topics changed: tell the name servers in the background; many changes make one message."""
        self._wake.set()

    async def close(self) -> None:
        """Stop and say goodbye, so that routes vanish at once."""
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
        """Seconds until the next registration that nothing asks for."""
        return min(self._period, RETRY_SECONDS) if self._silent else self._period

    async def _run(self) -> None:
        while True:  # until cancelled by close
            try:
                # Not wait_for: that can swallow a cancellation that comes with the wake-up.
                async with asyncio.timeout(self._pause):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            try:
                await self.register()
            except Exception as error:
                text = f"registering failed and is tried again in {self._pause:.0f} s"
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
        elif address in self._silent:
            self._silent.discard(address)
            log.info("name server %s knows this broker again", address)

    def _complain(self, address: str, why: str) -> None:
        if address not in self._silent:
            self._silent.add(address)
            log.warning(
                "cannot register at name server %s: %s; clients find no route there. "
                "Trying again every %.0f s",
                address,
                why,
                self._pause,
            )
