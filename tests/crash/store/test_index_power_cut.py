"""A power cut while keys are filed: what the disk holds of the index is a mix, what is found is right."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from tests.conftest import LONG
from tests.crash.clocks import jumped
from tests.crash.store.test_store_power_cut import mix
from tests.store.rig import START_MS, append, open_store, query

from sparrowmq.protocol.record import decode_record
from sparrowmq.store.message_store import MessageStore

CUTS = 200 if LONG else 30
SIZES = {"max_hash_slot_num": 300, "max_index_num": 2000}


def fill(store: MessageStore, first: int, count: int) -> None:
    for number in range(first, first + count):
        key = b"KEYS\x01k%d all\x02" % number
        append(store, store.queue("T", number % 2), b"%d" % number, properties=key, now_ms=START_MS + number)
    store.commit_chunk()


def cut_power(old: Path, new: Path, target: Path, rng: random.Random) -> None:
    """The log and the queues of `new`, the notes of `old`, and an index of sectors of either."""
    shutil.copytree(old, target, ignore=shutil.ignore_patterns("commitlog", "consumequeue", "index"))
    for part in ("commitlog", "consumequeue"):
        shutil.copytree(new / part, target / part)
    (target / "abort").write_bytes(b"1")
    sector = rng.choice((512, 4096))
    for path in sorted((new / "index").iterdir()):
        before = old / "index" / path.name
        if not before.exists() and rng.random() < 0.3:
            continue
        mix(before, path, target / "index" / path.name, sector, rng, 0)


@pytest.mark.crash
@pytest.mark.proves("broker:4.2", "broker:1.5")
@pytest.mark.parametrize("seed", range(CUTS))
def test_every_key_is_found_after_a_power_cut(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    root = tmp_path / "store"
    store = open_store(root, **SIZES)
    count = rng.choice((10, 300, 2500))
    fill(store, 0, count)
    store.follow_index(rng.randrange(count + 1))
    store.flush()
    store.flush_queues(safe_point=rng.random() < 0.8)
    shutil.copytree(root, tmp_path / "old")
    later = rng.choice((1, 200, 1500))
    fill(store, count, later)
    store.follow_index(rng.randrange(count + later + 1) + 1)
    store.flush()
    shutil.copytree(root, tmp_path / "new")
    store.abandon()
    cut_power(tmp_path / "old", tmp_path / "new", tmp_path / "cut", rng)
    for _ in range(2):
        again = open_store(tmp_path / "cut", clock=jumped(seed), **SIZES)
        while again.follow_index(500):
            pass
        for number in rng.sample(range(count + later), min(count + later, 200)):
            (found,) = query(again, "T", f"k{number}", 64, 0, 2**62)
            assert decode_record(found).body == b"%d" % number
        assert len(query(again, "T", "all", 10_000, 0, 2**62)) == count + later
        again.close()
