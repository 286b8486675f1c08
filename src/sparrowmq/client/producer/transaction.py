"""Transactions: half messages, the local transaction, its end, and later checks by brokers (client:B.19)."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields
from enum import Enum
from functools import partial
from typing import Any, Final, Protocol

from sparrowmq.client.base.callables import CallThreads, awaited
from sparrowmq.client.base.hooks import EndTransactionContext, Hooks
from sparrowmq.client.base.tasks import TaskGroup
from sparrowmq.client.cluster.broker_api import command
from sparrowmq.client.cluster.instance import ClientInstance
from sparrowmq.core.errors import ClientError, InvalidMessageError, RecordError, SparrowError
from sparrowmq.core.ids import parse_offset_message_id
from sparrowmq.core.message import (
    PROPERTY_CHECK_IMMUNITY,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_TRANSACTION_PREPARED,
    Message,
    ReceivedMessage,
)
from sparrowmq.core.results import SendResult, SendStatus
from sparrowmq.protocol.call_headers import CheckTransactionStateRequest, EndTransactionRequest
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.sysflag import (
    TRANSACTION_COMMIT,
    TRANSACTION_NONE,
    TRANSACTION_ROLLBACK,
)
from sparrowmq.transport.occasional import OccasionalLog

log = logging.getLogger("sparrowmq.client")

CHECK_END_TIMEOUT: Final = 3.0
"""Seconds for the answer to a transaction check (client:B-67)."""
EXECUTE_THREADS: Final = 16
"""Maximum concurrent plain `execute` functions; others wait."""


class TransactionState(Enum):
    """The result of a local transaction. `UNKNOWN`: the broker should check later."""

    COMMIT = "COMMIT_MESSAGE"
    ROLLBACK = "ROLLBACK_MESSAGE"
    UNKNOWN = "UNKNOW"

    @property
    def bits(self) -> int:
        """The fields of the end request (client:B-101)."""
        return _BITS[self]


_BITS: Final = {
    TransactionState.COMMIT: TRANSACTION_COMMIT,
    TransactionState.ROLLBACK: TRANSACTION_ROLLBACK,
    TransactionState.UNKNOWN: TRANSACTION_NONE,
}

Outcome = TransactionState | None


class TransactionListener(Protocol):
    """The application's side of transactions. Both methods may be `async`; plain functions run in threads.

    A None result or an exception means `UNKNOWN`.
    """

    def execute(self, message: HalfMessage, argument: Any) -> Outcome | Awaitable[Outcome]:
        """Run the local transaction for a message that the broker holds back."""

    def check(self, message: ReceivedMessage) -> Outcome | Awaitable[Outcome]:
        """Return how the local transaction of a message ended that the broker still holds back."""


@dataclass(slots=True)
class HalfMessage(Message):
    """A message that a broker holds back until its transaction ends."""

    message_id: str = ""
    transaction_id: str = ""


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """The result of a transactional send: the half message's position, and how the local transaction ended.

    `error` is the exception of the local transaction; the state is `UNKNOWN` then.
    """

    send: SendResult
    state: TransactionState
    error: Exception | None = None


def half_message(message: Message, group: str, check_after: float | None) -> HalfMessage:
    """`message` as a half message of `group` (client:B-98), without its delay level.

    Raises `InvalidMessageError` for a `check_after` below 0.
    """
    system = {**(message.system or {}), PROPERTY_TRANSACTION_PREPARED: "true", PROPERTY_PRODUCER_GROUP: group}
    if check_after is not None:
        if check_after < 0:
            text = f"check_after={check_after!r} must be a number of seconds, 0 or more"
            raise InvalidMessageError(text, part="check_after", value=check_after)
        system[PROPERTY_CHECK_IMMUNITY] = str(round(check_after))
    values = {item.name: getattr(message, item.name) for item in fields(Message)}
    values |= {"system": system, "delay_level": None}
    return HalfMessage(**values)


class Transactions:
    """Transactional sends of one producer, and its answers to transaction checks.

    At most `threads` checks run at once and `waiting_max` wait; others are dropped, and brokers check again.
    """

    def __init__(
        self,
        group: str,
        listener: TransactionListener,
        instance: ClientInstance,
        hooks: Hooks,
        *,
        threads: int,
        waiting_max: int,
    ) -> None:
        self._group = group
        self._listener = listener
        self._instance = instance
        self._hooks = hooks
        self._waiting_max = waiting_max
        self._turns = asyncio.Semaphore(threads)
        self._checks = CallThreads(threads, f"sparrowmq-{group}-check")
        self._executes = CallThreads(EXECUTE_THREADS, f"sparrowmq-{group}-local")
        self._tasks = TaskGroup(self._task_died)
        self._occasional = OccasionalLog(log)
        instance.checks.register(group, self._asked)

    def __repr__(self) -> str:
        return f"<Transactions of {self._group} checks={len(self._tasks)}>"

    async def finish(
        self, message: HalfMessage, sent: SendResult, argument: Any, timeout: float
    ) -> TransactionResult:
        """Run the local transaction for a half message that was sent, and report the result to the broker.

        A half message that was not stored safely is rolled back without running it (client:B-100).
        """
        message.message_id = sent.message_id
        message.transaction_id = sent.transaction_id or sent.message_id
        error: Exception | None = None
        state = TransactionState.ROLLBACK
        if sent.status is SendStatus.SEND_OK:
            state, error = await self._outcome(self._executes, self._listener.execute, message, argument)
        try:
            await self._end_after_send(message, sent, state, error, timeout)
        except SparrowError as failure:
            log.warning(
                "the end (%s) of the transaction %s of group %s could not be sent; the broker will "
                "check it: %s",
                state.name,
                sent.message_id,
                self._group,
                failure,
            )
        return TransactionResult(sent, state, error)

    async def close(self, timeout: float = 0.0) -> None:
        """Accept no more checks. Running checks have up to `timeout` seconds to end and report."""
        self._instance.checks.unregister(self._group)
        await self._tasks.drain(timeout)
        await self._tasks.close()
        self._checks.close()
        self._executes.close()

    # The local transaction

    async def _outcome(
        self, threads: CallThreads, function: Callable[..., Any], *arguments: Any
    ) -> tuple[TransactionState, Exception | None]:
        """The application's result and its exception (client:B-99, B-102)."""
        try:
            if inspect.iscoroutinefunction(function):
                outcome = await awaited(function(*arguments))
            else:
                outcome = await threads.result(partial(function, *arguments))
                if inspect.isawaitable(outcome):
                    outcome = await awaited(outcome)
            if outcome is None:
                return TransactionState.UNKNOWN, None
            return TransactionState(outcome), None
        except Exception as error:
            name = getattr(function, "__qualname__", repr(function))
            self._occasional.write(
                logging.WARNING,
                name,
                f"{name} failed for a transaction of group {self._group}; its state is unknown",
                error=error,
            )
            return TransactionState.UNKNOWN, error

    async def _end_after_send(
        self,
        message: HalfMessage,
        sent: SendResult,
        state: TransactionState,
        error: Exception | None,
        timeout: float,
    ) -> None:
        queue = sent.queue
        address = await self._instance.master_of(queue)
        if address is None:
            raise ClientError(f"the broker {queue.broker_name!r} of {queue} is no longer in a route")
        try:
            commit_log_offset = parse_offset_message_id(sent.offset_message_id or sent.message_id)[2]
        except RecordError as unreadable:
            raise ClientError(
                f"the broker did not return the offset of the half message: {unreadable}"
            ) from None
        header = EndTransactionRequest(
            producer_group=self._group,
            tran_state_table_offset=sent.queue_offset,
            commit_log_offset=commit_log_offset,
            commit_or_rollback=state.bits,
            from_transaction_check=False,
            msg_id=sent.message_id,
            transaction_id=sent.transaction_id,
            topic=queue.topic,
            broker_name=queue.broker_name,
        )
        await self._end(address, header, state, message, error, timeout)

    # Transaction checks by brokers

    def _asked(self, address: str, header: CheckTransactionStateRequest, message: ReceivedMessage) -> None:
        if len(self._tasks) >= self._waiting_max:
            self._occasional.write(
                logging.WARNING,
                "full",
                f"{self._waiting_max} checks of transactions of group {self._group} are already waiting; "
                f"the broker will ask again",
            )
            return
        self._tasks.start(self._answer(address, header, message), "transaction check")

    async def _answer(
        self, address: str, asked: CheckTransactionStateRequest, message: ReceivedMessage
    ) -> None:
        async with self._turns:
            state, error = await self._outcome(self._checks, self._listener.check, message)
        unique_id = message.message_id
        header = EndTransactionRequest(
            producer_group=self._group,
            tran_state_table_offset=asked.tran_state_table_offset,
            commit_log_offset=asked.commit_log_offset,
            commit_or_rollback=state.bits,
            from_transaction_check=True,
            msg_id=unique_id,
            transaction_id=asked.transaction_id,
            topic=message.topic,
            broker_name=asked.broker_name,
        )
        try:
            await self._end(address, header, state, message, error, CHECK_END_TIMEOUT)
        except SparrowError as failure:
            self._occasional.write(
                logging.WARNING,
                "end",
                f"the end of {unique_id} could not be sent to {address}, which will check it: {failure}",
            )

    async def _end(
        self,
        address: str,
        header: EndTransactionRequest,
        state: TransactionState,
        message: Message | ReceivedMessage,
        error: Exception | None,
        timeout: float,
    ) -> None:
        """Report the result to the broker, which does not respond (client:B-101)."""
        self._hooks.ends_transaction(
            EndTransactionContext(
                group=self._group,
                message=message,
                message_id=header.msg_id or "",
                transaction_id=header.transaction_id or "",
                address=address,
                state=state.value,
                from_check=header.from_transaction_check,
            )
        )
        request = command(RequestCode.END_TRANSACTION, header)
        if error is not None:
            request.remark = f"{type(error).__name__}: {error}"[:500]
        await self._instance.remoting.notify(address, request, timeout)

    def _task_died(self, name: str, error: BaseException) -> None:
        log.error("a %s of group %s died", name, self._group, exc_info=error)
