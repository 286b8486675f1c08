"""The queues over which a batch is spread, stored at its first attempt, so that later attempts use the same.

A row's queue depends on the topic's list of queues. If a repeated batch fetched the list again, new queues
would move rows to other queues, whose brokers do not know them. So the driver stores the list beside the
checkpoint, in files named by the first batch they apply to: a batch uses the newest file that is not younger
than itself. A changed list is written for the *next* batch: the planned one may already have run. See
docs/adr/0005-queue-choice-beside-the-checkpoint.md.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from pyarrow import fs

from sparrowmq.core.errors import SettingsError, SparrowError
from sparrowmq.core.message import MessageQueue

log = logging.getLogger("sparrowmq.spark")

FOLDER: Final = "sparrowmq-queues"
"""The folder inside a checkpoint."""
VERSION: Final = 1
FILES_KEPT: Final = 10
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
SUFFIX: Final = ".json"

QueuesOf = Callable[[], Sequence[MessageQueue]]


@dataclass(frozen=True, slots=True)
class KeyedRun:
    """A run of a batch whose rows have keys, from 1 on (`batch_runs`).

    Its rows are after `begins`; in queues without an entry they may be anywhere.
    """

    number: int
    begins: Mapping[MessageQueue, int] = field(default_factory=dict)

    @property
    def is_first(self) -> bool:
        """Whether nothing can be stored yet."""
        return self.number == 1


@dataclass(frozen=True, slots=True)
class QueueChoice:
    """The queues of `topic` for `batch`; `run` is its run, where runs are counted."""

    batch: int
    topic: str
    queues: tuple[MessageQueue, ...]
    run: KeyedRun | None = None
    lost: frozenset[str] = frozenset()
    """Brokers of some of the queues that are lost for good."""
    left: frozenset[MessageQueue] = frozenset()
    """Those of the queues that left the topic's route, because it has fewer now: they get no more rows, and
    may have some.
    """


def stand_in(
    queue: MessageQueue,
    queues: Iterable[MessageQueue],
    lost: frozenset[str],
    left: frozenset[MessageQueue] = frozenset(),
) -> MessageQueue:
    """The one of `queues` that gets the rows of a queue that left, or whose broker is lost, the same in every
    attempt.

    For a queue that left it is its broker's first one. That leaves last, so it does not matter how much of a
    shrink an attempt knows. Raises `SettingsError` when no queue remains.
    """
    if queue.broker_name not in lost:
        return min(one for one in queues if one.broker_name == queue.broker_name)
    others = sorted(one for one in queues if one.broker_name not in lost and one not in left)
    if not others:
        raise SettingsError(f"topic {queue.topic!r} has only queues of lost brokers")
    return others[queue.queue_id % len(others)]


class Folder(Protocol):
    """A directory of numbered files. Its methods raise OSError for errors of the file system."""

    location: str

    def numbers(self, suffix: str = "") -> list[int]:
        """The numbers of the files, ascending; empty if the directory does not exist."""

    def read(self, number: int) -> bytes:
        """The content of the file with this number."""

    def content(self, name: str) -> bytes:
        """The content of a file with any name."""

    def write(self, number: int, data: bytes) -> None:
        """Create the file with this number, atomically, and the directory if needed."""

    def delete(self, number: int) -> None:
        """Delete the file with this number."""


def is_local(location: str) -> bool:
    """Whether it is a path or `file:`."""
    scheme = _SCHEME.match(location)
    return scheme is None or scheme[1].lower() == "file"


def folder_at(location: str, hadoop: Mapping[str, str]) -> Folder:
    """A local directory, or one on a Hadoop file system with these settings or on one of Arrow's.

    Raises `SettingsError` for a location that is not accessible.
    """
    if is_local(location):
        return ArrowFolder(location)
    from sparrowmq.spark.write.hadoop import HadoopFolder  # rarely needed, slow to import

    try:
        return HadoopFolder(location, hadoop, SUFFIX)
    except SettingsError as error:
        try:
            return ArrowFolder(location)
        except SettingsError as other:
            raise SettingsError(f"{error}; and {other}", what="location", value=location) from None


class ArrowFolder:
    """A directory on any file system that Arrow knows: a path, `file:`, `hdfs:`, `s3:` or `gs:`.

    Raises `SettingsError` for other file systems.
    """

    def __init__(self, location: str) -> None:
        self.location = location
        try:
            self._files, self._path = fs.FileSystem.from_uri(_uri(location))
        except (OSError, ValueError, TypeError) as error:  # pyarrow.ArrowInvalid is a ValueError
            why = str(error).partition("\n")[0]
            text = f"{location!r} is not a directory that Arrow can access: {why}"
            raise SettingsError(text, what="location", value=location) from None

    def numbers(self, suffix: str = "") -> list[int]:
        """The numbers of the files, ascending."""
        selector = fs.FileSelector(self._path, allow_not_found=True)
        names = [info.base_name for info in self._files.get_file_info(selector)]
        found = [name.removesuffix(suffix) for name in names if name.endswith(suffix)]
        return sorted(int(name) for name in found if name.isdecimal())

    def read(self, number: int) -> bytes:
        """The content of the file with this number. Raises OSError."""
        return self.content(f"{number}{SUFFIX}")

    def content(self, name: str) -> bytes:
        """The content of a file with any name. Raises OSError."""
        with self._files.open_input_file(f"{self._path}/{name}") as file:
            data: bytes = file.read()
            return data

    def write(self, number: int, data: bytes) -> None:
        """Create the file with this number, atomically. Raises OSError."""
        self._files.create_dir(self._path, recursive=True)
        draft = f"{self._path}/.{number}.{os.getpid()}.draft"
        with self._files.open_output_stream(draft) as file:
            file.write(data)
        self._files.move(draft, self._name(number))

    def delete(self, number: int) -> None:
        """Delete the file with this number. Raises OSError."""
        self._files.delete_file(self._name(number))

    def _name(self, number: int) -> str:
        return f"{self._path}/{number}{SUFFIX}"


def _uri(location: str) -> str:
    scheme = _SCHEME.match(location)
    if scheme is None:
        return str(Path(location).absolute())
    if scheme[1].lower() == "file":
        return "file://" + "/" + location[scheme.end() :].lstrip("/")
    return "s3:" + location[scheme.end() :] if scheme[1].lower() in ("s3a", "s3n") else location


def current_batch(checkpoint: str, hadoop: Mapping[str, str]) -> int | None:
    """The planned or running batch: the newest in a query's offsets; None when there are none."""
    numbers = folder_at(checkpoint.rstrip("/") + "/offsets", hadoop).numbers()
    return numbers[-1] if numbers else None


