"""The fixture, as a user's own test has it."""

from __future__ import annotations

import subprocess
import sys

from sparrowmq.testing import LocalCluster


def test_the_fixture_is_a_running_cluster(sparrow_cluster: LocalCluster) -> None:
    sparrow_cluster.create_topic("Orders")
    assert sparrow_cluster.namesrv.startswith("127.0.0.1:")


def test_pytest_starts_without_loading_the_servers() -> None:
    code = (
        "import sys, sparrowmq.testing.pytest_plugin; heavy = ('sparrowmq.broker', 'sparrowmq.client'); "
        "sys.exit(sum(name.startswith(heavy) for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
