"""Which files of the commit log may be deleted, and why (broker:2.7). Decisions only: no clock, no disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

HOUR_MS: Final = 3_600_000
MANUAL_PASSES: Final = 20
"""How many passes an operator's request stays in force."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionSettings:
    """When files are deleted: `reserved_hours` after their last write, during the hours of `delete_when`
    (local time).

    Percentages refer to the fullest disk. Above `used_max`, expired files are deleted at any hour; above
    `forcibly_above`, files are deleted regardless of age if `forcibly` is set. A pass deletes at most
    `batch_max`.
    """

    reserved_hours: int = 72
    delete_when: frozenset[int] = frozenset({4})
    used_max: int = 75
    forcibly: bool = True
    forcibly_above: int = 85
    batch_max: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Keeps messages of `topic` until `group` has consumed them, regardless of their age and of disk usage.

    There is a limit: the hold ends when the oldest message has waited for `hours`, or when the log contains
    `size_max` bytes after it (0: no size limit).
    """

    topic: str
    group: str
    hours: int
    size_max: int = 0


class Unread(NamedTuple):
    """The oldest message a hold keeps: physical offset of its record, and its store time in epoch ms."""

    position: int
    stored_ms: int


def overrun(hold: Hold, oldest: Unread, *, now_ms: int, log_end: int) -> str:
    """Why the hold no longer keeps messages; empty while it is within its limit."""
    hours = (now_ms - oldest.stored_ms) // HOUR_MS
    if hours >= hold.hours:
        return f"the oldest one waits for {hours} hours, the limit is {hold.hours}"
    size = log_end - oldest.position
    if hold.size_max and size > hold.size_max:
        return f"{size} bytes of log are kept for it, the limit is {hold.size_max}"
    return ""


class LogFile(NamedTuple):
    """A file of the commit log: position of its first byte, and time of its last write in epoch ms."""

    base: int
    modified_ms: int


class RetentionPlan(NamedTuple):
    """How many of the oldest files to delete; `forced` means regardless of age. `reason` is for the log."""

    files: int
    forced: bool
    reason: str


NOTHING: Final = RetentionPlan(0, False, "")


def plan(
    settings: RetentionSettings,
    files: Sequence[LogFile],
    *,
    now_ms: int,
    hour: int,
    used_percent: int,
    manual: bool,
    held: int | None = None,
) -> RetentionPlan:
    """Which of `files`, oldest first, one pass deletes; the last one always stays.

    Records from physical offset `held` on are always kept.
    """
    forced = settings.forcibly and used_percent > settings.forcibly_above
    if forced:
        reason = (
            f"the disk is {used_percent} % full and diskSpaceCleanForciblyRatio is {settings.forcibly_above}"
        )
    elif used_percent > settings.used_max:
        reason = f"the disk is {used_percent} % full and diskMaxUsedSpaceRatio is {settings.used_max}"
    elif manual:
        reason = "an operator asked for it"
    elif hour in settings.delete_when:
        reason = f"it is {hour:02d} hours (deleteWhen)"
    else:
        return NOTHING
    count = 0
    for file, following in pairwise(files):
        young = now_ms - file.modified_ms < settings.reserved_hours * HOUR_MS
        kept = held is not None and following.base > held
        if count >= settings.batch_max or kept or (young and not forced):
            break
        count += 1
    return RetentionPlan(count, forced, reason) if count else NOTHING
