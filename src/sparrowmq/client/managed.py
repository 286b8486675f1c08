"""A member of a managed group: a coordinator says which queues it reads, and until when (pmq:3.14).

`Grants` decides; here its words become deeds. The member reports twice a second. A queue it is to give up
hands out nothing more, its handlers end, its progress is committed, and only then does a report say so;
others are not touched. When the lease is over, handlers start no more: workers ask each time.

How queues are read is for `Hands` to know: push consumers have handlers, pull consumers give messages to the
application. Either way a process queue says what is at work on it.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import Any, Final, Protocol

from sparrowmq.client.instance import ClientInstance
from sparrowmq.client.knobs import LiveKnobs
from sparrowmq.client.process_queue import Limits, ProcessQueue
from sparrowmq.client.requests import check, command
from sparrowmq.client.tasks import TaskGroup
from sparrowmq.core.errors import ClientError, SparrowError
from sparrowmq.core.grants import Grants
from sparrowmq.core.knobs import Setting, Unable
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol import headers
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.managed import (
    COORDINATOR_KEY,
    COORDINATOR_NAMESPACE,
    JoinBody,
    JoinedBody,
    LeaveBody,
    OrdersBody,
    ReportBody,
    generations_text,
)
from sparrowmq.transport.occasional import OccasionalLog

log = logging.getLogger("sparrowmq.client")

REPORT_SECONDS: Final = 0.5
"""Between two reports; a lease is several times as long."""
ANSWER_SECONDS: Final = 2.0
AGAIN_SECONDS: Final = 0.5
"""Until a queue that could not be begun is tried again."""
IDLE_SECONDS: Final = 60.0
LEAVE_SECONDS: Final = 1.0
REJOIN_SECONDS: Final = 10.0
"""How long a member that was counted out waits for its handlers, before it joins again without results."""
COMMIT_SECONDS: Final = 10.0
"""How long the last commit of a queue is tried when its broker is away; then its messages come again."""


class Lease:
    """Until when handlers may start, in monotonic seconds; read by threads too."""

    __slots__ = ("_monotonic", "end")

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self.end = -math.inf

    def is_over(self) -> bool:
        """Whether nothing may start any more."""
        return self._monotonic() >= self.end


class LeasedQueue(ProcessQueue):
    """A process queue that is leaving from the moment its member's lease is over, and stays so."""

    __slots__ = ("_is_leaving", "_lease")

    def __init__(self, lease: Lease, queue: MessageQueue, offset: int, limits: Limits, *, now: float) -> None:
        self._lease = lease
        self._is_leaving = False
        super().__init__(queue, offset, limits, now=now)

    @property
    def leaving(self) -> bool:
        """No more is handed out."""
        if not self._is_leaving and self._lease.is_over():
            self._is_leaving = True
        return self._is_leaving

    @leaving.setter
    def leaving(self, value: bool) -> None:
        self._is_leaving = value


class Hands(Protocol):
    """How a consumer reads its queues. A process queue's handlers at work are what `rest` does not end."""

    def find(self, queue: MessageQueue) -> ProcessQueue | None:
        """What is in hand of a queue, if it is read."""

    async def take(self, queue: MessageQueue) -> bool:
        """Begin to read a queue where the group stands; False: try again later."""

    def rest(self, queue: MessageQueue) -> None:
        """Hand out no more of a queue."""

    async def settle(self, process_queue: ProcessQueue) -> bool:
        """Commit what was consumed of a resting queue; False when its broker has to be asked again."""

    async def retire(self, process_queue: ProcessQueue) -> None:
        """Have no more to do with a resting queue."""

    async def renew_doubtful(self) -> None:
        """Renew locks that a lost connection made doubtful."""


