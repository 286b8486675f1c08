"""The store's tests open and close thousands of stores: they do without waiting for the disk."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from sparrowmq.store import disk


@pytest.fixture(autouse=True)
def fsync_returns_at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whether bytes really reach the disk cannot be seen by a test without a power cut."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    monkeypatch.setattr(disk, "datasync", lambda fd: None)
    yield
