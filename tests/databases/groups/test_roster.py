"""The tests of `services.roster`, on PostgreSQL and MariaDB."""

from __future__ import annotations

from tests.coordinator.services.groups.test_roster import *  # noqa: F403
