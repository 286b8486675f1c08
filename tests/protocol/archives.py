"""The store directories of Apache RocketMQ under `tests/fixtures/store`, unpacked once a run."""

from __future__ import annotations

import atexit
import json
import lzma
import shutil
import tarfile
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

STORES = Path(__file__).parent.parent / "fixtures" / "store"
CLEAN_5 = "rmq-5.5.0-small-clean"
KILLED_5 = "rmq-5.5.0-small-kill9"
CLEAN_4 = "rmq-4.9.7-small-clean"


@cache
def unpacked(name: str) -> Path:
    """The archive's `store` directory; for reading only, it is shared by the whole run."""
    root = Path(tempfile.mkdtemp(prefix="sparrow-test-store-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    with tarfile.open(STORES / f"{name}.tar.xz") as archive:
        archive.extractall(root, filter="data")
    return root / name / "store"


@cache
def commit_log(name: str) -> tuple[tuple[int, bytes], ...]:
    """The files of the commit log: (physical offset of the first byte, bytes)."""
    files = sorted((unpacked(name) / "commitlog").iterdir())
    return tuple((int(file.name), file.read_bytes()) for file in files)


@cache
def ledger(name: str, kind: str) -> tuple[dict[str, Any], ...]:
    """The ledger's lines of one `rec`."""
    with lzma.open(STORES / f"{name}.jsonl.xz", "rt", encoding="utf-8") as lines:
        return tuple(item for item in map(json.loads, lines) if item["rec"] == kind)
