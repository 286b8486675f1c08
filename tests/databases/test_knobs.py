"""The tests of live knobs, on PostgreSQL and MariaDB."""

from __future__ import annotations

from tests.coordinator.groups.test_knobs import *  # noqa: F403
