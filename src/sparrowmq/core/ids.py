"""Message ids: the producer's unique key, and the offset id of store host and physical offset
(remoting:5.4).
"""

from __future__ import annotations

import ipaddress
import os
import secrets
import time
from datetime import datetime
from typing import Final

from sparrowmq.core.errors import RecordError

_MONTH_BACKSTEP_MS: Final = 1000 * 1000


def pack_host(host: str, port: int) -> bytes:
    """Address and port as in records: 4 or 16 address bytes and a 4-byte port."""
    return ipaddress.ip_address(host).packed + port.to_bytes(4, "big")


def unpack_host(data: bytes) -> tuple[str, int]:
    """The inverse of `pack_host`; raises `RecordError` unless `data` has 8 or 20 bytes."""
    if len(data) not in (8, 20):
        raise RecordError(f"a host takes 8 or 20 bytes, not {len(data)}", what="host", value=len(data))
    return str(ipaddress.ip_address(bytes(data[:-4]))), int.from_bytes(data[-4:], "big")


def offset_message_id(packed_host: bytes, physical_offset: int) -> str:
    """Upper-case hex of store host and physical offset: 32 characters, 56 with IPv6."""
    return (packed_host + physical_offset.to_bytes(8, "big", signed=True)).hex().upper()


def parse_offset_message_id(text: str) -> tuple[str, int, int]:
    """Host, port and physical offset of an offset message id. Raises `RecordError` for other text."""
    try:
        data = bytes.fromhex(text)
    except ValueError:
        data = b""
    if len(data) not in (16, 28):
        told = f"{text!r} is not an offset message id: must be 32 or 56 hex digits"
        raise RecordError(told, what="id", value=text)
    host, port = unpack_host(data[:-8])
    return host, port, int.from_bytes(data[-8:], "big", signed=True)


class UniqueIds:
    """Makes `UNIQ_KEY`s of address, process id, a constant of the process, time within the month, and a
    counter.

    One per process and client; not thread-safe (client:B-84 to B-87).
    """

    def __init__(self, host: str) -> None:
        constant = secrets.token_bytes(4)
        head = ipaddress.ip_address(host).packed + (os.getpid() & 0xFFFF).to_bytes(2, "big") + constant
        self._head = head.hex().upper()
        self._counter = 0
        self._month_start_ms = 0
        self._next_month_ms = 0

    def _set_month(self, now_ms: int) -> None:
        now = datetime.fromtimestamp(now_ms / 1000)
        start = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        following = start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)
        self._month_start_ms = int(start.timestamp() * 1000)
        self._next_month_ms = int(following.timestamp() * 1000)

    def next(self, now_ms: int | None = None) -> str:
        """A new id; 32 characters with an IPv4 address, 56 with IPv6."""
        now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        if now_ms >= self._next_month_ms or now_ms < self._month_start_ms - _MONTH_BACKSTEP_MS:
            self._set_month(now_ms)
        since = max(0, now_ms - self._month_start_ms)
        counter = self._counter
        self._counter = (counter + 1) & 0xFFFF
        return f"{self._head}{since:08X}{counter:04X}"
