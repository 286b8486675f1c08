"""Polling: queues are read ahead in the background, the application takes batch after batch (client:E.3).

One task for each queue pulls into a process queue and puts what came before `poll`. What `poll` returned
counts as consumed: the next commit covers it (client:E-34).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from sparrowmq.client.aging import hand_out_old
from sparrowmq.client.decoding import decode_messages
from sparrowmq.client.instance import ClientInstance
from sparrowmq.client.knobs import Changed, LiveKnobs
from sparrowmq.client.namespaces import unwrap_messages
from sparrowmq.client.offsets import OffsetStore
from sparrowmq.client.process_queue import Limits, ProcessQueue
from sparrowmq.client.pull_hooks import PullHooks
from sparrowmq.client.pull_plan import PullPlan
from sparrowmq.client.requests import (
    PULL_LITE,
    PULL_SUBSCRIPTION,
    PULL_SUSPEND,
    PullAnswer,
    decode_pull,
    need_address,
    pull_request,
)
from sparrowmq.client.settings import PullSettings
from sparrowmq.client.start_offset import start_offset
from sparrowmq.client.tasks import TaskGroup
from sparrowmq.core.errors import BrokerError, ClientError, SparrowError, TransportError
from sparrowmq.core.knobs import is_paused
from sparrowmq.core.message import MessageQueue, ReceivedMessage
from sparrowmq.core.results import PullStatus
from sparrowmq.core.route import MASTER_ID
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.transport.occasional import OccasionalLog

log = logging.getLogger("sparrowmq.client")

LITE_PULL_VERSION: Final = 413
"""The first release whose brokers know request 361, 5.0.0 (client:G-22)."""
_FLOW_CONTROL_DELAY: Final = 0.02
_PAUSED_SECONDS: Final = 1.0
"""Steps in which a queue that a live knob pauses looks whether it goes on."""
_START_DELAY: Final = 3.0
"""Seconds until the start of a queue is looked up again after a failure (client:E-29)."""


@dataclass(slots=True)
class _Held:
    """One queue that is read. Offsets are -1 until they are known (client:E-27)."""

    process_queue: ProcessQueue
    consume_offset: int = -1
    begun: int = -1
    task: asyncio.Task[None] | None = None
    resumed: asyncio.Event = field(default_factory=asyncio.Event)


class LitePull:
    """The queues of one consumer that are polled. Lives on one event loop."""

    def __init__(
        self,
        group: str,
        settings: PullSettings,
        plan: PullPlan,
        instance: ClientInstance,
        store: OffsetStore,
        tasks: TaskGroup,
        hooks: PullHooks,
    ) -> None:
        self._group = group
        self._settings = settings
        self._plan = plan
        self._instance = instance
        self._store = store
        self._tasks = tasks
        self._hooks = hooks
        self._limits = Limits(settings.queue_messages_max, settings.queue_bytes_max, settings.queue_span_max)
        self._queues: dict[MessageQueue, _Held] = {}
        self._waiting: deque[tuple[_Held, ProcessQueue, list[ReceivedMessage]]] = deque()
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._plain: set[str] = set()
        self._given: set[ProcessQueue] = set()
        """Process queues of which the application has messages."""
        self.make: Callable[..., ProcessQueue] = ProcessQueue
        """Makes what holds the messages of a queue."""
        self.generation_of: Callable[[MessageQueue], int | None] = lambda queue: None
        """What pulls carry in a managed group."""
        self.knobs = LiveKnobs(settings, instance.clock.now_ms, instance.clock.monotonic)
        """What it goes by besides its settings."""
        self._occasional = OccasionalLog(log)
        self._commit_at = 0.0
        self._ended = False

    def __repr__(self) -> str:
        return f"<LitePull queues={len(self._queues)} waiting={len(self._waiting)}>"

    # Queues

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are read, sorted."""
        return sorted(self._queues)

    def process_queues(self) -> list[ProcessQueue]:
        """What is in hand of them."""
        return [held.process_queue for held in self._queues.values()]

    def add(self, queue: MessageQueue) -> None:
        """Begin to read a queue, from the place found when it is first pulled."""
        held = _Held(self.make(queue, -1, self._limits, now=self._instance.clock.monotonic()))
        held.resumed.set()
        self._queues[queue] = held
        self._begin(held)

    def remove(self, queue: MessageQueue) -> None:
        """Stop reading a queue; batches of it that wait are thrown away."""
        held = self._queues.pop(queue, None)
        if held is not None:
            self._stop(held)

    def find(self, queue: MessageQueue) -> ProcessQueue | None:
        """What is in hand of a queue, if it is read."""
        held = self._queues.get(queue)
        return None if held is None else held.process_queue

    def rest(self, queue: MessageQueue) -> None:
        """Read a queue no more, and poll nothing of it; what polls returned can still be committed."""
        held = self._queues[queue]
        held.process_queue.leave()
        if held.task is not None:
            held.task.cancel()
        self._waiting = deque(one for one in self._waiting if not one[1].leaving)
        self._room.set()

    def settle(self, queue: MessageQueue) -> None:
        """Note what polls returned of a resting queue as consumed, if that is done without being asked."""
        held = self._queues.get(queue)
        if held is not None and self._settings.auto_commit and held.consume_offset >= 0:
            self._store.set(queue, held.consume_offset)

    def finish(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """The application is done with what polls returned, of these queues or of all."""
        wanted = None if queues is None else set(queues)
        for process_queue in list(self._given):
            if wanted is None or process_queue.queue in wanted:
                self._given.discard(process_queue)
                process_queue.ended()

    def end(self) -> None:
        """Nothing more comes: polls that wait return."""
        self._ended = True
        for queue in list(self._queues):
            self.remove(queue)
        self._arrived.set()

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on from `offset`, which is stored; what was read ahead is thrown away (client:E-38)."""
        held = self.need(queue)
        self._read_from(held, offset)
        held.consume_offset = offset

    def begin_anew(self, changed: Changed) -> None:
        """Other knobs count. What was read ahead of queues that rest now or have other tags is thrown away
        and read again; pulls that wait at brokers are made anew. What polls returned is the application's.
        """
        for queue, held in self._queues.items():
            if held.process_queue.leaving:
                continue
            if queue.topic in changed.tags or is_paused(changed.pauses, queue, 0):
                offset = held.begun if held.consume_offset < 0 else held.consume_offset
                self._read_from(held, offset)
            elif queue.topic in changed.pulls and held.task is not None:
                held.task.cancel()
                self._begin(held)

    def _read_from(self, held: _Held, offset: int) -> None:
        self._stop(held)
        queue, now = held.process_queue.queue, self._instance.clock.monotonic()
        held.process_queue = self.make(queue, offset, self._limits, now=now)
        self._begin(held)

    def need(self, queue: MessageQueue) -> _Held:
        """The state of a queue. Raises `ClientError` when it is not read here, or not for much longer: begun
        anew it would be read beside its next owner.
        """
        held = self._queues.get(queue)
        if held is None or held.process_queue.leaving:
            read = (one for one in self.queues if not self._queues[one].process_queue.leaving)
            mine = ", ".join(map(str, read)) or "none"
            raise ClientError(
                f"{queue} is not among the queues this consumer reads now ({mine}); it may have gone to "
                "another member of the group: look at `assignment`"
            )
        return held

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Pull no more from these; what came already is still polled (client:E-39)."""
        for queue in queues:
            self.need(queue).resumed.clear()

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Pull from these again."""
        for queue in queues:
            self.need(queue).resumed.set()

    @property
    def paused(self) -> list[MessageQueue]:
        """The queues that are paused, sorted."""
        return sorted(queue for queue, held in self._queues.items() if not held.resumed.is_set())

    # Taking

    async def poll(self, timeout: float) -> list[ReceivedMessage]:
        """The next batch of one queue; empty when none came in `timeout` seconds (client:E-33)."""
        loop = asyncio.get_running_loop()
        self._commit_when_due(loop.time())
        self.finish()
        deadline = loop.time() + timeout
        while not (messages := self._next()) and not self._ended:
            left = deadline - loop.time()
            if left <= 0:
                await asyncio.sleep(0)  # a loop of polls without waiting must let pulls do their work
                return self._next()
            self._arrived.clear()
            try:
                async with asyncio.timeout(left):
                    await self._arrived.wait()
            except TimeoutError:
                pass
        return messages

    def _next(self) -> list[ReceivedMessage]:
        while self._waiting:
            held, process_queue, messages = self._waiting.popleft()
            self._room.set()
            if process_queue.leaving:
                continue
            known = self.knobs.pull(process_queue.queue.topic)
            if known.told and len(messages) > known.batch:  # it was read ahead in larger ones
                self._waiting.appendleft((held, process_queue, messages[known.batch :]))
                messages = messages[: known.batch]
            if process_queue not in self._given:
                self._given.add(process_queue)
                process_queue.began(self._instance.clock.monotonic())
            offset = process_queue.remove(messages)
            if offset >= 0:
                held.consume_offset = offset
            self._hooks.taken(process_queue.queue, messages)
            return messages
        return []

    # Commits

    def _commit_when_due(self, now: float) -> None:
        if self._settings.auto_commit and now >= self._commit_at:
            self._commit_at = now + self._settings.auto_commit_interval
            self.commit_polled()

    def commit_polled(self) -> list[MessageQueue]:
        """Move what polls returned into the offset store; the queues it was done for."""
        moved = []
        for queue, held in self._queues.items():
            if held.consume_offset >= 0:
                self._store.set(queue, held.consume_offset)
                moved.append(queue)
        return moved

    def commit(self, offsets: Mapping[MessageQueue, int]) -> list[MessageQueue]:
        """Move these offsets into the store; queues that are not read here any more, and negative offsets,
        are left out with a warning (client:E-36).
        """
        moved = []
        for queue, offset in offsets.items():
            if queue not in self._queues:
                log.warning("group %s does not read %s any more: no commit of %d", self._group, queue, offset)
            elif offset < 0:
                log.warning("group %s has nothing to commit of %s: offset %d", self._group, queue, offset)
            else:
                self._store.set(queue, offset)
                moved.append(queue)
        return moved

    def all_done(self, offsets: Mapping[MessageQueue, int]) -> list[MessageQueue]:
        """The queues of which everything that polls returned is below these offsets."""
        return [
            queue
            for queue, offset in offsets.items()
            if (held := self._queues.get(queue)) is not None and offset >= held.consume_offset
        ]

    # Pulling

    def _begin(self, held: _Held) -> None:
        name = f"pull {held.process_queue.queue}"
        held.task = self._tasks.start(self._run(held, held.process_queue), name)

    def _stop(self, held: _Held) -> None:
        held.process_queue.drop()
        if held.task is not None:
            held.task.cancel()

    @property
    def _is_full(self) -> bool:
        return len(self._waiting) * self.knobs.batch_max > self._settings.messages_max

    async def _run(self, held: _Held, process_queue: ProcessQueue) -> None:
        """Pull one queue until it is dropped or this is cancelled (client:E-28)."""
        broker_id, unmoved = MASTER_ID, 0
        while not process_queue.leaving:
            if not held.resumed.is_set():
                await held.resumed.wait()
            elif self.knobs.is_paused(process_queue.queue):
                await self.knobs.sleep(_PAUSED_SECONDS)
            elif process_queue.is_full:
                await process_queue.room()
            elif self._is_full:
                self._room.clear()
                await self._room.wait()
            elif process_queue.next_offset < 0:
                await self._find_start(held, process_queue)
            else:
                process_queue.last_pull = self._instance.clock.monotonic()
                asked = process_queue.next_offset
                try:
                    answer = await self._pull(process_queue, broker_id)
                    broker_id = answer.suggested_broker_id
                    await self._take(held, process_queue, answer)
                    unmoved = unmoved + 1 if answer.stays_at(asked) else 0
                    if unmoved > 1:
                        await asyncio.sleep(self._settings.error_delay)
                except SparrowError as error:
                    broker_id = MASTER_ID
                    await asyncio.sleep(await self._failed(process_queue, error))
                    continue
                if interval := self.knobs.pull(process_queue.queue.topic).interval:
                    await asyncio.sleep(interval)

    async def _find_start(self, held: _Held, process_queue: ProcessQueue) -> None:
        """Where the group stands: in memory, else stored, else what `consume_from` says (client:E-29)."""
        queue = process_queue.queue
        try:
            offset = self._store.get(queue)
            if offset is None:
                await self._instance.find_route(queue.topic)
                offset = await start_offset(self._instance, self._store, queue, self._settings.consume_from)
        except SparrowError as error:
            text = f"group {self._group} cannot start with {queue} yet: {error}"
            self._occasional.write(logging.WARNING, f"start {queue}", text)
            await asyncio.sleep(_START_DELAY)
            return
        process_queue.next_offset = held.begun = max(0, offset)

    async def _pull(self, process_queue: ProcessQueue, broker_id: int) -> PullAnswer:
        queue, routes, settings = process_queue.queue, self._instance.routes, self._settings
        address = routes.readable(queue.broker_name, broker_id)
        if address is None:
            await self._instance.update_route(queue.topic)
            address = routes.readable(queue.broker_name, broker_id)
        address = need_address(address, queue, "broker")
        code = self._code(address)
        request = pull_request(
            group=self._group,
            queue=queue,
            offset=process_queue.next_offset,
            max_messages=self.knobs.pull(queue.topic).batch,
            max_bytes=settings.pull_bytes,
            hold=settings.pull_hold,
            subscription=self._plan.pull_filter(queue.topic),
            sys_flag=PULL_SUSPEND | PULL_SUBSCRIPTION | PULL_LITE,
            generation=self.generation_of(queue),
            code=code,
        )
        answer = await self._instance.remoting.call(address, request, settings.pull_timeout)
        is_unknown = answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        if is_unknown and code is RequestCode.LITE_PULL_MESSAGE:
            self._plain.add(address)
            return await self._pull(process_queue, broker_id)
        return decode_pull(answer, address, queue)

    def _code(self, address: str) -> RequestCode:
        """361 for brokers that know it, which tells them apart from classic pulls; else 11 (client:E-30)."""
        version = self._instance.broker_versions.get(address, LITE_PULL_VERSION)
        if address in self._plain or version < LITE_PULL_VERSION:
            return RequestCode.PULL_MESSAGE
        return RequestCode.LITE_PULL_MESSAGE

    async def _take(self, held: _Held, process_queue: ProcessQueue, answer: PullAnswer) -> None:
        if process_queue.leaving:
            return  # given up, or a seek came in between (client:E-31)
        queue = process_queue.queue
        if answer.status is PullStatus.OFFSET_ILLEGAL:
            log.warning(
                "offset %d of %s is not stored (%d to %d); going on from %d",
                process_queue.next_offset,
                queue,
                answer.min_offset,
                answer.max_offset,
                answer.next_offset,
            )
        process_queue.broker_max_offset = answer.max_offset
        if answer.status is not PullStatus.FOUND:
            process_queue.next_offset = answer.next_offset
            return
        tags = self._plan.subscription(queue.topic).tags
        messages = decode_messages(
            answer.body, queue, ReceivedMessage, tags, answer.min_offset, answer.max_offset
        )
        unwrap_messages(self._instance.namespace, messages)
        messages = self._hooks.filtered(queue, messages)

        def offer(old: list[ReceivedMessage]) -> None:
            process_queue.put(old)
            self._waiting.append((held, process_queue, old))
            self._arrived.set()

        if messages and (delay := self.knobs.pull(queue.topic).delay):
            messages = await hand_out_old(process_queue, messages, delay, self._instance.clock, offer)
            if process_queue.leaving:
                return
        process_queue.next_offset = answer.next_offset
        if messages:
            offer(messages)
        elif not len(process_queue):
            held.consume_offset = answer.next_offset  # all were left out, which counts as consumed

    async def _failed(self, process_queue: ProcessQueue, error: SparrowError) -> float:
        """Note a failed pull and say how many seconds the queue rests (client:E-32)."""
        if isinstance(error, BrokerError) and error.code == ResponseCode.FLOW_CONTROL:
            return _FLOW_CONTROL_DELAY
        queue, delay = process_queue.queue, self._settings.error_delay
        text = f"pulling {queue} for group {self._group} failed and goes on in {delay:g} s: {error}"
        self._occasional.write(logging.WARNING, f"pull {queue.broker_name}", text)
        if isinstance(error, TransportError):
            try:
                await self._instance.update_route(queue.topic)
            except SparrowError as also:
                log.debug("nor is the route of %s known: %s", queue.topic, also)
        return delay
