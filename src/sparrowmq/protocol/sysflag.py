"""The bits of `sysFlag`: compression, transaction state, address kinds, inner batches (remoting:5.2)."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

COMPRESSED: Final = 0x001
MULTI_TAGS: Final = 0x002
TRANSACTION_MASK: Final = 0x00C
TRANSACTION_NONE: Final = 0x000
TRANSACTION_PREPARED: Final = 0x004
TRANSACTION_COMMIT: Final = 0x008
TRANSACTION_ROLLBACK: Final = 0x00C
BORN_HOST_V6: Final = 0x010
STORE_HOST_V6: Final = 0x020
HOST_V6_MASK: Final = BORN_HOST_V6 | STORE_HOST_V6
INNER_BATCH: Final = 0x080
COMPRESSION_MASK: Final = 0x700


class CompressionType(IntEnum):
    """The compression of a body, as bits."""

    LZ4 = 0x100
    ZSTD = 0x200
    ZLIB = 0x300


def with_compression(sys_flag: int, kind: CompressionType) -> int:
    """`sys_flag` marked as compressed with `kind`."""
    return sys_flag & ~COMPRESSION_MASK | COMPRESSED | kind


def without_compressed_bit(sys_flag: int) -> int:
    """`sys_flag` of a message whose body was decompressed: like Java, clears bit 0 and keeps the
    type bits.
    """
    return sys_flag & ~COMPRESSED


def with_host_kinds(sys_flag: int, born_host: bytes, store_host: bytes) -> int:
    """`sys_flag` with the IPv6 bits for packed hosts of 8 (IPv4) or 20 (IPv6) bytes."""
    sys_flag &= ~HOST_V6_MASK
    if len(born_host) == 20:
        sys_flag |= BORN_HOST_V6
    if len(store_host) == 20:
        sys_flag |= STORE_HOST_V6
    return sys_flag
