from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cli.conftest import Sparrow

    from sparrowmq.testing import LocalCluster


def test_levels_and_slow_requests_change_while_the_broker_runs(
    sparrow: Sparrow, cluster: LocalCluster
) -> None:
    assert sparrow("broker", "log-level", "broker-a").lines == [
        "broker-a: level WARNING; requests are logged as slow from 500 ms on"
    ]
    changed = sparrow(
        "broker", "log-level", cluster.broker_address, "WARNING,store=DEBUG", "--slow", "0", "--json"
    )
    assert changed.values == [{"level": "WARNING,store=DEBUG", "slow_request_ms": 0}]
    assert sparrow("broker", "log-level", "broker-a").lines[0].endswith("logged as slow never")
    refused = sparrow("broker", "log-level", "broker-a", "LOUD", status=1)
    assert "'LOUD' is not a level; write one of DEBUG, INFO, WARNING, ERROR" in refused.err
    assert "there is no broker 'nobody'" in sparrow("broker", "log-level", "nobody", status=1).err
    sparrow("broker", "log-level", "broker-a", "WARNING", "--slow", "500")
