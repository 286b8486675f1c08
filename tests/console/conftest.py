"""One console for all page tests, on a cluster with at least one of everything."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.console.furnished import ODD, furnish
from tests.console.site import Reader, Site, part_seconds, site
from tests.support import sqlite_url

from sparrowmq.coordinator.cluster import explorer
from sparrowmq.coordinator.database import migrate
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.testing import LocalCluster


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("console") / "template.db"
    database = Database(sqlite_url(path))
    migrate.upgrade(database)
    database.close()
    return path


@pytest.fixture(scope="package", autouse=True)
def patience() -> Iterator[None]:
    """Parts of pages wait longer than for people: a busy machine is not what these tests are about. What was
    asked of all brokers is asked again sooner, so that tests do not wait until it is old."""
    with pytest.MonkeyPatch.context() as patch, part_seconds(lambda usual: max(usual, 30.0)):
        patch.setattr(explorer, "WAIT_SECONDS", 15.0)
        for name in ("FRESH_SECONDS", "TABLES_FRESH_SECONDS", "LAG_FRESH_SECONDS", "REST"):
            patch.setattr(explorer, name, 1.0)
        yield


@pytest.fixture(scope="package")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as found:
        yield found


@pytest.fixture(scope="package")
def console(
    empty_database: Path, cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    path = tmp_path_factory.mktemp("console") / "coordinator.db"
    shutil.copy(empty_database, path)
    with (
        site(database_url=sqlite_url(path), namesrv_addr=cluster.namesrv) as found,
        furnish(found, cluster),
    ):
        yield found


@pytest.fixture
def admin(console: Site) -> Reader:
    return console.admin


@pytest.fixture(scope="package")
def viewer(console: Site) -> Reader:
    return console.reader("viewer", ODD.password)
