"""The tests of `services.inactive`, on PostgreSQL and MariaDB."""

from __future__ import annotations

from tests.coordinator.services.groups.test_inactive import *  # noqa: F403
