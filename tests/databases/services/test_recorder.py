"""The tests of the service `history`, on PostgreSQL and MariaDB."""

from __future__ import annotations

from tests.coordinator.services.housekeeping.test_recorder import *  # noqa: F403
