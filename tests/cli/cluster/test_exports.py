"""`sparrow cluster export` against a running cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cli.conftest import Sparrow

    from sparrowmq.testing import LocalCluster


def test_settings_topics_and_groups(sparrow: Sparrow, cluster: LocalCluster) -> None:
    sparrow("topic", "create", "Exported", "--queues", "3", "--attribute", "message.type=FIFO")
    sparrow("group", "create", "exported", "--retries", "4")
    rows = sparrow("cluster", "export", "--cluster", "DefaultCluster").values
    assert {row["broker"] for row in rows} == {"broker-a"}
    (broker,) = (row for row in rows if row["kind"] == "broker")
    assert (broker["cluster"], broker["address"]) == ("DefaultCluster", cluster.broker_address)
    assert broker["settings"]["brokerName"] == "broker-a"
    (topic,) = (row for row in rows if row.get("topicName") == "Exported")
    assert (topic["kind"], topic["readQueueNums"], topic["attributes"]) == (
        "topic",
        3,
        {"message.type": "FIFO"},
    )
    (group,) = (row for row in rows if row.get("groupName") == "exported")
    assert (group["kind"], group["retryMaxTimes"]) == ("group", 4)
    assert not any(row.get("topicName") == "TBW102" for row in rows)
    everything = sparrow("cluster", "export", "--all").values
    assert any(row.get("topicName") == "TBW102" for row in everything)
    assert "no broker in cluster 'x'" in sparrow("cluster", "export", "--cluster", "x", status=1).err
