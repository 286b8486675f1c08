"""The tests of history, on PostgreSQL and MariaDB."""

from __future__ import annotations

from tests.coordinator.services.brokers.test_history import *  # noqa: F403
