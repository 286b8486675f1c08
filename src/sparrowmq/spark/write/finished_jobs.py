"""Finished jobs: two numbers that describe what they wrote, so that a repeated run stores nothing and is
checked.

When Spark commits a write with a `jobId`, the driver tells the brokers that its producers have ended, with a
note of what was written. From then on they keep one entry for the whole job, not one for each partition and
queue. With `planLocation` the note is also stored there permanently, with the ends of the topic's queues
(`finished_places`): it is worth nothing when the topic was recreated since. A repeated run of the job counts
its rows, sends none, and compares. Neither order nor partitions matter.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from sparrowmq.columnar.ids import body_checksums
from sparrowmq.columnar.joining import sizes_of
from sparrowmq.core.errors import SettingsError, SparrowError
from sparrowmq.loops.event_loop import loop_thread
from sparrowmq.spark.cluster.clients import admin
from sparrowmq.spark.options.table import WriteOptions
from sparrowmq.spark.write.finished_places import JobPlaces, places_now, still_there
from sparrowmq.spark.write.identity import family, first_epoch
from sparrowmq.spark.write.queue_choice import FILES_KEPT, SUFFIX, Folder, folder_at
from sparrowmq.spark.write.send import retried

log = logging.getLogger("sparrowmq.spark")

FOLDER: Final = "done"
"""The folder inside a job's directory of plans."""
_NOTE: Final = re.compile(r"batch=(\d{1,13}) rows=(\d{1,19}) sum=([0-9a-f]{16})")
_MASK: Final = 2**64 - 1
VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Tally:
    """The number of rows, and a checksum of their bodies that does not depend on order."""

    rows: int = 0
    total: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.rows + other.rows, (self.total + other.total) & _MASK)

    def note(self, batch: int) -> str:
        """The form that brokers and files store."""
        return f"batch={batch} rows={self.rows} sum={self.total:016x}"


