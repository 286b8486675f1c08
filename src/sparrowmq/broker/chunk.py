"""What one read from a socket brought: sorted into sends, ends of transactions, pulls and the rest.

The clean sends and ends are stored together; pulls are answered as they are met; everything else goes to the
handler of its request code afterwards. So a connection's requests may be answered out of order, as the
protocol allows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrowmq.protocol.frame import JSON_HEADER, RawFrame
from sparrowmq.protocol.hot import END_PREFIX, PULL_PREFIXES, SEND_PREFIXES, decode_pull

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrowmq.broker.ending import EndPath
    from sparrowmq.broker.pulling import PullPath
    from sparrowmq.broker.sending import SendPath
    from sparrowmq.transport.connection import Connection
    from sparrowmq.transport.dispatch import CommandHandler


class ChunkHandler:
    """The broker's side of `transport.Server`: hot paths first, `general` for all else.

    Without `ends` the ends of transactions are for `general`, too.
    """

    def __init__(
        self,
        sending: SendPath,
        pulling: PullPath,
        general: CommandHandler,
        *,
        ends: EndPath | None,
        connection_gone: Callable[[Connection], None],
    ) -> None:
        self._sending = sending
        self._pulling = pulling
        self._general = general
        self._ends = ends
        self._connection_gone = connection_gone

    def connection_made(self, conn: Connection) -> None:
        """A client connected."""
        self._general.connection_made(conn)

    def connection_lost(self, conn: Connection) -> None:
        """A client is gone: its held pulls and its memberships end."""
        self._pulling.drop_connection(conn)
        self._general.connection_lost(conn)
        self._connection_gone(conn)

    def frames_received(self, conn: Connection, frames: list[RawFrame]) -> None:
        """Handle all requests of one read."""
        sends: list[tuple[bytes, bytes]] = []
        ends: list[RawFrame] = []
        others: list[RawFrame] = []
        for frame in frames:
            kind, header, body = frame
            if kind == JSON_HEADER:
                if header.startswith(SEND_PREFIXES):
                    sends.append((header, body))
                    continue
                if header.startswith(PULL_PREFIXES):
                    pull = decode_pull(header)
                    if pull is not None:
                        self._pulling.pull(conn, pull)
                        continue
                elif self._ends is not None and header.startswith(END_PREFIX):
                    ends.append(frame)
                    continue
            others.append(frame)
        if ends and self._ends is not None:
            others += self._ends.append_chunk(ends)
        try:
            if sends:
                odd = self._sending.store_chunk(conn, sends)
                others += [(JSON_HEADER, header, body) for header, body in odd]
        finally:
            if ends and self._ends is not None:
                others += self._ends.settle(conn)
        if others:
            self._general.frames_received(conn, others)
