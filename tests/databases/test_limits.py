"""The tests of limits, on PostgreSQL and MariaDB."""

from __future__ import annotations

from tests.coordinator.services.groups.test_limits import *  # noqa: F403
