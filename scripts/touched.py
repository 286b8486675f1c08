"""Which files of tests a change added or touched: their tests run several times, and each time counts."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

BASES: Final = ("origin/main", "main")
FILES_MAX: Final = 20
"""A change that touches more files of tests moves or renames; its tests run once, like all others."""


def touched_test_files(root: Path) -> list[str]:
    """Files of tests that differ from where the change began; none outside a git repository, or of a change
    that touches more than `FILES_MAX`."""
    for base in BASES:
        begin = _git(root, "merge-base", "HEAD", base)
        if begin and (begin != _git(root, "rev-parse", "HEAD") or base == BASES[-1]):
            changed = _git(root, "diff", "--name-only", "--diff-filter=d", begin).splitlines()
            added = _git(root, "ls-files", "--others", "--exclude-standard").splitlines()
            found = sorted({file for file in changed + added if _is_test(file)})
            return found if len(found) <= FILES_MAX else []
    return []


def _is_test(file: str) -> bool:
    path = Path(file)
    return path.parts[0] == "tests" and path.name.startswith("test_") and path.suffix == ".py"


def _git(root: Path, *arguments: str) -> str:
    """What git answers; an empty text if it fails or is missing."""
    try:
        found = subprocess.run(("git", *arguments), cwd=root, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return found.stdout.strip() if found.returncode == 0 else ""
