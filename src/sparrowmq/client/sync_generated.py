"""The synchronous classes. Made by scripts/generate_sync.py: do not edit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sparrowmq.client import queries
from sparrowmq.client.admin import PERM_READ_WRITE
from sparrowmq.client.admin import Admin as _Admin
from sparrowmq.client.admin_groups import _MEMBERS_SECONDS
from sparrowmq.client.admin_holds import HOURS
from sparrowmq.client.admin_types import (
    AccessGrant,
    AccessUser,
    BrokerStatus,
    BrokerTopics,
    DeadLetterStatus,
    GroupConnections,
    GroupMemberInfo,
    HoldStatus,
    MemberStatus,
    QueueProgress,
    QueueStatus,
    Rates,
)
from sparrowmq.client.lifecycle import State
from sparrowmq.client.producer import Producer as _Producer
from sparrowmq.client.publish import QueueSelector
from sparrowmq.client.pull_consumer import PullConsumer as _PullConsumer
from sparrowmq.client.pull_plan import QueueListener
from sparrowmq.client.pull_schedule import PullCallback
from sparrowmq.client.pull_schedule import PullSchedule as _PullSchedule
from sparrowmq.client.push_consumer import PushConsumer as _PushConsumer
from sparrowmq.client.queue_reader import MESSAGES_MAX
from sparrowmq.client.settings import ClientSettings, ConsumeFrom, ConsumerSettings, Model, ProducerSettings
from sparrowmq.client.sync_base import Facade, ProducerFacade, PullScheduleFacade, PushConsumerFacade
from sparrowmq.client.topic_watch import TopicListener
from sparrowmq.client.transaction import TransactionListener, TransactionResult
from sparrowmq.client.workers import Handler
from sparrowmq.core.errors import ClientError
from sparrowmq.core.message import Message, MessageQueue, ReceivedMessage
from sparrowmq.core.results import PullResult, RawBatch, ReadFrom, SendResult
from sparrowmq.core.route import TopicRoute
from sparrowmq.core.subscription import Expression
from sparrowmq.protocol import bodies
from sparrowmq.protocol.bodies import ConsumerRunningInfo
from sparrowmq.protocol.headers import BULK_BYTES_MAX
from sparrowmq.protocol.managed import GroupPolicies, GroupPolicy
from sparrowmq.protocol.trace import TRACE_TOPIC, Trace

__all__ = ["Admin", "Producer", "PullConsumer", "PullSchedule", "PushConsumer"]


class Producer(ProducerFacade):
    """Sends messages of one producer group.

        with Producer("orders", namesrv="127.0.0.1:9876") as producer:
            producer.send(Message("TopicTest", b"hello", tags="TagA"))

    Every send has one time budget for all its tries. A send that times out or loses its connection may still
    have been stored: consumers must expect repeats. At most `in_flight_max` sends are outstanding; more wait.
    """

    def __init__(
        self,
        group: str,
        *,
        namesrv: str | None = None,
        send_timeout: float | None = None,
        retries: int | None = None,
        idempotent: bool | None = None,
        settings: ProducerSettings | None = None,
        transaction_listener: TransactionListener | None = None,
    ) -> None:
        """A producer of `group`; arguments override `settings` (see `ProducerSettings` for the rest).

        `namesrv` is `host:port` (several: separated by `;`), by default from the environment. `send_timeout`
        is seconds for one send with all its tries (3), `retries` the tries after the first (2). With a
        `transaction_listener` it can `send_in_transaction`. Raises `InvalidNameError` or `SettingsError`.

        An `idempotent` producer numbers its messages: a send that is repeated because its answer was lost is
        stored once and keeps its place in its queue. It goes to one queue until it is answered; sends to one
        queue leave one after the other, so let many messages travel together (`send_batch`, `linger`). Plain
        messages only. On Apache's brokers its sends are at least once, as all others.
        """
        super().__init__(
            _Producer(
                group,
                namesrv=namesrv,
                send_timeout=send_timeout,
                retries=retries,
                idempotent=idempotent,
                settings=settings,
                transaction_listener=transaction_listener,
            )
        )

    @property
    def state(self) -> State:
        """Where the producer is in its life."""
        return self._call(lambda: self._inner.state)

    @property
    def client_id(self) -> str:
        """What brokers know this client by. Raises `InvalidStateError` before the start."""
        return self._call(lambda: self._inner.client_id)

    @property
    def in_flight(self) -> int:
        """Sends that wait for their answer."""
        return self._call(lambda: self._inner.in_flight)

    def start(self) -> None:
        """Begin. Raises `NoNameServerError`, or `InvalidStateError` when it was started before.

        `ClientError` when a client with the same `instance_name` has a producer of this group: then it may be
        started later.
        """
        self._run(self._inner.start)

    def close(self) -> None:
        """Wait for sends in flight (at most `close_timeout` seconds), tell the brokers, close. Idempotent.

        A start or another close that is under way ends first.
        """
        self._run(self._inner.close)

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        argument: Any = None,
        hash_key: object = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Send one message and wait until the broker has stored it.

        By default queues take turns, and a failed try goes to another broker. `queue` names the queue;
        `selector` chooses it from the topic's queues, the message and `argument`; `hash_key` keeps messages
        with equal keys in one queue. A queue that was chosen is tried once. `timeout` in seconds covers
        everything.

        Raises `InvalidMessageError`, `InvalidNameError`, `NoRouteError`, `BrokerError`, `TransportError`,
        or `TooManyRequestsError` when the time was used up waiting for room. Cancelling does not take the
        message back.
        """
        if queue is None and selector is None and hash_key is None:
            return self._send(message, timeout)
        return self._run(
            self._inner.send,
            message,
            queue=queue,
            selector=selector,
            argument=argument,
            hash_key=hash_key,
            timeout=timeout,
        )

    def send_batch(
        self, messages: Iterable[Message], *, queue: MessageQueue | None = None, timeout: float | None = None
    ) -> SendResult:
        """Send messages of one topic as one request; they get consecutive offsets in one queue.

        The encoded batch must stay within `message_bytes_max`; it is not compressed. The result's ids are
        joined with commas. Otherwise as `send`.
        """
        return self._run(self._inner.send_batch, messages, queue=queue, timeout=timeout)

    def send_encoded_batch(
        self,
        topic: str,
        body: bytes,
        count: int,
        *,
        queue: MessageQueue | None = None,
        timeout: float | None = None,
        numbered: bool = False,
    ) -> SendResult:
        """Send a batch body of `count` messages that is encoded already (remoting:5.5).

        Each message has its own `UNIQ_KEY`. For bulk writers; the result's `message_id` is that of the
        batch. `numbered`: the messages have the properties of an idempotent producer that the caller stands
        for (docs/protocol.md), and `queue` is theirs. Otherwise as `send_batch`.
        """
        return self._run(
            self._inner.send_encoded_batch,
            topic,
            body,
            count,
            queue=queue,
            timeout=timeout,
            numbered=numbered,
        )

    def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        argument: Any = None,
        hash_key: object = None,
        timeout: float | None = None,
    ) -> None:
        """Send once and wait for no answer: a message the broker refuses or never gets is lost unnoticed.

        Raises what keeps the message from leaving: limits, `NoRouteError`, `ConnectError`.
        """
        self._run(
            self._inner.send_oneway,
            message,
            queue=queue,
            selector=selector,
            argument=argument,
            hash_key=hash_key,
            timeout=timeout,
        )

    def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of `topic` a producer may send to. Raises `NoRouteError` when there are none."""
        return self._run(self._inner.queues, topic)

    def request(
        self,
        message: Message,
        timeout: float = 3.0,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        argument: Any = None,
        hash_key: object = None,
    ) -> ReceivedMessage:
        """Send a message and wait for the reply that a consumer makes of it (client:B.18).

        `timeout` in seconds covers both. The consumer answers with `create_reply_message` or `reply`. Raises
        `ReplyTimeoutError` when it was sent and no reply came, `ClientError` with the cause when it could not
        be sent, `TooManyRequestsError` when 65,535 wait already, and what is wrong with the message itself.
        Late replies are dropped.
        """
        return self._run(
            self._inner.request,
            message,
            timeout,
            queue=queue,
            selector=selector,
            argument=argument,
            hash_key=hash_key,
        )

    def reply(self, request: ReceivedMessage, body: bytes, *, timeout: float | None = None) -> SendResult:
        """Answer a request that a consumer received. Raises `ClientError` for a message that is none."""
        return self._run(self._inner.reply, request, body, timeout=timeout)

    def send_in_transaction(
        self,
        message: Message,
        argument: Any = None,
        *,
        timeout: float | None = None,
        check_after: float | None = None,
    ) -> TransactionResult:
        """Send a message that consumers see only when its transaction is committed (client:B.19).

        The message is stored first, as `send` does with `timeout`; then the listener's `execute` is called
        with it and `argument`, and the broker is told how it ended. When that gets lost, or the state is
        unknown, the broker asks the listener's `check`, first after `check_after` seconds (the broker's own 6
        when None). A delay level is dropped. Raises what `send` raises, and `ClientError` without a listener.
        """
        return self._run(
            self._inner.send_in_transaction, message, argument, timeout=timeout, check_after=check_after
        )

    def recall(self, topic: str, handle: str, *, timeout: float | None = None) -> str:
        """Take back a timed message that is not delivered yet; its message id (client:B-107).

        `handle` is the `recall_handle` of its send's result. Brokers refuse it unless recalling is switched
        on there, and when it is too late. Raises `ClientError` for a handle that is none.
        """
        return self._run(self._inner.recall, topic, handle, timeout=timeout)

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset the next message of `queue` will get."""
        return self._run(self._inner.max_offset, queue)

    def min_offset(self, queue: MessageQueue) -> int:
        """The smallest offset of `queue` that is still stored."""
        return self._run(self._inner.min_offset, queue)

    def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message of `queue` stored at or after `timestamp_ms`."""
        return self._run(self._inner.search_offset, queue, timestamp_ms)

    def earliest_store_time(self, queue: MessageQueue) -> int:
        """Epoch milliseconds of the oldest stored message of `queue`, -1 when there is none."""
        return self._run(self._inner.earliest_store_time, queue)


class PushConsumer(PushConsumerFacade):
    """Consumes topics as one member of `group`; the members share the queues among themselves.

        with PushConsumer("billing", namesrv="127.0.0.1:9876") as consumer:
            consumer.subscribe("TopicTest", "TagA || TagB")
            for message in consumer:
                ...
                message.ack()

    Or give `subscribe` a handler: an `async def` runs on the loop, a plain function in one of `threads`
    threads. Returning means done, raising means retry (`Retry` says more). Delivery is at
    least once: a message may come again after a crash, a rebalance or a retry.
    """

    def __init__(
        self,
        group: str,
        *,
        namesrv: str | None = None,
        consume_from: ConsumeFrom | None = None,
        threads: int | None = None,
        batch: int | None = None,
        model: Model | None = None,
        ordered: bool | None = None,
        settings: ConsumerSettings | None = None,
    ) -> None:
        """A consumer of `group`; arguments override `settings` (see `ConsumerSettings` for the rest).

        `consume_from` says where a group without stored offsets starts: "last" (default), "first" or a
        datetime. `threads` is how many handlers run at once (20), `batch` how many messages a handler gets
        (1); above 1 it gets a list. `model="broadcasting"` gives every member all messages, `ordered=True`
        handles those of each queue one after the other. Raises `InvalidNameError` or `SettingsError`.
        """
        super().__init__(
            _PushConsumer(
                group,
                namesrv=namesrv,
                consume_from=consume_from,
                threads=threads,
                batch=batch,
                model=model,
                ordered=ordered,
                settings=settings,
            )
        )

    @property
    def state(self) -> State:
        """Where the consumer is in its life; FAILED when a background task died."""
        return self._call(lambda: self._inner.state)

    @property
    def failure(self) -> ClientError | None:
        """What stopped the consumer, if something did."""
        return self._call(lambda: self._inner.failure)

    @property
    def client_id(self) -> str:
        """What brokers know this member by. Raises `InvalidStateError` before the start."""
        return self._call(lambda: self._inner.client_id)

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues this member reads now, sorted."""
        return self._call(lambda: self._inner.assignment)

    @property
    def lag(self) -> dict[MessageQueue, int]:
        """Messages per own queue that are stored and not consumed yet, as of the last pull."""
        return self._call(lambda: self._inner.lag)

    @property
    def last_poll(self) -> float | None:
        """Epoch seconds of the last pull a broker answered; None before the first."""
        return self._call(lambda: self._inner.last_poll)

    @property
    def last_error(self) -> Exception | None:
        """Why the last pull failed; None when it worked."""
        return self._call(lambda: self._inner.last_error)

    @property
    def late_results(self) -> int:
        """Results of this member that brokers refused, because the queue had gone on to another member of a
        managed group: commits, and messages sent back. 0 otherwise.
        """
        return self._call(lambda: self._inner.late_results)

    def subscribe(self, topic: str, expression: Expression = "*", handler: Handler | None = None) -> None:
        """Consume `topic`; again replaces expression and handler. May be called before or after the start.

        `expression` is `*`, tags (`TagA || TagB`), or a filter over properties (`Sql("a > 1")`). Without
        `handler` the messages come by iterating over the consumer. All members of a group must subscribe
        alike. Raises `InvalidNameError` or `InvalidExpressionError`, which names the position and the token
        of what is wrong in SQL, and TypeError for a handler that is no function or that yields.
        """
        self._call(lambda: self._inner.subscribe(topic, expression, handler))

    def unsubscribe(self, topic: str) -> None:
        """Stop consuming `topic`; its queues are given up at once."""
        self._call(lambda: self._inner.unsubscribe(topic))

    def start(self) -> None:
        """Join the group.

        Raises `NoNameServerError`, `TransportError` when no name server answers, or `InvalidStateError`.
        """
        self._run(self._inner.start)

    def pause(self) -> None:
        """Pull no more until `resume`; queues stay, and what was pulled is still consumed (client:D-80)."""
        self._call(lambda: self._inner.pause())

    def resume(self) -> None:
        """Go on after `pause`."""
        self._call(lambda: self._inner.resume())

    @property
    def paused(self) -> bool:
        """Whether it rests after `pause`, or while offsets are being reset."""
        return self._call(lambda: self._inner.paused)

    def reset(self, to: datetime) -> None:
        """Go back or forward to the messages stored at or after a time, in the queues this member has.

        What is in hand is dropped; running handlers may end first, for up to 10 s (client:D-82). Every member
        does this for its own queues. Raises `SparrowError` when a broker cannot be asked.
        """
        self._run(self._inner.reset, to)

    def set_threads(self, threads: int) -> None:
        """Run up to so many handlers at once from now on (1 to 1000, client:D-93)."""
        self._call(lambda: self._inner.set_threads(threads))

    def running_info(self) -> ConsumerRunningInfo:
        """What brokers and their tools are told about this member (client:D-86)."""
        return self._call(lambda: self._inner.running_info())

    def close(self) -> None:
        """Leave the group: what is in hand ends, offsets are committed, brokers are told. Idempotent.

        Waits for running handlers, and for messages that other tasks or threads iterate over; those of the
        caller's own loop go back. Takes at most `close_timeout` seconds; what is still in hand then is
        delivered again. A second call waits for the first, and a start that is under way ends first. Raises
        what stopped the consumer unless it was raised elsewhere before.
        """
        self._let_go()
        self._run(self._inner.close)

    def wait(self) -> None:
        """Wait until the consumer is closed. Raises what stopped it when a background task died."""
        self._run(self._inner.wait)


