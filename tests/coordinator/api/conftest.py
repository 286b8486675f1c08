"""One coordinator for all tests of the API; each test uses its own users and groups."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.coordinator.running import Running, running
from tests.support import sqlite_url


@pytest.fixture(scope="package")
def api(migrated: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    path = tmp_path_factory.mktemp("api") / "coordinator.db"
    shutil.copy(migrated, path)
    with running(database_url=sqlite_url(path)) as found:
        yield found
