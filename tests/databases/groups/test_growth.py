"""The tests of `services.growth`, on PostgreSQL and MariaDB."""

from __future__ import annotations

from tests.coordinator.services.groups.test_growth import *  # noqa: F403
