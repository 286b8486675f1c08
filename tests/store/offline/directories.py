"""Small directories for offline tools, and their bytes that nothing protects."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.store.rig import INDEX_ENTRIES, INDEX_SLOTS, START_MS, append, open_store

from sparrowmq.protocol.record import BLANK_MAGIC, decode_record
from sparrowmq.store.log.commit_log import PLACE
from sparrowmq.store.offline.directory import StoreDirectory
from sparrowmq.store.offline.verify import VerifyReport, verify
from sparrowmq.store.tables.config_file import ConfigFile

TOPICS = ("Orders", "Bills")
UNPROTECTED = ((16, 20), (36, 84))
"""Bytes of a record's head that no checksum covers and nothing else repeats: `flag`, and what follows the
physical offset up to the length of the body."""


def fill(root: Path, messages: int = 60, *, first: int = 0) -> None:
    """A clean store of two topics with tags, keys and unique keys."""
    store = open_store(root)
    for number in range(first, first + messages):
        queue = store.queue(TOPICS[number % 2], number // 2 % 2)
        properties = f"UNIQ_KEY\x01AB{number:06d}\x02KEYS\x01k{number} all\x02TAGS\x01t{number % 3}\x02"
        append(
            store,
            queue,
            b"body %d " % number * (1 + number % 5),
            properties=properties.encode(),
            tags=f"t{number % 3}",
            now_ms=START_MS + number * 700,
        )
        store.commit_chunk()
    store.close()
    rows = {name: {"topicName": name, "readQueueNums": 2, "writeQueueNums": 2, "perm": 6} for name in TOPICS}
    ConfigFile(root / "config" / "topics.json").save({"topicConfigTable": rows})
    ends = {str(number): min(3, (first + messages) // 4) for number in (0, 1)}
    ConfigFile(root / "config" / "consumerOffset.json").save({"offsetTable": {"Orders@shop": ends}})


@functools.cache
def filled() -> Path:
    """A directory that `fill` made, to be copied."""
    root = Path(tempfile.mkdtemp(prefix="sparrow-test-offline-")) / "store"
    root.mkdir()
    fill(root)
    return root


def checked(root: Path) -> VerifyReport:
    """What `verify` says of a directory."""
    directory = StoreDirectory.open(root)
    try:
        return verify(directory)
    finally:
        directory.close()


def kinds(report: VerifyReport, *, damage: bool = True) -> set[str]:
    """The kinds of findings."""
    return {kind.what for kind in report.findings.kinds if kind.is_damage is damage}


@functools.cache
def damageable(root: Path) -> list[tuple[Path, int]]:
    """Every byte of log, queues and index whose damage has to be found."""
    found: list[tuple[Path, int]] = []
    for path in sorted((root / "commitlog").iterdir()):
        found += [(path, at) for at in _protected_of_log(path)]
    for path in sorted((root / "consumequeue").rglob("*")):
        if path.is_file():
            found += [(path, at) for at in range(path.stat().st_size)]
    for path in sorted((root / "index").iterdir()):
        found += [(path, at) for at in _protected_of_index(path)]
    return found


def _protected_of_log(path: Path) -> Iterator[int]:
    data, base, at = path.read_bytes(), int(path.name), 0
    while at + PLACE.size <= len(data):
        size, magic, _, physical = PLACE.unpack_from(data, at)
        if magic == BLANK_MAGIC:
            yield from range(at + 4, at + 8)  # of a blank only its magic counts
            return
        if physical != base + at or not size:
            break
        record = decode_record(data, at)
        assert record.body, "the CRC of an empty body is not checked"
        for low, high in ((0, 16), (20, 36), (84, size)):
            yield from range(at + low, at + high)
        at += size
    yield from range(at, len(data))


def _protected_of_index(path: Path) -> Iterator[int]:
    data = path.read_bytes()
    count = int.from_bytes(data[36:40], "big")
    entries_at = 40 + 4 * INDEX_SLOTS
    assert len(data) == entries_at + 20 * INDEX_ENTRIES
    yield from range(entries_at)
    first = entries_at + 20
    yield from range(first, first + 12)  # the first entry's time counts from the file before
    yield from range(first + 16, entries_at + 20 * count)