def query_id(checkpoint: str, hadoop: Mapping[str, str]) -> str:
    """The id of the query whose checkpoint it is. Raises OSError, `SettingsError` when it cannot be read."""
    try:
        return str(json.loads(folder_at(checkpoint, hadoop).content("metadata"))["id"])
    except (ValueError, KeyError, TypeError) as error:
        raise SettingsError(f"{checkpoint}/metadata has no query id: {error}") from None


def choose(
    folder: Folder,
    batch: int,
    topic: str,
    queues_of: QueuesOf,
    lost: frozenset[str] = frozenset(),
) -> QueueChoice:
    """The choice for a batch, the same at every call; `lost` brokers are lost for good.

    `queues_of` gives the queues that take messages. A queue that is not among them left the topic, if its
    broker has others; it stays so for the batch, also when it comes back. Raises errors of reads, writes and
    queries.
    """
    numbers = folder.numbers(SUFFIX)
    held = [number for number in numbers if number <= batch]
    if not held:
        queues = _without(queues_of(), lost)
        folder.write(batch, _encode(topic, queues))
        return QueueChoice(batch, topic, queues)
    queues, noted, left = _decode(folder, held[-1], topic)
    lost = (lost | noted) & {queue.broker_name for queue in queues}
    if lost and not _without(queues, lost):  # nothing of the batch remains, so any queues will do
        queues, lost, left = _without(queues_of(), lost), frozenset(), frozenset()
        folder.write(batch, _encode(topic, queues))
    else:
        now = _asked(topic, lambda: _without(queues_of(), lost))
        if not missing(queues, now) <= left:
            left |= missing(queues, now)
            folder.write(batch, _encode(topic, queues, noted, left))
        if numbers[-1] <= batch and now and now != queues:
            log.info("topic %s has %d queues now; batches from %d on use them", topic, len(now), batch + 1)
            folder.write(batch + 1, _encode(topic, now))
    for number in held[:-FILES_KEPT]:
        folder.delete(number)
    return QueueChoice(batch, topic, queues, lost=lost, left=left)


