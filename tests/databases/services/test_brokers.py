"""The tests of `services.brokers`, on PostgreSQL and MariaDB."""

from __future__ import annotations

from tests.coordinator.services.brokers.test_broker_check import *  # noqa: F403
