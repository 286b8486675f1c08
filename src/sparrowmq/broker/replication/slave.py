"""A slave follows its master: it finds it, checks it, copies its log, and tries again (broker:12.2)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Final, cast

from sparrowmq.broker.replication.comparison import (
    CannotFollowError,
    MasterDamagedError,
    MastersLog,
    OwnLog,
    where_damaged,
    where_to_continue,
)
from sparrowmq.broker.replication.frames import FROM_FIRST_FILE, PacketReader, report
from sparrowmq.core.errors import ProtocolError, SparrowError, StoreError, TransportError
from sparrowmq.store.log_copy import NoRecordError
from sparrowmq.store.tables.epochs import EpochTable
from sparrowmq.transport.occasional import OccasionalLog
from sparrowmq.transport.slices import shared

if TYPE_CHECKING:
    from sparrowmq.broker.base.flushing import Flusher
    from sparrowmq.broker.base.periodic import Background
    from sparrowmq.broker.replication.master_calls import MasterCalls
    from sparrowmq.broker.replication.reign import Reign
    from sparrowmq.core.settings.servers import BrokerSettings
    from sparrowmq.protocol.bodies.replicas import FollowAnswer
    from sparrowmq.store.log_copy import LogCopy
    from sparrowmq.store.queues.consume_queue import ConsumeQueue

log = logging.getLogger("sparrowmq.broker")
RETRY_SECONDS: Final = 5.0
"""Pause before a slave connects again (broker:12.2)."""
ORDERED_RETRY_SECONDS: Final = 0.5
"""The same when orders name the master: a new master needs a moment to start."""
DAMAGE_RETRY_SECONDS: Final = 30.0
"""The same when the master's log is damaged where this broker's ends: a person has to act."""
CONNECT_SECONDS_MAX: Final = 10.0

Wake = Callable[[set["ConsumeQueue"]], None]


class Addresses:
    """The master's HA address and broker address, from the setting, from orders or from the name server. With
    an `ordered` address, only that broker is followed.
    """

    def __init__(self, fixed: str, *, ordered: str = "", ordered_ha: str = "") -> None:
        self._fixed = "" if ordered else fixed
        self._ordered = ordered
        self.broker: str | None = ordered or None
        self._ha: str | None = ordered_ha or None
        self._known = asyncio.Event()
        if fixed or ordered:
            self._known.set()

    @property
    def ha(self) -> str | None:
        """The master's HA address, None while it is unknown."""
        return self._fixed or self._ha

    def learn(self, broker: str | None, ha: str | None) -> None:
        """Handle the response to a registration; a name server that does not know the master
        reports nothing.
        """
        if self._ordered:
            return
        if broker and broker != self.broker:
            log.info("the master is %s, its HA address %s", broker, ha)
            if self._fixed and ha and ha != self._fixed:
                log.warning(
                    "haMasterAddress=%s is used; the name server knows %s as the master's HA address",
                    self._fixed,
                    ha,
                )
        self.broker, self._ha = broker or self.broker, ha or self._ha
        if self.ha:
            self._known.set()

    def learn_ha(self, ha: str) -> None:
        """The HA address that the master itself reports."""
        self._ha = ha or self._ha

    async def known(self) -> None:
        """Wait until the HA address is known, or a broker that knows it."""
        await self._known.wait()


