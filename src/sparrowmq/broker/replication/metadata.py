"""A slave copies its master's tables: topics, groups, request modes, consumer offsets, delay levels, timers
(broker:12.4).

Topics and groups are taken over when their versions differ, consumer offsets and delay levels every time.
Tables that the master does not serve, such as timers in RocketMQ 4.9, stay unchanged.

Progress (offsets, delay levels, timers) is taken only once this broker's log has everything that the master's
had at that moment. Else a change of the master would lose messages: the offsets of POP and of transactions
pass messages that only later records of the log make visible again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from sparrowmq.broker.base.periodic import repeat
from sparrowmq.core.errors import ProtocolError, SparrowError
from sparrowmq.protocol.bodies import MasterTopicTable, OffsetTable, SubscriptionGroupTable
from sparrowmq.protocol.codes import RequestCode as Code
from sparrowmq.protocol.java_json import loads
from sparrowmq.store.timers.timer_check import TimerCheck
from sparrowmq.transport.occasional import OccasionalLog
from sparrowmq.transport.slices import shared

if TYPE_CHECKING:
    from pathlib import Path

    from sparrowmq.broker.base.periodic import Background
    from sparrowmq.broker.replication.master_calls import MasterCalls
    from sparrowmq.broker.replication.slave import Addresses
    from sparrowmq.broker.tables.groups import GroupTable
    from sparrowmq.broker.tables.topics import TopicTable
    from sparrowmq.protocol.bodies.replicas import ReplicaState
    from sparrowmq.store.tables.consumer_offsets import ConsumerOffsets
    from sparrowmq.store.tables.delay_offsets import DelayOffsets

log = logging.getLogger("sparrowmq.broker")
TABLES_SECONDS: Final = 10.0
"""How often the tables are copied, as in 4.9; 5.x copies them every minute."""
LOG_LOOKS: Final = 20
LOG_SECONDS: Final = 0.05
"""How often, and with which pause, a slave looks whether it has the log up to where progress was told."""
LOOK_SECONDS: Final = 1.0
"""How often a master is asked whether its tables changed: then they are copied at once. Masters of RocketMQ
do not tell."""
SOON_SECONDS: Final = 0.1
"""Pause between two copies of the tables because of new topics."""
TIMERS_SECONDS: Final = 3.0
"""How often the progress of timers and delay levels is copied: after a change of the master, what was
delivered since then is delivered again."""


@dataclass(frozen=True, slots=True)
class CopiedTables:
    """The tables that a slave keeps like its master's.

    `delays` is the progress of the delay levels, `timer_check` the file with that of the timers. `take_modes`
    takes over the request modes.
    """

    topics: TopicTable
    groups: GroupTable
    offsets: ConsumerOffsets
    delays: DelayOffsets
    timer_check: Path
    take_modes: Callable[[bytes], Awaitable[None]]


class MetadataCopy:
    """Copies the tables of one slave's master. `position` tells the end of the slave's log; `topics_changed`
    is called when a topic changed, `told_state` with each state of the master."""

    def __init__(
        self,
        addresses: Addresses,
        calls: MasterCalls,
        tables: CopiedTables,
        background: Background,
        *,
        position: Callable[[], int],
        topics_changed: Callable[[], None],
        told_state: Callable[[ReplicaState], None],
    ) -> None:
        self._addresses = addresses
        self._calls = calls
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._delays = tables.delays
        self._timer_check = tables.timer_check
        self._take_modes = tables.take_modes
        self._pool = background.pool
        self._position = position
        self._topics_changed = topics_changed
        self._told_state = told_state
        self._sleep = background.sleep
        self._occasional = OccasionalLog(log)
        self._wanted = asyncio.Event()
        self._offsets_wanted = asyncio.Event()
        self._saved_timers: TimerCheck | None = None
        self._seen: str | None = None
        self._does_not_tell: str | None = None

    def start(self) -> list[asyncio.Task[None]]:
        """Begin copying; call on the loop. The caller owns the tasks."""
        return [
            asyncio.create_task(self._copy_when_asked()),
            asyncio.create_task(self._keep_offsets()),
            *(
                asyncio.create_task(repeat(seconds, work, what, self._occasional, sleep=self._sleep))
                for seconds, work, what in (
                    (TABLES_SECONDS, self.copy_tables, "copying the master's tables"),
                    (LOOK_SECONDS, self.copy_changed, "looking at the master's tables"),
                    (TABLES_SECONDS, self._offsets_wanted.set, "copying the master's offsets"),
                    (TIMERS_SECONDS, self.copy_progress, "copying the master's timers"),
                )
            ),
        ]

    def copy_soon(self) -> None:
        """Copy the tables now, in the background."""
        self._wanted.set()

    async def _copy_when_asked(self) -> None:
        while True:  # until cancelled by its owner
            await self._wanted.wait()
            self._wanted.clear()
            try:
                await self.copy_tables()
            except SparrowError as error:
                self._occasional.write(logging.WARNING, "soon", f"copying the master's tables: {error}")
            await self._sleep(SOON_SECONDS)

    async def copy_all(self) -> None:
        """Copy everything now, before the log is: consumer offsets in the background, progress only if this
        broker has what was delivered. Raises the error if that fails.
        """
        self._offsets_wanted.set()
        await self.copy_tables()
        await self.copy_progress(looks=0)

    async def copy_changed(self) -> None:
        """Ask for the master's state, and copy topics, groups and request modes if they changed. Raises like
        `copy_tables`, and `BrokerError`."""
        master = self._addresses.broker
        if master is None or master == self._does_not_tell:
            return
        state = await self._calls.state(master)
        if state is None or not state.tables:
            self._does_not_tell = master
            return
        self._told_state(state)
        told = f"{state.run}/{state.tables}"
        if told != self._seen:
            await self.copy_tables()
            self._seen = told

    async def copy_tables(self) -> None:
        """Copy topics, groups and request modes. Raises `TransportError`, `ProtocolError`, or `StoreError`
        when the modes cannot be saved."""
        master = self._addresses.broker
        if master is None:
            return
        body = await self._calls.body(master, Code.GET_ALL_TOPIC_CONFIG)
        if body:
            table = MasterTopicTable.decode(body)
            if self._topics.follow(table.topic_config_table, table.data_version, table.births):
                self._topics_changed()
        body = await self._calls.body(master, Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        if body:
            groups = SubscriptionGroupTable.decode(body)
            self._groups.follow(groups.subscription_group_table, groups.forbidden_table, groups.data_version)
        body = await self._calls.body(master, Code.GET_ALL_MESSAGE_REQUEST_MODE)
        if body:
            await self._take_modes(body)

    async def _keep_offsets(self) -> None:
        while True:  # until cancelled by its owner
            await self._offsets_wanted.wait()
            self._offsets_wanted.clear()
            try:
                await self.copy_offsets()
            except SparrowError as error:
                text = f"copying the master's consumer offsets: {error}"
                self._occasional.write(logging.WARNING, "offsets", text)

    async def copy_offsets(self) -> None:
        """Copy the consumer offsets. They are taken when this broker's log has reached the end that the
        master's had, however long that takes. Raises `TransportError` or `ProtocolError`."""
        master = self._addresses.broker
        if master is None:
            return
        begun = await self._calls.log_end(master)
        body = await self._calls.body(master, Code.GET_ALL_CONSUMER_OFFSET)
        if not body:
            return
        table = OffsetTable.decode(body)
        end = await self._calls.log_end(master)
        while self._position() < end:
            await self._sleep(LOG_SECONDS)
        if self._addresses.broker == master:
            shared().run(self._take_offsets(table, begun))

    def _take_offsets(self, table: OffsetTable, position: int) -> Iterator[None]:
        for key, queues in table.offset_table.items():
            topic, _, group = key.partition("@")
            for queue_id, offset in queues.items():
                if self._offsets.query(topic, group, queue_id) != offset:
                    self._offsets.commit(topic, group, queue_id, offset, always=True)
            yield
        self._offsets.copied(position)

    async def copy_progress(self, looks: int = LOG_LOOKS) -> None:
        """Copy the progress of delay levels and timers, once this broker has what was delivered until then:
        otherwise a change of the master would lose it. It is waited for `looks` times. Raises
        `TransportError`, `ProtocolError`, or `StoreError` when it cannot be saved.
        """
        master = self._addresses.broker
        if master is None:
            return
        delays = await self._calls.body(master, Code.GET_ALL_DELAY_OFFSET)
        timers = await self._calls.body(master, Code.GET_TIMER_CHECK_POINT)
        if not await self._has(await self._calls.log_end(master), looks):
            return
        for level, offset in _levels(delays) if delays else ():
            self._delays.set(level, offset)
        if timers:
            await self._take_timers(TimerCheck.decode(timers))

    async def _has(self, end: int, looks: int) -> bool:
        """Wait a moment until this broker's log ends at `end` or later; whether it does."""
        for _ in range(looks):
            if self._position() >= end:
                return True
            await self._sleep(LOG_SECONDS)
        return self._position() >= end

    async def _take_timers(self, check: TimerCheck) -> None:
        """Save the master's checkpoint: with no timer log beside it, the next master plans all messages
        again, without those whose time had passed there."""
        if check == self._saved_timers:
            return
        save = partial(check.save, self._timer_check)
        await asyncio.get_running_loop().run_in_executor(self._pool, save)
        self._saved_timers = check


def _levels(body: bytes) -> list[tuple[int, int]]:
    """The progress by delay level. Raises `ProtocolError`."""
    try:
        table = loads(body).get("offsetTable") or {}
        return [(int(level), int(offset)) for level, offset in table.items()]
    except (SparrowError, AttributeError, TypeError, ValueError) as error:
        raise ProtocolError(f"the master's progress of delay levels cannot be read: {error}") from error
