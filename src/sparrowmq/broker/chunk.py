"""The requests of one socket read, divided into sends, ends of transactions, pulls and others.

Plain sends and ends are stored together, pulls are answered in order, and all other requests go to the
handlers of their codes afterwards. So a connection's requests may be answered out of order, as the protocol
allows.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from sparrowmq.protocol.frame import JSON_HEADER, RawFrame
from sparrowmq.protocol.hot import END_PREFIX, PULL_PREFIXES, SEND_PREFIXES, decode_pull
from sparrowmq.transport.dispatch import TURN_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrowmq.broker.pull.pull_path import PullPath
    from sparrowmq.broker.send.send_path import SendPath
    from sparrowmq.broker.transactions.end_transaction import EndPath
    from sparrowmq.transport.connection import Connection
    from sparrowmq.transport.dispatch import CommandHandler


class ChunkHandler:
    """The broker's side of `transport.Server`: the hot paths first, `general` for all other requests.

    Without `ends`, `general` also handles the ends of transactions.
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
        """A client disconnected: end its held pulls and its memberships."""
        self._pulling.drop_connection(conn)
        self._general.connection_lost(conn)
        self._connection_gone(conn)

    def frames_received(self, conn: Connection, frames: list[RawFrame]) -> None:
        """Handle all requests of one read.

        If its pulls took long, or its sends need many new files, the remaining requests wait for another
        turn.
        """
        sends: list[tuple[bytes, bytes]] = []
        ends: list[RawFrame] = []
        others: list[RawFrame] = []
        late: list[RawFrame] = []
        until, pulled = conn.began + TURN_SECONDS, False
        for at, frame in enumerate(frames):
            kind, header, body = frame
            if kind == JSON_HEADER:
                if header.startswith(SEND_PREFIXES):
                    sends.append((header, body))
                    continue
                if header.startswith(PULL_PREFIXES):
                    pull = decode_pull(header)
                    if pull is not None:
                        if pulled and monotonic() > until:
                            late = frames[at:]
                            break
                        pulled = True
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
                for header, body in self._sending.store_chunk(conn, sends):
                    others.append((JSON_HEADER, header, body))
        finally:
            if ends and self._ends is not None:
                others += self._ends.settle(conn)
        if late:
            conn.put_off(late)
        if others:
            self._general.frames_received(conn, others)
