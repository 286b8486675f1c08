"""The tests of services, on PostgreSQL and MariaDB."""

from __future__ import annotations

from tests.coordinator.services.base.test_board import *  # noqa: F403
