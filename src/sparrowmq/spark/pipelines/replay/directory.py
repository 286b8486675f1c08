"""A replay's directory: its settings and its progress.

    replay.json     written once, at the first start: id, what was asked for, the offsets that are replayed,
                    and the target's queues then
    progress.json   replaced before and after each part
    queues/         the sink's own notes
    lock            held by the one process that runs it

On other file systems than mounted ones `settled` and `progress` hold numbered notes instead
(`common.commits`), and there is no lock: the run that continued before finds that the next number is taken.
The current part is recorded before its first message is sent. So the next run sends the same part again under
the same name, and the broker knows which messages it has.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.offsets.offsets import Span, split
from sparrowmq.spark.pipelines.common import directories
from sparrowmq.spark.pipelines.common.commits import Commits, TakenError
from sparrowmq.spark.pipelines.common.files import Files, LocalFiles, files_of
from sparrowmq.spark.pipelines.common.notes import check_asked, check_version, reading

VERSION: Final = 1


class ReplayError(SettingsError):
    """A replay's directory does not fit the request; the text names directory, value and next step."""


@dataclass(frozen=True, slots=True)
class Replay:
    """The settings and spans fixed at the first start."""

    id: str
    """Identifies the replay's messages; 16 hex digits."""
    asked: Mapping[str, Any]
    """The settings that decide what is sent, as JSON values."""
    spans: tuple[Span, ...]
    """The spans to replay, sorted; a queue may have several, with gaps between them."""
    targets: Mapping[str, tuple[MessageQueue, ...]]
    """The target queues of each topic's messages, by source topic."""

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
        """The inverse of `to_json`. Raises KeyError, TypeError, ValueError for invalid values."""
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

    def check(self, asked: Mapping[str, Any], root: str) -> None:
        """Raises `ReplayError` unless `asked` equals the settings at the first start."""
        check_asked(
            asked, self.asked, f"{root} contains a replay", "another home for another replay", ReplayError
        )


@dataclass(frozen=True, slots=True)
class Part:
    """Messages that are sent under one name; each queue at most once, all of one topic."""

    number: int
    spans: tuple[Span, ...]
    tasks: int
    """The number of tasks that send it; another number would change the order."""

    @property
    def topic(self) -> str:
        """The topic that it reads."""
        return self.spans[0].queue.topic

    def __len__(self) -> int:
        return sum(map(len, self.spans))


@dataclass(frozen=True, slots=True)
class Place:
    """The progress of a replay."""

    done: Mapping[MessageQueue, int] = field(default_factory=dict)
    """The next offset of each started queue."""
    parts: int = 0
    """Parts that are done."""
    read: int = 0
    """Messages read so far, including those that a filter left out."""
    sent: int = 0
    bytes_sent: int = 0
    """Bytes of bodies."""
    part: Part | None = None
    """The current part."""

    def begin(self, part: Part) -> Place:
        """The same with `part` as the current part."""
        return replace(self, part=part)

    def end(self, sent: int, size: int) -> Place:
        """After the current part, of which `sent` messages with `size` bytes of bodies were sent."""
        assert self.part is not None, "no part in progress"
        return Place(
            done={**self.done, **{span.queue: span.end for span in self.part.spans}},
            parts=self.parts + 1,
            read=self.read + len(self.part),
            sent=self.sent + sent,
            bytes_sent=self.bytes_sent + size,
        )

    def left(self, replay: Replay) -> list[Span]:
        """The remaining spans, sorted."""
        found = []
        for span in replay.spans:
            start = max(span.start, self.done.get(span.queue, span.start))
            if start < span.end:
                found.append(Span(span.queue, start, span.end))
        return found

    def next_part(self, replay: Replay, rows: int, tasks: int) -> Part | None:
        """The next part, of about `rows` messages: the next ones of every queue of one topic; None at the
        end.

        Queues share in proportion to their remaining messages, so that they end together.
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
        """The inverse of `to_json`. Raises KeyError, TypeError, ValueError for invalid values."""
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


_NOTES_KEPT: Final = 8
"""Number of kept progress notes, if each is a file."""

NoteT = TypeVar("NoteT", Replay, Place)


class Notes(Protocol):
    """The two notes of a replay."""

    def settled(self) -> Any:
        """The settled values, as JSON; None before the first start."""

    def settle(self, value: dict[str, Any]) -> None:
        """Store the settled values, once."""

    def progress(self) -> Any:
        """The last progress, as JSON; None before the first part."""

    def note(self, value: dict[str, Any]) -> None:
        """Store the progress, atomically."""

    def locked(self) -> AbstractContextManager[None]:
        """Lock out other processes, or make them fail. Raises `ReplayError`."""


class LocalNotes:
    """Two files in a directory, replaced by renames, and a lock."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._settled = root / "replay.json"
        self._progress = root / "progress.json"

    def settled(self) -> Any:
        """As in `Notes`."""
        value = self._read(self._settled)
        if value is None and self._progress.exists():
            raise ReplayError(
                f"{self._settled} is missing, but {self._progress} exists; restore it from a copy",
                what="missing",
                value=self._settled,
            )
        return value

    def settle(self, value: dict[str, Any]) -> None:
        """As in `Notes`."""
        directories.replace_file(self._settled, json.dumps(value, separators=(",", ":")))

    def progress(self) -> Any:
        """As in `Notes`."""
        return self._read(self._progress)

    def note(self, value: dict[str, Any]) -> None:
        """As in `Notes`."""
        directories.replace_file(self._progress, json.dumps(value, separators=(",", ":")))

    def locked(self) -> AbstractContextManager[None]:
        """As in `Notes`: a second process is refused."""
        return directories.locked(self._root, "replay", ReplayError)

    def _read(self, path: Path) -> Any:
        try:
            return json.loads(path.read_text())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            text = f"{path} cannot be read ({error}); restore it from a copy"
            raise ReplayError(text, what="file", value=path) from None


