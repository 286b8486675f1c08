"""The tests of managed groups, on PostgreSQL and MariaDB."""

from __future__ import annotations

from tests.coordinator.test_managed_groups import *  # noqa: F403
