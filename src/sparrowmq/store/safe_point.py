"""`safe-point.json`: what is known to be on disk, finer than the checkpoint. Our own file; Apache ignores it.

RocketMQ's checkpoint is a time and recovery goes back by whole files. This file adds the exact record up to
which log and queues were flushed, how long every queue was then, and which topics were deleted. So recovery
starts near the end, sees a queue that has lost entries although nothing in the rescanned part names it, and
does not bring deleted topics back.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sparrowmq.store import disk
from sparrowmq.store.index import IndexPlace

log = logging.getLogger("sparrowmq.store")
FILE_NAME: Final = "safe-point.json"
VERSION: Final = 1


@dataclass(slots=True)
class SafePoint:
    """Log and queues are on disk up to `position`, where the record that starts at `record` ends.

    `queues` has the maximum offset by topic and queue id at that time; `deleted` the end of the log when a
    topic was deleted: its records before that are no messages any more. `index` is how far the index was on
    disk, None when nobody noted it. `producers` is the position up to which the file of idempotent producers
    is complete, None while there never were any.
    """

    record: int = -1
    position: int = 0
    queues: dict[str, dict[int, int]] = field(default_factory=dict)
    deleted: dict[str, int] = field(default_factory=dict)
    index: IndexPlace | None = None
    producers: int | None = None

    @classmethod
    def load(cls, root: Path) -> SafePoint:
        """The stored one; one that knows nothing when there is none that can be read."""
        path = root / FILE_NAME
        try:
            data = json.loads(path.read_bytes())
            if data["version"] != VERSION:
                raise ValueError(f"version {data['version']}")
            queues = {
                str(topic): {int(queue_id): int(offset) for queue_id, offset in offsets.items()}
                for topic, offsets in data["queues"].items()
            }
            deleted = {str(topic): int(position) for topic, position in data["deleted"].items()}
            index = None
            if data.get("index") is not None:
                name, *numbers = data["index"]
                index = IndexPlace(str(name), *(int(number) for number in numbers))
            producers = None if data.get("producers") is None else int(data["producers"])
            return cls(int(data["record"]), int(data["position"]), queues, deleted, index, producers)
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            log.warning("%s cannot be used, recovery goes by the checkpoint: %s", path, error)
            return cls()

    def save(self, root: Path) -> None:
        """Replace the stored one; raises OSError."""
        data = {
            "version": VERSION,
            "record": self.record,
            "position": self.position,
            "queues": self.queues,
            "deleted": self.deleted,
            "index": self.index,
            "producers": self.producers,
        }
        disk.replace(root / FILE_NAME, json.dumps(data, separators=(",", ":")).encode())
