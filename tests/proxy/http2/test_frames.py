"""Frames are parsed and built as RFC 9113 says."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import about, traced_bytes

from sparrowmq.proxy.http2 import frames
from sparrowmq.proxy.http2.frames import Frame, FrameCutter, Http2Error

SOME = st.builds(
    Frame, st.integers(0, 9), st.integers(0, 255), st.integers(0, 2**31 - 1), st.binary(max_size=200)
)


@given(sent=st.lists(SOME, max_size=8), size=st.integers(1, 300))
def test_frames_are_parsed_from_pieces_of_any_size(sent: list[Frame], size: int) -> None:
    data = b"".join(frames.frame(*one) for one in sent)
    cutter, found = FrameCutter(), []
    for at in range(0, len(data), size):
        cutter.feed(data[at : at + size])
        while (one := cutter.next()) is not None:
            found.append(one)
    assert found == sent
    assert cutter.buffered == 0


def test_too_long_frame_is_refused_by_its_header() -> None:
    cutter = FrameCutter()
    cutter.feed((frames.FRAME_BYTES_MAX + 1).to_bytes(3, "big") + bytes(6))
    with pytest.raises(Http2Error, check=about(code=frames.FRAME_SIZE_ERROR)):
        cutter.next()


def test_padding_is_removed() -> None:
    assert frames.unpadded(frames.PADDED, b"\x02abcd\0\0") == b"abcd"
    assert frames.unpadded(0, b"\x02ab") == b"\x02ab"
    for wrong in (b"", b"\x04abc"):
        with pytest.raises(Http2Error, check=about(code=frames.PROTOCOL_ERROR)):
            frames.unpadded(frames.PADDED, wrong)


def test_settings_are_parsed() -> None:
    values = {frames.INITIAL_WINDOW_SIZE: 70_000, frames.MAX_FRAME_SIZE: 2**20}
    assert dict(frames.parse_settings(frames.settings_frame(values)[9:])) == values
    with pytest.raises(Http2Error, check=about(code=frames.FRAME_SIZE_ERROR)):
        frames.parse_settings(bytes(5))
    with pytest.raises(Http2Error, check=about(code=frames.ENHANCE_YOUR_CALM)):
        frames.parse_settings(bytes(6 * 101))


def test_parsed_data_is_freed() -> None:
    """An idle connection keeps no reference to the last chunk it received."""
    cutter = FrameCutter()
    tracemalloc.start()
    try:
        cutter.feed(frames.frame(frames.PING, 0, 0, bytes(8)) * 10_000 + b"abc")
        while cutter.next() is not None:
            pass
        cutter.trim()
        assert cutter.buffered == 3
        assert traced_bytes(frames.__file__, __file__) < 4096
    finally:
        tracemalloc.stop()
