"""Message ids."""

from __future__ import annotations

import os
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import about

from sparrowmq.core.errors import RecordError
from sparrowmq.core.ids import UniqueIds, offset_message_id, pack_host, parse_offset_message_id, unpack_host

HOSTS = st.ip_addresses().map(str)
PORTS = st.integers(0, 65535)


@given(HOSTS, PORTS, st.integers(-(2**63), 2**63 - 1))
def test_offset_ids_are_parsed_as_they_were_written(host: str, port: int, offset: int) -> None:
    packed = pack_host(host, port)
    assert unpack_host(packed) == (host, port)
    text = offset_message_id(packed, offset)
    assert len(text) in (32, 56)
    assert text == text.upper()
    assert parse_offset_message_id(text) == (host, port, offset)
    assert parse_offset_message_id(text.lower()) == (host, port, offset)


def test_offset_ids_equal_those_of_rocketmq() -> None:
    assert offset_message_id(pack_host("127.0.0.1", 10911), 1024) == "7F00000100002A9F0000000000000400"
    v6 = "0000000000000000000000000000000100002A9F0000000000000400"
    assert offset_message_id(pack_host("::1", 10911), 1024) == v6


@pytest.mark.parametrize(
    "text", ["", "x", "7F", "7F00000100002A9F00000000000004", "7F" * 17, "7F" * 27, "é" * 32]
)
def test_invalid_offset_id_is_refused(text: str) -> None:
    with pytest.raises(RecordError, check=about(what="id", value=text)):
        parse_offset_message_id(text)


@pytest.mark.parametrize("size", [0, 4, 7, 9, 16, 19, 21])
def test_hosts_of_other_sizes_are_refused(size: int) -> None:
    with pytest.raises(RecordError, check=about(what="host", value=size)):
        unpack_host(bytes(size))


def at(
    year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0, microsecond: int = 0
) -> int:
    """Epoch milliseconds of a local time."""
    return int(datetime(year, month, day, hour, minute, second, microsecond).timestamp() * 1000)


@pytest.mark.proves("client:B-84")
def test_unique_key_has_address_process_time_and_counter() -> None:
    key = UniqueIds("127.0.0.1").next(at(2024, 3, 2, 0, 0, 1))
    assert len(key) == 32
    assert key[:8] == "7F000001"
    assert int(key[8:12], 16) == os.getpid() & 0xFFFF
    assert int(key[20:28], 16) == at(2024, 3, 2, 0, 0, 1) - at(2024, 3, 1)
    assert key[28:] == "0000"


def test_time_of_a_unique_key_counts_milliseconds_since_the_start_of_the_month() -> None:
    moment = at(2024, 3, 17, 13, 45, 59, 123_456)
    assert int(UniqueIds("10.0.0.1").next(moment)[20:28], 16) == moment - at(2024, 3, 1)
    before = datetime.now()
    since = int(UniqueIds("10.0.0.1").next()[20:28], 16)
    month = datetime(before.year, before.month, 1)
    assert 0 <= since - int((before - month).total_seconds() * 1000) < 60_000, "it is now by default"


@pytest.mark.proves("client:B-84")
def test_counter_repeats_only_after_65536_keys() -> None:
    ids = UniqueIds("10.0.0.1")
    now = at(2024, 3, 2)
    keys = [ids.next(now) for _ in range(65537)]
    assert len(set(keys)) == 65536
    assert keys[0] == keys[65536]
    assert keys[65535].endswith("FFFF")


@pytest.mark.proves("client:B-87")
def test_two_generators_differ_in_their_constant() -> None:
    one, two = (UniqueIds("10.0.0.1").next(at(2024, 3, 2)) for _ in range(2))
    assert one[:12] == two[:12]
    assert one[12:20] != two[12:20]


@pytest.mark.proves("client:B-86")
@pytest.mark.parametrize(("month", "following"), [((2024, 12), (2025, 1)), ((2024, 2), (2024, 3))])
def test_time_starts_again_with_each_month(month: tuple[int, int], following: tuple[int, int]) -> None:
    ids = UniqueIds("10.0.0.1")
    last = ids.next(at(*following, 1) - 1)
    assert int(last[20:28], 16) == at(*following, 1) - 1 - at(*month, 1)
    assert int(ids.next(at(*following, 1))[20:28], 16) == 0


@pytest.mark.parametrize("month", [2, 11, 12])
def test_month_is_computed_once(month: int, monkeypatch: pytest.MonkeyPatch) -> None:
    set_month, worked_out = UniqueIds._set_month, list[int]()

    def noted(ids: UniqueIds, now_ms: int) -> None:
        worked_out.append(now_ms)
        set_month(ids, now_ms)

    monkeypatch.setattr(UniqueIds, "_set_month", noted)
    ids = UniqueIds("10.0.0.1")
    for day in (1, 5, 28):
        ids.next(at(2024, month, day))
    assert worked_out == [at(2024, month, 1)]


@pytest.mark.proves("client:B-86")
def test_clock_set_back_to_shortly_before_the_month_counts_as_its_start() -> None:
    ids = UniqueIds("10.0.0.1")
    ids.next(at(2024, 3, 1))
    assert int(ids.next(at(2024, 3, 1) - 1_000_000)[20:28], 16) == 0
    since = int(ids.next(at(2024, 3, 1) - 1_000_001)[20:28], 16)
    assert since == at(2024, 3, 1) - 1_000_001 - at(2024, 2, 1)


@pytest.mark.proves("client:B-84", "client:B-88")
def test_machine_with_ipv6_has_longer_keys() -> None:
    assert len(UniqueIds("::1").next()) == 56
