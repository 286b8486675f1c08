"""The frames of the classic HA protocol (broker:12.2). Pure.

A slave sends 8 bytes: the position up to which it has the log. A master sends packets: the position 8, the
size 4, and bytes of its log; a packet of size 0 is a heartbeat.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from sparrowmq.core.errors import ProtocolError

FROM_FIRST_FILE: Final = -1
"""The first report of an empty slave that wants the log from its oldest file on.

Ours: RocketMQ's masters wait for the next report, and then begin at their newest file.
"""

PACKET_BYTES_MAX: Final = 16 * 1024 * 1024
"""A larger packet is refused; RocketMQ's have 32 KiB by default, and its slaves take less than 4 MiB."""

_REPORT: Final = struct.Struct(">q")
_HEAD: Final = struct.Struct(">qi")


def report(position: int) -> bytes:
    """A slave's report."""
    return _REPORT.pack(position)


def packet_head(position: int, size: int) -> bytes:
    """The head of a packet."""
    return _HEAD.pack(position, size)


class Reports(NamedTuple):
    """Reports that arrived together: the first, the last, and how many.

    The last one replaces those before, except the first of a connection, which has a meaning of its own.
    """

    first: int
    last: int
    number: int


class ReportReader:
    """Splits the bytes of a slave into reports."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Reports | None:
        """The complete reports of what arrived; None if there is none yet."""
        data = self._rest + data
        whole = len(data) - len(data) % _REPORT.size
        self._rest = data[whole:]
        if not whole:
            return None
        [first], [last] = _REPORT.unpack_from(data), _REPORT.unpack_from(data, whole - _REPORT.size)
        return Reports(first, last, whole // _REPORT.size)


class Piece(NamedTuple):
    """Bytes of the log from a position on; none in a heartbeat."""

    position: int
    data: bytes


class PacketReader:
    """Splits the bytes of a master into pieces of the log. Packets need not be complete: only their heads are
    kept.
    """

    def __init__(self) -> None:
        self._head = b""
        self._position = 0
        self._left = 0

    def feed(self, data: bytes) -> list[Piece]:
        """The pieces in `data`. Raises `ProtocolError` for an impossible size."""
        pieces = []
        at, end = 0, len(data)
        while at < end:
            if self._left:
                taken = min(self._left, end - at)
                pieces.append(Piece(self._position, data[at : at + taken]))
                self._position += taken
                self._left -= taken
                at += taken
                continue
            missing = _HEAD.size - len(self._head)
            self._head += data[at : at + missing]
            at += missing
            if len(self._head) < _HEAD.size:
                break
            self._position, self._left = _HEAD.unpack(self._head)
            self._head = b""
            if not 0 <= self._left <= PACKET_BYTES_MAX or self._position < 0:
                raise ProtocolError(
                    f"a packet of {self._left} bytes for position {self._position} does not belong to the "
                    f"HA protocol; check that the address is that of a master's HA port (haListenPort)",
                    what="packet",
                    value=self._left,
                )
            if not self._left:
                pieces.append(Piece(self._position, b""))
        return pieces
