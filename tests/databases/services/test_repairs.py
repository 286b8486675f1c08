"""The tests of repairs, on PostgreSQL and MariaDB."""

from __future__ import annotations

from tests.coordinator.services.housekeeping.test_repairs import *  # noqa: F403
