"""The asyncio pull consumer: queues by offset or by polling, alone or in a group (client:E.1, E.3).

`fetch_raw` is the bulk path: stored records as bytes. Our brokers answer with up to 8 MiB; Apache's give 32
messages at most (broker:5.2), so a fast reader keeps several pulls in flight. Calls may overlap freely.

This is the facade: `PolledQueues` polls, `QueueLookups` has the queues of topics and their ends,
`QueueReader` asks single queues, `LitePull` reads ahead for `poll`, `PullMember` is the membership, and
`PullPlan` the mode.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext, suppress
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Final, Unpack

from sparrowmq.client.base.lifecycle import ClientObject, Lifecycle, State
from sparrowmq.client.base.settings import (
    ClientSettings,
    PullSettings,
    QueueListener,
    check_range,
    with_keywords,
)
from sparrowmq.client.base.tasks import TaskGroup, run_every
from sparrowmq.client.cluster.broker_api import BrokerRequests, PullAnswer, need_address
from sparrowmq.client.cluster.instance import ClientInstance
from sparrowmq.client.cluster.instances import shared_instance
from sparrowmq.client.consumer.offset_store import OffsetStore, births_of, store_of
from sparrowmq.client.consumer.queue_reader import MESSAGES_MAX, USUAL_MESSAGES, PullParameters, QueueReader
from sparrowmq.client.pull.polled_queues import PolledQueues
from sparrowmq.client.pull.pull_hooks import PullHooks
from sparrowmq.client.pull.pull_results import pull_result, raw_batch
from sparrowmq.client.pull.read_mode import Mode, PullPlan
from sparrowmq.client.pull.topic_watch import CHECK_FIRST_SECONDS, TopicWatch
from sparrowmq.core.clock import SystemClock
from sparrowmq.core.errors import ClientError, InvalidStateError, SettingsError
from sparrowmq.core.message import MessageQueue, ReceivedMessage
from sparrowmq.core.names import check_group
from sparrowmq.core.results import PullResult, RawBatch, ReadFrom
from sparrowmq.core.subscription import Expression
from sparrowmq.protocol.headers import BULK_BYTES_MAX

if TYPE_CHECKING:  # loaded only when a member joins a group
    from sparrowmq.client.base.options import PullOptions
    from sparrowmq.client.pull.offset_pulls import OffsetPulls
    from sparrowmq.client.pull.polling import LitePull
    from sparrowmq.client.pull.pull_member import PullMember

log = logging.getLogger("sparrowmq.client")

BROADCASTING_INSTANCE: Final = "DEFAULT"
_SEND_BACK_TIMEOUT: Final = 3.0


class PullConsumer(PolledQueues, ClientObject):
    """Reads messages on request. There are three ways to read; one consumer uses one of them.

    By offset, without a group; here from the beginning of each queue to its present end:

        async with PullConsumer(name_server="127.0.0.1:9876") as consumer:
            for queue in await consumer.queues("TopicTest"):
                offset, end = await consumer.min_offset(queue), await consumer.max_offset(queue)
                while offset < end:
                    result = await consumer.pull(queue, offset)
                    for message in result.messages:
                        ...
                    offset = result.next_offset

    By `poll`, from the member's share of subscribed topics, or from assigned queues (RocketMQ's lite pull):

        async with PullConsumer("audit", name_server="127.0.0.1:9876") as consumer:
            consumer.subscribe("TopicTest", "TagA || TagB")
            async for message in consumer:  # or: for message in await consumer.poll()
                ...

    Or by offset from the member's share: `register_topic` and `fetch_message_queues_in_balance`.

    Offsets are queue offsets; a committed offset is the next offset to read.
    """

    def __init__(
        self,
        group: str | None = None,
        *,
        settings: ClientSettings | None = None,
        **options: Unpack[PullOptions],
    ) -> None:
        """`options` are the fields of `PullSettings`; they override `settings`. `name_server` is `host:port`
        (several: separated by `;`), by default from the environment.

        Commits, polling and sharing need a `group`. The consumer is a member of it from the start, and the
        other members count it (`PullSettings.announce`). `settings` are `PullSettings`, or `ClientSettings`,
        which leave the other settings at their defaults. Raises `InvalidNameError` or `SettingsError`.
        """
        if group is not None:
            check_group(group)
        self.group = group
        self.settings = with_keywords(PullSettings.of(settings), options)
        if self.settings.model == "broadcasting" and self.settings.instance_name is None:
            # The path of the offset file contains the client id, which must not change across restarts
            # (client:A-06).
            self.settings = replace(self.settings, instance_name=BROADCASTING_INSTANCE)
        if self.settings.managed and group is None:
            raise SettingsError("managed=True needs a group; give one, or leave managed out", "managed")
        self._life = Lifecycle(f"pull consumer {group!r}" if group else "pull consumer")
        self._plan = PullPlan(SystemClock())
        self._watch = TopicWatch()
        self._instance: ClientInstance | None = None
        self._tasks: TaskGroup | None = None
        self._store: OffsetStore | None = None
        self._member: PullMember | None = None
        self._lite: LitePull | None = None
        self._hooks: PullHooks | None = None
        self._failure: ClientError | None = None
        self._reader = QueueReader(self._running, group, self._generation)

    def __repr__(self) -> str:
        return f"<PullConsumer {self.group!r} {self.state.value}{f' {self._lite!r}' if self._lite else ''}>"

    @property
    def client_id(self) -> str:
        """The id of this client at the brokers. Raises `InvalidStateError` before the start."""
        return self._running().client_id

    async def start(self) -> None:
        """Start. Raises `NoNameServerError`, `InvalidStateError` when it was started before, and
        `ClientError` when its client already has a consumer of this group. With subscriptions it also raises
        `TransportError` when no name server answers, and `BrokerError` or `InvalidExpressionError` when a
        broker refuses a SQL92 filter.
        """
        with self._life.starting():
            instance = self._instance = shared_instance(self.settings, stream=True)
            self._tasks = TaskGroup(self._task_died)
            self._hooks = PullHooks(self.group, self.settings)
            try:
                if self.group is not None:
                    self._store = store_of(self.settings, instance, self.group, self._generation)
                    if self.settings.announce or self._plan.mode is not Mode.NONE:
                        self._join()
                instance.start()
                if self._store is not None:
                    await self._store.load()
                for topic in self._plan.topics:
                    await instance.update_route(topic)
                await instance.check_filters(self.group or "", self._plan.announced)
            except BaseException:
                await self._release()
                raise
        self._hooks.start()
        interval = self.settings.topic_check_interval
        watching = run_every(
            interval,
            self._look,
            first=min(CHECK_FIRST_SECONDS, interval),
            name="looking at watched topics",
            sleep=instance.sleep,
        )
        self._tasks.start(watching, "topics")
        if self._member is not None:
            self._member.start()

    async def close(self) -> None:
        """Leave the group: commit the polled messages and notify the brokers. Calls in flight fail. What a
        loop has in hand is not committed.

        Takes at most `close_timeout` seconds. Idempotent; waits for a running start or close.
        """
        await self._life.close(partial(self._end, polled=True))

    async def _end(self, *, polled: bool) -> None:
        try:
            if self._member is not None and self._failure is None:
                if self._lite is not None and self.settings.auto_commit:
                    self._lite.commit_last(polled=polled)
                with suppress(TimeoutError):
                    async with asyncio.timeout(self.settings.close_timeout):
                        await self._member.close()
        finally:
            if self._lite is not None:
                self._lite.end()
            await self._release()

    async def _release(self) -> None:
        """Release everything that the start acquired, as far as it got."""
        instance, self._instance = self._instance, None
        async with AsyncExitStack() as end:  # in reverse order, and completely even if cancelled
            if instance is not None:
                assert self._hooks is not None
                end.push_async_callback(self._hooks.close)
                end.push_async_callback(instance.close)
                if self._member is not None:
                    end.push_async_callback(self._member.abort)
            if self._tasks is not None:
                end.push_async_callback(self._tasks.close)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an error the last batch may not have been processed, so it is delivered again.
        await self._life.close(partial(self._end, polled=error is None))

    @property
    def late_results(self) -> int:
        """Number of commits and returned messages that brokers refused because the queue had moved to another
        member of a managed group; otherwise 0.
        """
        return 0 if self._member is None else self._member.late_results()

    # Polling

    def subscribe(
        self, topic: str, expression: Expression = "*", listener: QueueListener | None = None
    ) -> None:
        """Poll the member's share of `topic`; a second call replaces expression and listener.

        `expression` is `*`, tags (`TagA || TagB`), or a filter over properties (`Sql("a > 1")`). All members
        of a group must have the same subscriptions. `listener` is called with (topic, all queues, assigned
        queues) when the share changed; a plain function runs in a thread. May be called before or after the
        start; a broker without SQL92 support makes the start fail. Raises `InvalidNameError`,
        `InvalidExpressionError`, or `InvalidStateError` after `assign` or `register_topic`.
        """
        self._need_group()
        self._plan.subscribe(topic, expression, listener)
        self._plan_changed()

    def unsubscribe(self, topic: str) -> None:
        """Stop polling `topic`; its buffered messages are discarded."""
        self._plan.unsubscribe(topic)
        self._plan_changed()

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Poll exactly these queues, regardless of other members; replaces an earlier assignment.

        Raises `SettingsError` without queues, `InvalidStateError` after `subscribe` or `register_topic`, and
        for a member of a managed group, which reads only the queues that it was granted.
        """
        self._need_group()
        if self.settings.managed:
            raise InvalidStateError(
                f"{self._life.name} is managed and reads the queues that its coordinator grants; use "
                f"subscribe(topic), or leave managed=True out",
                what="managed",
            )
        self._plan.assign(queues)
        self._plan_changed()

    def filter_assigned(self, topic: str, expression: Expression) -> None:
        """Filter assigned queues of `topic`; only before the start. Raises `InvalidStateError`."""
        if self.state is not State.CREATED:
            raise InvalidStateError(
                f"{self._life.name} is {self.state.value}: set the filter of assigned queues before the "
                "start",
                what="created",
                value=self.state.value,
            )
        self._plan.filter_assigned(topic, expression)

    # Sharing without polling

    def register_topic(self, topic: str, listener: QueueListener | None = None) -> None:
        """Take a share of the queues of `topic` without reading them: see `fetch_message_queues_in_balance`.

        `listener` replaces the consumer's listener. It is called with (topic, all queues, assigned queues)
        when a share changed. May be called before or after the start. Raises `InvalidNameError`, or
        `InvalidStateError` after `subscribe` or `assign`.
        """
        self._need_group()
        self._plan.register(topic, listener)
        self._plan_changed()

    def fetch_message_queues_in_balance(self, topic: str) -> list[MessageQueue]:
        """This member's share of a registered topic now, sorted. Raises `ClientError` when it is not
        registered.
        """
        self._running()
        if topic not in self._plan.shared:
            text = f"topic {topic!r} is not registered: call register_topic({topic!r}) first"
            raise ClientError(text, what="topic", value=topic)
        if (pulls := self._offset_pulls()) is not None:
            pulls.finish(topic=topic)
        return [queue for queue in self.assignment if queue.topic == topic]

    def finish(self, queue: MessageQueue) -> None:
        """Declare a queue's pulled messages processed and its offset set; in a managed group it may now move.

        The next pull of the queue has the same effect, and so has a request for the queues of its topic.
        """
        self._running()
        if (pulls := self._offset_pulls()) is not None:
            pulls.finish(queue)

    async def send_back(self, message: ReceivedMessage, delay_level: int = 0) -> None:
        """Have the broker deliver a message again later, to the group's retry topic (client:E-14).

        Level 0 lets the dynamic setting `retry_delay` or the broker choose the delay; -1 makes it a dead
        letter immediately.
        """
        group, queue = self._need_group(), message.queue
        level, retries = delay_level, self.settings.max_reconsume_times
        address = need_address(await self._running().master_of(queue), queue, "master")
        if self._member is not None:
            level, retries = await self._member.retry_of(message, delay_level, address)
        with self._late():
            await self._running().brokers.send_back(
                address,
                group,
                message,
                delay_level=level,
                max_reconsume_times=None if retries < 0 else retries,
                generation=self._generation(queue),
                timeout=_SEND_BACK_TIMEOUT,
            )

    # Messages by offset

    async def fetch_raw(
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
        """Stored records from `offset` on, as the broker sent them: the result of one pull.

        At most `max_bytes` (up to 8 MiB; Apache's brokers stop at 256 KiB and 32 messages) and
        `max_messages`, but always one whole record if there is one. `expression` filters at the broker, tags
        only by their hash, so compare them again if they matter. `wait` is how many seconds the broker may
        hold the pull while there are no messages. `timeout` defaults to `wait` and 10 s. In a managed group
        dynamic settings apply: at most `pull_batch` messages, `tags` instead of `expression`, and
        `pull_interval` after the previous pull. Messages younger than `delay`, and paused queues, are not
        returned yet. `read_from` is "master", "slave" (which may be behind; the master if there is none) or
        None, the one that the master suggests.

        An offset that is not stored gives status OFFSET_ILLEGAL with the offset to continue from. Raises
        `NoRouteError`, `BrokerError` or `TransportError`.
        """
        wish = PullParameters(max_bytes, max_messages, expression, wait, timeout, read_from)
        return raw_batch(await self._pull(queue, offset, wish))

    async def pull(
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

        At most `max_messages`, by default 32 or the dynamic setting `pull_batch`. `ConsumeHook`s and traces
        treat the returned messages as consumed (client:E-08). Otherwise as `fetch_raw`, which calls no hooks.
        """
        pulls = self._offset_pulls()
        usual = USUAL_MESSAGES if pulls is None else pulls.usual(queue.topic)
        count = usual if max_messages is None else max_messages
        wish = PullParameters(BULK_BYTES_MAX, count, expression, wait, timeout)
        answer = await self._pull(queue, offset, wish)
        if pulls is not None:
            expression = pulls.expression(queue.topic, expression)
        assert self._hooks is not None
        return pull_result(answer, queue, expression, self._running().namespace, self._hooks)

    async def committed(self, queue: MessageQueue) -> int | None:
        """The group's committed offset, or None. For a queue in `assignment`, a commit that is not sent yet
        takes precedence. Needs a `group`.
        """
        self._need_group()
        known = None if self._plan.mode is Mode.NONE else self._need_store().get(queue)
        return await self._reader.committed(queue) if known is None else known

    async def commit(
        self,
        queue: MessageQueue | Mapping[MessageQueue, int] | None = None,
        offset: int | None = None,
        *,
        persist: bool = True,
    ) -> None:
        """Store the next offset the group will read. Needs a `group`.

        `commit()` commits all messages that were polled or iterated, `commit(queue, offset)` one queue,
        `commit({queue: offset})` several; the last form skips queues that are not in `assignment` with a
        warning. With `persist` brokers confirm the commit, and their errors are raised. Without it the commit
        is sent within `persist_interval` seconds if the queue is in `assignment`.
        """
        group, store = self._need_group(), self._need_store()
        if isinstance(queue, MessageQueue):
            if offset is None:
                raise SettingsError(f"commit({queue}) needs an offset: the next one to read", "offset")
            check_range("offset", offset, 0, 2**63 - 1)
            if self._plan.mode is Mode.NONE:
                await self._send_offset(group, queue, offset)
                return
            store.set(queue, offset)
            moved: Sequence[MessageQueue] = (queue,)
        else:
            lite = self._need_lite()
            moved = lite.commit_polled() if queue is None else lite.commit(queue)
        known = {one: at for one in moved if (at := store.get(one)) is not None}
        try:
            if persist:
                await asyncio.gather(*(self._send_offset(group, one, at) for one, at in known.items()))
        finally:
            if self._lite is not None:
                self._lite.finish(self._lite.all_done(known))

    # Inside

    def _running(self) -> ClientInstance:
        if self._failure is not None:
            raise self._failure
        self._life.need_running()
        assert self._instance is not None
        return self._instance

    def _need_store(self) -> OffsetStore:
        self._need_group()
        self._running()
        assert self._store is not None
        return self._store

    def _need_lite(self) -> LitePull:
        self._running()
        if self._lite is None:
            raise InvalidStateError(
                f"{self._life.name} has nothing to poll; call subscribe(topic) or assign(queues) first",
                what="subscription",
            )
        return self._lite

    def _join(self) -> PullMember:
        """Join the group, even without topics (client:E-02). Raises `ClientError` if it has a member here."""
        group, instance, store, tasks = self._need_group(), self._instance, self._store, self._tasks
        assert instance is not None and store is not None and tasks is not None
        from sparrowmq.client.pull.pull_member import PullMember

        member = PullMember(group, self.settings, self._plan, instance, store, tasks)
        instance.register_consumer(group, member)
        self._read_ahead(member)  # after the group is known to be free: a refused consumer may start later
        self._member = member
        return member

    def _read_ahead(self, member: PullMember) -> None:
        """Let `member` read ahead for `poll` as soon as something is subscribed or assigned."""
        if self._lite is None and self._plan.mode in (Mode.SUBSCRIBE, Mode.ASSIGN):
            assert self._hooks is not None
            self._lite = member.read_ahead(self._hooks)

    def _plan_changed(self) -> None:
        if self.state is not State.RUNNING:
            return
        if self._member is None:
            self._join().start()
            return
        self._read_ahead(self._member)
        if self._plan.mode is Mode.ASSIGN:
            self._member.reassign()
        else:
            self._member.plan_changed()

    def _task_died(self, name: str, error: BaseException) -> None:
        """Mark the consumer as failed: a background task ended with an error."""
        failure = self._life.task_died(name, error)
        if self._failure is not None or self.state is not State.RUNNING:
            return
        self._failure = failure
        self._life.to(State.FAILED)
        if self._lite is not None:
            self._lite.end()

    async def _send_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        async def send(brokers: BrokerRequests, address: str) -> None:
            if self._member is not None:
                await self._running().introduce(address)  # this creates a new group
            births = self._reader.births if self._plan.mode is Mode.NONE else births_of(self._need_store())
            birth, generation = births.get(queue), self._generation(queue)
            await brokers.update_offset(
                address, group, queue, offset, oneway=False, generation=generation, birth=birth
            )

        with self._late():
            await self._reader.ask(queue, send)

    def _generation(self, queue: MessageQueue) -> int | None:
        return None if self._member is None else self._member.generation(queue)

    def _late(self) -> AbstractContextManager[None]:
        return nullcontext() if self._member is None else self._member.noting_late()

    def _need_group(self) -> str:
        if self.group is None:
            text = (
                "this pull consumer has no group, which subscribing, assigning and commits need: create it "
                "with PullConsumer('my-group', …), or read queues(topic) by offset, with pull(queue, offset)"
            )
            raise ClientError(text, what="group")
        return self.group

    async def _pull(self, queue: MessageQueue, offset: int, wish: PullParameters) -> PullAnswer:
        self._running()
        check_range("offset", offset, 0, 2**63 - 1)
        wish.check()
        if self._member is not None and self._plan.note_pull(queue.topic):
            self._member.plan_changed()
        if not self.settings.managed:
            return await self._reader.pull(queue, offset, wish)
        if (pulls := self._offset_pulls()) is None:
            raise InvalidStateError(f"{self._life.name} is managed and polls; it cannot also pull by offset")
        return await pulls.pull(queue, offset, wish, lambda wish: self._reader.pull(queue, offset, wish))

    def _offset_pulls(self) -> OffsetPulls | None:
        return None if self._member is None else self._member.pulls
