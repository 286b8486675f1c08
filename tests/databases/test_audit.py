"""The tests of audit, on PostgreSQL and MariaDB."""

from __future__ import annotations

from tests.coordinator.records.test_audit import *  # noqa: F403
