"""The lease table's tests, on PostgreSQL and MariaDB."""

from __future__ import annotations

from tests.coordinator.leases.test_table import *  # noqa: F403
