"""CRC-32: whichever implementation is used, zlib's number."""

from __future__ import annotations

import sys
import zlib
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.protocol import crc


@given(st.binary(max_size=20_000), st.sampled_from([bytes, bytearray, memoryview]))
def test_the_number_is_zlibs(data: bytes, kind: type) -> None:
    assert crc.crc32(kind(data)) == zlib.crc32(data)


def test_zlib_serves_where_isa_l_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "isal.isal_zlib", None)
    assert crc.fastest() is zlib.crc32


def test_isa_l_is_preferred(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("isal.isal_zlib")
    module.crc32 = lambda data: 7  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "isal", ModuleType("isal"))
    monkeypatch.setitem(sys.modules, "isal.isal_zlib", module)
    assert crc.fastest()(b"") == 7
