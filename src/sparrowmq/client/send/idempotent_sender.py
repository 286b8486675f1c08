"""The engine of an idempotent producer: every message has a sequence number in its queue, and is sent until
the broker answers.

Each queue has a line with its epoch and its next number. One send at a time holds the line. If an answer is
lost, the messages may have been stored. So the same numbers are sent to the same queue again until a broker
answers; for stored messages it returns their original offsets. A send that ends with an unknown result begins
a new epoch: requests that are still on their way are then refused, and later messages are not confused with
them. Only a send that was certainly not stored may go to another queue.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Iterable
from typing import Any, Final

from sparrowmq.client.base.hooks import Hook, SendMode
from sparrowmq.client.base.settings import ProducerSettings
from sparrowmq.client.cluster.instance import ClientInstance
from sparrowmq.client.send.encoding import Outgoing, SendTarget
from sparrowmq.client.send.queue_selection import QueueSelector
from sparrowmq.client.send.retry import final_error, is_retryable
from sparrowmq.client.send.sender import Sender
from sparrowmq.client.send.sequences import SPOILT, STALE, count_of, number
from sparrowmq.client.send.topic_routes import target_of
from sparrowmq.core.backoff import Backoff
from sparrowmq.core.errors import (
    BrokerError,
    ClientError,
    ConnectError,
    InvalidMessageError,
    NoRoomError,
    SparrowError,
)
from sparrowmq.core.message import Message, MessageQueue
from sparrowmq.core.results import SendResult
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.producer_mark import MARK_BYTES_MAX

log = logging.getLogger("sparrowmq.client")

_PAUSE: Final = Backoff(first=0.02, most=0.5)
"""Pauses before the same send goes to the same queue again."""
_RENEWALS_MAX: Final = 2
"""Maximum new epochs per send when the broker does not know its numbers."""


class QueueSequence:
    """The numbers of one queue; `lock` is held by the send in progress."""

    __slots__ = ("epoch", "lock", "next")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.epoch = 0
        self.next = 0

    def renew(self) -> None:
        """Begin a new epoch; the old one has ended."""
        self.epoch += 1
        self.next = 0


class IdempotentSender(Sender):
    """Sends that are stored once, however often they are tried. `producer_id` is new for each sender."""

    item_room = MARK_BYTES_MAX

    def __init__(
        self,
        group: str,
        settings: ProducerSettings,
        instance: ClientInstance,
        hooks: Iterable[Hook] = (),
    ) -> None:
        super().__init__(group, settings, instance, hooks)
        self.producer_id = secrets.token_urlsafe(12)
        self._lines: dict[MessageQueue, QueueSequence] = {}
        self._try_seconds = settings.try_timeout or settings.send_timeout / (settings.retries + 1)
        self._told = False

    def __repr__(self) -> str:
        return f"{super().__repr__()} producer_id={self.producer_id}"

    async def send_oneway(
        self,
        message: Message,
        timeout: float | None,
        *,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        argument: Any,
        hash_key: object,
    ) -> None:
        """Refused: without an answer nothing is known. Raises `ClientError`."""
        raise ClientError(
            "an idempotent producer cannot send one-way, because it needs answers; use another producer",
            what="oneway",
        )

    # Ways of the base class that lead here

    def _start_fast(self, outgoing: Outgoing, deadline: float, more: int) -> None:
        """This producer never uses the fast path."""
        return None

    async def _send_tries(
        self,
        outgoing: Outgoing,
        deadline: float,
        outcome: SendResult | SparrowError | None = None,
        failed: SendTarget | None = None,
        mode: SendMode = SendMode.SYNC,
        queue: MessageQueue | None = None,
    ) -> SendResult:
        with self.gate.coming():
            return await self._deliver(outgoing, deadline, mode, queue)

    async def _send_once(self, outgoing: Outgoing, target: SendTarget, deadline: float) -> SendResult:
        return await self._deliver(outgoing, deadline, SendMode.SYNC, target.queue)

    # Delivery

    async def _deliver(
        self, outgoing: Outgoing, deadline: float, mode: SendMode, queue: MessageQueue | None
    ) -> SendResult:
        """Send to the chosen queue or the one whose turn it is; elsewhere only what was not stored there."""
        if not outgoing.is_plain:
            raise InvalidMessageError(
                f"an idempotent producer cannot send messages that are delayed, timed, transactional, "
                f"requests or replies, as the one to {outgoing.topic!r}; use another producer for it",
                part="message",
            )
        began, settings = self._loop.time(), self._settings
        outgoing_count = count_of(outgoing)
        brokers: list[str] = []
        last_address = ""
        pauses = _PAUSE.delays(self.instance.rng)
        while True:  # ends with the tries, or when something is final
            info = await self.table.find(outgoing.topic, deadline)
            last = brokers[-1] if brokers else None
            target = target_of(info, queue) if queue is not None else self._choose(info, outgoing, last)
            if target.address == last_address:
                await self.instance.sleep(min(next(pauses), max(0.0, deadline - self._loop.time())))
            last_address = target.address
            brokers.append(target.queue.broker_name)
            line = self._lines.setdefault(target.queue, QueueSequence())
            outcome = await self._in_line(line, outgoing, outgoing_count, target, deadline, mode)
            if isinstance(outcome, SendResult):
                self._tell(outcome, target)
                return self._count(outcome)
            is_last = len(brokers) > settings.retries or self._loop.time() >= deadline
            if is_last or not is_retryable(outcome, settings.codes_retried):
                seconds = self._loop.time() - began
                return self._count(
                    final_error(
                        outcome,
                        topic=outgoing.topic,
                        message_id=outgoing.message_id,
                        tries=len(brokers),
                        seconds=seconds,
                        brokers=brokers,
                    )
                )

    async def _in_line(
        self,
        line: QueueSequence,
        outgoing: Outgoing,
        count: int,
        target: SendTarget,
        deadline: float,
        mode: SendMode,
    ) -> SendResult | SparrowError:
        """The result, or the error of a send that surely was not stored. Raises what ended it in doubt."""
        try:
            async with asyncio.timeout_at(deadline):
                await line.lock.acquire()
        except TimeoutError:
            return NoRoomError(
                f"the time for a send to {target.queue} was used up by earlier sends; send messages in "
                f"batches (send_batch, linger) or use more queues"
            )
        try:
            return await self._until_answered(line, outgoing, count, target, deadline, mode)
        finally:
            line.lock.release()

    async def _until_answered(
        self,
        line: QueueSequence,
        outgoing: Outgoing,
        count: int,
        target: SendTarget,
        deadline: float,
        mode: SendMode,
    ) -> SendResult | SparrowError:
        doubt, renewals = False, 0
        try:
            for pause in _PAUSE.delays(self.instance.rng):
                was, doubt = doubt, True
                outcome = await self._try(line, outgoing, target, deadline, mode)
                if isinstance(outcome, SendResult):
                    line.next += count
                    doubt = False
                    return outcome
                if _not_stored(outcome):
                    doubt = was
                if isinstance(outcome, BrokerError) and not doubt:
                    if outcome.code in STALE and renewals < _RENEWALS_MAX:
                        line.renew()
                        renewals += 1
                        continue
                    doubt = outcome.code in SPOILT  # so that the next send starts a new epoch
                    return outcome
                if not doubt:
                    return outcome
                if self._loop.time() + pause >= deadline or _is_final(outcome):
                    self.failed += 1
                    outcome.add_note(
                        "the broker may still have stored it; sending it again may store it twice"
                    )
                    raise outcome
                await self.instance.sleep(pause)
                target = self._moved(target)
            raise AssertionError("pauses have no end")
        finally:
            if doubt:
                line.renew()

    async def _try(
        self, line: QueueSequence, outgoing: Outgoing, target: SendTarget, deadline: float, mode: SendMode
    ) -> SendResult | SparrowError:
        settings = self._settings
        soon = min(deadline, self._loop.time() + self._try_seconds)
        try:
            numbered = number(
                outgoing, self.producer_id, target.queue, line.epoch, line.next, settings.message_bytes_max
            )
            return await self._attempts.try_once(numbered, target, soon, mode)
        except SparrowError as error:
            return error

    def _moved(self, target: SendTarget) -> SendTarget:
        """The same queue where its master is now."""
        info = self.table.infos.get(target.queue.topic)
        return (None if info is None else info.find(target.queue)) or target

    def _tell(self, result: SendResult, target: SendTarget) -> None:
        if result.idempotent or self._told:
            return
        self._told = True
        log.warning(
            "the broker %s at %s does not know idempotent producers: sends of %s are at least once there",
            target.queue.broker_name,
            target.address,
            self.group,
        )


def _not_stored(error: SparrowError) -> bool:
    """Whether a try that failed so surely stored nothing."""
    return isinstance(error, ConnectError | ClientError | BrokerError)


def _is_final(error: SparrowError) -> bool:
    """Whether the outcome of a send stays unknown, however often it is repeated."""
    return isinstance(error, BrokerError) and (
        error.code in SPOILT or error.code in (ResponseCode.MESSAGE_ILLEGAL, ResponseCode.NO_PERMISSION)
    )
