"""Settings of the test run: hypothesis draws the same samples each time, more of them in the long tier.

A test that proves facts and is skipped, by whatever it uses, is a failure.
`SPARROW_EXAMPLES` sets how many: mutation runs take fewer.
"""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings
from tests.support import refuse_skip

LONG = os.environ.get("SPARROW_TEST_TIER") == "long"
EXAMPLES = int(os.environ.get("SPARROW_EXAMPLES", 2000 if LONG else 100))

settings.register_profile(
    "sparrow",
    deadline=None,
    derandomize=not LONG,
    max_examples=EXAMPLES,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("sparrow")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What is on the page of behaviours was run."""
    report = yield
    refuse_skip(report, [fact for mark in item.iter_markers("proves") for fact in mark.args])
    return report
