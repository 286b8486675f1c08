"""A replay's directory: what it set out to do, and how far it is.

    replay.json     written once, at the first start: id, what was asked for, the offsets that are replayed,
                    and the target's queues then
    progress.json   replaced before and after each part
    queues/         the sink's own notes
    lock            held by the one process that runs it

The part in hand is written down before its first message is sent, so whoever goes on sends the same part
again, under the same name, and the broker knows what it has.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.offsets import Span, split
from sparrowmq.spark.pipelines import homes

VERSION: Final = 1


class ReplayError(SettingsError):
    """A replay does not fit what is to be done with it; the text names directory, value and next step."""


@dataclass(frozen=True, slots=True)
class Replay:
    """What was settled at the first start."""

    id: str
    """Names the replay's messages; 16 hex digits."""
    asked: Mapping[str, Any]
    """The settings that decide what is sent, as JSON values."""
    spans: tuple[Span, ...]
    """What is replayed, sorted; a queue may have several, with gaps between them."""
    targets: Mapping[str, tuple[MessageQueue, ...]]
    """The queues that each topic's messages go to, by the topic they come from."""

    def to_json(self) -> dict[str, Any]:
        """As a JSON value."""
        return {
            "version": VERSION,
            "id": self.id,
            "asked": dict(self.asked),
            "spans": [_span_out(span) for span in self.spans],
            "targets": {
                topic: [_queue_out(queue) for queue in queues] for topic, queues in self.targets.items()
            },
        }

    @classmethod
    def from_json(cls, value: Any) -> Replay:
        """The inverse of `to_json`. Raises KeyError, TypeError, ValueError for what is none."""
        return cls(
            id=str(value["id"]),
            asked=dict(value["asked"]),
            spans=tuple(map(_span_in, value["spans"])),
            targets={
                topic: tuple(_queue_in(queue) for queue in queues)
                for topic, queues in value["targets"].items()
            },
        )

    @property
    def size(self) -> int:
        """Messages in all spans."""
        return sum(map(len, self.spans))

    def check(self, asked: Mapping[str, Any], root: Path) -> None:
        """Raise `ReplayError` unless `asked` is what the replay was begun with."""
        for name, value in asked.items():
            before = self.asked.get(name)
            if before != value:
                raise ReplayError(
                    f"{root} holds a replay with {name}={before!r}, now it is {value!r}: go on with what it "
                    "was begun with, or give another home for another replay"
                )


@dataclass(frozen=True, slots=True)
class Part:
    """Messages that are sent under one name; each queue at most once, all of one topic."""

    number: int
    spans: tuple[Span, ...]
    tasks: int
    """How many tasks it is sent by: another number would be another order."""

    @property
    def topic(self) -> str:
        """The topic that it reads."""
        return self.spans[0].queue.topic

    def __len__(self) -> int:
        return sum(map(len, self.spans))


