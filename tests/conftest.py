"""Settings of the test run: hypothesis draws the same samples each time, more of them in the long tier."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

LONG = os.environ.get("SPARROW_TEST_TIER") == "long"

settings.register_profile(
    "sparrow",
    deadline=None,
    derandomize=not LONG,
    max_examples=2000 if LONG else 100,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("sparrow")
