"""The tests of offsets to be set, on PostgreSQL and MariaDB."""

from __future__ import annotations

from tests.coordinator.groups.test_resets import *  # noqa: F403
