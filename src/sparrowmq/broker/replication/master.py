"""A master sends its log to its slaves (broker:12.2).

The newest bytes are in the page cache and are sent from the mapped log. Older ones may have to be read from
the disk; a thread does this, so that the loop does not wait. The bytes that a slave has not read are bounded:
no more are read from the log until the connection has room.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from sparrowmq.broker.replication.frames import FROM_FIRST_FILE, ReportReader, packet_head
from sparrowmq.broker.replication.replicas import SUCCESS, Copied, Replica, Replicas
from sparrowmq.core.clock import Clock, Sleep
from sparrowmq.core.outside import one_line
from sparrowmq.files import disk
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.store.log.commit_log import NOT_TOLD
from sparrowmq.transport.occasional import OccasionalLog
from sparrowmq.transport.server import close_listener

if TYPE_CHECKING:
    from sparrowmq.store.log.raw_log import LogFilePlace, RawLog

log = logging.getLogger("sparrowmq.broker")
SLAVES_MAX: Final = 16
"""More connections to the HA port are closed."""
TURN_BYTES: Final = 256 * 1024
"""How many bytes one slave is sent per turn of the loop."""
UNSENT_BYTES_MAX: Final = 1024 * 1024
"""Above it, a slave's connection has no room."""
CACHED_BYTES: Final = 64 * 1024 * 1024
"""The end of the log that counts as cached."""
READ_BYTES: Final = 1024 * 1024
"""How many uncached bytes a thread reads at once."""
TICK_SECONDS_MAX: Final = 1.0
INTRODUCED_MAX: Final = 64
"""Maximum number of slaves that have introduced themselves and not yet connected; beyond it the oldest is
forgotten.
"""
INTRODUCTION_SECONDS: Final = 30.0
_KEY_BITS: Final = 62


def _always() -> bool:
    """For masters that need no lease."""
    return True


class Introduction(NamedTuple):
    """A slave that introduced itself: its address for clients, its store, the position from which it wants
    the log, and when its key expires.
    """

    name: str
    store: str
    position: int
    until: float


