"""What the connections of a server have in common, whatever their protocol: admission, pauses of reading,
idle sweeps, and their debt in the memory account.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any, Final, Protocol, cast

from sparrowmq.transport.account import SMALL_DEBT, Debt, MemoryAccount
from sparrowmq.transport.address import format_address, peer_of
from sparrowmq.transport.occasional import OccasionalLog

GIVES_WAY_ROUNDS: Final = 4
"""Half the idle sweeps that close a connection; after these, a new connection may take its place."""
CLOSE_SECONDS_MAX: Final = 5.0
"""How long a closing connection may take to send pending bytes."""
ANSWERS, REQUESTS, ROOM = 1, 2, 4
"""Reasons to pause reading: the client does not read its answers, its requests wait, the server is full."""

logger = logging.getLogger("sparrowmq.transport")


class AccountedOwner(Protocol):
    """The server's side of a connection in the account."""

    account: MemoryAccount
    occasional: OccasionalLog
    write_high_water: int
    unsent_bytes_max: int

    def admit(self, conn: Any) -> str | None:
        """Register the connection; the text is the reason to close it immediately."""

    def forget(self, conn: Any) -> None:
        """The connection was lost."""


class AccountedConnection(asyncio.Protocol):
    """A client's connection with its debt in the account, whatever its protocol.

    `peer` is its numeric address, `debt` its debt, `closed` whether it is closed or closing, `active`
    whether there was traffic since the last sweep. Subclasses read and write.
    """

    __slots__ = (
        "_account",
        "_admitted",
        "_close_timer",
        "_idle_rounds",
        "_out_bytes",
        "_stops",
        "_transport",
        "_unsent_seen",
        "active",
        "closed",
        "debt",
        "loop",
        "owner",
        "peer",
    )

    _transport: asyncio.Transport

    def __init__(self, owner: AccountedOwner, loop: asyncio.AbstractEventLoop) -> None:
        self.peer = ("0.0.0.0", 0)
        self.closed = False
        self.active = True
        self.owner = owner
        self.loop = loop
        self.debt = Debt(owner.account)
        self._account = owner.account
        self._out_bytes = 0
        self._stops = 0
        self._admitted = False
        self._idle_rounds = 0
        self._unsent_seen = 0
        self._close_timer: asyncio.TimerHandle | None = None

    @property
    def address(self) -> str:
        """The client's `host:port`."""
        return format_address(*self.peer)

    @property
    def is_short(self) -> bool:
        """Whether the server's memory account is full and this connection has a share of it."""
        account = self._account
        if account.total <= account.limit or not account.full:
            return False
        return self.debt.total + self._out_bytes > SMALL_DEBT or account.total > account.hard_limit

    def close(self, reason: str) -> None:
        """Send pending bytes, then close. `reason` is logged at debug level. Idempotent."""
        if self.closed:
            return
        self._flush()
        self.closed = True
        logger.debug("closing %r: %s", self, reason)
        self._transport.close()
        self._close_timer = self.loop.call_later(CLOSE_SECONDS_MAX, self._transport.abort)

    def abort(self) -> None:
        """Close immediately; unsent bytes are lost."""
        self.closed = True
        self._transport.abort()

    def replace_transport(self, transport: asyncio.Transport) -> None:
        """Continue over another transport: TLS has started on this connection."""
        self._transport = transport

    def heard(self) -> None:
        """The client sent something that is not a request: it is not idle."""
        self.active = True

    # Called by the account

    def unsent_socket_bytes(self) -> int:
        """Bytes that the socket has not sent yet."""
        return self._transport.get_write_buffer_size()

    def stop_for_room(self) -> None:
        """Stop reading until `go_on_with_room`."""
        self._stop(ROOM)

    def go_on_with_room(self) -> None:
        """Resume reading."""
        self.active = True
        self._go(ROOM)

    def close_for_debt(self, why: str) -> None:
        """Close immediately: the memory account is full and this client has a debt."""
        self.owner.occasional.write(logging.WARNING, "memory", f"closing {self.address}: {why}")
        self.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected: admit it, or refuse it."""
        self._transport = cast("asyncio.Transport", transport)
        self.peer = peer_of(transport.get_extra_info("peername"))
        refusal = self.owner.admit(self)
        if refusal is not None:
            self.owner.occasional.write(logging.WARNING, "refused", f"refusing {self.address}: {refusal}")
            self.abort()
            return
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._transport.set_write_buffer_limits(high=self.owner.write_high_water)
        self._admitted = True

    def eof_received(self) -> None:
        """The client sends no more: send pending answers before the socket closes."""
        self._flush()

    def pause_writing(self) -> None:
        """The client does not read its answers: stop reading from it."""
        self._unsent_seen = self._transport.get_write_buffer_size()
        self._stop(ANSWERS)

    def resume_writing(self) -> None:
        """The client has read its answers: resume reading."""
        self.active = True
        self._go(ANSWERS)

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket was closed."""
        self.closed = True
        if self._close_timer is not None:
            self._close_timer.cancel()
        self._out_bytes = 0
        self.debt.write_off(self)

    # For subclasses

    def _flush(self) -> None:
        """Give the answers to the socket."""
        raise NotImplementedError

    def _stop(self, why: int) -> None:
        if not self._stops and not self.closed:
            self._transport.pause_reading()
        self._stops |= why

    def _go(self, why: int) -> None:
        if self._stops and not self._stops & ~why and not self.closed:
            self._transport.resume_reading()
        self._stops &= ~why

    def _idle_sweep(self) -> int:
        """Count a sweep; returns how many there were since the last traffic."""
        if self._stops & ANSWERS:
            unsent = self._transport.get_write_buffer_size()
            self.active = self.active or unsent < self._unsent_seen
            self._unsent_seen = unsent
        self._idle_rounds = 0 if self.active else self._idle_rounds + 1
        self.active = False
        return self._idle_rounds

    def _note_partial(self, held: int) -> None:
        """`held` bytes of an incomplete request are kept."""
        account, shorter = self._account, held < self.debt.partial
        self.debt.set_partial(self, held)
        if account.total > account.limit or account.strangers > account.stranger_limit:
            account.brought(self)
        if shorter and account.reader is self:
            account.completed(self)

    def _close_if_unread(self) -> None:
        """Close if the client has stopped reading and too much waits for it."""
        most, unsent = self.owner.unsent_bytes_max, self._transport.get_write_buffer_size()
        if self._stops & ANSWERS and unsent > most:
            self.owner.occasional.write(
                logging.WARNING,
                "unread",
                f"closing {self.address}: it does not read; {unsent} bytes wait for it, and the limit is "
                f"{most}",
            )
            self.abort()