class RemoteNotes:
    """Numbered files, each created once, on any file system that Spark has."""

    def __init__(self, files: Files) -> None:
        self._where = files.location
        self._settled = Commits(files.at("settled"))
        self._progress = Commits(files.at("progress"))
        self._next: int | None = None

    def settled(self) -> Any:
        """As in `Notes`."""
        found = self._settled.newest()
        if found is None and self._progress.newest() is not None:
            raise ReplayError(
                f"{self._where}/settled is empty, but {self._where}/progress is not; restore it from a copy",
                what="missing",
                value=f"{self._where}/settled",
            )
        return None if found is None else found[1]

    def settle(self, value: dict[str, Any]) -> None:
        """As in `Notes`."""
        used = self._settled.numbers()
        with self._alone():
            self._settled.add(used[-1] + 1 if used else 0, value)

    def progress(self) -> Any:
        """As in `Notes`."""
        found = self._progress.newest()
        return None if found is None else found[1]

    def note(self, value: dict[str, Any]) -> None:
        """As in `Notes`."""
        used = self._progress.numbers() if self._next is None else [self._next - 1]
        number = used[-1] + 1 if used else 0
        with self._alone():
            self._progress.add(number, value)
        self._progress.forget(number - _NOTES_KEPT)
        self._next = number + 1

    @contextmanager
    def locked(self) -> Iterator[None]:
        """As in `Notes`: an earlier run that is still active finds its next number taken, and ends."""
        now = self.progress()
        if now is not None:
            self.note(now)
        try:
            yield
        finally:
            self._next = None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        try:
            yield
        except TakenError as error:
            raise ReplayError(
                f"replay {self._where} was taken over: {error}; only one run may continue it, and this one "
                f"has ended",
                what="run",
            ) from error


class ReplayDirectory:
    """One replay's directory, at a path or a URI."""

    def __init__(self, location: str | Path) -> None:
        """Raises `SettingsError` for an impossible location."""
        files = files_of(location, "replay")
        self.root = str(files.root) if isinstance(files, LocalFiles) else files.location
        self.is_remote = not isinstance(files, LocalFiles)
        self.queues = f"{self.root}/queues"
        self._notes: Notes = LocalNotes(files.root) if isinstance(files, LocalFiles) else RemoteNotes(files)

    def __repr__(self) -> str:
        return f"<ReplayDirectory {self.root}>"

    def locked(self) -> AbstractContextManager[None]:
        """Create the directory if needed, and lock out other processes or make them fail. Raises
        `ReplayError`.
        """
        return self._notes.locked()

    def replay(self) -> Replay | None:
        """The settled values; None before the first start. Raises `ReplayError`."""
        value = self._notes.settled()
        return None if value is None else self._parsed("replay", value, Replay)

    def begin(self, replay: Replay) -> None:
        """Store the settled values, once."""
        self._notes.settle(replay.to_json())

    def place(self) -> Place:
        """The progress of the replay. Raises `ReplayError`."""
        value = self._notes.progress()
        return Place() if value is None else self._parsed("progress", value, Place)

    def save(self, place: Place) -> None:
        """Store the progress."""
        self._notes.note(place.to_json())

    def _parsed(self, name: str, value: Any, kind: type[NoteT]) -> NoteT:
        where = f"{self.root}/{name}.json"
        with reading("a note of a replay", where, ReplayError, name="note"):
            check_version(value, VERSION, where, ReplayError)
            return kind.from_json(value)


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
