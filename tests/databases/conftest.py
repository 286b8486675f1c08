"""Both servers, started once, and their databases, emptied before each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.databases import servers
from tests.databases.servers import Server

from sparrowmq.coordinator.database import migrate
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.database.tables import metadata


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "/databases/" in str(item.path):
            item.add_marker(pytest.mark.databases)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Server]:
    with servers.postgresql() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[Server]:
    with servers.mariadb() as server:
        yield server


@pytest.fixture(params=["postgresql", "mariadb"])
def server(request: pytest.FixtureRequest) -> Server:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Server)
    return found


@pytest.fixture(scope="session")
def addresses() -> dict[str, str]:
    """The migrated database of each server."""
    return {}


@pytest.fixture
def url(server: Server, addresses: dict[str, str]) -> str:
    """A database with this release's tables, empty."""
    found = addresses.get(server.kind)
    fresh = found is None
    found = found or addresses.setdefault(server.kind, server.make())
    database = Database(found)
    try:
        if fresh:
            migrate.upgrade(database)
        else:
            with database.write() as connection:
                for table in metadata.sorted_tables:
                    connection.execute(table.delete())
    finally:
        database.close()
    return found


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    found = Database(url)
    yield found
    found.close()
