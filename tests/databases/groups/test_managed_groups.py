"""The tests of managed groups, on PostgreSQL and MariaDB."""

from __future__ import annotations

from tests.coordinator.groups.storage.test_table import *  # noqa: F403
