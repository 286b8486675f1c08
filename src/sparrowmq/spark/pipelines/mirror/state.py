"""The state of a mirror, in one file: target queues, mirrored offsets, positions of copies. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.offsets.offsets import from_tree, to_tree
from sparrowmq.spark.pipelines.common.notes import check_version, reading
from sparrowmq.spark.pipelines.mirror.offset_map import OffsetPiece, QueuePlaces

VERSION: Final = 1


class MirrorError(SettingsError):
    """A mirror's directory does not fit the request; the text names it and the next step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorState:
    """A mirror from cluster `source` to cluster `target`."""

    source: str
    target: str
    queues: Mapping[MessageQueue, MessageQueue] = field(default_factory=dict)
    """The target queue of each source queue."""
    done: Mapping[MessageQueue, int] = field(default_factory=dict)
    """The end of the mirrored part of each source queue."""
    places: Mapping[MessageQueue, QueuePlaces] = field(default_factory=dict)
    """By target queue."""
    query: str = ""
    batch: int = -1
    """The last mirrored batch of that streaming query."""

    def has(self, query: str, batch: int) -> bool:
        """Whether a query's batch is mirrored."""
        return query == self.query and batch <= self.batch

    def sources(self, target: MessageQueue) -> list[MessageQueue]:
        """The source queues that go to a target queue, sorted."""
        return sorted(queue for queue, other in self.queues.items() if other == target)

    def to_text(self) -> str:
        """As JSON."""
        value: dict[str, Any] = {
            "version": VERSION,
            "source": self.source,
            "target": self.target,
            "query": self.query,
            "batch": self.batch,
            "queues": [[*_names(queue), *_names(to)[1:]] for queue, to in sorted(self.queues.items())],
            "done": to_tree(self.done),
            "places": [
                [*_names(queue), places.begin, [_piece(piece) for piece in places.pieces]]
                for queue, places in sorted(self.places.items())
            ],
        }
        return json.dumps(value, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str, where: object) -> MirrorState:
        """The inverse of `to_text`. Raises `MirrorError` with `where`."""
        lost = ": without it all messages would be sent again"
        with reading("a mirror's state", where, MirrorError, name="state", lost=lost):
            value = json.loads(text)
            check_version(value, VERSION, where, MirrorError)
            return cls(
                source=value["source"],
                target=value["target"],
                query=value["query"],
                batch=int(value["batch"]),
                queues={
                    MessageQueue(topic, broker, queue_id): MessageQueue(topic, to_broker, to_id)
                    for topic, broker, queue_id, to_broker, to_id in value["queues"]
                },
                done=from_tree(value["done"]),
                places={
                    MessageQueue(topic, broker, queue_id): QueuePlaces(
                        begin, tuple(_piece_of(topic, piece) for piece in pieces)
                    )
                    for topic, broker, queue_id, begin, pieces in value["places"]
                },
            )


def _names(queue: MessageQueue) -> tuple[str, str, int]:
    return queue.topic, queue.broker_name, queue.queue_id


def _piece(piece: OffsetPiece) -> list[object]:
    if piece.source is None:
        return [piece.start, piece.end]
    return [piece.start, piece.end, piece.source.broker_name, piece.source.queue_id, piece.first]


def _piece_of(topic: str, value: list[Any]) -> OffsetPiece:
    start, end, *source = value
    if not source:
        return OffsetPiece(start, end)
    broker, queue_id, first = source
    return OffsetPiece(start, end, MessageQueue(topic, broker, queue_id), first)
