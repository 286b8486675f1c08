from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.support import until_sync

import sparrowmq as mq
from sparrowmq.cli.cluster.brokers import rate

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


def test_clients_of_a_broker_with_their_groups(sparrow: Sparrow, cluster: LocalCluster) -> None:
    with mq.Producer("listed", namesrv=cluster.namesrv) as producer:
        producer.send(mq.Message("TopicTest", b"x"))

        def listed() -> list[Any]:
            rows = sparrow("broker", "clients", "broker-a", "--json").values
            return [row for row in rows if "listed" in row["produces"]]

        (row,) = until_sync(listed)
        assert row["language"] == "PYTHON" and row["address"].startswith("127.0.0.1:")
        assert "produces for" in sparrow("broker", "clients", cluster.broker_address).lines[0]
        assert "broker-a is a master" in sparrow("broker", "replication", "broker-a").lines[0]
        (told,) = sparrow("broker", "replication", "broker-a", "--json").values
        assert told["is_master"] and told["slaves"] == [] and told["end"] > 0
