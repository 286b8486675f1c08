"""Entries of a consume queue as tools see them (321; remoting:2.7)."""

from __future__ import annotations

from msgspec import field

from sparrowmq.protocol.bodies.base import Body, Int32, Int64


class ConsumeQueueData(Body, frozen=True):
    """One entry: where its record is, its size, the code of its tag; `eval`: whether a filter takes it."""

    physic_offset: Int64 = 0
    physic_size: Int32 = 0
    tags_code: Int64 = 0
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


class QueryConsumeQueueBody(Body, frozen=True):
    """Entries of one queue, and its first and next offset."""

    queue_data: list[ConsumeQueueData] = field(default_factory=list)
    max_queue_index: Int64 = 0
    min_queue_index: Int64 = 0
