from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.support import until_sync

if TYPE_CHECKING:
    from tests.cli.conftest import Sparrow

    from sparrowmq.testing import LocalCluster

HELD = 0.1
"""Seconds the servers' loop is held: twice what is noted, and far below what fails a test."""


async def hold() -> None:
    block()


def block() -> None:
    time.sleep(HELD)


def test_the_stalls_of_broker_and_name_server(sparrow: Sparrow, cluster: LocalCluster) -> None:
    def of_hold(*arguments: str) -> list[dict[str, object]]:
        return [
            one for one in sparrow("broker", "stalls", *arguments, "--json").values if one["what"] == "hold"
        ]

    time.sleep(0.05)  # so that a beat is there when the loop is held
    cluster.call(hold())
    (found, *_) = until_sync(lambda: of_hold("broker-a"))
    assert found["own_ms"] >= 50 and found["where"][0].endswith(" block")
    assert of_hold("broker-a", "--longest")
    # Both servers share the loop, so a stall of one is the other's, too.
    assert found in of_hold(cluster.namesrv)
    lines = sparrow("broker", "stalls", cluster.broker_address).lines
    assert "since the start" in lines[0]
    assert any("hold" in line and "test_stalls.py" in line for line in lines)
    assert "there is no broker 'nobody'" in sparrow("broker", "stalls", "nobody", status=1).err
