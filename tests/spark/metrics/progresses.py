"""Spark's progress events, made by hand."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.offsets.offsets import StreamOffset

Q0, Q1 = MessageQueue("t", "b", 0), MessageQueue("t", "b", 1)
RUN, OTHER_RUN = str(UUID(int=1)), str(UUID(int=2))


def source(end: dict[MessageQueue, int] | None, latest: dict[MessageQueue, int] | None) -> SimpleNamespace:
    def text(offsets: dict[MessageQueue, int] | None) -> str | None:
        return None if offsets is None else json.dumps(StreamOffset(offsets).to_json())

    return SimpleNamespace(endOffset=text(end), latestOffset=text(latest))


def progress(
    *sources: SimpleNamespace, name: str | None = "orders", run: str = RUN, rows: int = 10, **more: Any
) -> SimpleNamespace:
    values = {
        "id": UUID(int=9),
        "runId": run,
        "name": name,
        "sources": list(sources),
        "numInputRows": rows,
        "inputRowsPerSecond": 100.0,
        "processedRowsPerSecond": 200.0,
        "batchDuration": 1500,
        "eventTime": {},
        "stateOperators": [],
        "observedMetrics": {},
    }
    return SimpleNamespace(**values | more)
