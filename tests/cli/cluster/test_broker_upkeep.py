"""`sparrow broker config|clean|progress|read-only|writable|ping` against a running cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support import until_sync

if TYPE_CHECKING:
    from tests.cli.conftest import Sparrow

    from sparrowmq.testing import LocalCluster


def test_settings_are_shown_and_changed(sparrow: Sparrow, cluster: LocalCluster) -> None:
    (found,) = sparrow("broker", "config", "get", "broker-a", "--json").values
    assert found["brokerName"] == "broker-a"
    assert list(found) == sorted(found)
    assert any(
        line.split() == ["brokerName", "broker-a"]
        for line in sparrow("broker", "config", "get", "broker-a").lines
    )
    changed = sparrow(
        "broker", "config", "set", cluster.broker_address, "fileReservedTime=70", "--json"
    ).values
    assert changed == [{"fileReservedTime": "70"}]
    assert sparrow("broker", "config", "get", "broker-a", "--json").values[0]["fileReservedTime"] == "70"
    named = sparrow("broker", "config", "get", "broker-a", "fileReservedTime", "brokerId", "--json")
    assert named.values == [{"brokerId": "0", "fileReservedTime": "70"}]
    unknown = sparrow("broker", "config", "get", "broker-a", "brokerId", "colour", status=1).err
    assert "broker-a has no setting colour" in unknown
    sparrow("broker", "config", "set", "broker-a", "fileReservedTime=72")
    refused = sparrow("broker", "config", "set", "broker-a", "maxHashSlotNum=5", status=1).err
    assert "maxHashSlotNum: cannot change while the broker runs" in refused
    assert (
        "is not a setting; write NAME=VALUE"
        in sparrow("broker", "config", "set", "broker-a", "x", status=1).err
    )


def test_cleaning(sparrow: Sparrow) -> None:
    assert sparrow("broker", "clean", "broker-a").out == "broker-a: files, queues, topics cleaned\n"
    (done,) = sparrow("broker", "clean", "broker-a", "--queues", "--json").values
    assert done == {"broker": "broker-a", "cleaned": ["queues"]}
    assert "there is no broker 'nobody'" in sparrow("broker", "clean", "nobody", status=1).err


def test_progress_of_all_groups(sparrow: Sparrow) -> None:
    sparrow("topic", "create", "Lagging", "--queues", "1")
    for body in ("1", "2", "3"):
        sparrow("send", "Lagging", body)
    sparrow("consume", "Lagging", "--group", "slow", "--from", "first", "--count", "1")

    def rows(*more: str) -> list[dict[str, object]]:
        found = sparrow("broker", "progress", "broker-a", "--json", *more).values
        return [row for row in found if row["group"] == "slow" and row["topic"] == "Lagging"]

    (row,) = until_sync(rows)
    assert row["broker_offset"] == 3
    lag = row["lag"]
    assert isinstance(lag, int)
    assert lag == 3 - int(str(row["consumer_offset"])) > 0
    assert rows("--behind", str(lag)) == [row]
    assert rows("--behind", str(lag + 1)) == []
    assert "slow" in sparrow("broker", "progress", "broker-a").out


def test_a_broker_is_made_read_only_and_writable_again(sparrow: Sparrow) -> None:
    sparrow("topic", "create", "Written", "--queues", "1")

    def perm() -> int:
        found: int = sparrow("topic", "route", "Written", "--json").values[0]["perm"]
        return found

    assert " topics are read-only" in sparrow("broker", "read-only", "broker-a").out
    assert perm() == 4
    (done,) = sparrow("broker", "writable", "broker-a", "--json").values
    assert (done["broker"], done["writable"]) == ("broker-a", True)
    assert done["topics"] > 0
    assert perm() == 6
    assert "there is no broker 'nobody'" in sparrow("broker", "read-only", "nobody", status=1).err


def test_how_long_sends_take(sparrow: Sparrow) -> None:
    (found,) = sparrow("broker", "ping", "broker-a", "--count", "3", "--json").values
    assert (found["broker"], found["sent"]) == ("broker-a", 3)
    assert 0 < found["least_ms"] <= found["median_ms"] <= found["most_ms"]
    assert "median" in sparrow("broker", "ping", "broker-a", "--count", "1").out
    sparrow("broker", "ping", "nobody", status=1)
