"""Decides whether a stream commits its progress to the group of option `groupId`, and up to which offsets.

Consumers of a group continue from its offsets. Moving the offsets of a group with other consumers would
repeat or skip messages. Unless option `commitToGroup` says otherwise, a query commits only to a group that
had no members and no offsets when the query began; its checkpoint records that. When another member appears,
it stops committing for good.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import TimeoutError as FutureTimeoutError
from time import monotonic
from typing import Final

from sparrowmq.core.errors import SparrowError
from sparrowmq.spark.cluster.faults import Occasionally
from sparrowmq.spark.offsets.offsets import StreamOffset
from sparrowmq.spark.options.table import ReadOptions
from sparrowmq.spark.options.values import ALWAYS, NEVER
from sparrowmq.spark.read.lookup import Ask, Found

log = logging.getLogger("sparrowmq.spark")

REPORT_SECONDS: Final = 2.0
CHECK_SECONDS: Final = 10.0
"""How often to check for other consumers of the group."""


class GroupProgress:
    """The commits of one query."""

    def __init__(self, ask: Ask, options: ReadOptions, now: Callable[[], float] = monotonic) -> None:
        self._ask = ask
        self._options = options
        self._now = now
        self._reported: Found = {}
        self._checked_at = float("-inf")
        self._stopped = options.group_id is None or options.commit_to_group == NEVER
        self._complaints = Occasionally()

    def own_group(self, start: StreamOffset, ends: Found) -> str:
        """The group that the batch after `start` may claim for the query; empty for none."""
        group = self._options.group_id
        if self._stopped or group is None or self._options.commit_to_group == ALWAYS:
            return ""
        if not start.initial:
            return group if start.own_group == group else ""
        return "" if self._others({}, dict.fromkeys(ends, -1)) else group

    def report(self, done: StreamOffset) -> None:
        """Commit `done` for the group; never raises, which would end the query (spark:S-30)."""
        group = self._options.group_id
        if self._stopped or group is None or done.initial:
            return
        news = {queue: end for queue, end in done.queues.items() if self._reported.get(queue) != end}
        if not news or (self._options.commit_to_group != ALWAYS and not self._is_own(done, news)):
            return
        try:
            self._ask(lambda lookup: lookup.report(news), REPORT_SECONDS)
            self._reported |= news
        except (SparrowError, FutureTimeoutError) as error:
            self._complaints.warn("the offsets of group %s could not be committed: %r", group, error)

    def _is_own(self, done: StreamOffset, news: Found) -> bool:
        if done.own_group != self._options.group_id:
            self._stop("the group was in use before the query's first batch")
            return False
        if self._now() - self._checked_at < CHECK_SECONDS:
            return True
        self._checked_at = self._now()
        return not self._others(self._reported, news)

    def _others(self, reported: Found, most: Found) -> bool:
        """Whether others may consume in the group: it has members, or offsets above `most` and the last
        commit.

        If that cannot be queried now, the next commit tries again.
        """
        group = self._options.group_id or ""
        allowed = {queue: max(offset, reported.get(queue, -1)) for queue, offset in most.items()}
        try:
            found = self._ask(lambda lookup: lookup.others_in(group, allowed), CHECK_SECONDS)
        except (SparrowError, FutureTimeoutError) as error:
            self._checked_at = float("-inf")
            self._complaints.warn("cannot check now whether others consume in group %s: %r", group, error)
            return True
        if found:
            self._stop(found)
        return bool(found)

    def _stop(self, why: str) -> None:
        self._stopped = True
        log.warning(
            "offsets are not committed to option groupId=%r: %s. Give the query its own group and a new "
            "checkpoint, or set option commitToGroup=always to commit anyway; commitToGroup=never turns "
            "this warning off",
            self._options.group_id,
            why,
        )
