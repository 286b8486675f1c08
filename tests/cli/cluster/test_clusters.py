"""`sparrow cluster …` against a running cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sparrowmq import aio
from sparrowmq.client.admin.brokers import BrokerAdmin

if TYPE_CHECKING:
    from tests.cli.conftest import Sparrow

    from sparrowmq.testing import LocalCluster


def test_cluster_list(sparrow: Sparrow, cluster: LocalCluster) -> None:
    (row,) = sparrow("cluster", "list", "--json").values
    assert (row["cluster"], row["broker"], row["id"]) == ("DefaultCluster", "broker-a", 0)
    assert row["address"] == cluster.broker_address
    last = sparrow("cluster", "list").lines[-1].split()
    assert last[:4] == ["DefaultCluster", "broker-a", "0", cluster.broker_address]


def test_two_brokers_with_one_name_are_reported(sparrow: Sparrow, monkeypatch: pytest.MonkeyPatch) -> None:
    async def found(brokers: BrokerAdmin) -> list[aio.BrokerStatus]:
        return [
            aio.BrokerStatus("c", "broker-a", 0, "h:1", rival="h:2"),
            aio.BrokerStatus("c", "b", 0, "h:3"),
        ]

    monkeypatch.setattr(BrokerAdmin, "list", found)
    assert [row["rival"] for row in sparrow("cluster", "list", "--json").values] == ["h:2", ""]
    *_, last = sparrow("cluster", "list").lines
    assert last.startswith("two brokers claim the name broker-a and the id 0: h:1 and h:2")


def test_name_servers_are_listed_with_what_they_lack(sparrow: Sparrow, cluster: LocalCluster) -> None:
    (row,) = sparrow("cluster", "name-servers", "--json").values
    assert (row["address"], row["brokers"]) == (cluster.namesrv, 1)
    assert (row["lacks_topics"], row["lacks_brokers"]) == ([], [])
    assert sparrow("cluster", "name-servers").lines[-1].split()[0] == cluster.namesrv
