"""Hooks: user code that is called around sends, requests and consumption (client:B.10, A-82, D.18).

A hook is an object with one or more of the classes here as bases; it is passed in the `hooks` of a client's
settings. Hooks run on the client's event loop and must not block it. Several hooks run in the given order. A
failure of a hook is logged and ignored, with two exceptions: a `CheckForbiddenHook` exists to refuse sends,
and an error in an `RpcHook` fails the request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any

from sparrowmq.core.errors import ClientError, SparrowError
from sparrowmq.core.message import Message, MessageQueue, ReceivedMessage
from sparrowmq.core.results import SendResult
from sparrowmq.protocol.frame import Command
from sparrowmq.transport.occasional import OccasionalLog

if TYPE_CHECKING:
    from sparrowmq.protocol.pop.receipts import Receipt

log = logging.getLogger("sparrowmq.client")


class SendMode(Enum):
    """How a message is sent."""

    SYNC = "sync"
    ASYNC = "async"
    ONEWAY = "oneway"


class MessageType(IntEnum):
    """Message types for send hooks, with the numbers of trace records (client:B-114)."""

    NORMAL = 0
    HALF = 1
    COMMIT = 2
    DELAY = 3
    ORDER = 4


class Hook:
    """Base of all hooks."""

    __slots__ = ()


@dataclass(slots=True, kw_only=True)
class SendContext:
    """One attempt of one send. A batch has several `messages`; `message` is the first.

    Entries that `before_send` adds to `properties` are sent with the message, or with each message of a batch
    unless the batch would exceed `message_bytes_max`. `data` is free for hooks. `result` and `error` are set
    for `after_send`; both are None for one-way sends.
    """

    group: str
    mode: SendMode
    messages: Sequence[Message]
    message_id: str
    queue: MessageQueue
    address: str
    client_address: str
    message_type: MessageType = MessageType.NORMAL
    namespace: str | None = None
    unit_mode: bool = False
    body_bytes: int = 0
    properties: dict[str, str] = field(default_factory=dict)
    result: SendResult | None = None
    error: Exception | None = None
    data: Any = None

    @property
    def message(self) -> Message:
        """The message; of a batch, the first one."""
        return self.messages[0]


class SendHook(Hook):
    """Sees every attempt of every send (client:B-47)."""

    __slots__ = ()

    def before_send(self, context: SendContext) -> None:
        """Called before the request is built."""

    def after_send(self, context: SendContext) -> None:
        """Called once after the attempt: with a result, an error, or neither after a one-way send."""


@dataclass(slots=True, kw_only=True)
class CheckForbiddenContext:
    """An attempt that may be refused."""

    namesrv: str
    group: str
    mode: SendMode
    address: str
    message: Message
    queue: MessageQueue
    unit_mode: bool = False


class CheckForbiddenHook(Hook):
    """May refuse an attempt of a send (client:B-46)."""

    __slots__ = ()

    def check_forbidden(self, context: CheckForbiddenContext) -> None:
        """Raise `ClientError` to stop this attempt; remaining attempts use other queues."""


@dataclass(slots=True, kw_only=True)
class EndTransactionContext:
    """The end of one transaction; `state` is "COMMIT_MESSAGE", "ROLLBACK_MESSAGE" or "UNKNOW"."""

    group: str
    message: Message | ReceivedMessage
    message_id: str
    transaction_id: str
    address: str
    state: str
    from_check: bool


class EndTransactionHook(Hook):
    """Sees the end of every transaction just before its request is sent (client:B-48)."""

    __slots__ = ()

    def end_transaction(self, context: EndTransactionContext) -> None:
        """Called before the request is sent."""


class RpcHook(Hook):
    """Sees every request of a client's connections and its response (client:B-49, A-82).

    May change both. An exception fails the request.
    """

    __slots__ = ()

    def before_request(self, address: str, command: Command) -> None:
        """Called before the request is encoded; one-way requests have only this call."""

    def after_response(self, address: str, command: Command, answer: Command) -> None:
        """Called when the response arrived."""


@dataclass(slots=True, kw_only=True)
class ConsumeContext:
    """One call of a handler with `messages` of `queue` (client:D-91).

    `success`, `status` (the outcome's name) and `elapsed_ms` are set for `after_consume`; `properties` has
    the kind of outcome under `ConsumeContextType`. `data` is free for hooks.
    """

    group: str
    queue: MessageQueue
    messages: Sequence[ReceivedMessage]
    namespace: str | None = None
    success: bool = False
    status: str = ""
    elapsed_ms: int = 0
    properties: dict[str, str] = field(default_factory=dict)
    data: Any = None


class ConsumeHook(Hook):
    """Sees every call of a handler (client:D-91)."""

    __slots__ = ()

    def before_consume(self, context: ConsumeContext) -> None:
        """Called before the handler."""

    def after_consume(self, context: ConsumeContext) -> None:
        """Called when the handler ended, or its result was discarded."""


@dataclass(slots=True, kw_only=True)
class FilterMessageContext:
    """Messages of one pull that passed the subscription; a hook may remove some from `messages`."""

    group: str
    queue: MessageQueue
    messages: list[Any]
    unit_mode: bool = False


class FilterMessageHook(Hook):
    """May filter out pulled messages (client:D-90); they count as consumed."""

    __slots__ = ()

    def filter_messages(self, context: FilterMessageContext) -> None:
        """Remove messages from `context.messages` that should not be handled."""


@dataclass(slots=True, kw_only=True)
class PullLoopContext:
    """One pull of a queue's loop. `seconds` is the time until the broker answered, with that for which it
    held the request; `held_up` how long the loop had waited before it, because handlers have enough messages.
    """

    group: str
    queue: MessageQueue
    seconds: float
    held_up: float = 0.0
    messages: int = 0
    error: Exception | None = None


class PullLoopHook(Hook):
    """Sees every pull of the loops that pull for handlers and for `poll`."""

    __slots__ = ()

    def after_pull(self, context: PullLoopContext) -> None:
        """Called after a pull, also if it found nothing, failed, or its queue was given up meanwhile; not if
        the client closes meanwhile.
        """


@dataclass(slots=True, kw_only=True)
class PopContext:
    """One POP of a push or simple consumer. `queue` has the id -1 for all queues of a broker.

    `seconds` is the time until the broker answered, with that for which it held the request. `held_up` is how
    long the loop of a push consumer had waited before it, because handlers have enough messages; 0 for a
    simple consumer, whose caller decides when it receives. The messages of `receipts` are hidden from others
    for `invisible` seconds.
    """

    group: str
    queue: MessageQueue
    seconds: float
    invisible: float
    held_up: float = 0.0
    receipts: Sequence[Receipt] = ()
    error: Exception | None = None


@dataclass(slots=True, kw_only=True)
class SettleContext:
    """One request about a message that POP gave. `invisible` is None for an acknowledgement, otherwise the
    seconds for which the message is hidden from now on.
    """

    group: str
    topic: str
    receipt: Receipt
    seconds: float
    invisible: float | None = None
    error: Exception | None = None


class PopHook(Hook):
    """Sees every POP, and what becomes of its messages."""

    __slots__ = ()

    def after_pop(self, context: PopContext) -> None:
        """Called after a POP, also if it found nothing or failed; not if the client closes meanwhile."""

    def after_settle(self, context: SettleContext) -> None:
        """Called after an acknowledgement or a change of the invisible time, also if it failed."""


class Hooks:
    """The hooks of one client by kind, with calls that cannot fail."""

    __slots__ = (
        "_occasional",
        "check_forbidden",
        "consume",
        "end_transaction",
        "filter_message",
        "pop",
        "pull",
        "rpc",
        "send",
    )

    def __init__(self, hooks: Iterable[Hook] = ()) -> None:
        found = tuple(hooks)
        self._occasional = OccasionalLog(log)
        self.send = tuple(hook for hook in found if isinstance(hook, SendHook))
        self.check_forbidden = tuple(hook for hook in found if isinstance(hook, CheckForbiddenHook))
        self.end_transaction = tuple(hook for hook in found if isinstance(hook, EndTransactionHook))
        self.rpc = tuple(hook for hook in found if isinstance(hook, RpcHook))
        self.consume = tuple(hook for hook in found if isinstance(hook, ConsumeHook))
        self.filter_message = tuple(hook for hook in found if isinstance(hook, FilterMessageHook))
        self.pull = tuple(hook for hook in found if isinstance(hook, PullLoopHook))
        self.pop = tuple(hook for hook in found if isinstance(hook, PopHook))

    def check(self, context: CheckForbiddenContext) -> None:
        """Call every `CheckForbiddenHook`. Raises the `ClientError` of the first that refuses.

        Any other exception refuses as well, because a broken check must not allow everything.
        """
        for hook in self.check_forbidden:
            try:
                hook.check_forbidden(context)
            except SparrowError:
                raise
            except Exception as error:
                name = type(hook).__name__
                raise ClientError(
                    f"the hook {name} could not check a send to {context.queue}: "
                    f"{type(error).__name__}: {error}",
                    what="hook",
                    value=name,
                ) from error

    def before_send(self, context: SendContext) -> None:
        """Call every `SendHook`."""
        self._tell((hook.before_send for hook in self.send), context)

    def after_send(self, context: SendContext) -> None:
        """Call every `SendHook`."""
        self._tell((hook.after_send for hook in self.send), context)

    def ends_transaction(self, context: EndTransactionContext) -> None:
        """Call every `EndTransactionHook`."""
        self._tell((hook.end_transaction for hook in self.end_transaction), context)

    def before_consume(self, context: ConsumeContext) -> None:
        """Call every `ConsumeHook`."""
        self._tell((hook.before_consume for hook in self.consume), context)

    def after_consume(self, context: ConsumeContext) -> None:
        """Call every `ConsumeHook`."""
        self._tell((hook.after_consume for hook in self.consume), context)

    def filter(self, context: FilterMessageContext) -> None:
        """Let every `FilterMessageHook` remove messages."""
        self._tell((hook.filter_messages for hook in self.filter_message), context)

    def after_pull(self, context: PullLoopContext) -> None:
        """Call every `PullLoopHook`."""
        self._tell((hook.after_pull for hook in self.pull), context)

    def after_pop(self, context: PopContext) -> None:
        """Call every `PopHook`."""
        self._tell((hook.after_pop for hook in self.pop), context)

    def after_settle(self, context: SettleContext) -> None:
        """Call every `PopHook`."""
        self._tell((hook.after_settle for hook in self.pop), context)

    def _tell(self, calls: Iterable[Callable[[Any], None]], context: object) -> None:
        """Make the calls; exceptions are logged (rate-limited) and ignored (client:B-47, D-92)."""
        for call in calls:
            try:
                call(context)
            except Exception as error:
                name = getattr(call, "__qualname__", repr(call))
                self._occasional.write(
                    logging.WARNING, name, f"the hook {name} failed and is ignored", error=error
                )
