"""When a disk counts as full (broker:2.7)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from sparrowmq.files import disk

HYSTERESIS_PERCENT: Final = 1
"""Usage must fall this far below the limit before the store accepts messages again, to avoid flapping."""


def full_text(path: Path, percent: int, limit: int, was_full: bool) -> str | None:
    """Why the store refuses further messages, or None. Pure."""
    if percent <= (limit - HYSTERESIS_PERCENT if was_full else limit):
        return None
    return (
        f"the disk of {path} is {percent} % full and diskSpaceWarningLevelRatio is {limit}; "
        "free space there, or raise the setting"
    )


class DiskUsage(NamedTuple):
    """The disk of a path: used percentage, size, and bytes that are available to users."""

    percent: int
    total: int
    free: int


def usage(path: Path) -> DiskUsage:
    """Ask for the usage of the disk of a path; raises OSError. A disk that hangs does not answer."""
    return DiskUsage(disk.used_percent(path), *disk.room(path))


def fullest(disks: Mapping[Path, DiskUsage]) -> tuple[Path, int]:
    """The path on the fullest disk and the used percentage."""
    path = max(disks, key=lambda one: disks[one].percent)
    return path, disks[path].percent
