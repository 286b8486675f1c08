"""Which files of the commit log may go, and why (broker:2.7). Decisions only: no clock, no disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

HOUR_MS: Final = 3_600_000
MANUAL_PASSES: Final = 20
"""How many passes an operator's request lasts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionSettings:
    """When files go: `reserved_hours` after their last write, in the hours of `delete_when` (local time).

    Percentages are of the fullest disk: above `used_max` expired files go at any hour; above `forcibly_above`
    files go whatever their age, if `forcibly` allows it. A pass deletes at most `batch_max`.
    """

    reserved_hours: int = 72
    delete_when: frozenset[int] = frozenset({4})
    used_max: int = 75
    forcibly: bool = True
    forcibly_above: int = 85
    batch_max: int = 10


class LogFile(NamedTuple):
    """A file of the commit log: position of its first byte, and when it was last written, epoch ms."""

    base: int
    modified_ms: int


class Plan(NamedTuple):
    """So many of the oldest files go; `forced` regardless of their age. `reason` is for the log."""

    files: int
    forced: bool
    reason: str


NOTHING: Final = Plan(0, False, "")


def plan(
    settings: RetentionSettings,
    files: Sequence[LogFile],
    *,
    now_ms: int,
    hour: int,
    used_percent: int,
    manual: bool,
) -> Plan:
    """What one pass deletes of `files`, oldest first; the last one always stays."""
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
    for file in files[:-1]:
        young = now_ms - file.modified_ms < settings.reserved_hours * HOUR_MS
        if count >= settings.batch_max or (young and not forced):
            break
        count += 1
    return Plan(count, forced, reason) if count else NOTHING
