"""Assigns the rows of a write to topics and queues. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparrowmq.columnar.arrays import numbers_of
from sparrowmq.columnar.joining import missing
from sparrowmq.core.errors import InvalidMessageError, InvalidNameError
from sparrowmq.core.hashing import java_hash
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import check_topic_for_send

Rows = npt.NDArray[np.int64]
QueuesOf = Callable[[str], Sequence[MessageQueue]]


@dataclass(frozen=True, slots=True)
class Destination:
    """A topic, and the queue if it is fixed; otherwise the producer uses round robin."""

    topic: str
    queue: MessageQueue | None = None


@dataclass(frozen=True, slots=True)
class RouteColumns:
    """How rows are routed: a fixed topic or a column of topics, a sharding key, a queue."""

    topic: str | pa.Array
    sharding_keys: pa.Array | None = None
    brokers: pa.Array | None = None
    queue_ids: pa.Array | None = None


TURN_ROWS: Final = 2048
"""Number of consecutive rows of a task for one queue in round robin."""


def numbered_rows(
    columns: RouteColumns, count: int, queues_of: QueuesOf, *, first: int, partition: int
) -> Iterator[tuple[MessageQueue, Rows]]:
    """Like `group_rows`, with a queue for every row that depends only on the row's position and the queues.

    `first` is the number of the first row in its task. Rows without queue or sharding key are distributed
    round robin, and each partition starts with another queue.
    """
    for destination, rows in group_rows(columns, count, queues_of):
        if destination.queue is not None:
            yield destination.queue, rows
            continue
        queues = queues_of(destination.topic)
        turns = (rows + first) // TURN_ROWS
        bounds = [0, *(np.flatnonzero(np.diff(turns)) + 1).tolist(), len(rows)]
        for low, high in pairwise(bounds):
            if low < high:
                yield queues[(int(turns[low]) + partition) % len(queues)], rows[low:high]


def group_rows(columns: RouteColumns, count: int, queues_of: QueuesOf) -> Iterator[tuple[Destination, Rows]]:
    """Destinations with their rows in order; every one of `count` rows is in one group.

    A named queue takes precedence over a sharding key; a queue has one group, however it was chosen. Equal
    keys go to equal queues while a topic's queues (`queues_of(topic)`) stay the same, as with Java's selector
    by hash. Raises `InvalidMessageError` with the row for a missing topic, or an incomplete queue name.
    """
    for topic, rows in _by_topic(columns.topic, count):
        queues: list[MessageQueue | None] = [None]
        choice = np.zeros(len(rows), np.int64)
        if columns.sharding_keys is not None:
            _choose_by_key(columns.sharding_keys, rows, queues_of(topic), queues, choice)
        if columns.brokers is not None and columns.queue_ids is not None:
            _choose_by_name(columns.brokers, columns.queue_ids, rows, topic, queues, choice)
        chosen = np.unique(choice)
        for number in chosen:
            yield Destination(topic, queues[number]), rows if len(chosen) == 1 else rows[choice == number]


def _by_topic(topic: str | pa.Array, count: int) -> Iterator[tuple[str, Rows]]:
    every = np.arange(count)
    if isinstance(topic, str):
        if count:
            yield topic, every
        return
    codes, names = _coded(topic)
    if (codes < 0).any():
        row = int(np.argmax(codes < 0))
        raise InvalidMessageError(f"row {row}: the topic is null", part="topic", value=row)
    for code, name in enumerate(names):
        rows = every[codes == code]
        if not len(rows):
            continue
        try:
            check_topic_for_send(name)
        except InvalidNameError as error:
            row = int(rows[0])
            raise InvalidMessageError(f"row {row}: {error}", part="topic", value=row) from None
        yield name, rows


def _coded(column: pa.Array) -> tuple[npt.NDArray[Any], list[Any]]:
    """A number for each row's value, -1 for null, and the values."""
    coded = column.dictionary_encode()
    codes = np.where(missing(coded.indices), -1, numbers_of(coded.indices))
    return codes, coded.dictionary.to_pylist()


def _choose_by_key(
    keys: pa.Array,
    rows: Rows,
    queues: Sequence[MessageQueue],
    found: list[MessageQueue | None],
    choice: npt.NDArray[np.int64],
) -> None:
    first = len(found)
    found.extend(queues)
    codes, names = _coded(keys)
    table = [first + abs(java_hash(name)) % len(queues) if name else 0 for name in names]
    choice[:] = np.array([*table, 0], np.int64)[codes[rows]]


def _choose_by_name(
    brokers: pa.Array,
    queue_ids: pa.Array,
    rows: Rows,
    topic: str,
    found: list[MessageQueue | None],
    choice: npt.NDArray[np.int64],
) -> None:
    broker_codes, names = _coded(brokers)
    id_codes, numbers = _coded(queue_ids)
    half = (broker_codes[rows] < 0) != (id_codes[rows] < 0)
    if half.any():
        row = int(rows[np.argmax(half)])
        text = f"row {row}: a queue needs both broker and queue_id, but one is null"
        raise InvalidMessageError(text, part="queue", value=row)
    pairs = broker_codes[rows].astype(np.int64) * len(numbers) + id_codes[rows]
    for pair in np.unique(pairs[broker_codes[rows] >= 0]):
        broker, queue_id = divmod(int(pair), len(numbers))
        queue = MessageQueue(topic, names[broker], numbers[queue_id])
        if queue not in found:
            found.append(queue)
        choice[pairs == pair] = found.index(queue)
