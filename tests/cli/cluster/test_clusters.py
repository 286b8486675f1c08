"""`sparrow cluster …` against a running cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cli.conftest import Sparrow

    from sparrowmq.testing import LocalCluster


def test_cluster_list(sparrow: Sparrow, cluster: LocalCluster) -> None:
    (row,) = sparrow("cluster", "list", "--json").values
    assert (row["cluster"], row["broker"], row["id"]) == ("DefaultCluster", "broker-a", 0)
    assert row["address"] == cluster.broker_address
    last = sparrow("cluster", "list").lines[-1].split()
    assert last[:4] == ["DefaultCluster", "broker-a", "0", cluster.broker_address]


def test_name_servers_are_listed_with_what_they_lack(sparrow: Sparrow, cluster: LocalCluster) -> None:
    (row,) = sparrow("cluster", "name-servers", "--json").values
    assert (row["address"], row["brokers"]) == (cluster.namesrv, 1)
    assert (row["lacks_topics"], row["lacks_brokers"]) == ([], [])
    assert sparrow("cluster", "name-servers").lines[-1].split()[0] == cluster.namesrv
