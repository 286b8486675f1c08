"""`safe-point.json`: the positions up to which everything is on disk. Only SparrowMQ has this file.

RocketMQ's checkpoint is a time, and with it recovery rescans whole files. This file adds the exact record up
to which log and queues were flushed, the length of every queue at that time, and the deleted topics. So
recovery starts near the end of the log, detects a queue that lost entries outside the rescanned part, and
does not restore deleted topics.

`QueueFlush` saves it, through `queue_deletion.Departures`, after it has flushed log, queues,
index and producers: it must never claim more than is on disk. `MessageStore.open` loads it for recovery. It
is optional: without it, recovery uses the checkpoint. The format is described in docs/store-format.md.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from sparrowmq.files import disk
from sparrowmq.store.index.index import IndexPlace

log = logging.getLogger("sparrowmq.store")
FILE_NAME: Final = "safe-point.json"
VERSION: Final = 1
"""Increase it only for changes that older releases must not read; they ignore additional members."""


@dataclass(frozen=True, slots=True)
class SafePoint:
    """Log and queues are on disk up to `position`, where the record that starts at `record` ends.

    `queues` has the number of entries by topic and queue id at that time. `deleted` has, for each deleted
    topic, the end of the log when it was deleted: its earlier records are no longer messages. `index` is the
    end of the index that was on disk, None if unknown. `producers` is the log position up to which
    `producer-state.json` is complete, None if there were never idempotent producers.
    """

    record: int = -1
    position: int = 0
    queues: dict[str, dict[int, int]] = field(default_factory=dict)
    deleted: dict[str, int] = field(default_factory=dict)
    index: IndexPlace | None = None
    producers: int | None = None

    @classmethod
    def load(cls, root: Path) -> SafePoint:
        """The stored safe point, or an empty one (position 0) if it is missing or unreadable."""
        path = root / FILE_NAME
        try:
            data = json.loads(disk.read(path))
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
            log.warning("%s cannot be used; recovery starts from the checkpoint: %s", path, error)
            return cls()

    def without(self, topic: str, queue_ids: Collection[int] | None = None) -> SafePoint:
        """A copy without these queues of a topic, or without all queues of the topic."""
        queues = {name: ends for name, ends in self.queues.items() if name != topic}
        left = self.queues.get(topic, {}) if queue_ids is not None else {}
        left = {number: end for number, end in left.items() if number not in (queue_ids or ())}
        return replace(self, queues=queues | {topic: left} if left else queues)

    def save(self, root: Path) -> None:
        """Replace the stored safe point durably. Raises OSError."""
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
