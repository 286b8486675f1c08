"""The bits of sysFlag."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.protocol import sysflag

FLAGS = st.integers(0, 0x7FF)
V4, V6 = bytes(8), bytes(20)


@pytest.mark.parametrize(
    ("flag", "kind"),
    [
        (0, sysflag.TRANSACTION_NONE),
        (0x304, sysflag.TRANSACTION_PREPARED),
        (0x038, sysflag.TRANSACTION_COMMIT),
        (0x7FF, sysflag.TRANSACTION_ROLLBACK),
    ],
)
def test_transaction_bits(flag: int, kind: int) -> None:
    assert flag & sysflag.TRANSACTION_MASK == kind


@given(FLAGS, st.sampled_from(list(sysflag.CompressionType)))
def test_compression_is_marked_and_nothing_else(flag: int, kind: sysflag.CompressionType) -> None:
    changed = sysflag.with_compression(flag, kind)
    assert changed & sysflag.COMPRESSED
    assert changed & sysflag.COMPRESSION_MASK == kind
    rest = ~(sysflag.COMPRESSION_MASK | sysflag.COMPRESSED)
    assert changed & rest == flag & rest


def test_java_marks_zlib_as_0x301_and_keeps_the_type_bits() -> None:
    flag = sysflag.with_compression(0, sysflag.CompressionType.ZLIB)
    assert flag == 0x301
    assert sysflag.without_compressed_bit(flag) == 0x300


@pytest.mark.parametrize(
    ("born", "store", "bits"), [(V4, V4, 0), (V6, V4, 0x10), (V4, V6, 0x20), (V6, V6, 0x30)]
)
@pytest.mark.parametrize("flag", [0, 0x30, 0x301])
def test_host_bits_follow_the_hosts(born: bytes, store: bytes, bits: int, flag: int) -> None:
    assert sysflag.with_host_kinds(flag, born, store) == flag & ~0x30 | bits
