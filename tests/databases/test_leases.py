"""The lease table's tests, and a claim under way at a holder's end, on PostgreSQL and MariaDB."""

from __future__ import annotations

from tests.coordinator.leases.test_holder import (  # noqa: F401
    test_holder_that_ends_during_a_claim_leaves_the_lease_free,
)
from tests.coordinator.leases.test_table import *  # noqa: F403
