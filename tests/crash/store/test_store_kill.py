"""A storing process dies by SIGKILL at random moments; what it promised is there, once and in order."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from tests.conftest import LONG
from tests.crash.clocks import WrongClock, clock_of
from tests.crash.store_child import body_of, child_settings
from tests.store.rig import HOST, query, read_all

from sparrowmq.protocol.record import decode_record
from sparrowmq.store.message_store import MessageStore

ROUNDS = 60 if LONG else 6
ROOT = Path(__file__).resolve().parents[3]

Promises = dict[tuple[str, int], dict[int, int]]


def run_and_kill(root: Path, seed: int, mode: str, promises: Promises, keep: int = 0) -> int:
    """Let a child store until some promises were read, kill it, take down all it promised; how many."""
    rng = random.Random(seed)
    wanted = rng.choice((0, 1, 10, 200, 1500))
    command = [sys.executable, "-m", "tests.crash.store_child", str(root), str(seed), mode, str(keep)]
    command.append(clock_of(seed))
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        lines = [child.stdout.readline() for _ in range(wanted)]
        os.kill(child.pid, signal.SIGKILL)
        lines += child.stdout.readlines()
        child.wait(20)
    assert child.returncode == -signal.SIGKILL
    if lines and not lines[-1].endswith(b"\n"):
        lines.pop()  # a promise cut short was not heard
    for line in lines:
        topic, queue_id, offset, number = line.split()
        promises[topic.decode(), int(queue_id)][int(offset)] = int(number)
    return len(lines)


def check(
    root: Path,
    mode: str,
    promises: Promises,
    unpromised: dict[tuple[str, int], dict[int, bytes]],
    clock: str,
) -> None:
    """Every promise is kept; what nobody promised is whole and stays as it was first seen."""
    store = MessageStore.open(child_settings(root, mode), WrongClock(clock), store_host=HOST)
    assert not store.recovery.clean
    assert (store.recovery.damaged, store.recovery.refused) == ((), 0)
    for topic in store.topics():
        for queue in store.queues(topic):
            key = topic, queue.queue_id
            records = read_all(store, queue)
            assert [record.queue_offset for record in records] == list(range(queue.max_offset))
            assert all(record.body == body_of(int(record.body.rpartition(b"#")[2])) for record in records)
            bodies = {record.queue_offset: record.body for record in records}
            for offset, number in promises[key].items():
                assert bodies.get(offset) == body_of(number), (key, offset, number)
            for offset, body in unpromised[key].items():
                assert bodies[offset] == body
            unpromised[key] = {offset: body for offset, body in bodies.items() if offset not in promises[key]}
            numbers = [body.rpartition(b"#")[2] for body in bodies.values()]
            assert len(set(numbers)) == len(numbers)
    assert set(promises) <= {
        (topic, queue.queue_id) for topic in store.topics() for queue in store.queues(topic)
    }
    if not store.min_position:
        check_index(store, promises)
    store.abandon()


def check_index(store: MessageStore, promises: Promises) -> None:
    """Promised messages are found by their keys, once."""
    while store.follow_index(10_000):
        pass
    rng = random.Random(store.position)
    for (topic, _), numbers in promises.items():
        for number in rng.sample(sorted(numbers.values()), min(20, len(numbers))):
            (record,) = query(store, topic, str(number), 64, 0, 2**62)
            assert decode_record(record).body == body_of(number)


@pytest.mark.crash
@pytest.mark.parametrize("mode", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_promises_survive_sigkill(mode: str, tmp_path: Path) -> None:
    promises: Promises = defaultdict(dict)
    unpromised: dict[tuple[str, int], dict[int, bytes]] = defaultdict(dict)
    total = 0
    for seed in range(1, ROUNDS + 1):
        total += run_and_kill(tmp_path, seed, mode, promises)
        check(tmp_path, mode, promises, unpromised, clock_of(seed + 1))
    assert total > 100


@pytest.mark.crash
@pytest.mark.proves("broker:2.7", "broker:3.4")
def test_what_is_kept_survives_sigkill_while_old_files_are_deleted(tmp_path: Path) -> None:
    promises: Promises = defaultdict(dict)
    lowest: dict[tuple[str, int], int] = defaultdict(int)
    moved = 0
    for seed in range(1, ROUNDS + 1):
        run_and_kill(tmp_path, seed, "ASYNC_FLUSH", promises, keep=3)
        store = MessageStore.open(
            child_settings(tmp_path, "ASYNC_FLUSH"), WrongClock(clock_of(seed + 1)), store_host=HOST
        )
        assert (store.recovery.damaged, store.recovery.refused) == ((), 0)
        for topic, queue_id in promises:
            queue = store.queue(topic, queue_id)
            assert queue.min_offset >= lowest[topic, queue_id]
            lowest[topic, queue_id] = queue.min_offset
            moved += queue.min_offset
            records = read_all(store, queue)
            assert [record.queue_offset for record in records] == list(
                range(queue.min_offset, queue.max_offset)
            )
            assert all(record.physical_offset >= store.min_position for record in records)
            bodies = {record.queue_offset: record.body for record in records}
            for offset, number in promises[topic, queue_id].items():
                assert offset < queue.min_offset or bodies[offset] == body_of(number)
        store.abandon()
    assert moved > 0
