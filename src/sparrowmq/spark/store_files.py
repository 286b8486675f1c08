"""Reads a store directory without a broker: the commit log's files, in parallel, each record checked.

Ours and Apache's have the same layout (broker:1.1). Everything that is stored is read, system topics and
deleted topics too, unless topics are named. Nothing is written, so a store that a broker uses, or a copy of
one, will do.
"""

from __future__ import annotations

import logging
import mmap
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparrowmq.columnar.decode import decode_layout
from sparrowmq.columnar.layout import Layout
from sparrowmq.columnar.log_file import LogBytes, LogChunk, chunks, first_records, first_timestamp
from sparrowmq.columnar.schema import TYPES
from sparrowmq.columnar.slices import Slices
from sparrowmq.core.errors import RecordError, SettingsError
from sparrowmq.spark.option_types import SKIP
from sparrowmq.spark.options import ReadOptions

log = logging.getLogger("sparrowmq.spark")

_NAME: Final = re.compile(r"\d{20}")
CLOCK_MARGIN_MS: Final = 60_000
"""Files are left out by time only when they are so far away from it: brokers' clocks jump."""
SAMPLE_RECORDS: Final = 1000
PROBE_BYTES: Final = 64 * 1024
"""Zeros of this length are taken for the end of what was written, where it need not be exact."""


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file of a commit log. `is_last`: none follows it, or only such as were made in advance."""

    path: str
    base: int
    is_last: bool


def log_files(store: str) -> list[LogFile]:
    """The files of the commit log below a store directory, in order.

    Raises `SettingsError` when there is none, or one is missing between two others.
    """
    root = Path(store)
    directory = root / "commitlog" if (root / "commitlog").is_dir() else root
    try:
        found = sorted(path for path in directory.iterdir() if _NAME.fullmatch(path.name))
        sizes = {path: path.stat().st_size for path in found}
    except OSError as error:
        raise SettingsError(f"option store={store!r} cannot be read: {error.strerror}") from error
    found = [path for path in found if sizes[path]]
    if not found:
        raise SettingsError(
            f"option store={store!r}: there is no commit log; give the broker's storePathRootDir, the "
            "directory that has commitlog in it"
        )
    for before, after in pairwise(found):
        if int(after.name) != int(before.name) + sizes[before]:
            raise SettingsError(
                f"{directory}: the file after {before.name}, which has {sizes[before]} bytes, is "
                f"{after.name}; one is missing or was cut short: restore it from a copy"
            )
    used = [path for path in found if _is_used(path)]
    last = used[-1] if used else found[0]
    return [LogFile(str(path), int(path.name), path >= last) for path in found]


def _is_used(path: Path) -> bool:
    """Whether anything was written at the beginning of the file: brokers make files before they need them."""
    with path.open("rb") as file:
        return any(file.read(8))


def wanted_files(files: Sequence[LogFile], options: ReadOptions) -> list[LogFile]:
    """The files that may hold messages of the time asked for."""
    since, until = options.starting_timestamp, options.ending_timestamp
    if since is None and until is None:
        return list(files)
    begins = [_begins(file) for file in files]
    found = []
    for index, file in enumerate(files):
        begin = begins[index]
        following = begins[index + 1] if index + 1 < len(files) else None
        is_late = until is not None and begin is not None and begin >= until + CLOCK_MARGIN_MS
        is_early = since is not None and following is not None and following < since - CLOCK_MARGIN_MS
        if not is_late and not is_early:
            found.append(file)
    return found


def _begins(file: LogFile) -> int | None:
    with _Mapped(file) as mapped:
        return first_timestamp(mapped)


def about_records(files: Sequence[LogFile]) -> int:
    """How many records there are, about: by the size of each file's first ones, and how far it is used."""
    return sum(_about(file) for file in files)


def _about(file: LogFile) -> int:
    with _Mapped(file) as mapped:
        size, count = first_records(mapped, SAMPLE_RECORDS)
        return _used(mapped.data) * count // size if count else 0


def _used(data: mmap.mmap | bytes) -> int:
    """Where the bytes end that were written, about: behind it a file has zeros."""
    low, high = 0, len(data)
    while high - low > PROBE_BYTES:
        middle = (low + high) // 2
        if any(data[middle : middle + PROBE_BYTES]):
            low = middle
        else:
            high = middle
    return low + len(data[low:high].rstrip(b"\0"))


class _Mapped:
    """A file's bytes for a while."""

    def __init__(self, file: LogFile) -> None:
        self._file = file

    def __enter__(self) -> LogBytes:
        with Path(self._file.path).open("rb") as opened:
            data = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        return LogBytes(data, self._file.base, self._file.is_last)

    def __exit__(self, *_: object) -> None:
        """The mapping ends with the last one who looks into it."""


def read_files(files: Sequence[LogFile], options: ReadOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The messages in these files as batches of `schema`.

    Raises `RecordError` with file and place on damage unless damagedRecords=skip.
    """
    for file in files:

        def damaged(start: int, end: int, why: str, path: str = file.path) -> None:
            text = f"{path}: {end - start} bytes at physical offset {start} hold no record ({why})"
            if options.damaged_records != SKIP:
                raise RecordError(f"{text}; option damagedRecords=skip goes on after them")
            log.warning("%s; going on after them, as damagedRecords=skip says", text)

        with _Mapped(file) as mapped:
            for chunk in chunks(
                mapped,
                rows_max=options.batch_rows,
                bytes_max=options.batch_bytes,
                check_crc=options.check_crc,
                damaged=damaged,
            ):
                batch = _decode(chunk, options, schema)
                if batch.num_rows:
                    yield batch


def _decode(chunk: LogChunk, options: ReadOptions, schema: pa.Schema) -> pa.RecordBatch:
    places = chunk.places.keep(_wanted(chunk, options))
    wide = schema
    if options.tags and "tags" not in schema.names:
        wide = schema.append(pa.field("tags", TYPES["tags"]))
    batch = decode_layout(chunk.buffer, places, wide, broker_name=options.broker_name)
    if options.tags:
        batch = batch.filter(pc.is_in(batch["tags"], pa.array(sorted(options.tags))))
        batch = pa.RecordBatch.from_arrays([batch[name] for name in schema.names], schema=schema)
    return batch


def _wanted(chunk: LogChunk, options: ReadOptions) -> npt.NDArray[np.bool_]:
    """Which records are of the topics and the time asked for."""
    places: Layout = chunk.places
    wanted = np.ones(len(places), np.bool_)
    stored = places.heads["store_timestamp"]
    if options.starting_timestamp is not None:
        wanted &= stored >= options.starting_timestamp
    if options.ending_timestamp is not None:
        wanted &= stored < options.ending_timestamp
    if options.subscribe or options.subscribe_pattern:
        topics = Slices(chunk.buffer, places.topic, places.topic_end, pa.string()).all()
        if options.subscribe:
            chosen = pc.is_in(topics, pa.array(options.subscribe))
        else:
            known = topics.unique()
            matching = [name for name in known.to_pylist() if re.fullmatch(options.subscribe_pattern, name)]
            chosen = pc.is_in(topics, pa.array(matching, pa.string()))
        wanted &= chosen.to_numpy(zero_copy_only=False)
    return wanted
