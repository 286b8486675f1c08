"""The HA protocol's bytes, split anywhere."""

from __future__ import annotations

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import about

from sparrowmq.broker.replication.frames import (
    PACKET_BYTES_MAX,
    PacketReader,
    ReportReader,
    packet_head,
    report,
)
from sparrowmq.core.errors import ProtocolError

POSITIONS = st.integers(0, 2**62)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted({place % (len(data) + 1) for place in places}), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


@given(st.lists(POSITIONS, min_size=1), st.lists(st.integers(0, 1000)))
def test_last_report_counts_wherever_the_bytes_are_split(positions: list[int], places: list[int]) -> None:
    reader = ReportReader()
    told = [reader.feed(part) for part in cut(b"".join(map(report, positions)), places)]
    found = [one for one in told if one is not None]
    assert (found[0].first, found[-1].last) == (positions[0], positions[-1])
    assert sum(one.number for one in found) == len(positions)


@given(st.lists(st.binary(max_size=40), min_size=1), POSITIONS, st.lists(st.integers(0, 1000)))
def test_packets_rebuild_the_log_wherever_they_are_split(
    bodies: list[bytes], start: int, places: list[int]
) -> None:
    data, position = b"", start
    for body in bodies:
        data += packet_head(position, len(body)) + body
        position += len(body)
    reader = PacketReader()
    at, whole = start, b""
    for part in cut(data, places):
        for piece in reader.feed(part):
            assert piece.position == at
            whole += piece.data
            at += len(piece.data)
    assert whole == b"".join(bodies)


def test_heartbeat_is_a_packet_without_data() -> None:
    assert PacketReader().feed(packet_head(77, 0)) == [(77, b"")]


@pytest.mark.parametrize(("position", "size"), [(0, -1), (0, PACKET_BYTES_MAX + 1), (-5, 0)])
def test_invalid_packets_are_refused(position: int, size: int) -> None:
    with pytest.raises(ProtocolError, check=about(what="packet", value=size)):
        PacketReader().feed(struct.pack(">qi", position, size))


def test_headers_have_apaches_format() -> None:
    assert report(0x1122334455667788) == bytes.fromhex("1122334455667788")
    assert packet_head(1, 2) == bytes.fromhex("000000000000000100000002")
