"""A power cut: of what was not flushed, each part of the disk may be new, old or gone.

The state at the last flush and the state at the cut are mixed sector by sector, file by file. What was
flushed must be there; what was not may be missing, but never half there, elsewhere or in another order.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from tests.conftest import LONG
from tests.crash.clocks import jumped
from tests.crash.store_child import LOG_BYTES, body_of
from tests.store.rig import ManualClock, append, open_store, read_all

from sparrowmq.core.hashing import java_hash
from sparrowmq.protocol.record import StoredRecord
from sparrowmq.store.message_store import MessageStore

TAG_CODE = java_hash("T")
CUTS = 150 if LONG else 25
SIZES = {"mapped_file_size_commit_log": LOG_BYTES, "mapped_file_size_consume_queue": 2000}


def store_some(
    store: MessageStore, rng: random.Random, first: int, count: int
) -> list[tuple[str, int, int, int]]:
    """Chunks of messages; where each is: topic, queue, offset, number."""
    places = []
    for number in range(first, first + count):
        queue = store.queue(rng.choice("ABC"), rng.randrange(2))
        places.append((queue.topic, queue.queue_id, queue.next_offset, number))
        size = rng.choice((0, 0, 100, 600, 2000))
        properties = b"" if number % 3 else b"TAGS\x01T\x02LONG\x01" + b"v" * size + b"\x02"
        code = TAG_CODE if properties else 0
        now_ms = ManualClock().ms + number
        append(store, queue, body_of(number), properties=properties, tags_code=code, now_ms=now_ms)
        if rng.random() < 0.4:
            store.commit_chunk()
    store.commit_chunk()
    return places


def mix(old: Path, new: Path, target: Path, sector: int, rng: random.Random, kept: int) -> None:
    """`target` with, per sector, the content of `old` or `new`; the first `kept` bytes are those of `new`."""
    data = bytearray(new.read_bytes())
    before = old.read_bytes() if old.exists() else bytes(len(data))
    likely_new = rng.random()
    for start in range(0, len(data), sector):
        if start + sector > kept and rng.random() > likely_new:
            low = max(start, kept)
            data[low : start + sector] = before[low : start + sector]
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)


def cut_power(old: Path, new: Path, target: Path, rng: random.Random, flushed: int) -> None:
    """What a disk may hold after a cut, when the log was flushed up to `flushed` and all else at `old`."""
    sector = rng.choice((512, 4096))
    shutil.copytree(old, target, ignore=shutil.ignore_patterns("commitlog", "consumequeue"))
    (target / "abort").write_bytes(b"1")
    files = sorted((new / "commitlog").iterdir())
    while int(files[-1].name) >= flushed and rng.random() < 0.3:
        gone = files.pop()  # the directory entry of a file made since did not reach the disk
        if rng.random() < 0.5:
            (target / "commitlog").mkdir(exist_ok=True)
            (target / "commitlog" / gone.name).write_bytes(b"")
            break
    for path in files:
        part = path.relative_to(new)
        mix(old / part, path, target / part, sector, rng, flushed - int(path.name))
    for directory in sorted(path.parent for path in (new / "consumequeue").rglob("0" * 20)):
        queue_files = sorted(directory.iterdir())
        if not (old / directory.relative_to(new)).exists() and rng.random() < 0.3:
            continue
        while (
            not (old / queue_files[-1].relative_to(new)).exists()
            and len(queue_files) > 1
            and rng.random() < 0.3
        ):
            queue_files.pop()
        for path in queue_files:
            part = path.relative_to(new)
            mix(old / part, path, target / part, sector, rng, 0)


@pytest.mark.crash
@pytest.mark.parametrize("seed", range(CUTS))
def test_what_was_flushed_survives_a_power_cut(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    root = tmp_path / "store"
    store = open_store(root, **SIZES)
    flushed = store_some(store, rng, 0, rng.choice((1, 30, 300)))
    store.flush_queues(safe_point=rng.random() < 0.5)
    store.flush()
    shutil.copytree(root, tmp_path / "old")
    flushed += store_some(store, rng, 1000, rng.choice((0, 5, 200)))
    durable = store.flush()  # the log only: queues, checkpoint and safe point stay behind
    later = store_some(store, rng, 2000, rng.choice((1, 10, 300)))
    shutil.copytree(root, tmp_path / "new")
    store.abandon()
    cut_power(tmp_path / "old", tmp_path / "new", tmp_path / "cut", rng, durable)
    known = {(topic, queue_id, offset): number for topic, queue_id, offset, number in flushed + later}
    for _ in range(2):
        again = open_store(tmp_path / "cut", clock=jumped(seed), **SIZES)
        found: dict[tuple[str, int, int], StoredRecord] = {}
        for topic in again.topics():
            for queue in again.queues(topic):
                for record in read_all(again, queue):
                    found[topic, queue.queue_id, record.queue_offset] = record
        for topic, queue_id, offset, number in flushed:
            assert found[topic, queue_id, offset].body == body_of(number)
        for key, record in found.items():
            assert record.body == body_of(known[key])
            length = len(record.properties)
            assert (
                length == 0 or record.properties == b"TAGS\x01T\x02LONG\x01" + b"v" * (length - 13) + b"\x02"
            )
            queue = again.queue(*key[:2])
            tagged = again.get_messages(queue, key[2], max_count=1, max_bytes=1, codes=frozenset({TAG_CODE}))
            assert (tagged.next_offset == key[2] + 1 and tagged.count == 1) is (length > 0)
        queue = again.queue("A", 0)
        known["A", 0, queue.next_offset] = 9000 + queue.next_offset
        append(again, queue, body_of(9000 + queue.next_offset), now_ms=ManualClock().ms + 9000)
        again.close()
