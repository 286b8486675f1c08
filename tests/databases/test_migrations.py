"""The migrations' tests, on PostgreSQL and MariaDB."""

from __future__ import annotations

import pytest
from tests.coordinator.database.test_migrate import *  # noqa: F403
from tests.databases.servers import Server


@pytest.fixture  # type: ignore[no-redef]
def fresh_url(server: Server) -> str:
    return server.make()
