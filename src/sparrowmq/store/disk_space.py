"""When a disk counts as full (broker:2.7)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sparrowmq.store import disk

HYSTERESIS_PERCENT: Final = 1
"""A full disk must fall this far below the limit, so that the broker does not go on and off."""


def full_text(path: Path, percent: int, limit: int, was_full: bool) -> str | None:
    """Why nothing more is stored, or None. Pure."""
    if percent <= (limit - HYSTERESIS_PERCENT if was_full else limit):
        return None
    return (
        f"the disk of {path} is {percent} % full and diskSpaceWarningLevelRatio is {limit}; "
        "free space there, or raise the setting"
    )


def fullest(paths: list[Path]) -> tuple[Path, int]:
    """The path whose disk is fullest, and how many percent; raises OSError."""
    return max(((path, disk.used_percent(path)) for path in paths), key=lambda pair: pair[1])
