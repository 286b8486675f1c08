"""One try of one send: room in flight, the request, hooks around it, what it cost (client:B.9)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from sparrowmq.client.gate import Gate
from sparrowmq.client.hook_properties import with_properties
from sparrowmq.client.hooks import CheckForbiddenContext, Hooks, MessageType, SendContext, SendMode
from sparrowmq.client.instance import ClientInstance
from sparrowmq.client.latency import FaultStrategy
from sparrowmq.client.numbers import judged_result
from sparrowmq.client.publish import PublishInfo
from sparrowmq.client.sending import Outgoing, SendTarget, send_result
from sparrowmq.client.settings import ProducerSettings
from sparrowmq.core.errors import ClientError, SparrowError, TooManyRequestsError
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
"""Version code of 5.0.0, the first broker that knows timer messages (client:G-26, G-43)."""


class Attempts:
    """Makes tries for one producer. `is_plain`: no hooks, no strategy, so sends may go the fast way."""

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
        self.is_plain = faults is None and not hooks.send and not hooks.check_forbidden

    def choose(self, info: PublishInfo, last_broker: str | None) -> SendTarget:
        """The queue for the next try, after one at `last_broker` or the first."""
        if self._faults is None:
            return info.next_other(last_broker)
        return self._faults.choose(info, last_broker, self._loop.time() * 1000)

    def start(
        self, outgoing: Outgoing, target: SendTarget, deadline: float
    ) -> asyncio.Future[Command] | None:
        """Begin a plain try if nothing has to be waited for; room must have been taken."""
        remaining = deadline - self._loop.time()
        if self._remoting.is_hooked:
            return self._remoting.call_nowait(target.address, target.command(outgoing), remaining)
        opaque = self._remoting.next_opaque()
        data = target.request(outgoing, opaque)
        return self._remoting.call_encoded_nowait(target.address, opaque, data, remaining, _SEND)

    async def try_once(
        self, outgoing: Outgoing, target: SendTarget, deadline: float, mode: SendMode, *, last: bool = True
    ) -> SendResult:
        """One try, `last` or with further ones possible. Raises what it ended with."""
        if self._settings.try_timeout is not None and not last:
            deadline = min(deadline, self._loop.time() + self._settings.try_timeout)
        size = outgoing.size
        await self._gate.enter(size, self.left(deadline))
        try:
            if self.is_plain:
                return await self._ask(outgoing, target, deadline)
            if self._faults is None:
                return await self._try_hooked(outgoing, target, deadline, mode)
            return await self._try_noted(self._faults, outgoing, target, deadline, mode)
        finally:
            self._gate.leave(size)

    async def _try_noted(
        self, faults: FaultStrategy, outgoing: Outgoing, target: SendTarget, deadline: float, mode: SendMode
    ) -> SendResult:
        """A try whose time the strategy learns; waiting for room before it is not the broker's fault."""
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
        """Hand the request to the connection and expect no answer."""
        if outgoing.is_timer:
            await self._check_timer(target, deadline)
        context = None if self.is_plain else self._before(outgoing, target, SendMode.ONEWAY)
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
        """Seconds until `deadline`. Raises `TooManyRequestsError` when it is over (client:B.9-10)."""
        remaining = deadline - self._loop.time()
        if remaining <= 0:
            raise TooManyRequestsError(
                "the time for a send was used up before it left; give a longer timeout or send less at once"
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
        """Call the hooks that come before a request; the context for those after it."""
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
            body_bytes=outgoing.plain_bytes,
        )
        self._hooks.before_send(context)
        return context

    def _with_properties(self, outgoing: Outgoing, context: SendContext) -> Outgoing:
        """What is sent when hooks gave properties."""
        return with_properties(outgoing, context.properties, self._settings.message_bytes_max)

    async def _check_timer(self, target: SendTarget, deadline: float) -> None:
        """Refuse what a broker before 5.0 would deliver at once instead of later (client:G-26)."""
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
                "delay or deliver_at at once; use delay_level"
            )


def message_type(outgoing: Outgoing) -> MessageType:
    """What a message is to hooks (client:B.9-7)."""
    system = outgoing.system or {}
    if system.get(PROPERTY_TRANSACTION_PREPARED) == "true":
        return MessageType.HALF
    properties = outgoing.messages[0].properties if outgoing.messages else {}
    if PROPERTY_DELAY in system or PROPERTY_START_DELIVER_TIME in properties:
        return MessageType.DELAY
    return MessageType.NORMAL