class ManagedMember:
    """One consumer's dealings with its coordinator. `topics` says what it subscribes, `late` how many of its
    results brokers refused; `forget` lets go of what waits for handlers and belongs to leaving queues;
    `announce` tells brokers what they do not know of its subscriptions. `knobs` are the live knobs it goes
    by, `unable` says which it cannot go by, `apply_knobs` has it go by others.
    """

    def __init__(
        self,
        group: str,
        instance: ClientInstance,
        queues: Hands,
        tasks: TaskGroup,
        *,
        topics: Callable[[], Iterable[str]],
        late: Callable[[], int],
        forget: Callable[[], None],
        on_change: Callable[[Collection[str]], Awaitable[None]],
        announce: Callable[[], Awaitable[None]],
        knobs: LiveKnobs,
        unable: Callable[[], Mapping[str, Unable]],
        apply_knobs: Callable[[int, Sequence[Setting], int, Sequence[str]], None],
    ) -> None:
        self._group = group
        self._instance = instance
        self._queues = queues
        self._tasks = tasks
        self._topics = topics
        self._late = late
        self._forget = forget
        self._on_change = on_change
        self._knobs = knobs
        self._unable = unable
        self._apply_knobs = apply_knobs
        self._announce = announce
        self._grants = Grants()
        self._lease = Lease(instance.clock.monotonic)
        self._busy: dict[MessageQueue, asyncio.Task[None]] = {}
        self._lives: dict[MessageQueue, list[ProcessQueue]] = {}
        """Process queues of a queue that may still have handlers at work, the last one included."""
        self._late_told = self._late_before = 0
        self._announced: frozenset[str] = frozenset()
        self._address: str | None = None
        self._closing = False
        self._left = False
        self._out_since = -math.inf
        """When it was counted out, in monotonic seconds."""
        self._turning = asyncio.Lock()
        self._occasional = OccasionalLog(log)
        self._proof = ""
        self.member: str | None = None
        """Who the coordinator says this is; None while it is not counted in."""
        self.on_start: Callable[[MessageQueue, int], None] = lambda queue, offset: None
        """Told where a queue is begun."""
        self.resting = False
        """Whether no queue is begun, because offsets are being reset."""

    def __repr__(self) -> str:
        return f"<ManagedMember {self.member} {self._grants!r}>"

    def make_queue(self, queue: MessageQueue, offset: int, limits: Limits, *, now: float) -> ProcessQueue:
        """A process queue that heeds the lease."""
        made = LeasedQueue(self._lease, queue, offset, limits, now=now)
        if offset >= 0:
            self.on_start(queue, offset)
        before = [life for life in self._lives.get(queue, ()) if life.running]
        self._lives[queue] = [*before, made]
        return made

    def generation(self, queue: MessageQueue) -> int | None:
        """What requests about a queue carry."""
        return self._grants.generation(queue)

    def generations(self) -> str:
        """What it has under which generations, as running info says it."""
        held = ((queue, self._grants.generation(queue)) for queue in self._grants.held())
        return generations_text({queue: number for queue, number in held if number is not None})

    async def run(self) -> None:
        """Report until cancelled."""
        while True:  # ends by cancellation when the consumer closes
            try:
                async with self._turning:
                    await self._turn()
            except SparrowError as error:
                self._address = None
                left = self._lease.end - self._instance.clock.monotonic()
                state = f"its queues rest in {left:.0f} s" if left > 0 else "it reads no queues"
                self._occasional.write(
                    logging.WARNING,
                    "coordinator",
                    f"group {self._group} is managed and hears nothing of its coordinator; {state}: {error}",
                )
            await asyncio.sleep(REPORT_SECONDS)

    def close(self) -> None:
        """The consumer ends: its queues stay its own until it leaves, whatever the coordinator wants."""
        self._closing = True

    async def leave(self) -> None:
        """Say goodbye, so that nobody waits for the lease to run out. Call when all is committed."""
        self._left = True
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS), self._turning:
                """It may just be joining, and says goodbye to that."""
        member, self.member = self.member, None
        if member is None or self._address is None:
            return
        body = LeaveBody(self._group, member, self._proof).encode()
        with suppress(SparrowError):
            await self._ask(RequestCode.LEAVE_MANAGED_GROUP, body, LEAVE_SECONDS)

    # Reports

    async def _turn(self) -> None:
        if self._left:
            return
        if self.member is None:
            if self._closing or not await self._is_free():
                return
            self._grants = Grants()
            await self._join()
            if self._left:
                return
            assert self.member is not None, "it was told who it is"
        self._announce_topics()
        late = self._late()
        sent, report = self._instance.clock.monotonic(), self._grants.report()
        asked = ReportBody.of(
            self._group,
            self.member,
            report,
            list(self._topics()),
            late - self._late_before,
            self._knobs.revision,
            proof=self._proof,
            unable={name: why.value for name, why in self._unable().items()},
        )
        code = RequestCode.REPORT_MANAGED_MEMBER
        answer = await self._ask(code, asked.encode(), ANSWER_SECONDS)
        if answer.code == ResponseCode.MEMBER_UNKNOWN:
            log.warning("%s is not counted in any more and joins again: %s", self.member, answer.remark)
            self.member = None
            self._out_since = self._instance.clock.monotonic()
            self._give_up(self._grants.give_up())
            return
        told = OrdersBody.decode(check(answer, self._address or "", code).body)
        self._late_told = late
        if told.knobs is not None:
            other = told.knobs
            self._apply_knobs(other.revision, other.settings, other.now_ms, other.unknown)
        orders = told.orders
        changes = self._grants.obey(orders, sent)
        self._lease.end = self._grants.lease_end
        self._give_up(changes.stop)
        self._look_after(frozenset(self._topics()))
        await self._queues.renew_doubtful()

    async def _is_free(self) -> bool:
        """Whether nothing of what it had as another member is in hand. A handler that hangs must not keep it
        out of the group: in the end its queue is dropped, and its result with it, as others have that by now.
        """
        if not self._busy:
            return True
        if self._instance.clock.monotonic() - self._out_since < REJOIN_SECONDS:
            return False
        for queue in list(self._busy):
            if (held := self._queues.find(queue)) is not None:
                log.warning(
                    "handlers of %s still run; group %s goes on without their results", queue, self._group
                )
                self._queues.rest(queue)
                await self._queues.retire(held)
        return True

    def topics_changed(self) -> None:
        """Subscriptions came or went: nothing more is handed out of what went."""
        self._look_after(frozenset(self._topics()))

    def _look_after(self, topics: Collection[str]) -> None:
        """Begin with what is granted and not read, and rest what is not subscribed any more."""
        for queue in self._grants.held():
            found = self._queues.find(queue)
            if queue in self._busy or self.resting:
                continue
            is_read = found is not None and not found.leaving
            if queue.topic not in topics:
                if is_read:
                    self._start(queue, self._drain)
            elif not is_read:
                self._start(queue, self._begin)

    def _announce_topics(self) -> None:
        """Brokers hear of topics that came or went beside the reports, which must not wait for them."""
        topics = frozenset(self._topics())
        if topics != self._announced:
            self._announced = topics
            self._tasks.start(self._introduce(topics), "announcing topics")

    async def _introduce(self, topics: Iterable[str]) -> None:
        for topic in topics:
            with suppress(SparrowError):
                await self._instance.find_route(topic)
        await self._announce()

    async def _join(self) -> None:
        """Become a member. What the account may do is judged by the group in the header, which is signed."""
        client = self._instance.client_id
        body = JoinBody(self._group, client, list(self._topics()), version("sparrowmq")).encode()
        header = headers.GetConsumerListByGroupRequest(consumer_group=self._group)
        code = RequestCode.JOIN_MANAGED_GROUP
        answer = await self._ask(code, body, ANSWER_SECONDS, header)
        joined = JoinedBody.decode(check(answer, self._address or "", code).body)
        self.member, self._proof = joined.member, joined.proof
        self._late_before = self._late_told  # what it was before has told those

    async def _ask(
        self, code: RequestCode, body: bytes, timeout: float, header: headers.Header | None = None
    ) -> Command:
        if self._address is None:
            self._address = await self._look_up()
        return await self._instance.remoting.call(self._address, command(code, header, body), timeout)

    async def _look_up(self) -> str:
        header = headers.GetKVConfigRequest(namespace=COORDINATOR_NAMESPACE, key=COORDINATOR_KEY)
        names = self._instance.name_servers
        answer = await names.call(command(RequestCode.GET_KV_CONFIG, header), ANSWER_SECONDS)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            raise ClientError(
                "the name server knows no coordinator; start one with `sparrow coordinator`, or set "
                "managed=False"
            )
        check(answer, names.current, RequestCode.GET_KV_CONFIG)
        value = headers.from_ext(headers.GetKVConfigResponse, answer.ext).value
        if not value:
            raise ClientError("the name server has an empty address for the coordinator")
        return value

    # Queues

    def _start(self, queue: MessageQueue, work: Callable[[MessageQueue], Coroutine[Any, Any, None]]) -> None:
        """Do something with a queue, after what is being done with it already."""
        before = self._busy.get(queue)

        async def one() -> None:
            try:
                if before is not None:
                    await asyncio.wait([before])
                if not self._closing:
                    await work(queue)
            finally:
                if self._busy.get(queue) is asyncio.current_task():
                    del self._busy[queue]

        self._busy[queue] = self._tasks.start(one(), f"{work.__name__.strip('_')} {queue}")

    def _give_up(self, queues: Iterable[MessageQueue]) -> None:
        """Begin to finish with queues that it has under the grants of now."""
        grants = self._grants

        async def release(queue: MessageQueue) -> None:
            await self._release(queue, grants)

        for queue in queues:
            self._start(queue, release)

    def begin_anew(self, which: Callable[[MessageQueue], bool]) -> None:
        """Drop what is in hand of some queues once their handlers have ended, and read it again."""
        for queue in self._grants.held():
            if which(queue) and self._queues.find(queue) is not None:
                self._start(queue, self._begin)

    async def _begin(self, queue: MessageQueue) -> None:
        """Begin with a granted queue; anew with one whose lease had run out."""
        await self._drain(queue)
        is_granted = queue in self._grants.held()  # it may have been revoked while handlers ended
        if is_granted and not self._lease.is_over() and not await self._queues.take(queue):
            await asyncio.sleep(AGAIN_SECONDS)
        await self._on_change({queue.topic})

    async def _release(self, queue: MessageQueue, grants: Grants) -> None:
        """Finish with a queue that others are to have."""
        await self._drain(queue)
        if self._closing:
            return  # it is committed with the others, and let go with the goodbye
        grants.released(queue)
        await self._on_change({queue.topic})

    async def _drain(self, queue: MessageQueue) -> None:
        process_queue = self._queues.find(queue)
        if process_queue is not None:
            self._queues.rest(queue)
            self._forget()
        await self._ended(queue)
        if process_queue is not None:
            await self._commit(process_queue)
            await self._queues.retire(process_queue)
        self._lives.pop(queue, None)

    async def _ended(self, queue: MessageQueue) -> None:
        """Wait until nothing is at work on a queue, whatever it was read by.

        Ends with the handlers, or with the consumer: a coordinator does not wait for them without end.
        """
        while running := [life for life in self._lives.get(queue, ()) if life.running]:
            if not await running[0].idle(IDLE_SECONDS):
                log.warning("handlers of %s still run; group %s cannot give it up", queue, self._group)
            await asyncio.sleep(0)  # results are noted first; a failed message may go on to its retry

    async def _commit(self, process_queue: ProcessQueue) -> None:
        """Commit the last of a queue. No grant of it can be given before its broker is back."""
        monotonic = self._instance.clock.monotonic
        end = monotonic() + COMMIT_SECONDS
        while not await self._queues.settle(process_queue) and not self._closing:
            if monotonic() >= end:
                log.warning(
                    "%s goes on without the last commit of group %s; messages come again",
                    process_queue.queue,
                    self._group,
                )
                return
            await asyncio.sleep(AGAIN_SECONDS)
