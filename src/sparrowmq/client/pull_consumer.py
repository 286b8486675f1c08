"""The asyncio pull consumer: queues by offset, or polled, or shared among a group (client:E.1, E.3).

`fetch_raw` is the bulk path: stored records as bytes. Our brokers answer with up to 8 MiB; Apache's give 32
messages at most (broker:5.2), so a fast reader keeps several pulls in flight. Calls may overlap freely.

This is the shell: `QueueLookups` has the queues of topics and their ends, `QueueReader` asks brokers about
single queues, `LitePull` reads ahead for `poll`, `PullMember` is the membership, `PullPlan` what was asked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext, suppress
from dataclasses import replace
from types import TracebackType
from typing import Final, Self

from sparrowmq.client.instance import ClientInstance
from sparrowmq.client.instances import shared_instance
from sparrowmq.client.lifecycle import Lifecycle, State
from sparrowmq.client.lite_pull import LitePull
from sparrowmq.client.offset_pulls import USUAL_MESSAGES, OffsetPulls
from sparrowmq.client.offset_store import OffsetStore, store_of
from sparrowmq.client.pull_hooks import PullHooks
from sparrowmq.client.pull_member import PullMember
from sparrowmq.client.pull_plan import Mode, PullPlan, QueueListener
from sparrowmq.client.pull_results import pull_result, raw_batch
from sparrowmq.client.queue_lookups import QueueLookups
from sparrowmq.client.queue_reader import MESSAGES_MAX, PullWish, QueueReader
from sparrowmq.client.requests import BrokerRequests, PullAnswer, need_address
from sparrowmq.client.settings import ClientSettings, PullSettings, check_range
from sparrowmq.client.tasks import TaskGroup, run_every
from sparrowmq.client.topic_watch import CHECK_FIRST_SECONDS, TopicWatch
from sparrowmq.core.clock import SystemClock
from sparrowmq.core.errors import ClientError, GroupTakenError, InvalidStateError, SettingsError
from sparrowmq.core.message import MessageQueue, ReceivedMessage
from sparrowmq.core.names import check_group
from sparrowmq.core.results import PullResult, RawBatch, ReadFrom
from sparrowmq.core.subscription import Expression
from sparrowmq.protocol.headers import BULK_BYTES_MAX

log = logging.getLogger("sparrowmq.client")

BROADCASTING_INSTANCE: Final = "DEFAULT"
_SEND_BACK_TIMEOUT: Final = 3.0


class PullConsumer(QueueLookups):
    """Reads messages when it is asked to. There are three ways, of which one consumer goes one.

    By offset, with nothing to share:

        async with PullConsumer(namesrv="127.0.0.1:9876") as consumer:
            for queue in await consumer.queues("TopicTest"):
                batch = await consumer.fetch_raw(queue, await consumer.min_offset(queue))

    By `poll`, from the member's share of subscribed topics, or from queues it is assigned (what RocketMQ
    calls lite pull):

        async with PullConsumer("audit", namesrv="127.0.0.1:9876") as consumer:
            consumer.subscribe("TopicTest", "TagA || TagB")
            for message in await consumer.poll():
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
        if group is not None:
            check_group(group)
        self.group = group
        self.settings = PullSettings.of(settings)
        if namesrv is not None:
            self.settings = replace(self.settings, namesrv=namesrv)
        if self.settings.model == "broadcasting" and self.settings.instance_name is None:
            # The file of offsets is found by the client id, which must stay over restarts (client:A-06).
            self.settings = replace(self.settings, instance_name=BROADCASTING_INSTANCE)
        if self.settings.managed and group is None:
            raise SettingsError("managed=True needs a group; give one, or leave it out")
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
        self._reader = QueueReader(self._running, group)

    def __repr__(self) -> str:
        return f"<PullConsumer {self.group!r} {self.state.value}{f' {self._lite!r}' if self._lite else ''}>"

    @property
    def state(self) -> State:
        """Where the consumer is in its life; FAILED when a background task died."""
        return self._life.state

    @property
    def client_id(self) -> str:
        """What brokers know this client by. Raises `InvalidStateError` before the start."""
        return self._running().client_id

    async def start(self) -> None:
        """Begin. Raises `NoNameServerError`, `InvalidStateError` when it was started before, `ClientError`
        when its client has a consumer of this group, and with subscriptions `TransportError` when no name
        server answers, `BrokerError` or `InvalidExpressionError` when a broker refuses a SQL92 filter.
        """
        self._life.to(State.STARTING)
        try:
            instance = self._instance = shared_instance(self.settings, stream=True)
        except BaseException:
            self._life.to(State.FAILED)
            raise
        self._tasks = TaskGroup(self._task_died)
        self._hooks = PullHooks(self.group, self.settings)
        try:
            if self.group is not None:
                self._store = store_of(self.settings, instance, self.group)
                if self.settings.announce or self._plan.mode is not Mode.NONE:
                    self._join()
            instance.start()
            if self._store is not None:
                await self._store.load()
            for topic in self._plan.topics:
                await instance.update_route(topic)
            await instance.check_filters(self.group or "", self._plan.announced)
        except GroupTakenError:
            await self._end(State.CREATED)  # the one that exists is not harmed; this one may try again
            raise
        except BaseException:
            await self._end(State.FAILED)
            raise
        self._life.to(State.RUNNING)
        self._hooks.start()
        interval = self.settings.topic_check_interval
        watching = run_every(
            interval, self._look, first=min(CHECK_FIRST_SECONDS, interval), name="looking at watched topics"
        )
        self._tasks.start(watching, "topics")
        if self._member is not None:
            self._member.start()

    async def close(self) -> None:
        """Leave the group: what polls returned is committed, brokers are told; calls in flight fail.

        Takes at most `close_timeout` seconds. Idempotent; a start or close under way ends first.
        """
        await self._close(commit=True)

    async def _close(self, commit: bool) -> None:
        await self._life.settled()
        if self.state is State.CREATED:
            self._life.to(State.CLOSED)
        if self.state not in (State.RUNNING, State.FAILED):
            return
        self._life.to(State.CLOSING)
        try:
            if self._member is not None and self._failure is None:
                if commit and self._lite is not None and self.settings.auto_commit:
                    self._lite.commit_polled()
                with suppress(TimeoutError):
                    async with asyncio.timeout(self.settings.close_timeout):
                        await self._member.close()
        finally:
            if self._lite is not None:
                self._lite.end()
            await self._end(State.CLOSED)

    async def _end(self, state: State) -> None:
        """Let go of what the start took, whatever of it there is; then the consumer is in `state`."""
        instance, self._instance = self._instance, None
        async with AsyncExitStack() as end:  # the last one first, all of it also when it is cancelled
            end.callback(self._life.to, state)
            if instance is not None:
                assert self._hooks is not None
                end.push_async_callback(self._hooks.close)
                end.push_async_callback(instance.close)
                if self._member is not None:
                    end.push_async_callback(self._member.abort)
            if self._tasks is not None:
                end.push_async_callback(self._tasks.close)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an error the last batch may not have been worked on: it comes again.
        await self._close(commit=error is None)

    @property
    def late_results(self) -> int:
        """Commits and returned messages that brokers refused, because the queue had gone on to another member
        of a managed group. 0 otherwise.
        """
        return 0 if self._member is None else self._member.late_results()

    # Polling

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
        self._need_group()
        self._plan.subscribe(topic, expression, listener)
        self._plan_changed()

    def unsubscribe(self, topic: str) -> None:
        """Stop polling `topic`; what of it waits is thrown away."""
        self._plan.unsubscribe(topic)
        self._plan_changed()

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Poll exactly these queues, whoever else does; replaces an earlier assignment.

        Raises `SettingsError` without queues, `InvalidStateError` after `subscribe` or `register_topic`, and
        for a member of a managed group, which reads what it is granted.
        """
        self._need_group()
        if self.settings.managed:
            raise InvalidStateError(
                f"{self._life.name} is managed: it reads what its coordinator grants; subscribe(topic), or "
                "leave managed=True out"
            )
        self._plan.assign(queues)
        self._plan_changed()

    def filter_assigned(self, topic: str, expression: Expression) -> None:
        """Filter what assigned queues of `topic` give; before the start only. Raises `InvalidStateError`."""
        if self.state is not State.CREATED:
            raise InvalidStateError(
                f"{self._life.name} is {self.state.value}: the filter of assigned queues is set before the "
                "start"
            )
        self._plan.filter_assigned(topic, expression)

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that are this consumer's now, sorted."""
        return [] if self._member is None else sorted(self._member.owned())

    async def poll(self, timeout: float | None = None) -> list[ReceivedMessage]:
        """The next messages of one queue, at most `pull_batch`; empty when none came in time.

        `timeout` in seconds defaults to `poll_timeout` (5). The messages count as consumed: with
        `auto_commit` a later poll commits them. Raises `InvalidStateError` when nothing is subscribed or
        assigned, `SettingsError` for a negative timeout.
        """
        self._running()
        lite = self._need_lite()
        limit = self.settings.poll_timeout if timeout is None else timeout
        check_range("timeout", limit, 0, 86400, "seconds")
        messages = await lite.poll(limit)
        if self._failure is not None and not messages:
            raise self._failure
        return messages

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Poll `queue` from `offset` on; what was read ahead of it is thrown away.

        Raises `ClientError` when the queue is not in `assignment`, `SettingsError` when the offset is below
        the smallest stored one or above the next one.
        """
        lite = self._need_lite()
        lite.need(queue)
        low, high = await asyncio.gather(self.min_offset(queue), self.max_offset(queue))
        check_range(f"offset of {queue}", offset, low, high)
        lite.seek(queue, offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Poll `queue` from the oldest stored message on."""
        self._need_lite().need(queue)
        offset = await self.min_offset(queue)
        self._need_lite().seek(queue, offset)

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Poll what comes to `queue` from now on."""
        self._need_lite().need(queue)
        offset = await self.max_offset(queue)
        self._need_lite().seek(queue, offset)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Read no more from these queues; what was read ahead is still polled. Raises `ClientError` for one
        that is not in `assignment`.
        """
        self._need_lite().pause(queues)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Read from paused queues again. Raises as `pause`."""
        self._need_lite().resume(queues)

    @property
    def paused(self) -> list[MessageQueue]:
        """The queues that are paused, sorted."""
        return [] if self._lite is None else self._lite.paused

    # Sharing without polling

    def register_topic(self, topic: str, listener: QueueListener | None = None) -> None:
        """Take part in the sharing of `topic`, reading nothing: see `fetch_message_queues_in_balance`.

        A listener that is given becomes the consumer's only one: it is told (topic, all queues, own queues)
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
            raise ClientError(f"topic {topic!r} is not registered: call register_topic({topic!r}) first")
        if (pulls := self._offset_pulls()) is not None:
            pulls.finish(topic=topic)
        return [queue for queue in self.assignment if queue.topic == topic]

    def finish(self, queue: MessageQueue) -> None:
        """What was pulled of a queue is done and its offset noted; in a managed group the queue may move now.

        The next pull of the queue says the same, and so does asking for the queues of its topic.
        """
        self._running()
        if (pulls := self._offset_pulls()) is not None:
            pulls.finish(queue)

    def update_consume_offset(self, queue: MessageQueue, offset: int) -> None:
        """Set the next offset to consume, in memory, wherever it was; it is sent every `persist_interval`
        seconds for queues of the member's share. Others need `commit`.
        """
        check_range("offset", offset, 0, 2**63 - 1)
        self._need_store().set(queue, offset)

    async def fetch_consume_offset(self, queue: MessageQueue, *, from_store: bool = False) -> int | None:
        """The next offset to consume: the one in memory, else the broker's; only the broker's with
        `from_store`. None when there is none.
        """
        store = self._need_store()
        known = None if from_store else store.get(queue)
        return await self._reader.committed(queue) if known is None else known

    async def send_back(self, message: ReceivedMessage, delay_level: int = 0) -> None:
        """Have the broker deliver a message again later, to the group's retry topic (client:E-14).

        Level 0 lets the knob `retry_delay` or the broker choose the delay; -1 makes a dead letter at once.
        """
        group, queue = self._need_group(), message.queue
        level, retries = delay_level, self.settings.max_reconsume_times
        if self._member is not None:
            level, retries = self._member.retry_of(message, delay_level)
        address = need_address(self._running().routes.master(queue.broker_name), queue, "master")
        with self._late():
            await self._running().brokers.send_back(
                address,
                group,
                message,
                delay_level=level,
                max_reconsume_times=retries,
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
        wish = PullWish(max_bytes, max_messages, expression, wait, timeout, read_from)
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

        At most `max_messages`, by default 32 or the live knob `pull_batch`. For `ConsumeHook`s and traces
        what it returns is consumed (client:E-08). Otherwise as `fetch_raw`, which calls no hooks.
        """
        pulls = self._offset_pulls()
        usual = USUAL_MESSAGES if pulls is None else pulls.usual(queue.topic)
        count = usual if max_messages is None else max_messages
        answer = await self._pull(queue, offset, PullWish(BULK_BYTES_MAX, count, expression, wait, timeout))
        if pulls is not None:
            expression = pulls.expression(queue.topic, expression)
        assert self._hooks is not None
        return pull_result(answer, queue, expression, self._running().namespace, self._hooks)

    async def committed(self, queue: MessageQueue) -> int | None:
        """The group's committed offset, None when it has none; for a queue in `assignment` the one that is
        about to be sent, if there is one. Needs a `group`.
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

        `commit()` takes what polls returned, `commit(queue, offset)` one queue, `commit({queue: offset})`
        several; in the last form queues that are not in `assignment` are left out with a warning. With
        `persist` brokers confirm it, and their errors are raised; without, it is noted, and sent within
        `persist_interval` seconds if the queue is in `assignment`.
        """
        group, store = self._need_group(), self._need_store()
        if isinstance(queue, MessageQueue):
            if offset is None:
                raise SettingsError(f"commit({queue}) needs an offset: the next one to read")
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
                f"{self._life.name} polls nothing yet: call subscribe(topic) or assign(queues) first"
            )
        return self._lite

    def _join(self) -> PullMember:
        """Become a member, also with nothing to share: heartbeats make the group (client:E-02). Raises
        `ClientError` for a taken group.
        """
        group, instance, store, tasks = self._need_group(), self._instance, self._store, self._tasks
        assert instance is not None and store is not None and tasks is not None
        self._lite = self._poller()
        member = PullMember(group, self.settings, self._plan, instance, store, tasks, self._lite)
        instance.register_consumer(group, member)
        self._member = member
        self._reader.generation_of = member.generation
        return member

    def _poller(self) -> LitePull | None:
        """What reads ahead for `poll`, once there is something to poll."""
        if self._plan.mode not in (Mode.SUBSCRIBE, Mode.ASSIGN):
            return None
        group, instance, store = self._need_group(), self._instance, self._store
        tasks, hooks = self._tasks, self._hooks
        assert instance is not None and store is not None and tasks is not None and hooks is not None
        return LitePull(group, self.settings, self._plan, instance, store, tasks, hooks)

    def _plan_changed(self) -> None:
        if self.state is not State.RUNNING:
            return
        if self._member is None:
            self._join().start()
            return
        if self._lite is None and (lite := self._poller()) is not None:
            self._lite = lite
            self._member.read_by(lite)
        if self._plan.mode is Mode.ASSIGN:
            self._member.reassign()
        else:
            self._member.plan_changed()

    def _task_died(self, name: str, error: BaseException) -> None:
        """A background task ended with an error: the consumer cannot go on, and says so."""
        log.error("the background task %r of %s died", name, self._life.name, exc_info=error)
        if self._failure is not None or self.state is not State.RUNNING:
            return
        self._failure = ClientError(
            f"{self._life.name} stopped because its background task {name!r} died: {type(error).__name__}: "
            f"{error}; close it and make a new one"
        )
        self._failure.__cause__ = error
        self._life.to(State.FAILED)
        if self._lite is not None:
            self._lite.end()

    async def _send_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        async def send(brokers: BrokerRequests, address: str) -> None:
            if self._member is not None:
                await self._running().introduce(address)  # a group that is new is made by it
            await brokers.update_offset(
                address, group, queue, offset, oneway=False, generation=self._generation(queue)
            )

        with self._late():
            await self._reader.ask(queue, send)

    def _generation(self, queue: MessageQueue) -> int | None:
        return None if self._member is None else self._member.generation(queue)

    def _late(self) -> AbstractContextManager[None]:
        return nullcontext() if self._member is None else self._member.noting_late()

    def _need_group(self) -> str:
        if self.group is None:
            raise ClientError("this pull consumer has no group: make it with PullConsumer('my-group', …)")
        return self.group

    async def _pull(self, queue: MessageQueue, offset: int, wish: PullWish) -> PullAnswer:
        self._running()
        check_range("offset", offset, 0, 2**63 - 1)
        wish.check()
        if self._member is not None and self._plan.note_pull(queue.topic):
            self._member.plan_changed()
        if not self.settings.managed:
            return await self._reader.pull(queue, offset, wish)
        if (pulls := self._offset_pulls()) is None:
            raise InvalidStateError(f"{self._life.name} is managed and polls; it cannot pull by offset, too")
        return await pulls.pull(queue, offset, wish, lambda wish: self._reader.pull(queue, offset, wish))

    async def _rest(self, queue: MessageQueue) -> None:
        """Wait until live knobs let a queue be pulled again. Raises `ClientError` once it is not granted."""
        if (pulls := self._offset_pulls()) is not None:
            await pulls.rest(queue)

    def _offset_pulls(self) -> OffsetPulls | None:
        return None if self._member is None else self._member.pulls
