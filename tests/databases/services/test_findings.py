"""The tests of findings, on PostgreSQL and MariaDB."""

from __future__ import annotations

from tests.coordinator.records.test_findings import *  # noqa: F403
