"""The largest body that a write may send: the option `maxMessageSize`, or what the topic's brokers take.

Brokers are asked only when a body is larger than a batch send, which most writes never have.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sparrowmq.columnar.encode import MessageColumns
from sparrowmq.core.errors import BrokerError, InvalidMessageError
from sparrowmq.core.message import BODY_BYTES_MAX
from sparrowmq.spark.cluster.clients import admin
from sparrowmq.spark.cluster.faults import is_passing
from sparrowmq.spark.options.table import MESSAGE_BYTES_MAX, WriteOptions
from sparrowmq.spark.write.routing import Destination, Rows
from sparrowmq.spark.write.send import retried

log = logging.getLogger("sparrowmq.spark")

SETTING: Final = "maxMessageSize"
ORIGINS: Final = ("SPARROW_ORIGIN", "SPARROW_MIRROR_ORIGIN")
"""Properties in which replays and mirrors say where a message was read."""


class LargestBody(NamedTuple):
    """The largest body, and whose limit that is."""

    bytes_max: int
    owner: str


async def body_limit(options: WriteOptions, topic: str, brokers: Iterable[str]) -> LargestBody:
    """The limit for a topic on these brokers. Brokers that do not say theirs have RocketMQ's default.

    Raises the errors of brokers that are away for longer than `brokerTimeoutMs`.
    """
    if options.max_message_size is not None:
        return LargestBody(options.max_message_size, f"option {SETTING}")

    async def ask() -> dict[str, Mapping[str, str]]:
        client = await admin(options)
        return {broker: await client.brokers.settings(broker) for broker in sorted(set(brokers))}

    try:
        return smallest(await retried(options, f"reading {SETTING} of the brokers of {topic}", ask))
    except BrokerError as error:
        if is_passing(error):
            raise
        log.warning(
            "the brokers of %s do not say their %s, so RocketMQ's default of %d bytes is used; give the "
            "option %s if theirs is another: %s",
            *(topic, SETTING, BODY_BYTES_MAX, SETTING, error),
        )
        return LargestBody(BODY_BYTES_MAX, "RocketMQ's default, as the brokers do not say theirs")


def smallest(settings: Mapping[str, Mapping[str, str]]) -> LargestBody:
    """The smallest limit in the settings of some brokers, by broker name. Pure."""
    found = [LargestBody(MESSAGE_BYTES_MAX, "the largest that a request can hold")]
    for broker, values in settings.items():
        text = values.get(SETTING, "")
        number = int(text) if text.isdecimal() else BODY_BYTES_MAX
        found.append(LargestBody(number, f"{SETTING} of broker {broker}"))
    return min(found, key=lambda limit: limit.bytes_max)


def check_bodies(
    destination: Destination,
    columns: MessageColumns,
    sizes: npt.NDArray[np.int32],
    rows: Rows,
    first_row: int,
    limit: LargestBody,
) -> None:
    """Raise `InvalidMessageError` for the first of `rows` whose body is over the limit."""
    over = rows[sizes[rows] > limit.bytes_max]
    if not len(over):
        return
    row = int(over[0])
    where = f"topic {destination.topic}" if destination.queue is None else f"queue {destination.queue}"
    raise InvalidMessageError(
        f"row {first_row + row} for {where}{_origin(columns, row)}: the body has {sizes[row]} bytes, the "
        f"limit is {limit.bytes_max} ({limit.owner}); raise {SETTING} of the brokers (and the option, if it "
        f"is given), or leave such rows out: octet_length(body) <= {limit.bytes_max}",
        limit=limit.bytes_max,
        part="body",
    )


def _origin(columns: MessageColumns, row: int) -> str:
    """Where a row of a replay or a mirror was read."""
    pairs = None if columns.properties is None else columns.properties[row].as_py()
    places = [place for name, place in pairs or () if name in ORIGINS]
    return f", read from {places[0]}" if places else ""
