"""A member of a managed group: the coordinator decides which queues it reads, and until when (pmq:3.14).

`Grants` decides; this module acts. The member reports twice a second. To give up a queue, it stops handing
out messages, waits for the handlers, and commits the offsets; only then a report says that the queue is
released. Other queues are not affected. When the lease has expired, no handlers start: workers call
`Grants.may_start` each time. If the lease is renewed under the same generation, they continue with their
unfinished messages.

`ManagedQueues` reads the queues: push consumers have handlers, pull consumers give messages to the
application. In both cases the process queue shows which messages are being processed.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import Any, Final, Protocol

from sparrowmq.client.base.tasks import TaskGroup
from sparrowmq.client.cluster.broker_api import check, command
from sparrowmq.client.cluster.instance import ClientInstance
from sparrowmq.client.consumer.dynamic_settings import DynamicSettings
from sparrowmq.client.consumer.leases import Leases
from sparrowmq.client.consumer.process_queue import ProcessQueue
from sparrowmq.core.dynamic_settings import SettingValue, Unable
from sparrowmq.core.errors import ClientError, SparrowError
from sparrowmq.core.grants import Grants
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
"""Seconds between two reports; a lease is several times as long."""
ANSWER_SECONDS: Final = 2.0
AGAIN_SECONDS: Final = 0.5
"""Seconds until a failed start of a queue is retried."""
IDLE_SECONDS: Final = 60.0
LEAVE_SECONDS: Final = 1.0
REJOIN_SECONDS: Final = 10.0
"""How long a member that was removed from the group waits for its handlers before it rejoins without their
results.
"""
COMMIT_SECONDS: Final = 10.0
"""How long the last commit of a queue is retried while its broker is unavailable; then its messages are
redelivered.
"""


class ManagedQueues(Protocol):
    """How a consumer reads its queues. `rest` does not stop running handlers."""

    def find(self, queue: MessageQueue) -> ProcessQueue | None:
        """The process queue of a queue, if the queue is read."""

    async def take(self, queue: MessageQueue) -> bool:
        """Start reading a queue at the group's offset; False: try again later."""

    def rest(self, queue: MessageQueue) -> None:
        """Stop handing out messages of a queue."""

    async def settle(self, process_queue: ProcessQueue) -> bool:
        """Commit the consumed messages of a paused queue; False if the commit must be retried."""

    async def retire(self, process_queue: ProcessQueue) -> None:
        """Drop a paused queue."""

    async def renew_doubtful(self) -> None:
        """Renew locks that are doubtful after a lost connection."""


class ManagedConsumer(Protocol):
    """What a consumer tells its coordinator, and how it follows the orders."""

    dynamic: DynamicSettings

    def managed_topics(self) -> Iterable[str]:
        """The subscribed topics."""

    def late_results(self) -> int:
        """Number of results that brokers refused because the queue had moved."""

    def forget_given_up(self) -> None:
        """Drop waiting messages of leaving queues."""

    def go_on(self) -> None:
        """Start handlers that paused while the lease was expired."""

    async def queues_changed(self, topics: Collection[str]) -> None:
        """The queues of these topics changed."""

    async def announce(self) -> None:
        """Send changed subscriptions to the brokers."""

    def unable(self) -> Mapping[str, Unable]:
        """The dynamic settings that are set but that the consumer cannot apply."""

    def apply_dynamic_settings(
        self, revision: int, settings: Sequence[SettingValue], now_ms: int, unknown: Sequence[str]
    ) -> None:
        """Apply these dynamic settings from now on."""


