"""The target queue of each source queue, which never changes. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import MessageQueue

Mapped = Mapping[MessageQueue, MessageQueue]


def extended(
    known: Mapped, sources: Iterable[MessageQueue], targets: Sequence[MessageQueue]
) -> dict[MessageQueue, MessageQueue]:
    """`known` plus a target queue for each other queue of `sources`; `targets` are those of all their topics.

    A new one goes to the queue with the same name if that is free, else to the first free one, else to the
    one with the fewest sources. The order within a queue is kept in any case. Raises `SettingsError` for a
    topic without a queue at the target.
    """
    found = dict(known)
    used = Counter(found.values())
    new = sorted(queue for queue in set(sources) if queue not in found)
    there = set(targets)
    for queue in new:
        if queue in there and not used[queue]:
            found[queue] = queue
            used[queue] += 1
    for queue in new:
        if queue in found:
            continue
        choice = [target for target in sorted(there) if target.topic == queue.topic]
        if not choice:
            text = f"topic {queue.topic!r} has no writable queue at the target"
            raise SettingsError(text, "topics", queue.topic)
        found[queue] = min(choice, key=lambda target: (used[target], target))
        used[found[queue]] += 1
    return found


def per_broker(wanted: int, targets: Iterable[MessageQueue], brokers: int) -> int | None:
    """Queues that each broker needs for `wanted` in all; None if there are enough.

    No broker gets fewer than it has.
    """
    have = Counter(queue.broker_name for queue in targets)
    if have.total() >= wanted:
        return None
    return max(-(-wanted // brokers), *have.values(), 1)
