"""The tests of `services.brokers`, on PostgreSQL and MariaDB."""

from __future__ import annotations

from tests.coordinator.services.test_brokers import *  # noqa: F403