class Master:
    """The slaves of one broker: its HA port, and the sends that wait for them.

    `may_connect` decides by a slave's numeric address, `may_acknowledge` whether messages may be acknowledged
    now. Times are seconds; after `heartbeat` without traffic a heartbeat is sent, after `silence` the
    connection is closed.
    """

    def __init__(
        self,
        raw_log: RawLog,
        replicas: Replicas,
        clock: Clock,
        *,
        may_connect: Callable[[str], bool],
        may_acknowledge: Callable[[], bool] = _always,
        batch: int,
        heartbeat: float,
        silence: float,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.log = raw_log
        self.replicas = replicas
        self.clock = clock
        self.may_connect = may_connect
        self._may_acknowledge = may_acknowledge
        self._introduced: dict[int, Introduction] = {}
        self.batch = batch
        self.heartbeat = heartbeat
        self.silence = silence
        self.occasional = OccasionalLog(log)
        self._sleep = sleep
        self._links: list[SlaveLink] = []
        self._planned = False
        self.is_closed = False
        self._server: asyncio.Server | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._reader: ThreadPoolExecutor | None = None
        if replicas.members is not None:
            raw_log.confirm(NOT_TOLD)
        self._confirm()

    @property
    def links(self) -> tuple[SlaveLink, ...]:
        """The connections of slaves."""
        return tuple(self._links)

    async def start(self, listener: socket.socket) -> None:
        """Accept slaves at a bound socket, which this object closes."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: SlaveLink(self), sock=listener)
        self._tasks = [asyncio.create_task(self._tick())]

    async def close(self) -> None:
        """Disconnect the slaves and answer the sends that wait for them."""
        self.is_closed = True
        if self._server is not None:
            await close_listener(self._server)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for link in self.links:
            link.close("this broker stops", level=logging.INFO)
        self._tell(self.replicas.give_up(), ResponseCode.FLUSH_SLAVE_TIMEOUT)
        if self._timer is not None:
            self._timer.cancel()
        if self._reader is not None:
            self._reader.shutdown(wait=False, cancel_futures=True)

    # Sends that wait

    @property
    def busy(self) -> bool:
        """Whether no more sends may wait for slaves."""
        return self.replicas.busy

    def refusal(self) -> str | None:
        """Why no message may be stored now, or None."""
        return self.replicas.refusal(self.log.end)

    def after(self, position: int, done: Copied, size: int) -> None:
        """Call `done` when enough slaves have the log up to `position`, or with the reason why not."""
        self.replicas.after(position, self.clock.monotonic(), done, size)
        if self._timer is None:
            self._set_timer()

    def _set_timer(self) -> None:
        deadline = self.replicas.deadline
        self._timer = None
        if deadline is not None:
            wait = max(0.0, deadline - self.clock.monotonic())
            self._timer = asyncio.get_running_loop().call_later(wait, self._expire)

    def _expire(self) -> None:
        self._tell(self.replicas.expired(self.clock.monotonic()), ResponseCode.FLUSH_SLAVE_TIMEOUT)
        self._set_timer()

    def _tell(self, waiters: list[Copied], code: int) -> None:
        for done in waiters:
            try:
                done(code)
            except Exception as error:  # an error of one connection must not affect the others
                text = "error while answering replicated messages"
                self.occasional.write(logging.ERROR, "answering", text, error=error)

    # Slaves

    def join(self, link: SlaveLink) -> None:
        """A slave's connection was accepted."""
        self._links.append(link)
        self.replicas.join(link.replica)
        if len(self._links) == 1:
            self.log.watch(self._grown)

    def leave(self, link: SlaveLink) -> None:
        """Its connection is closed."""
        if link in self._links:
            self._links.remove(link)
            self.replicas.leave(link.replica)
            if not self._links:
                self.log.unwatch(self._grown)

    def acknowledged(self, replica: Replica, position: int) -> None:
        """A slave has the log up to `position`."""
        replica.has(position)
        self._settle()

    def _settle(self) -> None:
        """Answer the sends whose messages the slaves now have. If the lease is over, they keep waiting."""
        if self._may_acknowledge():
            self._tell(self.replicas.settle(), SUCCESS)
        self._confirm()

    def _confirm(self) -> None:
        """Let consumers read what all replicas have that may become master. Without a lease this broker does
        not know these: after a restart, the set that it saved may be outdated."""
        if self._may_acknowledge():
            self.log.confirm(self.replicas.readable(self.log.end))

    def introduce(self, name: str, position: int, store: str) -> int:
        """A slave introduces itself and names the position from which it wants the log; returns its key for
        the HA port.
        """
        now = self.clock.monotonic()
        while len(self._introduced) >= INTRODUCED_MAX:
            del self._introduced[next(iter(self._introduced))]
        key = FROM_FIRST_FILE - 1 - secrets.randbits(_KEY_BITS)
        self._introduced[key] = Introduction(name, store, position, now + INTRODUCTION_SECONDS)
        return key

    def introduced(self, key: int) -> Introduction | None:
        """The slave that got this key; None if no slave did recently. An older connection of the same slave
        is closed.
        """
        found = self._introduced.pop(key, None)
        if found is None or found.until < self.clock.monotonic():
            return None
        for link in self.links:
            if link.replica.name == found.name:
                link.close("it connected again", level=logging.INFO)
        return found

    def ordered(self, members: Iterable[str], number: int) -> None:
        """The coordinator's in-sync set."""
        group = self.replicas.members
        if group is not None:
            group.ordered(members, number, self.clock.monotonic())
            self._settle()

    def unmanaged(self) -> None:
        """There is no longer a coordinator."""
        self.replicas.unmanaged()
        self._settle()

    def _grown(self) -> None:
        """Messages were stored: send them at the end of this turn of the loop."""
        if not self._planned:
            self._planned = True
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        self._planned = False
        for link in self.links:
            link.send()

    async def read(self, file: LogFilePlace, position: int, length: int) -> bytes:
        """Bytes of a log file, read in a thread; raises OSError when the file was deleted."""
        if self._reader is None:
            self._reader = ThreadPoolExecutor(1, thread_name_prefix="sparrow-copy")

        def work() -> bytes:
            fd = disk.open_file(file.path)
            try:
                return disk.read_at(fd, length, position - file.base)
            finally:
                disk.close(fd)

        return await asyncio.get_running_loop().run_in_executor(self._reader, work)

    async def _tick(self) -> None:
        while True:  # until cancelled by close
            await self._sleep(min(TICK_SECONDS_MAX, self.heartbeat / 4, self.silence / 4))
            self._beat()
            self._look()

    def _beat(self) -> None:
        """Send heartbeats that are due, and close silent connections."""
        for link in self.links:
            link.tick()

    def _look(self) -> None:
        """Decide what to propose for the in-sync set."""
        replicas = self.replicas
        if replicas.members is not None:
            now, end = self.clock.monotonic(), self.log.end
            replicas.members.look(replicas.positions, end, replicas.promised(end), now)
            self._settle()


class SlaveLink(asyncio.Protocol):
    """One connection to the HA port. It belongs to a slave once it has reported a position of this log."""

    def __init__(self, master: Master) -> None:
        self._master = master
        self._reports = ReportReader()
        self._transport: asyncio.Transport | None = None
        self._has_room = True
        self._task: asyncio.Task[None] | None = None
        self._written = self._read = master.clock.monotonic()
        self.next = -1
        """The position from which on this slave gets the log; -1 before its first report."""
        self.sent_bytes = 0
        self.replica = Replica("")

    # Called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A connection was accepted; it is closed if its address or their number is not allowed."""
        transport = self._transport = cast("asyncio.Transport", transport)  # uvloop has its own class
        peer = transport.get_extra_info("peername") or ("", 0)
        self.replica = Replica(f"{peer[0]}:{peer[1]}")
        transport.set_write_buffer_limits(UNSENT_BYTES_MAX)
        if self._master.is_closed:
            self.close("this broker stops", kind="stops", level=logging.INFO)
        elif not self._master.may_connect(str(peer[0])):
            self.close(
                "its address may not copy the log; haAllowedAddresses lists those that may", kind="address"
            )
        elif len(self._master.links) >= SLAVES_MAX:
            self.close(f"{SLAVES_MAX} slaves are connected, which is the limit", kind="many")
        else:
            self._master.join(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The slave has disconnected."""
        if self._transport is not None:
            self._transport = None
            if self.next >= 0:
                log.warning("slave %s disconnected at %d", self.replica.address, self.replica.position)
            self._gone()

    def data_received(self, data: bytes) -> None:
        """Reports of the slave."""
        if self._transport is None:
            return
        self._read = self._master.clock.monotonic()
        reports = self._reports.feed(data)
        if reports is None:
            return
        if self.next < 0:
            # If this broker or the network was slow, heartbeats of the slave arrive together with it.
            self._begin(reports.first)
            if reports.number == 1 or self._transport is None:
                return
        position = reports.last
        if position > self.next:
            self.close(f"it reports position {position}, but was only sent the log up to {self.next}")
        elif position < self.replica.position:
            self.close(f"it reports position {position} after {self.replica.position}")
        else:
            self._master.acknowledged(self.replica, position)

    def pause_writing(self) -> None:
        """The slave is slower than the log grows."""
        self._has_room = False

    def resume_writing(self) -> None:
        """The slave has read what was sent."""
        self._has_room = True
        self.send()

    # Sending

    def _begin(self, position: int) -> None:
        """The first report: where the slave's log ends, or the key that it got when it introduced itself."""
        master_log = self._master.log
        if position < FROM_FIRST_FILE:
            found = self._master.introduced(position)
            if found is None:
                self.close("it sent a key that no slave received recently", kind="key")
                return
            self.replica.name, self.replica.store, position = found.name, found.store, found.position
        if position in (0, FROM_FIRST_FILE):
            self.next = master_log.start if position else master_log.last_file
            self.replica.has(0)
        elif position < 0 or position > master_log.end:
            self.close(
                f"it has a log up to {position}, this master only up to {master_log.end}: either it is not "
                f"a slave of this master, or it has messages that this master lacks; compare them, then "
                f"empty "
                "the slave's store, so that it copies the log again",
                kind="longer",
            )
            return
        elif master_log.file(position) is None and position != master_log.end:
            self.close(
                f"it needs the log from {position}, but the oldest file begins at {master_log.start}: it "
                f"was away for longer than the log is kept; empty its store, so that it copies the log again",
                kind="shorter",
            )
            return
        else:
            self.next = position
            self._master.acknowledged(self.replica, position)
        log.info("slave %s has the log up to %d, sending from %d", self.replica.address, position, self.next)
        self.send()

    def send(self) -> None:
        """Send what the slave lacks, as much as this turn and its connection allow."""
        master, transport = self._master, self._transport
        if transport is None or self.next < 0 or self._task is not None:
            return
        end, budget = master.log.end, TURN_BYTES
        while self.next < end and self._has_room:
            if budget <= 0:
                asyncio.get_running_loop().call_soon(self.send)
                return
            if end - self.next > CACHED_BYTES:
                self._task = asyncio.create_task(self._send_old())
                return
            piece = master.log.piece(self.next, master.batch)
            if not piece:
                self._lacks()
                return
            self._write(piece)
            budget -= len(piece)

    def _write(self, piece: memoryview | bytes) -> None:
        assert self._transport is not None
        self._transport.write(b"".join((packet_head(self.next, len(piece)), piece)))
        self.next += len(piece)
        self.sent_bytes += len(piece)
        self._written = self._master.clock.monotonic()

    async def _send_old(self) -> None:
        """Send bytes that may have to be read from the disk, up to the end of their file."""
        master = self._master
        file = master.log.file(self.next)
        try:
            if file is None:
                self._lacks()
                return
            end = min(file.end, master.log.end, self.next + READ_BYTES)
            data = await master.read(file, self.next, end - self.next)
        except OSError as error:
            self.close(f"the log at {self.next} cannot be read: {error}")
            return
        finally:
            self._task = None
        if self._transport is None:
            return
        if not data:
            self._lacks()
            return
        view = memoryview(data)
        for at in range(0, len(view), master.batch):
            self._write(view[at : at + master.batch])
        self.send()

    def _lacks(self) -> None:
        self.close(
            f"the log at {self.next} was deleted before it was sent: the slave is slower than the log grows, "
            "or was away too long; raise fileReservedTime, then empty its store, so that it copies the log "
            "again"
        )

    def tick(self) -> None:
        """Send a heartbeat if nothing was sent for a while; close a connection that is silent."""
        now = self._master.clock.monotonic()
        if now - self._read >= self._master.silence:
            self.close(f"it was silent for {self._master.silence:g} s", kind="silent")
        elif self.next >= 0 and self._transport is not None:
            if now - self._written >= self._master.heartbeat and self._has_room and self._task is None:
                self._transport.write(packet_head(self.next, 0))
                self._written = now
            self.send()

    def close(self, why: str, *, kind: str = "", level: int = logging.ERROR) -> None:
        """Disconnect, and say why in the log."""
        transport, self._transport = self._transport, None
        if transport is None:
            return
        text = f"disconnected slave {one_line(self.replica.address)}: {why}"
        self._master.occasional.write(level, kind or self.replica.address, text)
        transport.abort()
        self._gone()

    def _gone(self) -> None:
        self._master.leave(self)
        if self._task is not None:
            self._task.cancel()


def listen(host: str, port: int) -> socket.socket:
    """A socket bound to the HA port; 0 takes any free one. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        with suppress(OSError):
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(SLAVES_MAX)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener
