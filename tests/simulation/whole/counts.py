"""What the broker says about where messages are, as its metrics and the admin show it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tests.simulation.whole.books import Counted
from tests.simulation.whole.members import BROADCAST, FAILING, GROUPS
from tests.support import collect_here

from sparrowmq.broker.server import Broker
from sparrowmq.core.errors import BrokerError, ClientError
from sparrowmq.core.figures.exposition import Exposition, Family

if TYPE_CHECKING:
    from tests.simulation.whole.acts import Acts


async def counted(acts: Acts) -> Counted:
    """The counts now."""
    assert acts.cluster.broker is not None
    figures = _figures(acts.cluster.broker)
    return Counted(
        await _lag(acts),
        delayed=figures["sparrow_delayed_messages"],
        timed=figures["sparrow_timer_messages"] + figures["rocketmq_timer_enqueue_lag"],
        halves=figures["sparrow_open_transactions"],
        lost=figures["sparrow_store_lost_messages_total"],
        dead={group: await _dead(acts, group) for group in FAILING},
    )


async def _lag(acts: Acts) -> dict[tuple[str, str, int], int]:
    lag: dict[tuple[str, str, int], int] = {}
    clustering = [group for group in GROUPS if group != BROADCAST]
    for group in clustering:
        try:
            progress = await acts.admin.groups.progress(group)
        except BrokerError:  # nobody of the group was here yet
            continue
        lag |= {(group, row.queue.topic, row.queue.queue_id): row.lag for row in progress}
    # A group that committed nothing in a topic has no lag there. All its messages wait for it.
    known = {(group, topic) for group, topic, _ in lag}
    for topic in acts.queues:
        for status in await acts.admin.topics.status(topic):
            for group in clustering:
                if (group, topic) not in known:
                    lag[group, topic, status.queue.queue_id] = status.messages
    return lag


async def _dead(acts: Acts, group: str) -> set[int]:
    try:
        letters = await acts.admin.dead_letters.list(group, count=1000)
    except ClientError:  # the broker does not know the group
        return set()
    return {int(letter.body) for letter in letters}


def _figures(broker: Broker) -> dict[str, int]:
    """The sums of the broker's metrics."""
    return {
        family.name: sum(int(value) for _, value in family.points if isinstance(value, int | float))
        for family in _families(broker)
    }


def gone_unread(broker: Broker) -> Counter[str]:
    """By group, messages of which the broker says that retention took them unread. Retries do not count."""
    found: Counter[str] = Counter()
    for family in _families(broker):
        if family.name == "sparrow_consumer_lost_messages_total":
            for label, value in family.points:
                group = label.partition('consumer_group="')[2].partition('"')[0]
                if 'is_retry="false"' in label and isinstance(value, int):
                    found[group] += value
    return found


def _families(broker: Broker) -> list[Family]:
    into = Exposition(1000)
    collect_here(broker.operated.collect(into))
    return list(into.families)
