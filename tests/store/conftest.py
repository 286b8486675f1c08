"""The store's tests open and close thousands of stores, so they do not wait for the disk."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from sparrowmq.files import disk


@pytest.fixture(autouse=True)
def fsync_returns_at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A test cannot see whether bytes really reach the disk."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    monkeypatch.setattr(disk, "datasync", lambda fd: None)
    yield
