from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.core.hashing import java_hash
from sparrowmq.store.index import key_hash
from sparrowmq.store.index.key_hash import KeyHashes, TagHashes, index_hash, positive

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=40)


def reference(text: str) -> int:
    """As Java computes it: the absolute value of the hash, 0 where it has none (broker:4.1)."""
    value = abs(java_hash(text))
    return 0 if value == 2**31 else value


@pytest.mark.proves("broker:4.1", "broker:17")
@given(st.integers(0, 2**32 - 1))
def test_hash_is_javas_absolute_value(value: int) -> None:
    signed = value - 2**32 if value >= 2**31 else value
    assert positive(value) == (0 if signed == -(2**31) else abs(signed))


@pytest.mark.proves("broker:4.1")
@given(TEXTS, TEXTS)
def test_hashes_of_parts_equal_those_of_the_whole(topic: str, key: str) -> None:
    keys, tags = KeyHashes(f"{topic}#"), TagHashes(f"{topic}#T#")
    for _ in range(2):  # the second time from what was kept
        assert keys.of(key.encode()) == index_hash(f"{topic}#{key}") == reference(f"{topic}#{key}")
        assert tags[key.encode()] == reference(f"{topic}#T#{key}")


def test_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_hash, "HEADS_KEPT", 8)
    monkeypatch.setattr(key_hash, "TAILS_KEPT", 8)
    monkeypatch.setattr(key_hash, "_tails", key_hash._Tails())
    keys, tags = KeyHashes("T#"), TagHashes("T#T#")
    for number in range(100):
        key = f"order-{number:08d}"
        assert keys.of(key.encode()) == reference(f"T#{key}")
        assert tags[key.encode()] == reference(f"T#T#{key}")
    assert max(len(keys._heads), len(key_hash._tails), len(tags)) <= 8
