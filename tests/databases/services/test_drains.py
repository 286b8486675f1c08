"""The tests of `services.drains`, on PostgreSQL and MariaDB."""

from __future__ import annotations

from tests.coordinator.services.brokers.test_drains import *  # noqa: F403