class LogFollower:
    """The slave's side of replication. `run` is its task.

    `reign` is its role and the reigns of its log. `wake` is called with the queues that got messages. Reports
    are sent when the messages are written or, with `SYNC_FLUSH`, when they are on disk. `copy_tables` copies
    the master's tables, before its messages. `ask` asks the name servers for the master again.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        addresses: Addresses,
        copy: LogCopy,
        flusher: Flusher,
        calls: MasterCalls,
        background: Background,
        reign: Reign,
        *,
        wake: Wake,
        ask: Callable[[], None],
        copy_tables: Callable[[], Awaitable[None]],
    ) -> None:
        self.copy = copy
        self.flusher = flusher
        self.clock = background.clock
        self.wake = wake
        self.heartbeat = settings.ha_send_heartbeat_interval / 1000
        self.silence = settings.ha_housekeeping_interval / 1000
        self._addresses = addresses
        self._calls = calls
        self._reign = reign
        self._ask = ask
        self._copy_tables = copy_tables
        self._from_first = settings.ha_copy_from == "FIRST_FILE"
        self._sleep = background.sleep
        self._occasional = OccasionalLog(log)
        self._was_told = ""
        self._is_damage = False
        self.trouble = ""
        """Why the master is not followed now."""
        self.link: MasterLink | None = None

    @property
    def address(self) -> str | None:
        """The master's HA address; None while it is unknown."""
        return self._addresses.ha

    @property
    def master(self) -> str | None:
        """The master's address for clients; None while it is unknown."""
        return self._addresses.broker

    @property
    def pause(self) -> float:
        """Seconds before it tries again."""
        if self._is_damage:
            return DAMAGE_RETRY_SECONDS
        return min(RETRY_SECONDS, ORDERED_RETRY_SECONDS) if self._reign.record.master else RETRY_SECONDS

    @property
    def is_following(self) -> bool:
        """Whether the master is connected."""
        return self.link is not None

    async def run(self) -> None:
        """Follow the master until cancelled; errors are logged, and it tries again."""
        while True:  # until cancelled by close
            self._is_damage = False
            try:
                await self.follow()
            except (OSError, TimeoutError, SparrowError) as error:
                self._is_damage = isinstance(error, MasterDamagedError | NoRecordError)
                self._tell(str(error) or "it did not answer in time")
            except Exception as error:
                self._occasional.write(
                    logging.ERROR, type(error).__name__, "cannot follow the master", error=error
                )
            finally:
                self.copy.drop()
            self._ask()
            await self._sleep(self.pause)

    def _tell(self, why: str) -> None:
        """Log why the master is not followed: at once when the reason changes, otherwise once a minute."""
        master = self._addresses.ha or self._addresses.broker or ""
        self.trouble = why
        text = f"cannot follow the master {master}: {why}; trying again every {self.pause:g} s"
        if why != self._was_told:
            self._was_told = why
            log.error("%s", text)
        else:
            self._occasional.write(logging.ERROR, "follow", text)

    async def follow(self) -> None:
        """Follow the master as long as the connection lasts. Raises what ended it."""
        if self._addresses.ha is None and self._addresses.broker is None:
            try:
                async with asyncio.timeout(RETRY_SECONDS):
                    await self._addresses.known()
            except TimeoutError:
                raise TransportError("no name server knows it yet, and haMasterAddress is not set") from None
        await self._on_disk()
        first = await self._first_report()
        address = self._addresses.ha
        if address is None:
            raise TransportError(f"no name server knows the HA address of {self._addresses.broker} yet")
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        link = MasterLink(self)
        async with asyncio.timeout(CONNECT_SECONDS_MAX):
            await loop.create_connection(lambda: link, host.strip("[]"), int(port))
        self.link = link
        self.trouble = ""
        try:
            link.begin(first)
            log.info("following the master %s from %d", address, self.copy.position)
            await link.watch()
        finally:
            self.link = None
            link.close(None)

    async def _on_disk(self) -> None:
        """With `SYNC_FLUSH`, wait until this broker's log is on disk: the master counts the first reported
        position as confirmed. Raises `StoreError` when the disk fails or takes too long.
        """
        if not self.flusher.sync or self.copy.is_empty:
            return
        told: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def flushed(on_disk: bool) -> None:
            if not told.done():
                told.set_result(on_disk)

        self.flusher.after(self.copy.position, flushed)
        if not await told:
            raise StoreError("this broker's log is not on disk yet, so its end cannot be confirmed")

    async def _first_report(self) -> int:
        """The first report for the HA port. Raises `CannotFollowError` when the logs do not fit together."""
        broker, copy = self._addresses.broker, self.copy
        facts = None
        if broker is not None:
            told = await self._calls.introduce(broker, copy, self._reign, from_first=self._from_first)
            if told is not None:
                await self._agree(broker, told)
                return told.key
            facts = await self._calls.checked(broker, copy)
            self._cut_damage(facts.start)
            await self._reign.keep()
            await self._copy_tables()
        if not copy.is_empty:
            return copy.position
        if not self._from_first:
            return 0
        return (facts.start if facts is not None else 0) or FROM_FIRST_FILE

    async def _agree(self, broker: str, told: FollowAnswer) -> None:
        """Make sure that this broker's log is the beginning of its master's. Otherwise it is cut, and this
        broker starts again. Raises `CannotFollowError`.
        """
        reign, copy = self._reign, self.copy
        table = EpochTable(tuple((one.epoch, one.start_offset) for one in told.epochs))
        self._addresses.learn_ha(told.ha_address)
        own = OwnLog(reign.epochs, reign.record.epoch, self.copy.start, copy.position)
        position = where_to_continue(own, MastersLog(table, told.epoch, told.min_offset, told.max_offset))
        if position < copy.position:
            reign.cut(position)
            raise CannotFollowError(
                f"it has other messages from {position} on; this broker's log is cut there and kept aside"
            )
        self._cut_damage(told.min_offset)
        await self._calls.check_last(broker, told.min_offset)
        await reign.learn_master(told.broker_role, table)
        await self._copy_tables()

    def _cut_damage(self, master_start: int | None) -> None:
        """If this broker's log is damaged, cut it there, so that the master's is copied again. Raises
        `CannotFollowError` if it is cut."""
        reign, copy = self._reign, self.copy
        damaged = reign.record.damaged
        if damaged < 0 or master_start is None:
            return
        at = where_damaged(damaged, copy.start, copy.position, master_start)
        if at is not None:
            reign.cut(at)
            raise CannotFollowError(
                f"this broker's log is damaged at {at}: it is cut there and kept aside, and the master's is "
                "copied again from there"
            )
        if copy.start <= damaged < copy.position:
            self._occasional.write(
                logging.ERROR,
                "hole",
                f"this broker's log is damaged at {damaged}, and the master's begins at {master_start}: "
                "these messages are lost",
            )
        else:
            reign.forget_damage()

    def followed(self) -> None:
        """The master sent something: a later error is a new one."""
        self._was_told = ""


