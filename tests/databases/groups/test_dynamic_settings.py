"""The tests of dynamic settings, on PostgreSQL and MariaDB."""

from __future__ import annotations

from tests.coordinator.groups.settings.test_dynamic_settings import *  # noqa: F403
