"""The tests of governance, on PostgreSQL and MariaDB."""

from __future__ import annotations

from tests.coordinator.services.housekeeping.test_governance import *  # noqa: F403
