"""A process that stores messages and says so, until it is killed.

`python -m tests.crash.store_child ROOT SEED MODE KEEP CLOCK`, the mode being RocketMQ's `flushDiskType`, the
clock one of `clocks`. With `KEEP` other than 0 only so many files of the log are kept.
Each line it prints is a promise: `topic queue offset number`, the number being the message's body.
"""

from __future__ import annotations

import random
import sys
import threading
from pathlib import Path

from tests.crash.clocks import WrongClock
from tests.store.rig import HOST, append

from sparrowmq.store.base.settings import StoreSettings
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.queues.consume_queue import ConsumeQueue

LOG_BYTES = 64 * 1024
QUEUE_BYTES = 400
INDEX = {"max_hash_slot_num": 100, "max_index_num": 2000}
TOPICS = ("A", "B", "C")


def child_settings(root: Path, mode: str) -> StoreSettings:
    """Settings of the child, which the parent uses too."""
    return StoreSettings(
        root=root,
        mapped_file_size_commit_log=LOG_BYTES,
        mapped_file_size_consume_queue=QUEUE_BYTES,
        flush_disk_type=mode,
        disk_space_warning_level_ratio=100,
        **INDEX,
    )


def body_of(number: int) -> bytes:
    """A body that tells its number and is whole only if every byte is."""
    return random.Random(number).randbytes(number % 700) + b"#%d" % number


def flush_always(store: MessageStore) -> None:
    """Flush log and queues without a pause, as several timers of a broker would."""
    while True:  # ends with the process
        store.flush_queues(safe_point=True)


def delete_oldest(store: MessageStore, keep: int) -> None:
    """What a broker's cleaner does, without its pauses."""
    while len(store.log_files()) > keep:
        store.forget_log_file().path.unlink()
        gone = [path for queue in store.all_queues() for path in store.trim(queue)]
        for path in [*gone, *store.trim_index()]:
            path.unlink()


def main() -> None:
    """Store chunks of random size until killed."""
    root, seed, mode = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    keep, clock = int(sys.argv[4]), WrongClock(sys.argv[5])
    rng = random.Random(seed)
    store = MessageStore.open(child_settings(root, mode), clock, store_host=HOST)
    threading.Thread(target=flush_always, args=(store,), daemon=True).start()
    number = seed * 1_000_000
    print("ready", flush=True)
    while True:  # until killed
        chunk: list[tuple[ConsumeQueue, int, int]] = []
        for _ in range(rng.choice((1, 1, 3, 20))):
            queue = store.queue(rng.choice(TOPICS), rng.randrange(2))
            chunk.append((queue, queue.next_offset, number))
            key = b"KEYS\x01%d\x02" % number
            append(store, queue, body_of(number), properties=key, now_ms=clock.now_ms())
            number += 1
        store.commit_chunk()
        if mode == "SYNC_FLUSH":
            store.flush()
        store.follow_index(rng.choice((0, 0, 5, 50)))
        if keep:
            delete_oldest(store, keep)
        lines = [f"{queue.topic} {queue.queue_id} {offset} {number}\n" for queue, offset, number in chunk]
        sys.stdout.write("".join(lines))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