@dataclass(frozen=True, slots=True)
class Place:
    """How far a replay is."""

    done: Mapping[MessageQueue, int] = field(default_factory=dict)
    """The next offset of each queue of which something is done."""
    parts: int = 0
    """Parts that are done."""
    read: int = 0
    """Messages that they read, those that a filter left out, too."""
    sent: int = 0
    bytes_sent: int = 0
    """Of bodies."""
    part: Part | None = None
    """The one in hand."""

    def begin(self, part: Part) -> Place:
        """With `part` in hand."""
        return replace(self, part=part)

    def end(self, sent: int, size: int) -> Place:
        """After the part in hand, of which `sent` messages were sent with bodies of `size` bytes."""
        assert self.part is not None, "no part in hand"
        return Place(
            done={**self.done, **{span.queue: span.end for span in self.part.spans}},
            parts=self.parts + 1,
            read=self.read + len(self.part),
            sent=self.sent + sent,
            bytes_sent=self.bytes_sent + size,
        )

    def left(self, replay: Replay) -> list[Span]:
        """What is not done, sorted."""
        found = []
        for span in replay.spans:
            start = max(span.start, self.done.get(span.queue, span.start))
            if start < span.end:
                found.append(Span(span.queue, start, span.end))
        return found

    def next_part(self, replay: Replay, rows: int, tasks: int) -> Part | None:
        """The next part, of about `rows` messages: the next of every queue of one topic; None at the end.

        Queues share in proportion to what is left, so that they come to their ends together.
        """
        first: dict[MessageQueue, Span] = {}
        for span in self.left(replay):
            if not first or span.queue.topic == next(iter(first)).topic:
                first.setdefault(span.queue, span)
        if not first:
            return None
        shares = split({queue: len(span) for queue, span in first.items()}, rows)
        spans = [Span(queue, first[queue].start, first[queue].start + shares[queue]) for queue in shares]
        return Part(self.parts, tuple(sorted(spans)), tasks)

    def to_json(self) -> dict[str, Any]:
        """As a JSON value."""
        value: dict[str, Any] = {
            "version": VERSION,
            "done": [[*_queue_out(queue), offset] for queue, offset in sorted(self.done.items())],
            "parts": self.parts,
            "read": self.read,
            "sent": self.sent,
            "bytes_sent": self.bytes_sent,
        }
        if self.part is not None:
            spans = [_span_out(span) for span in self.part.spans]
            value["part"] = {"number": self.part.number, "spans": spans, "tasks": self.part.tasks}
        return value

    @classmethod
    def from_json(cls, value: Any) -> Place:
        """The inverse of `to_json`. Raises KeyError, TypeError, ValueError for what is none."""
        part = value.get("part")
        return cls(
            done={
                MessageQueue(topic, broker, queue_id): int(offset)
                for topic, broker, queue_id, offset in value["done"]
            },
            parts=int(value["parts"]),
            read=int(value["read"]),
            sent=int(value["sent"]),
            bytes_sent=int(value["bytes_sent"]),
            part=None
            if part is None
            else Part(int(part["number"]), tuple(map(_span_in, part["spans"])), int(part["tasks"])),
        )


NoteT = TypeVar("NoteT", Replay, Place)


class ReplayHome:
    """One replay on disk."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.queues = root / "queues"
        self._settled = root / "replay.json"
        self._progress = root / "progress.json"

    def __repr__(self) -> str:
        return f"<ReplayHome {self.root}>"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Makes the directory if need be and keeps other processes out. Raises `ReplayError`."""
        with homes.locked(self.root, "replay", ReplayError):
            yield

    def replay(self) -> Replay | None:
        """What was settled; None when nothing was begun here. Raises `ReplayError`."""
        value = self._read(self._settled)
        if value is not None:
            return self._parsed(self._settled, value, Replay)
        if self._progress.exists():
            raise ReplayError(
                f"{self._settled} is missing, {self._progress} is there; restore it from a copy"
            )
        return None

    def begin(self, replay: Replay) -> None:
        """Settle what is replayed, for good."""
        homes.replace_file(self._settled, json.dumps(replay.to_json(), separators=(",", ":")))

    def place(self) -> Place:
        """How far the replay is. Raises `ReplayError`."""
        value = self._read(self._progress)
        return Place() if value is None else self._parsed(self._progress, value, Place)

    def save(self, place: Place) -> None:
        """Note how far it is."""
        homes.replace_file(self._progress, json.dumps(place.to_json(), separators=(",", ":")))

    def _read(self, path: Path) -> Any:
        try:
            return json.loads(path.read_text())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise ReplayError(f"{path} cannot be read ({error}); restore it from a copy") from None

    def _parsed(self, path: Path, value: Any, kind: type[NoteT]) -> NoteT:
        try:
            if value["version"] != VERSION:
                raise ReplayError(
                    f"{path} has version {value['version']}, this release reads {VERSION}: use a newer one"
                )
            return kind.from_json(value)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise ReplayError(
                f"{path} cannot be read as a note of a replay; restore it from a copy"
            ) from None


def _queue_out(queue: MessageQueue) -> list[Any]:
    return [queue.topic, queue.broker_name, queue.queue_id]


def _queue_in(value: Any) -> MessageQueue:
    topic, broker, queue_id = value
    return MessageQueue(str(topic), str(broker), int(queue_id))


def _span_out(span: Span) -> list[Any]:
    return [*_queue_out(span.queue), span.start, span.end]


def _span_in(value: Any) -> Span:
    *queue, start, end = value
    return Span(_queue_in(queue), int(start), int(end))
