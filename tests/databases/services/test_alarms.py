"""The tests of alarms, on PostgreSQL and MariaDB."""

from __future__ import annotations

from tests.coordinator.alarms.test_table import *  # noqa: F403