def tally(bodies: pa.Array) -> Tally:
    """The tally of some rows."""
    sizes = sizes_of(bodies)
    mixed = body_checksums(bodies).astype(np.uint64) << np.uint64(32) | sizes.astype(np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return Tally(len(bodies), int(mixed.sum(dtype=np.uint64)))


class Counted:
    """The unchanged rows, and their tally; `body` is the column of their bodies."""

    def __init__(self, batches: Iterator[pa.RecordBatch], body: str) -> None:
        self._batches = batches
        self._body = body
        self.tally = Tally()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.tally += tally(batch[self._body].cast(pa.binary()))
            yield batch

    def all(self) -> Tally:
        """The tally, after all rows were processed."""
        for _ in self:
            pass
        return self.tally


def noted(text: str) -> tuple[int, Tally] | None:
    """Batch and tally of a note; None if it is invalid."""
    found = _NOTE.fullmatch(text)
    return None if found is None else (int(found[1]), Tally(int(found[2]), int(found[3], 16)))


@dataclass(frozen=True, slots=True)
class DoneFile:
    """The record of a finished job in `planLocation`.

    Earlier releases stored the note alone: then `topic` is empty and there are no `places`.
    """

    written: Tally
    topic: str = ""
    places: JobPlaces = field(default_factory=JobPlaces)

    def encode(self, batch: int) -> bytes:
        """The content of the file."""
        data = {"version": VERSION, "note": self.written.note(batch), "topic": self.topic}
        return json.dumps(data | self.places.to_json()).encode()

    @classmethod
    def decode(cls, data: bytes, where: str) -> DoneFile | None:
        """The inverse; None for a note that is invalid. Raises `SettingsError` for a file that cannot be
        read.
        """
        if not data.startswith(b"{"):
            plain = noted(data.decode("utf-8", "replace"))
            return None if plain is None else cls(plain[1])
        try:
            found = json.loads(data)
            version, topic, places = found["version"], str(found["topic"]), JobPlaces.from_json(found)
            written = noted(str(found["note"])) if version == VERSION else None
        except (ValueError, KeyError, TypeError) as error:
            raise SettingsError(
                f"{where} cannot be read as the record of a finished job ({error}); if you delete it, the "
                f"rows of the job may be stored twice",
                what="job",
                value=where,
            ) from None
        if version != VERSION:
            text = f"{where} was written by another release (version {version}); use that one"
            raise SettingsError(text, what="version", value=version, limit=VERSION)
        return None if written is None else cls(written[1], topic, places)


def find(options: WriteOptions) -> Tally | None:
    """The tally of the job if it is known to be finished; otherwise None.

    A job of a topic that was recreated since is not finished. Raises `SettingsError` when a later batch of
    the job is finished, when the record is another topic's, or when only a part of what was written is still
    there; or the brokers' errors.
    """
    if not _is_kept(options):
        return None
    batch = options.job_batch
    if options.plan_location:
        found = _found_in_file(options)
        if found is not None:
            return found
    ends = _end(options, 0, "")
    for epoch, note in ends.values():
        if epoch > first_epoch(batch + 1):
            raise SettingsError(
                f"option jobBatch={batch}: a later batch of job {options.job_id!r} was already written "
                f"({note or 'epoch ' + str(epoch)}); batches of a job must be written in order",
                "jobBatch",
                batch,
            )
    for epoch, note in ends.values():
        known = noted(note)
        if epoch == first_epoch(batch + 1) and known is not None and known[0] == batch:
            _warn_of_others(options, ends)
            return known[1]
    return None


def _warn_of_others(options: WriteOptions, ends: Mapping[str, tuple[int, str]]) -> None:
    """Name the brokers that do not know a job that others know as finished."""
    without = sorted(name for name, (epoch, _) in ends.items() if epoch < first_epoch(options.job_batch + 1))
    if without:
        log.warning(
            "job %s, batch %d, was written according to other brokers of %s, but %s do not know it: they "
            "were added later or have forgotten it, or lost messages, perhaps rows of the job. Nothing is "
            "sent; with planLocation, lost rows are an error",
            options.job_id,
            options.job_batch,
            options.topic,
            ", ".join(without[:5]),
        )


def _found_in_file(options: WriteOptions) -> Tally | None:
    folder, batch = _folder(options), options.job_batch
    if batch not in folder.numbers(SUFFIX):
        return None
    where = f"{folder.location}/{batch}{SUFFIX}"
    found = DoneFile.decode(folder.read(batch), where)
    if found is None:
        return None
    if found.topic and found.topic != options.topic:
        raise SettingsError(
            f"option jobId={options.job_id!r}: batch {batch} was written to topic {found.topic!r} according "
            f"to {where}, not to {options.topic!r}; give another jobId",
            "jobId",
            options.job_id,
        )
    return found.written if still_there(options, found.places, where) else None


def keep(options: WriteOptions, written: Tally, *, clock: Callable[[], float] = time.time) -> None:
    """Mark the job as finished: brokers forget its producers. A failure is logged as a warning."""
    if not _is_kept(options):
        return
    batch = options.job_batch
    try:
        if options.plan_location:
            places = places_now(options, int(1000 * clock()))
            folder = _folder(options)
            folder.write(batch, DoneFile(written, options.topic, places).encode(batch))
            for old in folder.numbers(SUFFIX)[:-FILES_KEPT]:
                folder.delete(old)
        _end(options, first_epoch(batch + 1), written.note(batch))
    except (OSError, SparrowError) as error:
        log.warning(
            "job %s is written, but this could not be recorded: another run will compare all rows, and the "
            "brokers remember its producers for producerStateExpireHours: %s",
            options.job_id,
            error,
        )


def check(options: WriteOptions, before: Tally, now: Tally) -> None:
    """Compare the tally of a repeated run with that of the finished job. Raises `SparrowError` when they
    differ.
    """
    if before != now:
        raise SparrowError(
            f"job {options.job_id!r}, batch {options.job_batch}, was already written with {before.rows} "
            f"rows; this run has {now.rows} rows with other bodies. Nothing was stored. Give another jobId"
        )
    log.info(
        "job %s, batch %d, was already written: all %d rows are stored, none was sent",
        options.job_id,
        options.job_batch,
        now.rows,
    )


def total(tallies: Iterable[Tally]) -> Tally:
    """The sum of all tallies."""
    return sum(tallies, start=Tally())


def _is_kept(options: WriteOptions) -> bool:
    return options.idempotent and bool(options.topic and options.job_id)


def _folder(options: WriteOptions) -> Folder:
    place = f"{options.plan_location.rstrip('/')}/{options.job_id}/{FOLDER}"
    return folder_at(place, options.hadoop)


def _end(options: WriteOptions, epoch: int, note: str) -> dict[str, tuple[int, str]]:
    async def end() -> dict[str, tuple[int, str]]:
        client = await admin(options)
        return await client.producers.end(
            options.topic, family(options.job_id, options.topic), epoch, note=note
        )

    what = f"asking the brokers of {options.topic} about job {options.job_id}"
    return loop_thread().run(retried(options, what, end))
