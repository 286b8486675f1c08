"""The samples of brokers' logs in the database; older samples are thinned out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, delete, insert, select

from sparrowmq.coordinator.database.tables import log_sample
from sparrowmq.coordinator.upkeep.logs import BrokerLog, LogSample, spare

SAMPLES_MAX: Final = 20_000
"""Maximum number of samples read of one broker: more than a day of minutes and years of hours."""


def keep(connection: Connection, logs: Sequence[BrokerLog], keep_hours: int) -> int:
    """Save a sample of each log and delete expired ones, including those of removed brokers; returns the
    number deleted.
    """
    for log in logs:
        connection.execute(insert(log_sample).values(broker=log.name, **log.now._asdict()))
    now = max((log.now.at for log in logs), default=0)
    query = select(log_sample.c.broker, log_sample.c.id, log_sample.c.at)
    times: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for row in connection.execute(query).mappings():
        times[row["broker"]].append((row["id"], row["at"]))
    gone = [number for samples in times.values() for number in spare(samples, now, keep_hours)]
    for start in range(0, len(gone), 500):
        connection.execute(delete(log_sample).where(log_sample.c.id.in_(gone[start : start + 500])))
    return len(gone)


def read(connection: Connection) -> dict[str, list[LogSample]]:
    """All samples by broker, in order."""
    query = select(log_sample).order_by(log_sample.c.broker, log_sample.c.at, log_sample.c.id)
    found: defaultdict[str, list[LogSample]] = defaultdict(list)
    for row in connection.execute(query).mappings():
        if len(found[row["broker"]]) < SAMPLES_MAX:
            found[row["broker"]].append(
                LogSample(row["at"], row["log_min"], row["log_max"], row["total"], row["free"])
            )
    return dict(found)
