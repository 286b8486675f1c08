"""Reads a store directory without a broker: the commit log's files, in parallel, each record checked.

SparrowMQ's and Apache's have the same layout (broker:1.1). It reads everything that is stored, including
system topics and deleted topics, unless topics are named. It writes nothing, so it can read a broker's live
store, or a copy of one.
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

from sparrowmq.columnar.arrays import texts
from sparrowmq.columnar.decode import layout_batches
from sparrowmq.columnar.layout import Layout
from sparrowmq.columnar.log_file import LogBytes, LogChunk, chunks, first_records, first_timestamp
from sparrowmq.columnar.schema import TYPES
from sparrowmq.columnar.slices import BufferSlices
from sparrowmq.core.errors import CompressedBodyError, RecordError, SettingsError
from sparrowmq.spark.options.table import ReadOptions
from sparrowmq.spark.options.values import SKIP
from sparrowmq.spark.read.odd_times import OddTimes

log = logging.getLogger("sparrowmq.spark")

_NAME: Final = re.compile(r"\d{20}")
CLOCK_MARGIN_MS: Final = 60_000
"""Files are excluded by time only with this margin: brokers' clocks may jump."""
SAMPLE_RECORDS: Final = 1000
PROBE_BYTES: Final = 64 * 1024
"""This many zeros count as the end of the written part, where it need not be exact."""


@dataclass(frozen=True, slots=True)
class StoredLogFile:
    """One file of a commit log. `is_last`: no file follows it, or only preallocated ones."""

    path: str
    base: int
    is_last: bool


def log_files(store: str) -> list[StoredLogFile]:
    """The files of the commit log in a store directory, in order.

    Raises `SettingsError` when there is none, or one is missing between two others.
    """
    root = Path(store)
    directory = root / "commitlog" if (root / "commitlog").is_dir() else root
    try:
        found = sorted(path for path in directory.iterdir() if _NAME.fullmatch(path.name))
        sizes = {path: path.stat().st_size for path in found}
    except OSError as error:
        raise SettingsError(
            f"option store={store!r} cannot be read: {error.strerror}", "store", store
        ) from error
    found = [path for path in found if sizes[path]]
    if not found:
        raise SettingsError(
            f"option store={store!r}: there is no commit log; give the broker's storePathRootDir, the "
            f"directory that contains commitlog",
            "store",
            store,
        )
    for before, after in pairwise(found):
        if int(after.name) != int(before.name) + sizes[before]:
            raise SettingsError(
                f"{directory}: the file after {before.name}, which has {sizes[before]} bytes, is "
                f"{after.name}; one is missing or truncated: restore it from a copy",
                what="files",
                value=after,
            )
    used = [path for path in found if _is_used(path)]
    last = used[-1] if used else found[0]
    return [StoredLogFile(str(path), int(path.name), path >= last) for path in found]


def _is_used(path: Path) -> bool:
    """Whether the beginning of the file was written: brokers create files in advance."""
    with path.open("rb") as file:
        return any(file.read(8))


def wanted_files(files: Sequence[StoredLogFile], options: ReadOptions) -> list[StoredLogFile]:
    """The files that may contain messages of the given time range."""
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


def _begins(file: StoredLogFile) -> int | None:
    with _Mapped(file) as mapped:
        return first_timestamp(mapped)


def about_records(files: Sequence[StoredLogFile]) -> int:
    """Estimated number of records, from the size of each file's first ones and its used part."""
    return sum(_about(file) for file in files)


def _about(file: StoredLogFile) -> int:
    with _Mapped(file) as mapped:
        size, count = first_records(mapped, SAMPLE_RECORDS)
        return _used(mapped.data) * count // size if count else 0


def _used(data: mmap.mmap | bytes) -> int:
    """Estimated end of the written part of a file, which is followed by zeros."""
    low, high = 0, len(data)
    while high - low > PROBE_BYTES:
        middle = (low + high) // 2
        if any(data[middle : middle + PROBE_BYTES]):
            low = middle
        else:
            high = middle
    return low + len(data[low:high].rstrip(b"\0"))


class _Mapped:
    """A file's bytes within the block."""

    def __init__(self, file: StoredLogFile) -> None:
        self._file = file

    def __enter__(self) -> LogBytes:
        with Path(self._file.path).open("rb") as opened:
            data = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        return LogBytes(data, self._file.base, self._file.is_last)

    def __exit__(self, *_: object) -> None:
        """The mapping ends with its last user."""


def read_files(
    files: Sequence[StoredLogFile], options: ReadOptions, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The messages in these files as batches of `schema`.

    Raises `RecordError` with file and position on damage unless damagedRecords=skip.
    """
    times = OddTimes()
    for file in files:

        def damaged(start: int, end: int, why: str, path: str = file.path) -> None:
            text = f"{path}: {end - start} bytes at physical offset {start} are not a valid record ({why})"
            if options.damaged_records != SKIP:
                raise RecordError(f"{text}; option damagedRecords=skip skips them", what=path, value=start)
            log.warning("%s; skipping them because of damagedRecords=skip", text)

        with _Mapped(file) as mapped:
            for chunk in chunks(
                mapped,
                rows_max=options.batch_rows,
                bytes_max=options.batch_bytes,
                check_crc=options.check_crc,
                damaged=damaged,
            ):
                for batch in _decode(chunk, options, schema, file.path):
                    times.count(batch)
                    if batch.num_rows:
                        yield batch
    times.warn()


def _decode(chunk: LogChunk, options: ReadOptions, schema: pa.Schema, path: str) -> Iterator[pa.RecordBatch]:
    places = chunk.places.keep(_wanted(chunk, options))
    wide = schema
    if options.tags and "tags" not in schema.names:
        wide = schema.append(pa.field("tags", TYPES["tags"]))
    for batch, shut in layout_batches(
        chunk.buffer, places, wide, bytes_max=options.batch_bytes, broker_name=options.broker_name
    ):
        if shut:
            raise CompressedBodyError(
                f"{path}: {shut[min(shut)]}; read the store without the column body, or other times of it"
            )
        if options.tags:
            batch = batch.filter(pc.is_in(batch["tags"], texts(sorted(options.tags), pa.string())))
            batch = pa.RecordBatch.from_arrays([batch[name] for name in schema.names], schema=schema)
        yield batch


def _wanted(chunk: LogChunk, options: ReadOptions) -> npt.NDArray[np.bool_]:
    """Which records belong to the topics and the time range."""
    places: Layout = chunk.places
    wanted = np.ones(len(places), np.bool_)
    stored = places.heads["store_timestamp"]
    if options.starting_timestamp is not None:
        wanted &= stored >= options.starting_timestamp
    if options.ending_timestamp is not None:
        wanted &= stored < options.ending_timestamp
    if options.subscribe or options.subscribe_pattern:
        topics = BufferSlices(chunk.buffer, places.topic, places.topic_end, pa.string()).all()
        if options.subscribe:
            chosen = pc.is_in(topics, texts(options.subscribe, pa.string()))
        else:
            known = topics.unique()
            matching = [name for name in known.to_pylist() if re.fullmatch(options.subscribe_pattern, name)]
            chosen = pc.is_in(topics, texts(matching, pa.string()))
        wanted &= chosen.to_numpy(zero_copy_only=False)
    return wanted
