"""The reference's bloom filter; the interop tests compare more names with its own class."""

from __future__ import annotations

import pytest

from sparrowmq.protocol.bloom import BloomFilter, murmur3_low64


@pytest.mark.proves("broker:14.2")
def test_sizes_and_positions_are_the_references() -> None:
    usual = BloomFilter()
    assert (usual.hashes, usual.bits) == (3, 112)
    assert usual.positions("G#T") == (24, 26, 83)
    assert usual.positions("中文#t") == (34, 72, 33)
    assert usual.positions("\ud83d#t") == usual.positions("?#t"), "Java writes half a pair as a question mark"
    assert (BloomFilter(10, 128).hashes, BloomFilter(10, 128).bits) == (4, 616)


def test_the_hash_has_known_values() -> None:
    assert murmur3_low64(b"") == 0
    assert murmur3_low64(b"hello") == 0xCBD8A7B341BD9B02
    assert murmur3_low64(b"The quick brown fox jumps over the lazy dog") == 0xE34BBC7BBC071B6C


@pytest.mark.parametrize(("percent", "groups"), [(0, 1), (100, 1), (20, 0)])
def test_impossible_filters_are_refused(percent: int, groups: int) -> None:
    with pytest.raises(ValueError, match="a bloom filter takes"):
        BloomFilter(percent, groups)


def test_the_smallest_filters() -> None:
    assert (BloomFilter(1, 1).hashes, BloomFilter(1, 1).bits) == (7, 16)
    assert (BloomFilter(99, 1).hashes, BloomFilter(99, 1).bits) == (1, 8)
