"""POP requests to one broker, and the messages of the responses (broker:13)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from time import monotonic
from typing import TYPE_CHECKING, Final

from sparrowmq.client.base.hooks import Hooks, PopContext, SettleContext
from sparrowmq.client.cluster.namespaces import unwrap_messages
from sparrowmq.core.errors import BrokerError, RecordError, SparrowError
from sparrowmq.core.message import PROPERTY_POP_CK, MessageQueue, ReceivedMessage
from sparrowmq.core.names import without_namespace
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.headers import from_ext, to_ext
from sparrowmq.protocol.pop.headers import (
    AckMessageRequest,
    ChangeInvisibleTimeRequest,
    ChangeInvisibleTimeResponse,
    NotificationRequest,
    NotificationResponse,
    PopMessageRequest,
    PopMessageResponse,
)
from sparrowmq.protocol.pop.receipts import (
    Receipt,
    parse_message_offsets,
    parse_start_offsets,
    real_topic,
    retry_flag,
)
from sparrowmq.protocol.record import decode_records, to_message

if TYPE_CHECKING:
    from sparrowmq.client.base.hooks import Hook
    from sparrowmq.client.cluster.broker_api import Remoting
    from sparrowmq.core.subscription import SubscriptionData
    from sparrowmq.protocol.record import StoredRecord

log = logging.getLogger("sparrowmq.client")
EXTRA_SECONDS: Final = 10.0
"""Time limit of a POP request, in addition to its own waiting time."""
CALL_SECONDS: Final = 3.0
ALL_QUEUES: Final = -1
"""The queue id that stands for all queues of a topic at one broker."""
_NOTHING: Final = (
    ResponseCode.POLLING_TIMEOUT,
    ResponseCode.POLLING_FULL,
    ResponseCode.PULL_NOT_FOUND,
)


@dataclass(slots=True)
class PoppedMessage(ReceivedMessage):
    """A message received by POP, as from a `SimpleConsumer`. Other members of the group do not get it before
    `visible_at` (epoch milliseconds, the broker's clock), and never if it is acknowledged by then.

    `receipt` identifies this delivery; a change of the invisible time changes it.
    """

    receipt: Receipt

    @property
    def visible_at(self) -> int:
        """When other members may get it, unless it is acknowledged; epoch milliseconds."""
        return self.receipt.pop_time + self.receipt.invisible_time

    def hidden_again(self, receipt: Receipt) -> None:
        """Take the receipt that a change of the invisible time returned."""
        self.receipt = receipt


_FIELDS: Final = tuple(field.name for field in fields(ReceivedMessage))


class PopCalls:
    """POP requests for one group. Its name and its topics are given as on the wire.

    The requests do not say when they were sent, so the broker counts their waiting time from their arrival:
    it would compare this clock with its own.

    Raises `BrokerError`, the `TransportError` family and `ProtocolError`.
    """

    def __init__(
        self, remoting: Remoting, group: str, namespace: str | None, hooks: Iterable[Hook] = ()
    ) -> None:
        """Those of `hooks` that are `PopHook`s see each POP and what becomes of its messages."""
        self._hooks = Hooks(hooks)
        self._remoting = remoting
        self._group = group
        self._namespace = namespace

    async def pop(
        self,
        address: str,
        broker_name: str,
        subscription: SubscriptionData,
        *,
        max_messages: int,
        invisible: float,
        wait: float,
        from_first: bool,
        queue_id: int = ALL_QUEUES,
        held_up: float = 0.0,
    ) -> list[PoppedMessage]:
        """Messages of all queues of a topic at one broker, or of one; empty if none arrived within `wait`
        seconds. Hooks are told how long the caller was `held_up` before.
        """
        header = PopMessageRequest(
            consumer_group=self._group,
            topic=subscription.topic,
            queue_id=queue_id,
            max_msg_nums=max_messages,
            invisible_time=int(invisible * 1000),
            poll_time=int(wait * 1000),
            init_mode=0 if from_first else 1,
            exp_type=subscription.expression_type,
            exp=subscription.expression,
        )
        asked = Command(RequestCode.POP_MESSAGE, ext=to_ext(header) | {"bname": broker_name})
        began = monotonic()

        def told(found: Sequence[PoppedMessage] = (), error: Exception | None = None) -> None:
            topic = without_namespace(self._namespace, subscription.topic)
            self._hooks.after_pop(
                PopContext(
                    group=without_namespace(self._namespace, self._group),
                    queue=MessageQueue(topic, broker_name, queue_id),
                    seconds=monotonic() - began,
                    invisible=invisible,
                    held_up=held_up,
                    receipts=[message.receipt for message in found],
                    error=error,
                )
            )

        try:
            answer = await self._remoting.call(address, asked, wait + EXTRA_SECONDS)
            found = []
            if answer.code not in _NOTHING:
                _check(answer, address, f"POP of {subscription.topic}")
                found = popped(answer, broker_name, self._namespace)
        except SparrowError as error:
            told(error=error)
            raise
        told(found)
        return found

    async def is_ready(self, address: str, topic: str, wait: float) -> bool:
        """Wait up to `wait` seconds for messages at one broker. Returns whether a POP would find one."""
        header = NotificationRequest(
            consumer_group=self._group,
            topic=topic,
            queue_id=ALL_QUEUES,
            poll_time=int(wait * 1000),
        )
        asked = Command(RequestCode.NOTIFICATION, ext=to_ext(header))
        answer = await self._remoting.call(address, asked, wait + EXTRA_SECONDS)
        _check(answer, address, f"notification of {topic}")
        return from_ext(NotificationResponse, answer.ext).has_msg

    async def ack(self, address: str, topic: str, receipt: Receipt) -> None:
        """Acknowledge a message of `topic`."""
        header = AckMessageRequest(
            consumer_group=self._group,
            topic=real_topic(topic, self._group, receipt.flag),
            queue_id=receipt.queue_id,
            extra_info=receipt.encode(),
            offset=receipt.offset,
        )
        asked = Command(RequestCode.ACK_MESSAGE, ext=to_ext(header) | {"bname": receipt.broker_name})
        await self._settle(address, asked, topic, receipt, "acknowledgement")

    async def change(self, address: str, topic: str, receipt: Receipt, invisible: float) -> Receipt:
        """Hide a message for `invisible` seconds from now on; returns its new receipt."""
        header = ChangeInvisibleTimeRequest(
            consumer_group=self._group,
            topic=real_topic(topic, self._group, receipt.flag),
            queue_id=receipt.queue_id,
            extra_info=receipt.encode(),
            offset=receipt.offset,
            invisible_time=int(invisible * 1000),
        )
        ext = to_ext(header) | {"bname": receipt.broker_name}
        asked = Command(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, ext=ext)
        answer = await self._settle(address, asked, topic, receipt, "change of the invisible time", invisible)
        told = from_ext(ChangeInvisibleTimeResponse, answer.ext)
        return receipt._replace(
            start_offset=receipt.offset,
            pop_time=told.pop_time,
            invisible_time=told.invisible_time,
            revive_queue=told.revive_qid,
        )

    async def _settle(
        self,
        address: str,
        asked: Command,
        topic: str,
        receipt: Receipt,
        what: str,
        invisible: float | None = None,
    ) -> Command:
        """The answer to a request about one message."""
        began = monotonic()

        def told(error: Exception | None = None) -> None:
            self._hooks.after_settle(
                SettleContext(
                    group=without_namespace(self._namespace, self._group),
                    topic=without_namespace(self._namespace, topic),
                    receipt=receipt,
                    seconds=monotonic() - began,
                    invisible=invisible,
                    error=error,
                )
            )

        try:
            answer = await self._remoting.call(address, asked, CALL_SECONDS)
            _check(answer, address, what)
        except SparrowError as error:
            told(error)
            raise
        told()
        return answer


def _check(answer: Command, address: str, request: str) -> None:
    if answer.code != ResponseCode.SUCCESS:
        raise BrokerError(answer.code, answer.remark or "", address=address, request=request)


def popped(answer: Command, broker_name: str, namespace: str | None = None) -> list[PoppedMessage]:
    """The messages of a response, with their receipts. Damaged messages are skipped and logged.

    Raises `HeaderError` or `RecordError` for an unreadable response.
    """
    header = from_ext(PopMessageResponse, answer.ext)
    starts = parse_start_offsets(header.start_offset_info)
    offsets = parse_message_offsets(header.msg_offset_info)
    found = []
    for record in decode_records(answer.body):
        receipt = _receipt(record, header, starts, offsets, broker_name)
        try:
            message = to_message(record, broker_name)
        except RecordError as error:
            log.error("%s/%d offset %d: %s", record.topic, record.queue_id, record.queue_offset, error)
            continue
        unwrap_messages(namespace, [message])
        values = {name: getattr(message, name) for name in _FIELDS}
        found.append(PoppedMessage(**values, receipt=receipt))
    return found


def _receipt(
    record: StoredRecord,
    header: PopMessageResponse,
    starts: dict[tuple[str, int], int],
    offsets: dict[tuple[str, int], list[int]],
    broker_name: str,
) -> Receipt:
    """The receipt of one message: messages of retry topics have it in a property, others in the response's
    header.
    """
    marker = f"{PROPERTY_POP_CK}\x01".encode()
    if marker in record.properties:
        start = record.properties.index(marker) + len(marker)
        end = record.properties.find(b"\x02", start)
        text = record.properties[start : end if end >= 0 else None]
        return Receipt.parse(text.decode("utf-8", "replace"))
    place = retry_flag(record.topic), record.queue_id
    if record.queue_offset not in offsets.get(place, ()) or place not in starts:
        raise RecordError(
            f"the response of {broker_name} has a message of {record.topic}/{record.queue_id} at "
            f"{record.queue_offset} that its header does not list",
            what="offset",
            value=record.queue_offset,
        )
    return Receipt(
        starts[place],
        header.pop_time,
        header.invisible_time,
        header.revive_qid,
        place[0],
        broker_name,
        record.queue_id,
        record.queue_offset,
    )
