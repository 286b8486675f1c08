"""The store against a model in memory, with random steps: appends, commits, crashes, restarts, deletions."""

from __future__ import annotations

import shutil
import tempfile
from collections import defaultdict
from pathlib import Path
from unittest import mock

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.conftest import LONG
from tests.store.rig import HOST, START_MS, append, open_store, read_all

from sparrowmq.files import disk
from sparrowmq.protocol.batch import AlikeBatch
from sparrowmq.store.message_store import MessageStore

Key = tuple[str, int]
keys = st.tuples(st.sampled_from(["A", "B", "%RETRY%" + "g" * 130]), st.integers(0, 2))
bodies = st.one_of(st.binary(max_size=20), st.integers(0, 3800).map(lambda size: b"x" * size))


class StoreModel(RuleBasedStateMachine):
    """Everything committed exists, in order, exactly once, whatever happened in between."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="sparrow-test-model-"))
        self.patches = [
            mock.patch("os.fsync", lambda fd: None),
            mock.patch.object(disk, "datasync", lambda fd: None),
        ]
        for patch in self.patches:
            patch.start()
        self.store = self.opened()
        self.stored: dict[Key, list[bytes]] = defaultdict(list)
        self.pending: list[tuple[Key, bytes]] = []

    def opened(self) -> MessageStore:
        return open_store(self.root, mapped_file_size_consume_queue=80)

    def teardown(self) -> None:
        self.store.abandon()
        for patch in self.patches:
            patch.stop()
        shutil.rmtree(self.root)

    @rule(key=keys, body=bodies)
    def append(self, key: Key, body: bytes) -> None:
        append(self.store, self.store.queue(*key), body)
        self.pending.append((key, body))

    @rule(key=keys, batch=st.lists(bodies, min_size=1, max_size=5))
    def append_batch(self, key: Key, batch: list[bytes]) -> None:
        queue = self.store.queue(*key)
        total = sum(queue.fixed_bytes + len(body) for body in batch)
        self.store.reserve(total)
        places = [append(self.store, queue, body) for body in batch]
        if total <= 4088:
            assert places[-1] - places[0] == total - queue.fixed_bytes - len(batch[-1])
        self.pending += [(key, body) for body in batch]

    @rule(key=keys, body=bodies, count=st.integers(1, 30))
    def append_alike(self, key: Key, body: bytes, count: int) -> None:
        starts = self.store.append_alike(
            self.store.queue(*key),
            AlikeBatch(0, (body,) * count, (b"",) * count),
            [0] * count,
            b"",
            sys_flag=0,
            born_timestamp=START_MS,
            born_host=HOST,
            reconsume_times=0,
            now_ms=START_MS,
        )
        if starts is not None:
            self.pending += [(key, body)] * count

    @rule(key=keys, body=bodies, kind=st.sampled_from([4, 12]))
    def append_without_entry(self, key: Key, body: bytes, kind: int) -> None:
        append(self.store, self.store.queue(*key), body, sys_flag=kind)

    @rule()
    def commit(self) -> None:
        self.store.commit_chunk()
        for key, body in self.pending:
            self.stored[key].append(body)
        self.pending.clear()

    @rule()
    def drop(self) -> None:
        self.store.drop_chunk()
        self.pending.clear()

    @rule()
    def flush(self) -> None:
        assert self.store.flush() == self.store.position

    @rule(safe_point=st.booleans())
    def flush_queues(self, safe_point: bool) -> None:
        self.store.flush_queues(safe_point=safe_point)

    @rule(topic=st.sampled_from(["A", "B"]))
    def delete(self, topic: str) -> None:
        self.commit()
        self.store.delete_topic(topic)
        for queue_id in range(3):
            self.stored.pop((topic, queue_id), None)

    @rule()
    def restart(self) -> None:
        self.commit()
        self.store.close()
        self.store = self.opened()
        assert self.store.recovery.clean

    @rule(lose_queues=st.booleans(), lose_checkpoint=st.booleans())
    def crash(self, lose_queues: bool, lose_checkpoint: bool) -> None:
        self.pending.clear()
        self.store.abandon()
        if lose_queues:
            shutil.rmtree(self.root / "consumequeue", ignore_errors=True)
        if lose_checkpoint:
            (self.root / "checkpoint").unlink(missing_ok=True)
        self.store = self.opened()
        assert not self.store.recovery.clean
        assert (self.store.recovery.cut, self.store.recovery.damaged) == (0, ())

    @precondition(lambda self: not self.pending)
    @invariant()
    def everything_committed_is_read(self) -> None:
        for key, expected in self.stored.items():
            queue = self.store.queue(*key)
            records = read_all(self.store, queue)
            assert [record.body for record in records] == expected
            assert [record.queue_offset for record in records] == list(range(len(expected)))
            assert (queue.min_offset, queue.max_offset, queue.next_offset) == (
                0,
                len(expected),
                len(expected),
            )
            for record in records:
                assert self.store.read_record(record.physical_offset) is not None


StoreModel.TestCase.settings = settings(max_examples=500 if LONG else 80, stateful_step_count=50)
test_store_model = StoreModel.TestCase
