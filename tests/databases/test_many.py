"""The tests of steps with thousands of rows, on PostgreSQL and MariaDB."""

from __future__ import annotations

from tests.coordinator.database.test_many import *  # noqa: F403
