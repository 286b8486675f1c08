"""When a disk counts as full (broker:2.7)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

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


def fullest(paths: list[Path]) -> tuple[Path, int]:
    """The path on the fullest disk and the used percentage; raises OSError."""
    return max(((path, disk.used_percent(path)) for path in paths), key=lambda pair: pair[1])
