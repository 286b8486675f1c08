"""A coordinator's database for each test: a copy of one SQLite file that was migrated once."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support import sqlite_url

from sparrowmq.client.consumer import managed
from sparrowmq.coordinator.database import migrate
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.groups import leader as groups


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("coordinator") / "template.db"
    database = Database(sqlite_url(path))
    migrate.upgrade(database)
    database.close()
    return path


@pytest.fixture
def database(migrated: Path, tmp_path: Path) -> Iterator[Database]:
    path = tmp_path / "coordinator.db"
    shutil.copy(migrated, path)
    found = Database(sqlite_url(path))
    yield found
    found.close()


@pytest.fixture
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members report and leaders run ten times as often, so that tests do not wait for intervals."""
    monkeypatch.setattr(managed, "REPORT_SECONDS", 0.05)
    monkeypatch.setattr(groups, "STEP_SECONDS", 0.025)
