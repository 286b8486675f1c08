"""One attempt to send: the limit of sends in flight, the request, its hooks and its duration (client:B.9)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from sparrowmq.client.base.hooks import CheckForbiddenContext, Hooks, MessageType, SendContext, SendMode
from sparrowmq.client.base.settings import ProducerSettings
from sparrowmq.client.cluster.instance import ClientInstance
from sparrowmq.client.send.encoding import Outgoing, SendTarget, send_result
from sparrowmq.client.send.fault_strategy import FaultStrategy
from sparrowmq.client.send.hook_properties import with_properties
from sparrowmq.client.send.in_flight import Gate
from sparrowmq.client.send.queue_selection import PublishInfo
from sparrowmq.client.send.sequences import judged_result
from sparrowmq.core.errors import ClientError, NoRoomError, SparrowError
from sparrowmq.core.message import (
    PROPERTY_DELAY,
    PROPERTY_START_DELIVER_TIME,
    PROPERTY_TRANSACTION_PREPARED,
    Message,
)
from sparrowmq.core.results import SendResult
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.frame import FLAG_ONEWAY, Command

_SEND: Final = int(RequestCode.SEND_MESSAGE_V2)
TIMER_VERSION: Final = 413
"""Version code of 5.0.0, the first release with timer messages (client:G-26, G-43)."""


TRY_SECONDS: Final = 1.0
"""An attempt gets this long before another broker is tried, if the timeout of the send allows: a shorter
pause of a broker must not store a message twice."""


def share(left: float, more: int) -> float:
    """Seconds for an attempt while `left` remain for it and `more` others, which go to other brokers."""
    return max(left / (more + 1), min(TRY_SECONDS, left / 2)) if more else left


class Attempts:
    """Makes the attempts of one producer. `is_watched`: hooks or a fault strategy observe each attempt."""

    def __init__(
        self,
        group: str,
        settings: ProducerSettings,
        instance: ClientInstance,
        gate: Gate,
        hooks: Hooks,
        faults: FaultStrategy | None,
    ) -> None:
        self._group = group
        self._settings = settings
        self._instance = instance
        self._remoting = instance.remoting
        self._gate = gate
        self._hooks = hooks
        self._faults = faults
        self._loop = asyncio.get_running_loop()
        self.is_watched = faults is not None or bool(hooks.send or hooks.check_forbidden)

    def choose(self, info: PublishInfo, last_broker: str | None) -> SendTarget:
        """The queue for the first attempt, or for the next one after `last_broker`."""
        if self._faults is None:
            return info.next_other(last_broker)
        return self._faults.choose(info, last_broker, self._loop.time() * 1000)

    def start(
        self, outgoing: Outgoing, target: SendTarget, deadline: float, elsewhere: int
    ) -> asyncio.Future[Command] | None:
        """Start the attempt of a plain send if nothing has to be waited for; the caller has taken room.
        `elsewhere` others may follow at other brokers. Raises `NoRoomError` after the deadline."""
        remaining = share(self.left(deadline), elsewhere)
        if self._remoting.is_hooked:
            return self._remoting.call_nowait(target.address, target.command(outgoing), remaining)
        opaque = self._remoting.next_opaque()
        data = target.request(outgoing, opaque)
        return self._remoting.call_encoded_nowait(target.address, opaque, data, remaining, _SEND)

    async def try_once(
        self,
        outgoing: Outgoing,
        target: SendTarget,
        deadline: float,
        mode: SendMode,
        *,
        last: bool = True,
        elsewhere: int = 0,
    ) -> SendResult:
        """Make one attempt. `last`: no other attempt follows; `elsewhere` may follow at other brokers. Raises
        its error.
        """
        now, own = self._loop.time(), self._settings.try_timeout
        if own is None:
            deadline = now + share(deadline - now, elsewhere)
        elif not last:
            deadline = min(deadline, now + own)
        size = outgoing.size
        await self._gate.enter(size, self.left(deadline))
        try:
            if not self.is_watched:
                return await self._ask(outgoing, target, deadline)
            if self._faults is None:
                return await self._try_hooked(outgoing, target, deadline, mode)
            return await self._try_noted(self._faults, outgoing, target, deadline, mode)
        finally:
            self._gate.leave(size)

    async def _try_noted(
        self, faults: FaultStrategy, outgoing: Outgoing, target: SendTarget, deadline: float, mode: SendMode
    ) -> SendResult:
        """An attempt whose duration the strategy records, without the wait for room, which the broker does
        not cause.
        """
        began = self._loop.time()
        error: BaseException | None = None
        try:
            return await self._try_hooked(outgoing, target, deadline, mode)
        except BaseException as raised:
            error = raised
            raise
        finally:
            now = self._loop.time()
            faults.note(target.queue.broker_name, (now - began) * 1000, now * 1000, error)

    async def oneway(self, outgoing: Outgoing, target: SendTarget, deadline: float) -> None:
        """Write the request to the connection without waiting for a response."""
        if outgoing.is_timer:
            await self._check_timer(target, deadline)
        context = self._before(outgoing, target, SendMode.ONEWAY) if self.is_watched else None
        if context is not None and context.properties:
            outgoing = self._with_properties(outgoing, context)
        try:
            if self._remoting.is_hooked or outgoing.needs_command:
                await self._remoting.notify(target.address, target.command(outgoing), self.left(deadline))
            else:
                data = target.request(outgoing, self._remoting.next_opaque(), FLAG_ONEWAY)
                await self._remoting.notify_encoded(target.address, data, self.left(deadline), _SEND)
        except SparrowError as error:
            if context is not None:
                context.error = error
            raise
        finally:
            if context is not None:
                self._hooks.after_send(context)

    def left(self, deadline: float) -> float:
        """Seconds until `deadline`. Raises `NoRoomError` after it (client:B.9-10)."""
        remaining = deadline - self._loop.time()
        if remaining <= 0:
            raise NoRoomError(
                "the timeout of a send ended before it was written; use a longer timeout or send less at "
                "once",
                what="timeout",
            )
        return remaining

    async def _ask(self, outgoing: Outgoing, target: SendTarget, deadline: float) -> SendResult:
        if outgoing.is_timer:
            await self._check_timer(target, deadline)
        if self._remoting.is_hooked or outgoing.needs_command:
            command = target.command(outgoing)
            answer = await self._remoting.call(target.address, command, self.left(deadline))
            if outgoing.is_numbered:
                return judged_result(answer, outgoing, target)
        else:
            opaque = self._remoting.next_opaque()
            data = target.request(outgoing, opaque)
            answer = await self._remoting.call_encoded(
                target.address, opaque, data, self.left(deadline), _SEND
            )
        return send_result(answer, outgoing, target)

    async def _try_hooked(
        self, outgoing: Outgoing, target: SendTarget, deadline: float, mode: SendMode
    ) -> SendResult:
        context = self._before(outgoing, target, mode)
        if context is None:
            return await self._ask(outgoing, target, deadline)
        try:
            sent = self._with_properties(outgoing, context) if context.properties else outgoing
            context.result = await self._ask(sent, target, deadline)
            return context.result
        except Exception as error:
            context.error = error
            raise
        finally:
            self._hooks.after_send(context)

    def _before(self, outgoing: Outgoing, target: SendTarget, mode: SendMode) -> SendContext | None:
        """Call the hooks before a request. Returns the context for those after it."""
        messages: Sequence[Message] = outgoing.messages or (Message(outgoing.topic, outgoing.body),)
        unit_mode = self._settings.unit_mode
        if self._hooks.check_forbidden:
            self._hooks.check(
                CheckForbiddenContext(
                    namesrv=";".join(self._instance.name_servers.addresses),
                    group=self._group,
                    mode=mode,
                    address=target.address,
                    message=messages[0],
                    queue=target.queue,
                    unit_mode=unit_mode,
                )
            )
        if not self._hooks.send:
            return None
        context = SendContext(
            group=self._group,
            mode=mode,
            messages=messages,
            message_id=outgoing.message_id,
            queue=target.queue,
            address=target.address,
            client_address=self._instance.client_address,
            message_type=message_type(outgoing),
            unit_mode=unit_mode,
            body_bytes=outgoing.uncompressed_bytes,
        )
        self._hooks.before_send(context)
        return context

    def _with_properties(self, outgoing: Outgoing, context: SendContext) -> Outgoing:
        """The send with the properties that hooks added."""
        return with_properties(outgoing, context.properties, self._settings.message_bytes_max)

    async def _check_timer(self, target: SendTarget, deadline: float) -> None:
        """Refuse messages that a broker before 5.0 would deliver immediately instead of later
        (client:G-26).
        """
        versions = self._instance.broker_versions
        address = self._instance.routes.master(target.queue.broker_name) or target.address
        if address not in versions:  # no heartbeat was answered yet
            with suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await self._instance.heartbeat()
        version = versions.get(address, 0)
        if 0 < version < TIMER_VERSION or self._settings.compat == "4.9":
            raise ClientError(
                f"the broker {target.queue.broker_name!r} is older than 5.0 and would deliver a message with "
                "delay or deliver_at at once; use delay_level",
                what="delay",
                value=target.queue.broker_name,
            )


def message_type(outgoing: Outgoing) -> MessageType:
    """A message's attributes for hooks (client:B.9-7)."""
    system = outgoing.system or {}
    if system.get(PROPERTY_TRANSACTION_PREPARED) == "true":
        return MessageType.HALF
    properties = outgoing.messages[0].properties if outgoing.messages else {}
    if PROPERTY_DELAY in system or PROPERTY_START_DELIVER_TIME in properties:
        return MessageType.DELAY
    return MessageType.NORMAL
