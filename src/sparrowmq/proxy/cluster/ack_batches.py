"""Acknowledgements of several calls in one request.

A broker ignores offsets in a batch that its queues do not have, so an acknowledgement for such an offset is
answered as done. That harms nobody: there is no message that could come again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from sparrowmq.client.base.tasks import TaskGroup
from sparrowmq.client.cluster.broker_api import check
from sparrowmq.client.cluster.security import ACTING
from sparrowmq.core.errors import BrokerError
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.pop.receipts import Receipt
from sparrowmq.protocol.pop.records import BITS_MAX, BatchAck, BatchAckBody, bits_of
from sparrowmq.proxy.base.handles import ReceiptHandle
from sparrowmq.proxy.cluster.batches import SharedRequest, SharedRequests
from sparrowmq.proxy.cluster.brokers import Brokers, ack_request

_ENTRY_BYTES: Final = 1024
"""What an acknowledgement keeps until it is answered."""
Told = Callable[[Exception | None], None]
"""Called once, with the error of an acknowledgement that was not taken."""


class _Entry(NamedTuple):
    address: str
    topic: str
    group: str
    handle: ReceiptHandle
    told: Told


class AckBatches(SharedRequests[_Entry]):
    """Acknowledges messages, those of one broker and one turn together."""

    def __init__(self, brokers: Brokers, tasks: TaskGroup) -> None:
        super().__init__(brokers, tasks)

    def add(self, address: str, topic: str, group: str, handle: ReceiptHandle, told: Told) -> bool:
        """Acknowledge a message; False when its receipt cannot be in a batch, or too much waits already."""
        receipt = handle.receipt
        if receipt.is_ordered or not 0 <= receipt.offset - receipt.start_offset < BITS_MAX:
            return False
        key = (address, receipt.broker_name, ACTING.get())
        return self._put(key, _Entry(address, topic, group, handle, told))

    def _size(self, entry: _Entry) -> int:
        return _ENTRY_BYTES

    def _request(self, batch: SharedRequest[_Entry]) -> tuple[str, Command]:
        first = batch.entries[0]
        if len(batch.entries) == 1:
            return first.address, ack_request(first.topic, first.group, first.handle)
        offsets: dict[tuple[str, str, Receipt], list[int]] = {}
        for one in batch.entries:
            receipt = one.handle.receipt
            place = (one.topic, one.group, receipt._replace(offset=-1))
            offsets.setdefault(place, []).append(receipt.offset)
        acks = [
            BatchAck(
                bits=bits_of(found, point.start_offset),
                group=group,
                invisible_time=point.invisible_time,
                pop_time=point.pop_time,
                queue_id=point.queue_id,
                flag=point.flag,
                revive_queue=point.revive_queue,
                start_offset=point.start_offset,
                topic=topic,
            )
            for (topic, group, point), found in offsets.items()
        ]
        body = BatchAckBody(acks, first.handle.receipt.broker_name).encode()
        return first.address, Command(RequestCode.BATCH_ACK_MESSAGE, body=body)

    def _tell(self, batch: SharedRequest[_Entry], outcome: Command | Exception) -> None:
        entries = batch.entries
        if isinstance(outcome, Exception):
            error: Exception | None = outcome
        elif outcome.code == ResponseCode.SUCCESS:
            error = None
        elif len(entries) > 1:
            self._alone(batch)  # each gets its own answer; one that was taken already may come again
            return
        else:
            error = _refusal(outcome, entries[0].address)
        for one in entries:
            if error is not None:
                self._brokers.failed(one.topic, error)
            one.told(error)


def _refusal(answer: Command, address: str) -> BrokerError | None:
    try:
        check(answer, address, RequestCode.ACK_MESSAGE)
    except BrokerError as error:
        return error
    return None