class ManagedMember:
    """The communication of one consumer with its coordinator. Grants go into `leases`, which all parts of the
    consumer share.
    """

    def __init__(
        self,
        group: str,
        instance: ClientInstance,
        queues: ManagedQueues,
        tasks: TaskGroup,
        leases: Leases,
        consumer: ManagedConsumer,
    ) -> None:
        self._group = group
        self._instance = instance
        self._queues = queues
        self._tasks = tasks
        self._consumer = consumer
        self._leases = leases
        self._busy: dict[MessageQueue, asyncio.Task[None]] = {}
        self._late_told = self._late_before = 0
        self._announced: frozenset[str] = frozenset()
        self._address: str | None = None
        self._closing = False
        self._left = False
        self._out_since = -math.inf
        """When the member was removed from the group, in monotonic seconds."""
        self._turning = asyncio.Lock()
        self._occasional = OccasionalLog(log)
        self._proof = ""
        self.member: str | None = None
        """The member id that the coordinator assigned; None while it is not a member."""
        self._begins_queues = True

    def __repr__(self) -> str:
        return f"<ManagedMember {self.member} {self._grants!r}>"

    @property
    def _grants(self) -> Grants:
        return self._leases.grants

    def hold_back(self) -> None:
        """Start no queue until `go_on`: offsets are being reset."""
        self._begins_queues = False

    def go_on(self) -> None:
        """Allow queues to start again, after the next report."""
        self._begins_queues = True

    def generations(self) -> str:
        """The queues and their generations, for running info."""
        held = ((queue, self._grants.generation(queue)) for queue in self._grants.held())
        return generations_text({queue: number for queue, number in held if number is not None})

    async def run(self) -> None:
        """Report until cancelled."""
        while True:  # cancelled when the consumer closes
            try:
                async with self._turning:
                    await self._turn()
            except SparrowError as error:
                self._address = None
                left = self._grants.lease_end - self._instance.clock.monotonic()
                state = f"its queues pause in {left:.0f} s" if left > 0 else "it reads no queues"
                self._occasional.write(
                    logging.WARNING,
                    "coordinator",
                    f"group {self._group} is managed and gets no answer from its coordinator; {state}: "
                    f"{error}",
                )
            await self._instance.sleep(REPORT_SECONDS)

    def close(self) -> None:
        """The consumer is closing: it keeps its queues until it leaves, whatever the coordinator assigns."""
        self._closing = True

    async def leave(self) -> None:
        """Leave the group, so that others need not wait until the lease expires. Call after the last
        commit.
        """
        self._left = True
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS), self._turning:
                """Wait for a join in progress, to leave with its member id."""
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
            self._leases.begin_again()
            await self._join()
            if self._left:
                return
            assert self.member is not None, "the coordinator has accepted the member"
        self._announce_topics()
        late = self._consumer.late_results()
        sent, report = self._instance.clock.monotonic(), self._grants.report()
        asked = ReportBody.of(
            self._group,
            self.member,
            report,
            list(self._consumer.managed_topics()),
            late - self._late_before,
            self._consumer.dynamic.revision,
            proof=self._proof,
            unable={name: why.value for name, why in self._consumer.unable().items()},
        )
        code = RequestCode.REPORT_MANAGED_MEMBER
        header = headers.GetConsumerListByGroupRequest(consumer_group=self._group)
        answer = await self._ask(code, asked.encode(), ANSWER_SECONDS, header)
        if answer.code == ResponseCode.MEMBER_UNKNOWN:
            log.warning("%s is no longer a member and joins again: %s", self.member, answer.remark)
            self.member = None
            self._out_since = self._instance.clock.monotonic()
            self._give_up(self._grants.give_up())
            return
        told = OrdersBody.decode(check(answer, self._address or "", code).body)
        self._late_told = late
        if told.knobs is not None:
            other = told.knobs
            self._consumer.apply_dynamic_settings(other.revision, other.settings, other.now_ms, other.unknown)
        orders = told.orders
        changes = self._grants.obey(orders, sent)
        self._give_up(changes.stop)
        self._look_after(frozenset(self._consumer.managed_topics()))
        self._consumer.go_on()
        await self._queues.renew_doubtful()

    async def _is_free(self) -> bool:
        """Whether no messages of its previous membership are unfinished. A handler that hangs must not
        prevent the rejoin: after a time its queue is dropped with its result, because other members have the
        queue by then.
        """
        if not self._busy:
            return True
        if self._instance.clock.monotonic() - self._out_since < REJOIN_SECONDS:
            return False
        for queue in list(self._busy):
            if (held := self._queues.find(queue)) is not None:
                log.warning(
                    "handlers of %s still run; group %s continues without their results", queue, self._group
                )
                self._queues.rest(queue)
                await self._queues.retire(held)
        return True

    def topics_changed(self) -> None:
        """Subscriptions changed: stop handing out messages of removed topics."""
        self._look_after(frozenset(self._consumer.managed_topics()))

    def _look_after(self, topics: Collection[str]) -> None:
        """Start granted queues that are not read yet, and pause those that are no longer subscribed."""
        for queue in self._grants.held():
            found = self._queues.find(queue)
            if queue in self._busy or not self._begins_queues:
                continue
            is_read = found is not None and not found.leaving
            if queue.topic not in topics:
                if is_read:
                    self._start(queue, self._drain)
            elif not is_read:
                self._start(queue, self._begin)

    def _announce_topics(self) -> None:
        """Send changed topics to the brokers in the background, because reports must not wait for them."""
        topics = frozenset(self._consumer.managed_topics())
        if topics != self._announced:
            self._announced = topics
            self._tasks.start(self._introduce(topics), "announcing topics")

    async def _introduce(self, topics: Iterable[str]) -> None:
        for topic in topics:
            with suppress(SparrowError):
                await self._instance.find_route(topic)
        await self._consumer.announce()

    async def _join(self) -> None:
        """Join the group. Permissions are checked by the group in the signed header."""
        client = self._instance.client_id
        topics = list(self._consumer.managed_topics())
        body = JoinBody(self._group, client, topics, version("sparrowmq")).encode()
        header = headers.GetConsumerListByGroupRequest(consumer_group=self._group)
        code = RequestCode.JOIN_MANAGED_GROUP
        answer = await self._ask(code, body, ANSWER_SECONDS, header)
        joined = JoinedBody.decode(check(answer, self._address or "", code).body)
        self.member, self._proof = joined.member, joined.proof
        self._late_before = self._late_told  # its previous membership has reported those

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
        """Do something with a queue, after its current work has ended."""
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
        """Start to give up queues that it has under the current grants."""
        grants = self._grants

        async def release(queue: MessageQueue) -> None:
            await self._release(queue, grants)

        for queue in queues:
            self._start(queue, release)

    def begin_anew(self, which: Callable[[MessageQueue], bool]) -> None:
        """Drop the unfinished messages of some queues once their handlers have ended, and pull them again."""
        for queue in self._grants.held():
            if which(queue) and self._queues.find(queue) is not None:
                self._start(queue, self._begin)

    async def _begin(self, queue: MessageQueue) -> None:
        """Start a granted queue, or restart it after a reset or new dynamic settings."""
        await self._drain(queue)
        # It may have been revoked while handlers ended, or the lease has expired: the next report checks
        # again.
        if self._may_begin(queue) and not await self._queues.take(queue):
            await self._instance.sleep(AGAIN_SECONDS)
        await self._consumer.queues_changed({queue.topic})

    def _may_begin(self, queue: MessageQueue) -> bool:
        generation = self._grants.generation(queue)
        now = self._instance.clock.monotonic()
        return generation is not None and self._grants.may_start(queue, generation, now)

    async def _release(self, queue: MessageQueue, grants: Grants) -> None:
        """Release a queue that was assigned to another member."""
        await self._drain(queue)
        if self._closing:
            return  # it is committed with the others and released when the member leaves
        grants.released(queue)
        await self._consumer.queues_changed({queue.topic})

    async def _drain(self, queue: MessageQueue) -> None:
        process_queue = self._queues.find(queue)
        if process_queue is not None:
            self._queues.rest(queue)
            self._consumer.forget_given_up()
        await self._ended(queue)
        if process_queue is not None:
            await self._commit(process_queue)
            await self._queues.retire(process_queue)
        self._leases.forget(queue)

    async def _ended(self, queue: MessageQueue) -> None:
        """Wait until no message of a queue is being processed, however it was read.

        Returns when the handlers have ended or the consumer closes; the coordinator's wait is bounded.
        """
        while running := self._leases.at_work(queue):
            if not await running[0].idle(IDLE_SECONDS):
                log.warning("handlers of %s still run; group %s cannot give it up", queue, self._group)
            await asyncio.sleep(0)  # process results first; a failed message may still go to its retry

    async def _commit(self, process_queue: ProcessQueue) -> None:
        """Make the last commit of a queue. The queue cannot be granted to others before its broker is
        available again.
        """
        monotonic = self._instance.clock.monotonic
        end = monotonic() + COMMIT_SECONDS
        while not await self._queues.settle(process_queue) and not self._closing:
            if monotonic() >= end:
                log.warning(
                    "%s continues without the last commit of group %s; messages will be delivered again",
                    process_queue.queue,
                    self._group,
                )
                return
            await self._instance.sleep(AGAIN_SECONDS)
