"""Sends of several calls as one batch: messages for one topic that come in one turn of the loop.

Only normal messages: a batch goes into one queue, and has no delays and no transactions. A broker stores the
messages of a batch one by one, each with its own properties. What they share is the born time in their
records, which therefore differs by at most `BORN_APART_MS` from their own; consumers by gRPC see their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from sparrowmq.client.base.tasks import TaskGroup
from sparrowmq.client.cluster.security import ACTING
from sparrowmq.core.errors import BrokerError, HeaderError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import TEMPLATE_TOPIC
from sparrowmq.protocol import headers
from sparrowmq.protocol.batch import encode_batch
from sparrowmq.protocol.codes import RequestCode, ResponseCode, request_name
from sparrowmq.protocol.frame import Command
from sparrowmq.proxy.base.converting import StoredForm
from sparrowmq.proxy.cluster.batches import SharedRequest, SharedRequests
from sparrowmq.proxy.cluster.brokers import Brokers
from sparrowmq.proxy.definition.messages import Code

BORN_APART_MS: Final = 100
STORED: Final = {
    int(ResponseCode.SUCCESS): Code.OK,
    int(ResponseCode.FLUSH_DISK_TIMEOUT): Code.MASTER_PERSISTENCE_TIMEOUT,
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT): Code.SLAVE_PERSISTENCE_TIMEOUT,
    int(ResponseCode.SLAVE_NOT_AVAILABLE): Code.HA_NOT_AVAILABLE,
}
"""Codes of brokers for messages that they stored, and the API's codes for them."""
_ENTRY_BYTES: Final = 1024
"""What an entry keeps beside its message."""
_TEMPLATE_QUEUES: Final = 4


class SentPlace(NamedTuple):
    """A stored message: the API's code, its queue offset, its offset message id (empty for one of a
    batch) and its recall handle.
    """

    code: int
    queue_offset: int
    message_id: str = ""
    recall_handle: str = ""


Told = Callable[[StoredForm, SentPlace | Exception], None]
"""Called once with the message and its place, or with the error of its send."""


class _Entry(NamedTuple):
    queue: MessageQueue
    """Where it goes; of a batch, the queue of its first message."""
    form: StoredForm
    told: Told


class SendBatches(SharedRequests[_Entry]):
    """Takes normal messages to brokers, those of one topic and one turn together."""

    def __init__(self, brokers: Brokers, tasks: TaskGroup) -> None:
        super().__init__(brokers, tasks)
        self._turn = 0

    def next_queue(self, queues: Sequence[MessageQueue]) -> MessageQueue:
        """Each queue in turn."""
        self._turn += 1
        return queues[self._turn % len(queues)]

    def add(self, queues: Sequence[MessageQueue], form: StoredForm, told: Told) -> bool:
        """Send a message to one of the queues, which are of one topic; False when too much waits already."""
        key = (queues[0].topic, ACTING.get())
        open_batch = self._open.get(key)
        queue = self.next_queue(queues) if open_batch is None else open_batch.entries[0].queue
        return self._put(key, _Entry(queue, form, told))

    def _size(self, entry: _Entry) -> int:
        return _ENTRY_BYTES + len(entry.form.body) + len(entry.form.properties)

    def _fits(self, batch: SharedRequest[_Entry], entry: _Entry) -> bool:
        return abs(batch.entries[0].form.born_timestamp - entry.form.born_timestamp) <= BORN_APART_MS

    def _request(self, batch: SharedRequest[_Entry]) -> tuple[str, Command]:
        queue = batch.entries[0].queue
        return self._brokers.master(queue.broker_name), send_request(
            queue, [one.form for one in batch.entries]
        )

    def _tell(self, batch: SharedRequest[_Entry], outcome: Command | Exception) -> None:
        entries = batch.entries
        if isinstance(outcome, Exception):
            self._brokers.failed(entries[0].queue.topic, outcome)
            for one in entries:
                one.told(one.form, outcome)
        elif len(entries) > 1 and outcome.code == ResponseCode.MESSAGE_ILLEGAL:
            self._alone(batch)  # nothing was stored; only one of them may be illegal
        else:
            self._tell_places(entries, outcome)

    def _tell_places(self, entries: Sequence[_Entry], answer: Command) -> None:
        found: list[SentPlace] | Exception
        try:
            found = places_of(answer, entries[0].queue, len(entries))
        except (BrokerError, HeaderError) as error:
            found = error
            self._brokers.failed(entries[0].queue.topic, error)
        for number, one in enumerate(entries):
            one.told(one.form, found if isinstance(found, Exception) else found[number])


def send_request(queue: MessageQueue, forms: Sequence[StoredForm]) -> Command:
    """The request that sends a message, or several as a batch."""
    first = forms[0]
    batch = len(forms) > 1
    header = headers.SendMessageRequest(
        producer_group=queue.topic,
        topic=queue.topic,
        default_topic=TEMPLATE_TOPIC,
        default_topic_queue_nums=_TEMPLATE_QUEUES,
        queue_id=queue.queue_id,
        sys_flag=first.sys_flag,
        born_timestamp=first.born_timestamp,
        flag=0,
        properties=""
        if batch
        else first.properties.decode(),  # Apache's brokers add a batch's to each message
        batch=batch,
        broker_name=queue.broker_name,
    )
    body = encode_batch((0, each.body, each.properties) for each in forms) if batch else first.body
    code = RequestCode.SEND_BATCH_MESSAGE if batch else RequestCode.SEND_MESSAGE_V2
    return Command(code, ext=headers.send_v2_to_ext(header), body=body)


def places_of(answer: Command, queue: MessageQueue, count: int) -> list[SentPlace]:
    """Where a broker stored the messages of a request. Raises `BrokerError` when it did not."""
    code = STORED.get(answer.code)
    if code is None:
        asked = request_name(RequestCode.SEND_MESSAGE_V2)
        raise BrokerError(answer.code, answer.remark or "", address=queue.broker_name, request=asked)
    told = headers.from_ext(headers.SendMessageResponse, answer.ext)
    if count == 1:
        return [SentPlace(code, told.queue_offset, told.msg_id, told.recall_handle or "")]
    return [SentPlace(code, told.queue_offset + number) for number in range(count)]