class MasterLink(asyncio.Protocol):
    """One connection to a master's HA port."""

    def __init__(self, follower: LogFollower) -> None:
        self._follower = follower
        self._packets = PacketReader()
        self._transport: asyncio.Transport | None = None
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_working = False
        self._reported = -2
        self._written = self._read = follower.clock.monotonic()
        self.received_bytes = 0
        self.last_read_ms = self.last_written_ms = follower.clock.now_ms()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop has its own class

    def connection_lost(self, exc: Exception | None) -> None:
        """The master closed the connection, or it broke."""
        self.close(TransportError(f"it closed the connection{f': {exc}' if exc else ''}"))

    def close(self, error: Exception | None) -> None:
        """Disconnect because of `error`; without one because this broker stops."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        if self._ended.done():
            if not self._ended.cancelled():
                self._ended.exception()  # a second caller knows the error already, or is being cancelled
            return
        if error is None:
            self._ended.cancel()
        else:
            self._ended.set_exception(error)

    def data_received(self, data: bytes) -> None:
        """Bytes of the master's log: complete records are written in slices."""
        follower, copy = self._follower, self._follower.copy
        self._read = follower.clock.monotonic()
        self.last_read_ms = follower.clock.now_ms()
        self.received_bytes += len(data)
        try:
            for piece in self._packets.feed(data):
                if piece.data or not copy.is_empty:
                    copy.add(piece.position, piece.data)
        except (ProtocolError, StoreError) as error:
            self.close(error)
            return
        follower.followed()
        if not self._is_working:
            self._is_working = True
            shared().run(self._write())
            if self._is_working and self._transport is not None:
                self._transport.pause_reading()

    def _write(self) -> Iterator[None]:
        """Write the complete records, a step at a time."""
        copy = self._follower.copy
        try:
            while self._transport is not None:
                touched = copy.step()
                if touched is None:
                    self._transport.resume_reading()
                    break
                self._stored(touched)
                yield
        except Exception as error:
            self.close(error)
        finally:
            self._is_working = False

    def _stored(self, touched: set[ConsumeQueue]) -> None:
        follower = self._follower
        position = follower.copy.position
        if not follower.flusher.sync:
            self.report(position)
            if touched:
                follower.wake(touched)
            return

        def flushed(on_disk: bool) -> None:
            if on_disk:
                self.report(position)
                if touched:
                    follower.wake(touched)

        follower.flusher.after(position, flushed)

    def begin(self, first: int) -> None:
        """Send the first report: a position, or the key from the master."""
        self._say(first)
        self._reported = max(first, self._follower.copy.position)

    def report(self, position: int) -> None:
        """Report to the master the end of this broker's log."""
        if self._transport is not None and position > self._reported:
            self._reported = position
            self._say(position)

    def _say(self, position: int) -> None:
        assert self._transport is not None
        self._transport.write(report(position))
        self._written = self._follower.clock.monotonic()
        self.last_written_ms = self._follower.clock.now_ms()

    async def watch(self) -> None:
        """Send heartbeats until the connection ends; raises what ended it, also the master's silence."""
        follower = self._follower
        while not self._ended.done():
            await asyncio.wait([self._ended], timeout=min(1.0, follower.heartbeat / 4, follower.silence / 4))
            now = follower.clock.monotonic()
            if now - self._read >= follower.silence:
                self.close(TransportError(f"it was silent for {follower.silence:g} s"))
            elif now - self._written >= follower.heartbeat and self._transport is not None:
                self._say(max(0, self._reported))
        self._ended.result()