def note_lost(folder: Folder, broker: str) -> QueueChoice:
    """Store that a broker is lost for good, for the newest batch and its later attempts.

    Returns the new choice. Raises `SettingsError` when there is no choice, or it does not contain the broker.
    """
    numbers = folder.numbers(SUFFIX)
    if not numbers:
        text = f"{folder.location} has no queues of any batch; check that it is a checkpoint"
        raise SettingsError(text, what="queues", value=folder.location)
    for number in reversed(numbers):  # the newest may be for a batch that was not started
        topic, queues, lost, left = _read(folder, number)
        if broker not in {queue.broker_name for queue in queues}:
            continue
        lost |= {broker}
        folder.write(number, _encode(topic, queues, lost, left))
        return QueueChoice(number, topic, queues, lost=lost, left=left)
    brokers = ", ".join(sorted({queue.broker_name for queue in _read(folder, numbers[-1])[1]}))
    raise SettingsError(
        f"{folder.location}: no batch uses queues of broker {broker!r}; the brokers are {brokers}",
        what="broker",
        value=broker,
    )


def _without(queues: Sequence[MessageQueue], lost: frozenset[str]) -> tuple[MessageQueue, ...]:
    return tuple(queue for queue in queues if queue.broker_name not in lost)


def _asked(topic: str, queues_of: QueuesOf) -> tuple[MessageQueue, ...]:
    """The queues that the topic has now; empty when that is not known."""
    try:
        return tuple(queues_of())
    except SparrowError as error:
        log.warning("the queues of %s cannot be read, so the known ones are used: %s", topic, error)
        return ()


def missing(queues: Iterable[MessageQueue], now: Iterable[MessageQueue]) -> frozenset[MessageQueue]:
    """Those of `queues` that left the topic: they are not there `now`, and their brokers have others."""
    brokers = {queue.broker_name for queue in now}
    return frozenset(queue for queue in queues if queue.broker_name in brokers) - frozenset(now)


def _encode(
    topic: str,
    queues: Sequence[MessageQueue],
    lost: frozenset[str] = frozenset(),
    left: frozenset[MessageQueue] = frozenset(),
) -> bytes:
    data: dict[str, object] = {"version": VERSION, "topic": topic, "queues": _names(queues)}
    if lost:
        data["lost"] = sorted(lost)
    if left:
        data["left"] = _names(sorted(left))
    return json.dumps(data).encode()


def _names(queues: Iterable[MessageQueue]) -> list[tuple[str, int]]:
    return [(queue.broker_name, queue.queue_id) for queue in queues]


Stored = tuple[tuple[MessageQueue, ...], frozenset[str], frozenset[MessageQueue]]
"""The queues, which of their brokers are lost, and which of them left."""


def _decode(folder: Folder, number: int, topic: str) -> Stored:
    stored, queues, lost, left = _read(folder, number)
    if stored != topic or not queues:
        raise SettingsError(
            f"{folder.location}/{number}{SUFFIX} belongs to topic {stored!r}, this query writes to "
            f"{topic!r}; use another checkpoint",
            what="topic",
            value=stored,
            limit=topic,
        )
    return queues, lost, left


def _read(
    folder: Folder, number: int
) -> tuple[str, tuple[MessageQueue, ...], frozenset[str], frozenset[MessageQueue]]:
    where = f"{folder.location}/{number}{SUFFIX}"
    try:
        data = json.loads(folder.read(number))
        version, stored = data["version"], data["topic"]
        queues, left = (
            tuple(MessageQueue(stored, str(broker), int(queue)) for broker, queue in names)
            for names in (data["queues"], data.get("left", ()))
        )
        lost = frozenset(map(str, data.get("lost", ())))
    except (ValueError, KeyError, TypeError) as error:
        raise SettingsError(
            f"{where} cannot be read as a choice of queues ({error}); if you delete it, rows that were "
            f"already sent may be stored twice",
            what="queues",
            value=where,
        ) from None
    if version != VERSION:
        text = f"{where} was written by another release (version {version}); use that one"
        raise SettingsError(text, what="version", value=version, limit=VERSION)
    return str(stored), queues, lost, frozenset(left)
