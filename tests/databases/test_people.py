"""The tests of people, on PostgreSQL and MariaDB."""

from __future__ import annotations

from tests.coordinator.users.test_people import *  # noqa: F403
