"""Transactions: those that are open, and how the others ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from sparrowmq.core.figures.exposition import Exposition, labels

if TYPE_CHECKING:
    from sparrowmq.broker.transactions.check_back import CheckBack

STEP_ITEMS: Final = 100


def collect_transactions(into: Exposition, node: str, transactions: CheckBack) -> Iterator[None]:
    """Add the figures; `node` has the labels of the broker."""
    halves = into.gauge("sparrow_open_transactions", "Half messages whose transaction has not ended.")
    halves.add(node, transactions.open_count)
    open_by_topic: Counter[str] = Counter()
    yield from transactions.counting(open_by_topic)
    by_topic = into.gauge(
        "rocketmq_half_messages", "Half messages whose transaction has not ended, by topic."
    )
    for topic, count in open_by_topic.items():
        by_topic.add(labels(node, topic=topic), count)
    about = "Half messages that retention or damage took before a producer could be asked."
    into.counter("sparrow_unasked_transactions_total", about).add(node, transactions.unasked)
    commits = into.counter("rocketmq_commit_messages_total", "Transactions that were committed.")
    rollbacks = into.counter("rocketmq_rollback_messages_total", "Transactions that were rolled back.")
    for at, ((topic, is_commit), count) in enumerate(list(transactions.ends.ended.items()), 1):
        (commits if is_commit else rollbacks).add(labels(node, topic=topic), count)
        if at % STEP_ITEMS == 0:
            yield
    about = "Whole seconds from the birth of a half message to its commit, in spite of the name."
    latencies = into.histogram("rocketmq_finish_message_latency_milliseconds", about)
    for at, (topic, found) in enumerate(list(transactions.ends.latencies.items()), 1):
        latencies.add_histogram(labels(node, topic=topic), found.by_bound(), found.total)
        if at % STEP_ITEMS == 0:
            yield
