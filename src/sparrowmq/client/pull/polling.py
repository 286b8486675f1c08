"""Polling: queues are read ahead in the background, and the application polls one batch at a time
(client:E.3).

One task for each queue runs `PullLoop`, which pulls into a process queue, where messages wait for `poll`.
Messages that `poll` returned count as handled when the next ones are asked for (client:E-34). What a loop had
in hand when it was left is read again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from sparrowmq.client.base.hooks import PullLoopContext
from sparrowmq.client.base.offset_store_protocol import OffsetStore, births_of
from sparrowmq.client.base.settings import PullSettings
from sparrowmq.client.base.tasks import TaskGroup
from sparrowmq.client.cluster.broker_api import (
    PULL_LITE,
    PULL_SUBSCRIPTION,
    PULL_SUSPEND,
    GenerationOf,
    PullAnswer,
    decode_pull,
    pull_request,
)
from sparrowmq.client.cluster.instance import ClientInstance
from sparrowmq.client.consumer.dynamic_settings import Changed, DynamicSettings
from sparrowmq.client.consumer.offset_store import forget_deleted
from sparrowmq.client.consumer.process_queue import Limits, MakeQueue, ProcessQueue
from sparrowmq.client.consumer.pull_loop import PAUSED_SECONDS, PullLoop
from sparrowmq.client.consumer.start_offset import start_offset
from sparrowmq.client.pull.pull_hooks import PullHooks
from sparrowmq.client.pull.read_mode import PullPlan
from sparrowmq.core.dynamic_settings import is_paused
from sparrowmq.core.errors import ClientError, InvalidStateError, SparrowError
from sparrowmq.core.message import MessageQueue, ReceivedMessage
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.transport.occasional import OccasionalLog

log = logging.getLogger("sparrowmq.client")

LITE_PULL_VERSION: Final = 413
"""The first release whose brokers support request 361, 5.0.0 (client:G-22)."""
_START_DELAY: Final = 3.0
"""Seconds until the lookup of a queue's start offset is retried (client:E-29)."""


@dataclass(slots=True)
class _Held:
    """One queue that is being read. Offsets are -1 until they are known (client:E-27)."""

    process_queue: ProcessQueue
    consume_offset: int = -1
    begun: int = -1
    after: int = -1
    """The offset once the messages in hand are handled."""
    task: asyncio.Task[None] | None = None
    resumed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def position(self) -> int:
        """The offset after what was handed out."""
        return self.handled if self.after < 0 else self.after

    @property
    def handled(self) -> int:
        """The offset after what was handled."""
        return self.begun if self.consume_offset < 0 else self.consume_offset

    def move(self, offset: int) -> None:
        """Continue from `offset`."""
        self.consume_offset, self.after = offset, -1


class LoopReader:
    """One loop over the messages. Another one, or a poll, takes its place."""

    def __init__(self) -> None:
        self.replaced = False

    def replace(self) -> None:
        """Another loop or a poll has taken over; the message in hand is delivered again, to it."""
        self.replaced = True


