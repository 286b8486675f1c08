"""The tests of figures over time, on PostgreSQL and MariaDB."""

from __future__ import annotations

from tests.coordinator.history.test_store import *  # noqa: F403
