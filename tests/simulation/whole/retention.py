"""Messages that leave with the log's older files, and what the books and the broker say about them."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from typing import TYPE_CHECKING, Final

from tests.simulation.whole.books import Sent
from tests.simulation.whole.counts import gone_unread
from tests.simulation.whole.members import BROADCAST, GROUPS, INVISIBLE_SECONDS

from sparrowmq.protocol.codes import RequestCode

if TYPE_CHECKING:
    from tests.simulation.whole.acts import Acts

DELETION_SECONDS: Final = 5.0
"""Long enough for a few passes of the broker."""
Place = tuple[str, int]
"""Topic and queue id."""


async def expire(acts: Acts) -> None:
    """The log's older files become too old. Nobody reads meanwhile, so the broker's number is exact."""
    running = acts.members.running
    await acts.members.leave_all()
    try:
        await asyncio.sleep(2 * INVISIBLE_SECONDS)  # what was handed out by POP is visible again
        await _expire(acts)
    finally:
        for group in running:
            await acts.members.join(group)


async def _expire(acts: Acts) -> None:
    assert acts.cluster.broker is not None
    books, committed = acts.books, acts.cluster.broker.parts.offsets.query
    before, told = await _begins(acts), gone_unread(acts.cluster.broker)
    for path in acts.cluster.log_files():
        os.utime(path, (0, 0))
    await acts.ask(RequestCode.DELETE_EXPIRED_COMMITLOG, b"")
    await asyncio.sleep(DELETION_SECONDS)
    begins = await _begins(acts)
    told = gone_unread(acts.cluster.broker) - told
    due: Counter[str] = Counter()
    for group in GROUPS:
        unread = set(books.open(group)) - books.tries[group].keys()
        places = {place: committed(place[0], group, place[1]) for place in begins}
        taken = {place: at for place, at in places.items() if at is not None and group != BROADCAST}
        due[group] = sum(max(0, begins[place] - max(at, before[place])) for place, at in taken.items())
        known = [sent for n in unread if (sent := books.sent[n]).offset >= 0 and sent.place in taken]
        gone = [sent.number for sent in known if _is_before(begins, sent)]
        if len(gone) > told[group] or due[group] != told[group]:
            text = f"retention took {books.told(gone)} unread from group {group}, by its offsets {due[group]}"
            books.found.append(f"{text}, and the broker says {told[group]}")
    books.lose("retention took it", which=lambda sent: _is_before(begins, sent))


async def _begins(acts: Acts) -> dict[Place, int]:
    """The first offset of each queue."""
    statuses = [status for topic in acts.queues for status in await acts.admin.topics.status(topic)]
    return {(status.queue.topic, status.queue.queue_id): status.min_offset for status in statuses}


def _is_before(begins: dict[Place, int], sent: Sent) -> bool:
    return sent.is_acknowledged and sent.offset < begins.get(sent.place, 0)