class LitePull:
    """The polled queues of one consumer. Lives on one event loop."""

    def __init__(
        self,
        group: str,
        settings: PullSettings,
        plan: PullPlan,
        instance: ClientInstance,
        store: OffsetStore,
        tasks: TaskGroup,
        hooks: PullHooks,
        *,
        dynamic: DynamicSettings,
        make: MakeQueue,
        generation_of: GenerationOf,
    ) -> None:
        """`make` creates the process queue of a queue. In a managed group pulls carry the queue's
        generation.
        """
        self._group = group
        self.dynamic = dynamic
        self._make = make
        self._generation_of = generation_of
        self._settings = settings
        self._plan = plan
        self._instance = instance
        self._store = store
        self.births = births_of(store)
        self._tasks = tasks
        self._hooks = hooks
        self._limits = Limits(settings.queue_messages_max, settings.queue_bytes_max, settings.queue_span_max)
        self._queues: dict[MessageQueue, _Held] = {}
        self._waiting: deque[tuple[_Held, ProcessQueue, list[ReceivedMessage]]] = deque()
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._plain: set[str] = set()
        self._given: set[ProcessQueue] = set()
        """Process queues whose messages the application is processing."""
        self._occasional = OccasionalLog(log)
        self._commit_at = 0.0
        self._ended = False
        self._in_hand: list[_Held] = []
        """The queues whose messages the application has in hand; several if it polls from several tasks."""
        self._reader: LoopReader | None = None
        """The loop that got the last ones; None if `poll` returned them."""
        self._loop = PullLoop(group, instance, self, ReceivedMessage, error_delay=settings.error_delay)

    def __repr__(self) -> str:
        return f"<LitePull queues={len(self._queues)} waiting={len(self._waiting)}>"

    # Queues

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues being read, sorted."""
        return sorted(self._queues)

    def process_queues(self) -> list[ProcessQueue]:
        """Their process queues."""
        return [held.process_queue for held in self._queues.values()]

    def add(self, queue: MessageQueue) -> None:
        """Start reading a queue; its start offset is determined at the first pull."""
        held = _Held(self._make(queue, -1, self._limits, now=self._instance.clock.monotonic()))
        held.resumed.set()
        self._queues[queue] = held
        self._begin(held)

    def remove(self, queue: MessageQueue) -> None:
        """Stop reading a queue; its buffered batches are discarded."""
        held = self._queues.pop(queue, None)
        if held is not None:
            self._stop(held)

    def find(self, queue: MessageQueue) -> ProcessQueue | None:
        """The process queue of a queue, if the queue is read."""
        held = self._queues.get(queue)
        return None if held is None else held.process_queue

    def rest(self, queue: MessageQueue) -> None:
        """Stop reading and polling a queue; polled messages can still be committed."""
        held = self._queues[queue]
        held.process_queue.leave()
        if held.task is not None:
            held.task.cancel()
        self._waiting = deque(one for one in self._waiting if not one[1].leaving)
        self._room.set()

    def settle(self, queue: MessageQueue) -> None:
        """Count the polled messages of a paused queue as consumed, if commits are automatic."""
        held = self._queues.get(queue)
        if held is not None and self._settings.auto_commit and held.consume_offset >= 0:
            self._store.set(queue, held.consume_offset)

    def finish(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """The application has processed the polled messages of these queues, or of all."""
        wanted = None if queues is None else set(queues)
        for process_queue in list(self._given):
            if wanted is None or process_queue.queue in wanted:
                self._given.discard(process_queue)
                process_queue.ended()

    def go_on(self) -> None:
        """Offer messages to polls again that waited because nothing was allowed to start."""
        if self._waiting:
            self._arrived.set()

    def end(self) -> None:
        """There will be no more messages: waiting polls return."""
        self._ended = True
        for queue in list(self._queues):
            self.remove(queue)
        self._arrived.set()

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue from `offset`, which must be stored; buffered messages are discarded (client:E-38)."""
        held = self.need(queue)
        self._read_from(held, offset)
        held.move(offset)

    def begin_anew(self, changed: Changed) -> None:
        """Apply changed dynamic settings. Buffered messages of queues that are now paused or have other tags
        are discarded and pulled again, and pulls held by brokers are restarted. Messages already polled are
        not affected.
        """
        for queue, held in self._queues.items():
            if held.process_queue.leaving:
                continue
            if queue.topic in changed.tags or is_paused(changed.pauses, queue, 0):
                self._read_from(held, held.position)
            elif queue.topic in changed.pulls and held.task is not None:
                held.task.cancel()
                self._begin(held)

    def _read_from(self, held: _Held, offset: int) -> None:
        self._stop(held)
        self._restart(held, offset)

    def _restart(self, held: _Held, offset: int) -> None:
        queue, now = held.process_queue.queue, self._instance.clock.monotonic()
        held.process_queue = self._make(queue, offset, self._limits, now=now)
        self._begin(held)

    def need(self, queue: MessageQueue) -> _Held:
        """The state of a queue. Raises `ClientError` when it is not read here or about to move: a restart
        would read it at the same time as its next owner.
        """
        held = self._queues.get(queue)
        if held is None or not held.process_queue.may_start():
            read = (one for one in self.queues if self._queues[one].process_queue.may_start())
            mine = ", ".join(map(str, read)) or "none"
            raise ClientError(
                f"{queue} is not among the queues that this consumer reads now ({mine}); another member of "
                f"the group may have it: see `assignment`",
                what="queue",
                value=queue,
            )
        return held

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Stop pulling from these queues; buffered messages are still polled (client:E-39)."""
        for queue in queues:
            self.need(queue).resumed.clear()

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Resume pulling from these queues."""
        for queue in queues:
            self.need(queue).resumed.set()

    @property
    def paused(self) -> list[MessageQueue]:
        """The paused queues, sorted."""
        return sorted(queue for queue, held in self._queues.items() if not held.resumed.is_set())

    # Taking

    async def poll(self, timeout: float, reader: LoopReader | None = None) -> list[ReceivedMessage]:
        """The next batch of one queue, for a `reader` one message; empty when none arrived within `timeout`
        seconds (client:E-33). What the same reader or a poll got before counts as handled.

        Raises `InvalidStateError` for a reader that was replaced.
        """
        if reader is not None and reader.replaced:
            raise InvalidStateError(
                f"another loop or poll of group {self._group} has taken over; use one at a time"
            )
        loop = asyncio.get_running_loop()
        if self._reader is None or self._reader is reader:
            self._handled()
        else:
            self._reader.replace()
            self._give_back()
        self._commit_when_due(loop.time())
        self.finish()
        deadline = loop.time() + timeout
        while not (messages := self._next(reader)) and not self._ended:
            left = deadline - loop.time()
            if left <= 0:
                await asyncio.sleep(0)  # polling in a loop without waiting must let pulls run
                return self._next(reader)
            self._arrived.clear()
            try:
                async with asyncio.timeout(left):
                    await self._arrived.wait()
            except TimeoutError:
                pass
        return messages

    def _next(self, reader: LoopReader | None) -> list[ReceivedMessage]:
        resting = []
        found: list[ReceivedMessage] = []
        while self._waiting and not found:
            one = self._waiting.popleft()
            self._room.set()
            if one[1].may_start():
                found = self._given_out(*one, reader)
            elif not one[1].leaving:
                resting.append(one)
        self._waiting.extendleft(reversed(resting))
        return found

    def _given_out(
        self,
        held: _Held,
        process_queue: ProcessQueue,
        messages: list[ReceivedMessage],
        reader: LoopReader | None,
    ) -> list[ReceivedMessage]:
        """The part of the buffered messages that one poll returns."""
        known = self.dynamic.pull(process_queue.queue.topic)
        most = known.batch if known.told else len(messages)  # it was pulled in larger batches
        most = most if reader is None else 1
        if len(messages) > most:
            self._waiting.appendleft((held, process_queue, messages[most:]))
            messages = messages[:most]
        if process_queue not in self._given:
            self._given.add(process_queue)
            process_queue.began(self._instance.clock.monotonic())
        offset = process_queue.remove(messages)
        if offset >= 0:
            held.after = offset
            self._in_hand.append(held)
            self._reader = reader
        self._hooks.taken(process_queue.queue, messages)
        return messages

    def _handled(self) -> None:
        """The messages in hand were handled."""
        in_hand, self._in_hand = self._in_hand, []
        for held in in_hand:
            if held.after >= 0:
                held.move(held.after)

    def new_reader(self) -> LoopReader:
        """A reader for a new loop."""
        return LoopReader()

    def leave(self, reader: LoopReader) -> None:
        """A loop was left: what it has in hand is delivered again."""
        if self._reader is reader:
            self._give_back()

    def _give_back(self) -> None:
        in_hand, self._in_hand, self._reader = self._in_hand, [], None
        self.finish()
        for held in in_hand:
            if held.after >= 0:
                held.after = -1
                if not held.process_queue.leaving:
                    self._read_from(held, held.handled)

    def position(self, queue: MessageQueue) -> int | None:
        """The offset after what was handed out of a queue; None until it is known."""
        held = self._queues.get(queue)
        return None if held is None or held.position < 0 else held.position

    def lag(self) -> dict[MessageQueue, int]:
        """Messages per queue that are not handled yet, as of the last pull."""
        return {
            queue: max(0, held.process_queue.broker_max_offset - held.handled)
            for queue, held in sorted(self._queues.items())
        }

    # Commits

    def _commit_when_due(self, now: float) -> None:
        if self._settings.auto_commit and now >= self._commit_at:
            self._commit_at = now + self._settings.auto_commit_interval
            self._commit_handled()

    def commit_last(self, *, polled: bool) -> None:
        """Commit what was handled, and with `polled` also what the last `poll` returned."""
        if polled and self._reader is None:
            self._handled()
        self._commit_handled()

    def commit_polled(self) -> list[MessageQueue]:
        """Commit what was handled or is in hand. Returns the queues."""
        self._handled()
        return self._commit_handled()

    def _commit_handled(self) -> list[MessageQueue]:
        """Put the offsets of handled messages into the offset store."""
        moved = []
        for queue, held in self._queues.items():
            if held.consume_offset >= 0:
                self._store.set(queue, held.consume_offset)
                moved.append(queue)
        return moved

    def commit(self, offsets: Mapping[MessageQueue, int]) -> list[MessageQueue]:
        """Put these offsets into the store; queues that are no longer read here and negative offsets are
        skipped with a warning (client:E-36).
        """
        moved = []
        for queue, offset in offsets.items():
            if queue not in self._queues:
                log.warning(
                    "group %s no longer reads %s: offset %d is not committed", self._group, queue, offset
                )
            elif offset < 0:
                log.warning("group %s has nothing to commit for %s: offset %d", self._group, queue, offset)
            else:
                self._store.set(queue, offset)
                moved.append(queue)
        return moved

    def all_done(self, offsets: Mapping[MessageQueue, int]) -> list[MessageQueue]:
        """The queues whose polled messages are all below these offsets."""
        return [
            queue
            for queue, offset in offsets.items()
            if (held := self._queues.get(queue)) is not None
            and offset >= max(held.consume_offset, held.after)
        ]

    # Pulling

    def _begin(self, held: _Held) -> None:
        name = f"pull {held.process_queue.queue}"
        held.task = self._tasks.start(self._loop.run(held.process_queue), name)

    def _stop(self, held: _Held) -> None:
        held.process_queue.drop()
        if held.task is not None:
            held.task.cancel()

    @property
    def _is_full(self) -> bool:
        return len(self._waiting) * self.dynamic.batch_max > self._settings.messages_max

    # Called by the loop

    async def held_up(self, process_queue: ProcessQueue) -> bool:
        """Wait while the queue is paused or full, the total limit is reached, or the start offset is unknown.
        Returns whether it had to wait.
        """
        held = self._queues[process_queue.queue]
        if not held.resumed.is_set():
            await held.resumed.wait()
        elif self.dynamic.is_paused(process_queue.queue):
            await self.dynamic.sleep(PAUSED_SECONDS)
        elif process_queue.is_full:
            await process_queue.room()
        elif self._is_full:
            self._room.clear()
            await self._room.wait()
        elif process_queue.next_offset < 0:
            await self._find_start(held, process_queue)
        else:
            return False
        return True

    async def _find_start(self, held: _Held, process_queue: ProcessQueue) -> None:
        """The group's offset: from memory, or else stored, or else from `consume_from` (client:E-29)."""
        queue = process_queue.queue
        try:
            offset = self._store.get(queue)
            if offset is None:
                await self._instance.find_route(queue.topic)
                offset = await start_offset(self._instance, self._store, queue, self._settings.consume_from)
        except SparrowError as error:
            text = f"group {self._group} cannot start with {queue} yet: {error}"
            self._occasional.write(logging.WARNING, f"start {queue}", text)
            await self._instance.sleep(_START_DELAY)
            return
        held.begun = max(0, offset)
        process_queue.read_on_from(held.begun)

    async def ask(self, process_queue: ProcessQueue, address: str) -> PullAnswer:
        """Pull once, by code 361 where supported (client:E-30)."""
        queue, settings = process_queue.queue, self._settings
        code = self._code(address)
        request = pull_request(
            group=self._group,
            queue=queue,
            offset=process_queue.next_offset,
            max_messages=self.dynamic.pull(queue.topic).batch,
            max_bytes=settings.pull_bytes,
            hold=settings.pull_hold,
            subscription=self._plan.pull_filter(queue.topic),
            sys_flag=PULL_SUSPEND | PULL_SUBSCRIPTION | PULL_LITE,
            generation=self._generation_of(queue),
            birth=self.births.get(queue, 0),
            code=code,
        )
        answer = await self._instance.remoting.call(address, request, settings.pull_timeout)
        is_unknown = answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        if is_unknown and code is RequestCode.LITE_PULL_MESSAGE:
            self._plain.add(address)
            return await self.ask(process_queue, address)
        return decode_pull(answer, address, queue)

    def _code(self, address: str) -> RequestCode:
        """361 for brokers that support it, which distinguishes these from classic pulls; otherwise 11
        (client:E-30).
        """
        version = self._instance.broker_versions.get(address, LITE_PULL_VERSION)
        if address in self._plain or version < LITE_PULL_VERSION:
            return RequestCode.PULL_MESSAGE
        return RequestCode.LITE_PULL_MESSAGE

    def tags(self, topic: str) -> frozenset[str]:
        """The subscribed tags."""
        return self._plan.subscription(topic).tags

    def pulled(self, topic: str, count: int, seconds: float) -> None:
        """Does nothing: pulls are not counted here."""

    def after_pull(self, context: PullLoopContext) -> None:
        """Call the pull hooks."""
        self._hooks.after_pull(context)

    def filtered(self, queue: MessageQueue, messages: list[ReceivedMessage]) -> list[ReceivedMessage]:
        """The messages that pass the filter hooks."""
        return self._hooks.filtered(queue, messages)

    async def not_stored(self, process_queue: ProcessQueue, offset: int) -> None:
        """Continue reading from `offset`. If it is before the next one, what was read behind it is of an
        earlier life of the queue: it is not polled any more, and what was polled is not committed.
        """
        held = self._queues.get(process_queue.queue)
        if held is None or held.process_queue is not process_queue:
            return
        if offset >= process_queue.next_offset:
            process_queue.read_on_from(offset)
            return
        if (unfinished := process_queue.unfinished) is not None:
            offset = min(offset, unfinished)
        held.begun = min(held.begun, offset)
        if max(held.consume_offset, held.after) > offset:
            held.move(offset)
            self._store.set(process_queue.queue, offset)
        process_queue.drop()
        self._restart(held, offset)

    async def topic_gone(self, process_queue: ProcessQueue) -> None:
        """Discard what was read of the deleted topic, and determine the start offset again."""
        queue = process_queue.queue
        held = self._queues.get(queue)
        if held is None or held.process_queue is not process_queue:
            return
        process_queue.drop()
        self._waiting = deque(one for one in self._waiting if one[1] is not process_queue)
        held.move(-1)
        await forget_deleted(self._store, queue)
        if self._queues.get(queue) is held and held.process_queue is process_queue:
            self._restart(held, -1)

    def hand_out(
        self, process_queue: ProcessQueue, messages: list[ReceivedMessage], starts_run: bool
    ) -> None:
        """Buffer messages for a poll."""
        self._waiting.append((self._queues[process_queue.queue], process_queue, messages))
        self._arrived.set()

    def left_out(self, process_queue: ProcessQueue, answer: PullAnswer) -> None:
        """Filtered-out messages count as consumed. No message is buffered, see the caller, so the offset
        passes none that was not polled.
        """
        held = self._queues[process_queue.queue]
        if answer.next_offset <= max(held.begun, held.consume_offset, held.after):
            return
        if held.after >= 0:
            held.after = answer.next_offset
        else:
            held.consume_offset = answer.next_offset