class PullConsumer(Facade[_PullConsumer]):
    """Reads messages when it is asked to. There are three ways, of which one consumer goes one.

    By offset, with nothing to share:

        with PullConsumer(namesrv="127.0.0.1:9876") as consumer:
            for queue in consumer.queues("TopicTest"):
                batch = consumer.fetch_raw(queue, consumer.min_offset(queue))

    By `poll`, from the member's share of subscribed topics, or from queues it is assigned (what RocketMQ
    calls lite pull):

        with PullConsumer("audit", namesrv="127.0.0.1:9876") as consumer:
            consumer.subscribe("TopicTest", "TagA || TagB")
            for message in consumer.poll():
                ...

    Or by offset from the member's share: `register_topic` and `fetch_message_queues_in_balance`.

    Offsets are queue offsets; a committed offset is the next one to read.
    """

    def __init__(
        self, group: str | None = None, *, namesrv: str | None = None, settings: ClientSettings | None = None
    ) -> None:
        """`namesrv` is `host:port` (several: separated by `;`), by default from the environment.

        A `group` is needed for commits, polling and sharing; the consumer is a member of it from the start,
        whom the others count (`PullSettings.announce`). `settings` are `PullSettings`, or `ClientSettings`
        with the rest as it is. Raises `InvalidNameError` or `SettingsError`.
        """
        super().__init__(_PullConsumer(group, namesrv=namesrv, settings=settings))

    @property
    def state(self) -> State:
        """Where the consumer is in its life; FAILED when a background task died."""
        return self._call(lambda: self._inner.state)

    @property
    def client_id(self) -> str:
        """What brokers know this client by. Raises `InvalidStateError` before the start."""
        return self._call(lambda: self._inner.client_id)

    def start(self) -> None:
        """Begin. Raises `NoNameServerError`, `InvalidStateError` when it was started before, `ClientError`
        when its client has a consumer of this group, and with subscriptions `TransportError` when no name
        server answers, `BrokerError` or `InvalidExpressionError` when a broker refuses a SQL92 filter.
        """
        self._run(self._inner.start)

    def close(self) -> None:
        """Leave the group: what polls returned is committed, brokers are told; calls in flight fail.

        Takes at most `close_timeout` seconds. Idempotent; a start or close under way ends first.
        """
        self._run(self._inner.close)

    @property
    def late_results(self) -> int:
        """Commits and returned messages that brokers refused, because the queue had gone on to another member
        of a managed group. 0 otherwise.
        """
        return self._call(lambda: self._inner.late_results)

    def subscribe(
        self, topic: str, expression: Expression = "*", listener: QueueListener | None = None
    ) -> None:
        """Poll the member's share of `topic`; again replaces expression and listener.

        `expression` is `*`, tags (`TagA || TagB`), or a filter over properties (`Sql("a > 1")`). All members
        of a group must subscribe alike. `listener` is told (topic, all queues, own queues) when the share
        changed; a plain function runs in a thread. May be called before or after the start; a broker that
        takes no SQL92 refuses the start. Raises `InvalidNameError`, `InvalidExpressionError`, or
        `InvalidStateError` after `assign` or `register_topic`.
        """
        self._call(lambda: self._inner.subscribe(topic, expression, listener))

    def unsubscribe(self, topic: str) -> None:
        """Stop polling `topic`; what of it waits is thrown away."""
        self._call(lambda: self._inner.unsubscribe(topic))

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Poll exactly these queues, whoever else does; replaces an earlier assignment.

        Raises `SettingsError` without queues, `InvalidStateError` after `subscribe` or `register_topic`, and
        for a member of a managed group, which reads what it is granted.
        """
        self._call(lambda: self._inner.assign(queues))

    def filter_assigned(self, topic: str, expression: Expression) -> None:
        """Filter what assigned queues of `topic` give; before the start only. Raises `InvalidStateError`."""
        self._call(lambda: self._inner.filter_assigned(topic, expression))

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that are this consumer's now, sorted."""
        return self._call(lambda: self._inner.assignment)

    def poll(self, timeout: float | None = None) -> list[ReceivedMessage]:
        """The next messages of one queue, at most `pull_batch`; empty when none came in time.

        `timeout` in seconds defaults to `poll_timeout` (5). The messages count as consumed: with
        `auto_commit` a later poll commits them. Raises `InvalidStateError` when nothing is subscribed or
        assigned, `SettingsError` for a negative timeout.
        """
        return self._run(self._inner.poll, timeout)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Poll `queue` from `offset` on; what was read ahead of it is thrown away.

        Raises `ClientError` when the queue is not in `assignment`, `SettingsError` when the offset is below
        the smallest stored one or above the next one.
        """
        self._run(self._inner.seek, queue, offset)

    def seek_to_begin(self, queue: MessageQueue) -> None:
        """Poll `queue` from the oldest stored message on."""
        self._run(self._inner.seek_to_begin, queue)

    def seek_to_end(self, queue: MessageQueue) -> None:
        """Poll what comes to `queue` from now on."""
        self._run(self._inner.seek_to_end, queue)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Read no more from these queues; what was read ahead is still polled. Raises `ClientError` for one
        that is not in `assignment`.
        """
        self._call(lambda: self._inner.pause(queues))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Read from paused queues again. Raises as `pause`."""
        self._call(lambda: self._inner.resume(queues))

    @property
    def paused(self) -> list[MessageQueue]:
        """The queues that are paused, sorted."""
        return self._call(lambda: self._inner.paused)

    def register_topic(self, topic: str, listener: QueueListener | None = None) -> None:
        """Take part in the sharing of `topic`, reading nothing: see `fetch_message_queues_in_balance`.

        A listener that is given becomes the consumer's only one: it is told (topic, all queues, own queues)
        when a share changed. May be called before or after the start. Raises `InvalidNameError`, or
        `InvalidStateError` after `subscribe` or `assign`.
        """
        self._call(lambda: self._inner.register_topic(topic, listener))

    def fetch_message_queues_in_balance(self, topic: str) -> list[MessageQueue]:
        """This member's share of a registered topic now, sorted. Raises `ClientError` when it is not
        registered.
        """
        return self._call(lambda: self._inner.fetch_message_queues_in_balance(topic))

    def finish(self, queue: MessageQueue) -> None:
        """What was pulled of a queue is done and its offset noted; in a managed group the queue may move now.

        The next pull of the queue says the same, and so does asking for the queues of its topic.
        """
        self._call(lambda: self._inner.finish(queue))

    def update_consume_offset(self, queue: MessageQueue, offset: int) -> None:
        """Set the next offset to consume, in memory, wherever it was; it is sent every `persist_interval`
        seconds for queues of the member's share. Others need `commit`.
        """
        self._call(lambda: self._inner.update_consume_offset(queue, offset))

    def fetch_consume_offset(self, queue: MessageQueue, *, from_store: bool = False) -> int | None:
        """The next offset to consume: the one in memory, else the broker's; only the broker's with
        `from_store`. None when there is none.
        """
        return self._run(self._inner.fetch_consume_offset, queue, from_store=from_store)

    def send_back(self, message: ReceivedMessage, delay_level: int = 0) -> None:
        """Have the broker deliver a message again later, to the group's retry topic (client:E-14).

        Level 0 lets the knob `retry_delay` or the broker choose the delay; -1 makes a dead letter at once.
        """
        self._run(self._inner.send_back, message, delay_level)

    def fetch_raw(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        max_bytes: int = BULK_BYTES_MAX,
        max_messages: int = MESSAGES_MAX,
        expression: Expression = "*",
        wait: float = 0.0,
        timeout: float | None = None,
        read_from: ReadFrom | None = None,
    ) -> RawBatch:
        """Stored records from `offset` on, as the broker sent them: what one pull gives.

        At most `max_bytes` (up to 8 MiB; Apache's brokers stop at 256 KiB and 32 messages) and
        `max_messages`, but always one whole record if there is one. `expression` filters at the broker, tags
        by their hash: compare them again when they matter. With `wait` the broker may hold the pull so many
        seconds until messages come. `timeout` defaults to `wait` and 10 s. In a managed group knobs count: no
        more than `pull_batch`, `tags` before `expression`, `pull_interval` after the pull before, and what
        is younger than `delay`, or paused, is not there yet. `read_from` is "master", "slave"
        (the master where there is none; it may be behind) or None, the one that the master suggests.

        An offset that is not stored gives status OFFSET_ILLEGAL with the offset to go on from. Raises
        `NoRouteError`, `BrokerError` or `TransportError`.
        """
        return self._run(
            self._inner.fetch_raw,
            queue,
            offset,
            max_bytes=max_bytes,
            max_messages=max_messages,
            expression=expression,
            wait=wait,
            timeout=timeout,
            read_from=read_from,
        )

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        max_messages: int | None = None,
        expression: Expression = "*",
        wait: float = 0.0,
        timeout: float | None = None,
    ) -> PullResult:
        """Messages from `offset` on, decoded and filtered by the text of tags and by `FilterMessageHook`s.

        At most `max_messages`, by default 32 or the live knob `pull_batch`. For `ConsumeHook`s and traces
        what it returns is consumed (client:E-08). Otherwise as `fetch_raw`, which calls no hooks.
        """
        return self._run(
            self._inner.pull,
            queue,
            offset,
            max_messages=max_messages,
            expression=expression,
            wait=wait,
            timeout=timeout,
        )

    def committed(self, queue: MessageQueue) -> int | None:
        """The group's committed offset, None when it has none; for a queue in `assignment` the one that is
        about to be sent, if there is one. Needs a `group`.
        """
        return self._run(self._inner.committed, queue)

    def commit(
        self,
        queue: MessageQueue | Mapping[MessageQueue, int] | None = None,
        offset: int | None = None,
        *,
        persist: bool = True,
    ) -> None:
        """Store the next offset the group will read. Needs a `group`.

        `commit()` takes what polls returned, `commit(queue, offset)` one queue, `commit({queue: offset})`
        several; in the last form queues that are not in `assignment` are left out with a warning. With
        `persist` brokers confirm it, and their errors are raised; without, it is noted, and sent within
        `persist_interval` seconds if the queue is in `assignment`.
        """
        self._run(self._inner.commit, queue, offset, persist=persist)

    def queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of `topic`, sorted; asks a name server each time. Raises `NoRouteError`."""
        return self._run(self._inner.queues, topic)

    def publish_queues(self, topic: str) -> list[MessageQueue]:
        """The queues of `topic` one may send to. Otherwise as `queues`."""
        return self._run(self._inner.publish_queues, topic)

    def update_name_servers(self, namesrv: str) -> None:
        """Use these name servers from now on: `host:port`, several separated by `;`."""
        self._call(lambda: self._inner.update_name_servers(namesrv))

    def min_offset(self, queue: MessageQueue) -> int:
        """The smallest offset that is stored."""
        return self._run(self._inner.min_offset, queue)

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset the next message will get."""
        return self._run(self._inner.max_offset, queue)

    def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message stored at or after `timestamp_ms` (epoch milliseconds)."""
        return self._run(self._inner.search_offset, queue, timestamp_ms)

    def earliest_time(self, queue: MessageQueue) -> int | None:
        """Epoch milliseconds of the oldest stored message; None when there is none."""
        return self._run(self._inner.earliest_time, queue)

    def watch_topic(self, topic: str, listener: TopicListener) -> None:
        """Have `listener` told (topic, queues) when the topic's queues become more or fewer.

        It is looked at every `topic_check_interval` seconds. May be called before or after the start.
        """
        self._call(lambda: self._inner.watch_topic(topic, listener))


class PullSchedule(PullScheduleFacade):
    """Calls a callback for each queue of the member's share of a topic, over and over.

        async def work(queue: MessageQueue, context: PullContext) -> None:
            offset = context.consumer.fetch_consume_offset(queue) or 0
            result = context.consumer.pull(queue, offset)
            ...
            context.consumer.update_consume_offset(queue, result.next_offset)

        schedule = PullSchedule("audit", namesrv="127.0.0.1:9876")
        schedule.register("TopicTest", work)
        with schedule:
            ...

    An `async def` callback runs on the loop, a plain function in one of `threads` threads. One queue's calls
    never overlap. A queue that leaves the share is called no more; a call that runs is not waited for, but in
    a managed group, where the queue moves when it has ended, and the next call waits for the live knob
    `pull_interval`.
    """

    def __init__(
        self,
        group: str,
        *,
        namesrv: str | None = None,
        threads: int = 20,
        settings: ClientSettings | None = None,
    ) -> None:
        """`namesrv` and `settings` are as for `PullConsumer`. Raises `InvalidNameError`, `SettingsError`."""
        super().__init__(_PullSchedule(group, namesrv=namesrv, threads=threads, settings=settings))

    @property
    def state(self) -> State:
        """Where the schedule is in its life."""
        return self._call(lambda: self._inner.state)

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are called for now, sorted."""
        return self._call(lambda: self._inner.queues)

    def register(self, topic: str, callback: PullCallback) -> None:
        """Call `callback` for this member's queues of `topic`; before the start only.

        Raises `InvalidNameError` or `InvalidStateError`.
        """
        self._call(lambda: self._inner.register(topic, callback))

    def start(self) -> None:
        """Join the group. Raises as `PullConsumer.start`."""
        self._run(self._inner.start)

    def close(self) -> None:
        """Call no more, commit and leave the group. Idempotent."""
        self._run(self._inner.close)


class Admin(Facade[_Admin]):
    """Asks and changes clusters.

        with Admin(namesrv="127.0.0.1:9876") as admin:
            admin.create_topic("TopicTest", queues=8)

    Errors: `BrokerError` with the code a server answered, `TransportError`, `NoRouteError` for unknown
    topics.
    """

    def __init__(self, namesrv: str | None = None, *, settings: ClientSettings | None = None) -> None:
        """`namesrv` is `host:port` (several: separated by `;`), by default from the environment."""
        super().__init__(_Admin(namesrv, settings=settings))

    @property
    def state(self) -> State:
        """Where the client is in its life."""
        return self._call(lambda: self._inner.state)

    def start(self) -> None:
        """Begin. Raises `NoNameServerError`, or `InvalidStateError` when it was started before."""
        self._run(self._inner.start)

    def close(self) -> None:
        """Close the connections. Idempotent; a second call waits for the first."""
        self._run(self._inner.close)

    def topic_list(self, *, system: bool = False) -> list[str]:
        """Names of all topics, sorted; retry, dead letter and RocketMQ's own topics only with `system`."""
        return self._run(self._inner.topic_list, system=system)

    def topic_route(self, topic: str) -> TopicRoute:
        """Queues and brokers of `topic`, fresh from a name server. Raises `NoRouteError`."""
        return self._run(self._inner.topic_route, topic)

    def topic_status(self, topic: str) -> list[QueueStatus]:
        """Offsets and last update of every queue, sorted; asks every master of the topic."""
        return self._run(self._inner.topic_status, topic)

    def create_topic(
        self, name: str, queues: int = 8, *, perm: int = PERM_READ_WRITE, cluster: str | None = None
    ) -> TopicRoute:
        """Create or change a topic on every master of `cluster` (all clusters by default); its route.

        Returns when the name server knows it there. `queues` is per broker, `perm` bits are 2 write and 4
        read. Raises `InvalidNameError` for illegal and reserved names.
        """
        return self._run(self._inner.create_topic, name, queues, perm=perm, cluster=cluster)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its messages from every broker, then from every name server.

        Raises `InvalidNameError` for reserved names and `NoRouteError` for unknown ones.
        """
        self._run(self._inner.delete_topic, name)

    def cluster_info(self) -> bodies.ClusterInfo:
        """Brokers by name, broker names by cluster, as the name server has them."""
        return self._run(self._inner.cluster_info)

    def broker_list(self) -> list[BrokerStatus]:
        """Every broker of every cluster, with what it tells about itself."""
        return self._run(self._inner.broker_list)

    def broker_info(self, broker: str) -> dict[str, str]:
        """What a broker tells about itself (code 28), by its name or `host:port`: rates, offsets, disk, …"""
        return self._run(self._inner.broker_info, broker)

    def broker_stats(self, broker: str, name: str, key: str) -> Rates | None:
        """Rates a broker counts (code 315), for example `TOPIC_PUT_NUMS` of a topic; None when it has none.

        `GROUP_GET_NUMS` takes `topic@group`, `BROKER_PUT_NUMS` the name of the cluster.
        """
        return self._run(self._inner.broker_stats, broker, name, key)

    def broker_progress(self, broker: str) -> dict[str, list[QueueProgress]]:
        """The places of all groups in the queues of one broker (code 317), by group.

        A group is there with the topics that it has offsets of and, while it is online, subscribes.
        """
        return self._run(self._inner.broker_progress, broker)

    def broker_settings(self, broker: str) -> dict[str, str]:
        """The settings a broker runs with (code 26), by name."""
        return self._run(self._inner.broker_settings, broker)

    def change_broker_settings(self, broker: str, changes: Mapping[str, str]) -> None:
        """Change settings of a running broker (code 25).

        Ours takes those that can change while it runs, until it is stopped; `BrokerError` names the others.
        """
        self._run(self._inner.change_broker_settings, broker, changes)

    def delete_expired_files(self, broker: str) -> None:
        """Have a broker delete what is older than its `fileReservedTime` now (code 329)."""
        self._run(self._inner.delete_expired_files, broker)

    def clean_expired_queues(self, broker: str) -> None:
        """Have a broker delete queues all of whose messages are gone (code 306)."""
        self._run(self._inner.clean_expired_queues, broker)

    def clean_unused_topics(self, broker: str) -> None:
        """Have a broker delete queues of topics that no longer exist (code 316)."""
        self._run(self._inner.clean_unused_topics, broker)

    def query_messages(
        self, topic: str, key: str, *, count: int = 32, begin_ms: int = 0, end_ms: int = queries.TIME_MAX
    ) -> list[ReceivedMessage]:
        """Messages of `topic` that have `key` among their keys, oldest first; none is an empty list.

        Each broker gives at most `count`, its newest ones, and no more than its `maxMsgsNumBatch` (64). Store
        times from `begin_ms` to `end_ms`, epoch milliseconds, are looked through. Raises `NoRouteError`, and
        `ClientError` for a blank key.
        """
        return self._run(
            self._inner.query_messages, topic, key, count=count, begin_ms=begin_ms, end_ms=end_ms
        )

    def message_by_id(
        self, topic: str, message_id: str, *, begin_ms: int = 0, end_ms: int = queries.TIME_MAX
    ) -> ReceivedMessage | None:
        """The message of `topic` with that id, None when there is none (any more).

        The id is what a producer's result has: the unique id, or the offset id.
        """
        return self._run(self._inner.message_by_id, topic, message_id, begin_ms=begin_ms, end_ms=end_ms)

    def message_by_offset_id(self, offset_message_id: str) -> ReceivedMessage | None:
        """The message an offset id names, asked of the broker whose address it holds; None when it is gone.

        Raises `ClientError` for a text that is no offset id, `TransportError` when no broker is there.
        """
        return self._run(self._inner.message_by_offset_id, offset_message_id)

    def group_list(self, *, system: bool = False) -> list[str]:
        """Names of all consumer groups that any broker knows, sorted; RocketMQ's own only with `system`."""
        return self._run(self._inner.group_list, system=system)

    def group_progress(self, group: str, topic: str | None = None) -> list[QueueProgress]:
        """The group's place in every queue it has offsets in, sorted; only of `topic` when given.

        Raises `BrokerError` when no broker knows the group.
        """
        return self._run(self._inner.group_progress, group, topic)

    def group_connections(self, group: str) -> GroupConnections | None:
        """Members and subscriptions of the group; None when no member is online."""
        return self._run(self._inner.group_connections, group)

    def group_members(self, group: str) -> dict[str, list[GroupMemberInfo]]:
        """Who is connected to each master that knows the group, by the master's address; nobody is an empty
        list.

        Each member should be at all of them.
        """
        return self._run(self._inner.group_members, group)

    def topic_groups(self, topic: str) -> list[str]:
        """Groups with offsets or members on `topic`, sorted."""
        return self._run(self._inner.topic_groups, topic)

    def committed(self, group: str, queue: MessageQueue) -> int | None:
        """The group's committed offset in a queue, None when it has none."""
        return self._run(self._inner.committed, group, queue)

    def commit(self, group: str, queue: MessageQueue, offset: int, *, generation: int | None = None) -> None:
        """Set the next offset the group will read. A member that is online goes on from where it is.

        In a managed group `generation` is that of the queue; its broker refuses others, with code 90011.
        """
        self._run(self._inner.commit, group, queue, offset, generation=generation)

    def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message that was stored at or after a time, in epoch milliseconds; that of
        the next message when there is none.
        """
        return self._run(self._inner.search_offset, queue, timestamp_ms)

    def create_user(
        self, name: str, password: str, *, super_user: bool = False, cluster: str | None = None
    ) -> None:
        """Make a user (3001); a super user may do everything. Raises `BrokerError` when there is one."""
        self._run(self._inner.create_user, name, password, super_user=super_user, cluster=cluster)

    def update_user(
        self,
        name: str,
        *,
        password: str | None = None,
        super_user: bool | None = None,
        enabled: bool | None = None,
        cluster: str | None = None,
    ) -> None:
        """Change of a user what is given (3002). Raises `BrokerError` when there is none."""
        self._run(
            self._inner.update_user,
            name,
            password=password,
            super_user=super_user,
            enabled=enabled,
            cluster=cluster,
        )

    def delete_user(self, name: str, *, cluster: str | None = None) -> None:
        """Delete a user and what it may do (3003); nothing happens when there is none."""
        self._run(self._inner.delete_user, name, cluster=cluster)

    def users(self, part: str = "", *, cluster: str | None = None) -> list[AccessUser]:
        """The users with `part` in their names (3005), sorted; never their passwords."""
        return self._run(self._inner.users, part, cluster=cluster)

    def grant(
        self,
        user: str,
        resources: Sequence[str],
        actions: Sequence[str],
        *,
        sources: Sequence[str] = (),
        allow: bool = True,
        cluster: str | None = None,
    ) -> None:
        """Let a user do `actions` with `resources` (3007), only from `sources` when given.

        Actions are Pub, Sub, Create, Update, Delete, Get, List and All; resources `Topic:Orders`,
        `Group:bill*`, `Cluster:*` and `*`; sources addresses and networks. Without `allow` it is forbidden.
        What was said of the same resource is replaced. Raises `BrokerError` for what makes no sense to the
        broker.
        """
        self._run(self._inner.grant, user, resources, actions, sources=sources, allow=allow, cluster=cluster)

    def revoke(self, user: str, resource: str | None = None, *, cluster: str | None = None) -> None:
        """Forget what was said of a user and one resource, or of all (3008)."""
        self._run(self._inner.revoke, user, resource, cluster=cluster)

    def grants(self, part: str = "", *, cluster: str | None = None) -> list[AccessGrant]:
        """What users with `part` in their names may do (3010), by user."""
        return self._run(self._inner.grants, part, cluster=cluster)

    def put_account(
        self,
        access_key: str,
        secret_key: str | None = None,
        *,
        admin: bool | None = None,
        white_address: str | None = None,
        default_topic_perm: str | None = None,
        default_group_perm: str | None = None,
        topic_perms: Sequence[str] | None = None,
        group_perms: Sequence[str] | None = None,
        cluster: str | None = None,
    ) -> None:
        """Make an account, or change of it what is given (50).

        `topic_perms` and `group_perms` hold `name=PUB|SUB` and replace those there were. Apache's brokers
        want the secret each time, and take away an account's `admin` when it is not given. Raises
        `BrokerError` with the reason.
        """
        self._run(
            self._inner.put_account,
            access_key,
            secret_key,
            admin=admin,
            white_address=white_address,
            default_topic_perm=default_topic_perm,
            default_group_perm=default_group_perm,
            topic_perms=topic_perms,
            group_perms=group_perms,
            cluster=cluster,
        )

    def delete_account(self, access_key: str, *, cluster: str | None = None) -> None:
        """Delete an account (51). Raises `BrokerError` when there is none."""
        self._run(self._inner.delete_account, access_key, cluster=cluster)

    def set_white_addresses(self, addresses: Sequence[str], *, cluster: str | None = None) -> None:
        """Replace the addresses from where nobody needs an account (53)."""
        self._run(self._inner.set_white_addresses, addresses, cluster=cluster)

    def account_versions(self, *, cluster: str | None = None) -> dict[str, int]:
        """How often the main file of accounts was changed by command, by broker name (52)."""
        return self._run(self._inner.account_versions, cluster=cluster)

    def dead_letter_groups(self) -> list[DeadLetterStatus]:
        """Groups with dead letters, sorted; a group whose dead letters are all gone again has 0.

        Raises `ClientError` when no broker is there to have any.
        """
        return self._run(self._inner.dead_letter_groups)

    def dead_letters(
        self, group: str, *, count: int = 32, after: ReceivedMessage | None = None
    ) -> list[ReceivedMessage]:
        """Up to `count` dead letters of a group, by broker, oldest first; reading changes nothing.

        `after` goes on behind a letter of an earlier call; the end is an empty list, as is what a group
        without dead letters has. Raises `ClientError` for a group that no broker knows.
        """
        return self._run(self._inner.dead_letters, group, count=count, after=after)

    def resend_dead_letter(self, group: str, message: ReceivedMessage) -> str:
        """Give a dead letter to its group again, with its retries counted anew; the new offset message id.

        It goes to the group's retry topic, so other groups of its topic do not get it a second time. The
        dead letter stays where it is. Raises `ClientError` for a group without a retry topic.
        """
        return self._run(self._inner.resend_dead_letter, group, message)

    def resend_dead_letters(self, group: str, message_ids: Iterable[str] | None = None) -> list[str]:
        """Give dead letters to their group again, all there are now or those named; the ids of those sent.

        A message that died several times is sent once. Letters that are named and gone are missing from the
        answer. Errors as `dead_letters` and `resend_dead_letter`.
        """
        return self._run(self._inner.resend_dead_letters, group, message_ids)

    def create_group(
        self,
        group: str,
        *,
        retries: int = 16,
        enabled: bool = True,
        broadcast: bool = True,
        cluster: str | None = None,
    ) -> None:
        """Make or change a group on every master of `cluster` (all clusters by default).

        `retries` come before the dead letter topic when a consumer does not say itself; `enabled` and
        `broadcast` say whether it may consume at all, and by broadcasting. Raises `InvalidNameError`.
        """
        self._run(
            self._inner.create_group,
            group,
            retries=retries,
            enabled=enabled,
            broadcast=broadcast,
            cluster=cluster,
        )

    def delete_group(self, group: str, *, offsets: bool = True, cluster: str | None = None) -> None:
        """Delete a group with its retry and dead letter topics, and unless told otherwise its offsets.

        Raises `ClientError` for one of RocketMQ's own.
        """
        self._run(self._inner.delete_group, group, offsets=offsets, cluster=cluster)

    def group_config(self, group: str) -> dict[str, bodies.SubscriptionGroupConfig]:
        """The group's settings by broker name; empty when no broker knows it."""
        return self._run(self._inner.group_config, group)

    def group_rate(self, group: str) -> float:
        """Messages the group consumes per second, over all brokers, as they count them."""
        return self._run(self._inner.group_rate, group)

    def producer_connections(self, group: str, topic: str) -> list[GroupMemberInfo]:
        """Producers of `group` at a broker of `topic`. Raises `BrokerError` when there is none."""
        return self._run(self._inner.producer_connections, group, topic)

    def group_status(
        self, group: str, *, stacks: bool = False, seconds: float = _MEMBERS_SECONDS
    ) -> list[MemberStatus]:
        """What each member that is online tells about itself: settings, queues in hand, rates.

        `stacks` asks for a dump of its threads. A member that does not answer has an `error` instead, as have
        those that were not reached within `seconds` (60), 32 being asked at a time. Empty when nobody is
        online.
        """
        return self._run(self._inner.group_status, group, stacks=stacks, seconds=seconds)

    def member_offsets(
        self, group: str, topic: str, client_id: str | None = None
    ) -> dict[str, dict[MessageQueue, int]]:
        """Offsets that members have in memory, by client id; of one member when it is named.

        Raises `BrokerError` when nobody is online or a member is too old to tell.
        """
        return self._run(self._inner.member_offsets, group, topic, client_id)

    def reset_offsets(
        self, group: str, topic: str, to: ConsumeFrom, *, force: bool = True
    ) -> dict[MessageQueue, int]:
        """Have the group go on with `topic` elsewhere: from "first", from "last" on, or from a datetime on.

        Members that are online are told by the broker; without any the stored offsets are set. Without
        `force` offsets only go back. Gives the new offset of every queue that was moved. Broadcasting
        consumers keep their offsets themselves and cannot be moved. Raises `BrokerError`, with code 26 for a
        group that a broker does not know, and `NoRouteError`.
        """
        return self._run(self._inner.reset_offsets, group, topic, to, force=force)

    def reset_queue(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Have the group go on with one queue at `offset`.

        Only brokers that reset on their own side (5.x with `useServerSideResetOffset`) can tell members of
        one queue. Others are given the offset to store: members that are online go on from where they are.
        """
        self._run(self._inner.reset_queue, group, queue, offset)

    def clone_offsets(self, source: str, target: str, topic: str | None = None) -> dict[MessageQueue, int]:
        """Give `target` the stored offsets of `source`, of all its topics or of one; what was set.

        A broker that does not know `target` is told to make it. The retry topic is left out. Raises
        `ClientError` when `source` has no offsets, and when members of `target` are online: they would go on
        from where they are and overwrite what was set.
        """
        return self._run(self._inner.clone_offsets, source, target, topic)

    def hold_messages(self, topic: str, group: str, *, hours: int = HOURS, size_max: int = 0) -> None:
        """Have all masters of `topic` keep its messages until `group` has consumed them, or change that.

        A hold wins over `fileReservedTime` and over a full disk until its oldest message waits for `hours`,
        or
        `size_max` bytes of log (0: no limit) are behind it; then it gives way and the broker logs an error.
        Raises `ClientError` when a broker is Apache's, which cannot do it.
        """
        self._run(self._inner.hold_messages, topic, group, hours=hours, size_max=size_max)

    def release_messages(self, topic: str) -> None:
        """Have all masters of `topic` keep its messages no longer than others."""
        self._run(self._inner.release_messages, topic)

    def holds(self) -> list[HoldStatus]:
        """All holds of all brokers, by topic and broker; Apache's brokers have none."""
        return self._run(self._inner.holds)

    def put_value(self, namespace: str, key: str, value: str) -> None:
        """Keep a value at every name server."""
        self._run(self._inner.put_value, namespace, key, value)

    def value(self, namespace: str, key: str) -> str | None:
        """A value kept by the name servers, None when there is none."""
        return self._run(self._inner.value, namespace, key)

    def values(self, namespace: str) -> dict[str, str]:
        """All values of a namespace; empty when there is none."""
        return self._run(self._inner.values, namespace)

    def delete_value(self, namespace: str, key: str) -> None:
        """Forget a value at every name server; nothing happens when there is none."""
        self._run(self._inner.delete_value, namespace, key)

    def order_conf(self, topic: str) -> dict[str, int]:
        """Broker name to number of queues of an ordered topic; empty when it is none."""
        return self._run(self._inner.order_conf, topic)

    def set_order_conf(self, topic: str, queues: Mapping[str, int]) -> None:
        """Make a topic ordered: its routes name exactly these numbers of queues by broker name, whether the
        brokers are there or not. Nothing in `queues` makes it an ordinary topic again.
        """
        self._run(self._inner.set_order_conf, topic, queues)

    def wipe_write_perm(self, broker_name: str) -> int:
        """Have no more messages sent to a broker, so that it can be stopped; how many of its topics changed.

        Lasts until `add_write_perm`, or until the broker tells its topics anew because they changed.
        """
        return self._run(self._inner.wipe_write_perm, broker_name)

    def add_write_perm(self, broker_name: str) -> int:
        """Undo `wipe_write_perm`; how many topics changed."""
        return self._run(self._inner.add_write_perm, broker_name)

    def set_topic_perm(self, topic: str, perm: int, *, broker_name: str | None = None) -> list[str]:
        """Change who may use a topic, on one broker or all that have it: 2 write, 4 read, 6 both, 0 neither.

        Gives the names of the brokers. Raises `NoRouteError`, or `ClientError` for a broker that has it not.
        """
        return self._run(self._inner.set_topic_perm, topic, perm, broker_name=broker_name)

    def set_group_policy(
        self, policy: GroupPolicy, *, cluster: str | None = None, broker: str | None = None
    ) -> None:
        """Have every broker, those of one cluster, or one, enforce a policy; it is on disk when this returns.

        The same again is welcome, so whoever is not sure sets it once more. Raises `BrokerError` with code
        90012 when a later policy is in force or a generation would go down, and `ClientError` when a broker
        is Apache's, which can enforce nothing. Brokers that took it keep it then.
        """
        self._run(self._inner.set_group_policy, policy, cluster=cluster, broker=broker)

    def delete_group_policy(self, group: str, *, cluster: str | None = None) -> None:
        """Have brokers manage a group no more; nothing happens where they do not."""
        self._run(self._inner.delete_group_policy, group, cluster=cluster)

    def group_policies(self, group: str | None = None) -> dict[str, GroupPolicies]:
        """The policies of one group or of all, by broker name; Apache's brokers are left out."""
        return self._run(self._inner.group_policies, group)

    def consume_refusal(self, fields: Mapping[str, str], body: bytes) -> str:
        """Why brokers do not let the sender of a request consume for the group in its `consumerGroup`; empty
        when they do. `fields` and `body` are the request's own, with its signature.

        A broker is asked in the sender's words, so it judges the account and what that may do, as if the
        sender had asked itself. Raises `TransportError` when no broker answers.
        """
        return self._run(self._inner.consume_refusal, fields, body)

    def broker_topics(self, broker: str) -> BrokerTopics:
        """Every topic of a broker and its configuration (code 21)."""
        return self._run(self._inner.broker_topics, broker)

    def broker_groups(self, broker: str) -> dict[str, bodies.SubscriptionGroupConfig]:
        """Every consumer group of a broker and its settings (code 201)."""
        return self._run(self._inner.broker_groups, broker)

    def stored_offsets(self, broker: str) -> dict[str, dict[MessageQueue, int]]:
        """All committed offsets of a broker by group (code 43), of topics it no longer has, too.

        The queues have the broker's name as it was given.
        """
        return self._run(self._inner.stored_offsets, broker)

    def listed_topics(self) -> dict[str, set[str]]:
        """The names of all topics by address of the name server that lists them (code 206).

        A name server that does not answer is left out. Raises `TransportError` when none does.
        """
        return self._run(self._inner.listed_topics)

    def offset_at(self, queue: MessageQueue, time_ms: int) -> int:
        """The offset of a queue's first message that was stored at that time or later (code 29)."""
        return self._run(self._inner.offset_at, queue, time_ms)

    def put_topic_config(self, broker: str, config: bodies.TopicConfig) -> None:
        """Make or change a topic at one broker (code 17). Raises `ClientError` for RocketMQ's own."""
        self._run(self._inner.put_topic_config, broker, config)

    def put_group_config(self, broker: str, config: bodies.SubscriptionGroupConfig) -> None:
        """Make or change a consumer group at one broker (code 200)."""
        self._run(self._inner.put_group_config, broker, config)

    def clear_topic(self, broker: str, topic: str) -> None:
        """Have one broker forget a topic with messages and offsets, whether it still knows it or not (215).

        RocketMQ 4.9 keeps offsets of topics that it no longer has.
        """
        self._run(self._inner.clear_topic, broker, topic)

    def unlist_topic(self, topic: str) -> None:
        """Have every name server forget a topic (code 216); brokers that have it register it again."""
        self._run(self._inner.unlist_topic, topic)

    def trace(self, message_id: str, *, topic: str = TRACE_TOPIC) -> list[Trace]:
        """What is known about the message with this id (its unique id), or with this key, in order of time.

        Empty when no client that traces had it, when its records are not written yet (they gather for some
        seconds), or when there is no trace topic. An end of consumption stands after its beginning.
        """
        return self._run(self._inner.trace, message_id, topic=topic)
