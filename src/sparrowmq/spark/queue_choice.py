"""The queues a batch is spread over, written down at its first try, so that further tries choose the same.

A row's queue depends on the topic's list of queues. Were the list asked for anew when a batch runs again,
queues that came in between would move rows to other queues, where nothing is known of them. So the driver
keeps the list beside the checkpoint, in files named by the first batch they hold for: a batch uses the newest
file that is not younger than itself. A list that changed is written for the *next* batch: the one that is
planned may have run already. See docs/adr/0005-queue-choice-beside-the-checkpoint.md.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyarrow import fs

from sparrowmq.core.errors import SettingsError, SparrowError
from sparrowmq.core.message import MessageQueue

log = logging.getLogger("sparrowmq.spark")

FOLDER: Final = "sparrowmq-queues"
"""Below a checkpoint."""
VERSION: Final = 1
FILES_KEPT: Final = 10
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_SUFFIX: Final = ".json"

QueuesOf = Callable[[], Sequence[MessageQueue]]


@dataclass(frozen=True, slots=True)
class QueueChoice:
    """The queues of `topic` that `batch` is spread over."""

    batch: int
    topic: str
    queues: tuple[MessageQueue, ...]


class Folder:
    """A directory on any file system that Arrow knows: a path, `file:`, `hdfs:`, `s3:` or `gs:`.

    Raises `SettingsError` for one it does not know.
    """

    def __init__(self, location: str) -> None:
        self.location = location
        try:
            self._files, self._path = fs.FileSystem.from_uri(_uri(location))
        except (OSError, ValueError, TypeError) as error:  # pyarrow.ArrowInvalid is a ValueError
            raise SettingsError(f"{location!r} is no directory that Arrow can reach: {error}") from None

    def numbers(self, suffix: str = "") -> list[int]:
        """The numbers that name files here, ascending."""
        selector = fs.FileSelector(self._path, allow_not_found=True)
        names = [info.base_name for info in self._files.get_file_info(selector)]
        found = [name.removesuffix(suffix) for name in names if name.endswith(suffix)]
        return sorted(int(name) for name in found if name.isdecimal())

    def read(self, number: int) -> bytes:
        """The file of a number. Raises OSError."""
        with self._files.open_input_file(self._name(number)) as file:
            data: bytes = file.read()
            return data

    def write(self, number: int, data: bytes) -> None:
        """Make the file of a number, whole or not at all. Raises OSError."""
        self._files.create_dir(self._path, recursive=True)
        draft = f"{self._path}/.{number}.{os.getpid()}.draft"
        with self._files.open_output_stream(draft) as file:
            file.write(data)
        self._files.move(draft, self._name(number))

    def delete(self, number: int) -> None:
        """Delete the file of a number. Raises OSError."""
        self._files.delete_file(self._name(number))

    def _name(self, number: int) -> str:
        return f"{self._path}/{number}{_SUFFIX}"


def _uri(location: str) -> str:
    scheme = _SCHEME.match(location)
    if scheme is None:
        return str(Path(location).absolute())
    if scheme[1].lower() == "file":
        return "file://" + "/" + location[scheme.end() :].lstrip("/")
    return "s3:" + location[scheme.end() :] if scheme[1].lower() in ("s3a", "s3n") else location


def current_batch(checkpoint: str) -> int | None:
    """The batch that is planned or runs: the newest in a query's offsets; None when there are none."""
    numbers = Folder(checkpoint.rstrip("/") + "/offsets").numbers()
    return numbers[-1] if numbers else None


def choose(folder: Folder, batch: int, topic: str, queues_of: QueuesOf) -> QueueChoice:
    """The choice for a batch, the same at every call. Raises what cannot be read, written or asked."""
    numbers = folder.numbers(_SUFFIX)
    held = [number for number in numbers if number <= batch]
    if not held:
        queues = tuple(queues_of())
        folder.write(batch, _encode(topic, queues))
        return QueueChoice(batch, topic, queues)
    queues = _decode(folder, held[-1], topic)
    if numbers[-1] <= batch:
        _follow(folder, batch, topic, queues, queues_of)
    for number in held[:-FILES_KEPT]:
        folder.delete(number)
    return QueueChoice(batch, topic, queues)


def _follow(
    folder: Folder, batch: int, topic: str, queues: tuple[MessageQueue, ...], queues_of: QueuesOf
) -> None:
    """When the topic's queues changed, let the next batch have the new list."""
    try:
        now = tuple(queues_of())
    except SparrowError as error:
        log.warning("the queues of %s cannot be asked for, the known ones are used: %s", topic, error)
        return
    if now != queues:
        log.info("topic %s has %d queues now; batches from %d on use them", topic, len(now), batch + 1)
        folder.write(batch + 1, _encode(topic, now))


def _encode(topic: str, queues: Sequence[MessageQueue]) -> bytes:
    named = [[queue.broker_name, queue.queue_id] for queue in queues]
    return json.dumps({"version": VERSION, "topic": topic, "queues": named}).encode()


def _decode(folder: Folder, number: int, topic: str) -> tuple[MessageQueue, ...]:
    where = f"{folder.location}/{number}{_SUFFIX}"
    try:
        data = json.loads(folder.read(number))
        version, stored = data["version"], data["topic"]
        queues = tuple(MessageQueue(stored, str(broker), int(queue)) for broker, queue in data["queues"])
    except (ValueError, KeyError, TypeError) as error:
        raise SettingsError(
            f"{where} cannot be read as a choice of queues ({error}); rows that were sent before may come "
            "twice if it is deleted"
        ) from None
    if version != VERSION:
        raise SettingsError(f"{where} was written by another release (version {version}); use that one")
    if stored != topic or not queues:
        raise SettingsError(
            f"{where} belongs to topic {stored!r}, this query writes to {topic!r}; use another checkpoint"
        )
    return queues
