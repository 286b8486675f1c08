from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sparrowmq.cli.brokers import rate

if TYPE_CHECKING:
    from tests.cli.conftest import Sparrow

    from sparrowmq.testing import LocalCluster


@pytest.mark.proves("broker:16.1")
def test_what_a_broker_tells(sparrow: Sparrow, cluster: LocalCluster) -> None:
    sparrow("send", "Told", "x")
    (found,) = sparrow("broker", "status", "broker-a", "--json").values
    assert found["brokerVersionDesc"] == "V5_3_1"
    assert int(found["msgPutTotalTodayNow"]) > 0
    (same,) = sparrow("broker", "status", cluster.broker_address, "--json").values
    assert set(same) == set(found)
    lines = [line.split() for line in sparrow("broker", "status", "broker-a").lines]
    assert ["brokerVersionDesc", "V5_3_1"] in lines
    assert any(line[:1] == ["stored"] and len(line) == 4 for line in lines)
    assert len(sparrow("broker", "status", "broker-a", "--all").lines) > len(lines)
    assert "there is no broker 'nobody'" in sparrow("broker", "status", "nobody", status=1).err


@pytest.mark.parametrize(
    ("text", "window", "wanted"),
    [
        ("1.25 2 3", 0, "1.2"),
        ("1 2.06 3", 1, "2.1"),
        ("", 0, "-"),
        ("1", 2, "-"),
        (" ", 0, "-"),
        ("x", 0, "-"),
    ],
)
def test_rates_of_any_broker(text: str, window: int, wanted: str) -> None:
    assert rate({"putTps": text}, "putTps", window) == wanted
    assert rate({}, "putTps") == "-"
