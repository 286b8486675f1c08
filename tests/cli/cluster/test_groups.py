from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from tests.support import about, until_sync

import sparrowmq as mq
from sparrowmq.cli.base.common import UsageError
from sparrowmq.cli.cluster.groups import asked_text, moment, unlike
from sparrowmq.client.admin.groups import GroupAdmin
from sparrowmq.core.subscription import SubscriptionData
from sparrowmq.protocol.bodies import ConsumerRunningInfo

if TYPE_CHECKING:
    from tests.cli.conftest import Sparrow

    from sparrowmq.testing import LocalCluster


def offsets(rows: list[Any]) -> dict[int, int]:
    return {row["queue"]: row["offset"] for row in rows}


def read(sparrow: Sparrow, topic: str, group: str, count: int) -> None:
    sparrow("topic", "create", topic, "--queues", "1")
    for number in range(count):
        sparrow("send", topic, f"m{number}")
    sparrow("consume", topic, "--group", group, "--from", "first", "--count", str(count))


def test_groups_are_made_and_deleted(sparrow: Sparrow) -> None:
    sparrow("group", "create", "made", "--retries", "3")
    assert "made" in sparrow("group", "list").lines
    sparrow("group", "delete", "made")
    assert "made" not in sparrow("group", "list").lines
    unknown = sparrow("group", "delete", "made", status=1).err
    assert "no broker knows group 'made'; see the names with `sparrow group list`" in unknown
    assert "RocketMQ's own" in sparrow("group", "delete", "CID_RMQ_SYS_TRANS", status=1).err


def test_what_is_not_given_stays_as_it_is(sparrow: Sparrow) -> None:
    sparrow("group", "create", "kept", "--disabled", "--ordered")
    changed = sparrow("group", "create", "kept", "--retries", "2").out
    assert changed == "kept: retry_max_times 16 to 2 on broker-a\n"
    (row,) = sparrow("group", "config", "kept", "--json").values
    assert (row["consumeEnable"], row["consumeMessageOrderly"], row["retryMaxTimes"]) == (False, True, 2)
    assert "nothing changed" in sparrow("group", "create", "kept").out
    assert "consume_enable False to True" in sparrow("group", "create", "kept", "--enabled").out


def test_a_group_goes_back_and_to_the_end(sparrow: Sparrow) -> None:
    read(sparrow, "Reset", "resetters", 5)
    reset = ("group", "reset", "resetters", "--topic", "Reset")
    assert offsets(sparrow(*reset, "--to", "first", "--json").values) == {0: 0}
    again = sparrow("consume", "Reset", "--group", "resetters", "--from", "last", "--count", "5")
    assert [line for line in again.lines if line] != []
    assert offsets(sparrow(*reset, "--to", "0", "--json").values) == {0: 0}
    (line,) = sparrow(*reset, "--to", "last").lines[-1:]
    assert line.split() == ["Reset", "broker-a", "0", "5"]
    assert offsets(sparrow(*reset, "--to", "first", "--dry-run", "--json").values) == {0: 0}
    (place,) = sparrow("group", "progress", "resetters", "--topic", "Reset", "--json").values
    assert place["consumer_offset"] == 5, "it only looked"
    back = sparrow(*reset, "--to", "first", "--json")
    assert offsets(back.values) == {0: 0}
    assert "no queue of Reset was moved" in sparrow(*reset, "--to", "last", "--only-back").out
    (place,) = sparrow("group", "progress", "resetters", "--topic", "Reset", "--json").values
    assert place["consumer_offset"] == 0, "it would have gone forward"
    assert (
        "Group nobody does not exist" in sparrow("group", "reset", "nobody", "--topic", "Reset", status=1).err
    )
    assert "not a valid target" in sparrow(*reset, "--to", "tomorrow", status=1).err


def test_one_group_gets_the_offsets_of_another(sparrow: Sparrow) -> None:
    read(sparrow, "Cloned", "source", 3)
    assert offsets(sparrow("group", "clone", "source", "target", "--json").values) == {0: 3}
    (row,) = sparrow("group", "progress", "target", "--topic", "Cloned", "--json").values
    assert row["consumer_offset"] == 3
    assert "has no offsets" in sparrow("group", "clone", "nobody", "target", status=1).err
    unknown = sparrow("group", "progress", "nobody", status=1).err
    assert "no broker knows group 'nobody'; see the names with `sparrow group list`" in unknown


def test_members_and_what_they_tell(sparrow: Sparrow, cluster: LocalCluster) -> None:
    assert "is online" in sparrow("group", "connections", "online", status=1).err
    assert "is online" in sparrow("group", "status", "online", status=1).err
    sparrow("topic", "create", "Online", "--queues", "1")
    with mq.PushConsumer("online", namesrv=cluster.namesrv) as consumer:
        consumer.subscribe("Online", "a || b", handler=lambda message: None)
        until_sync(lambda: any(queue.topic == "Online" for queue in consumer.assignment))
        (found,) = sparrow("group", "connections", "online", "--json").values
        assert [one["client"] for one in found["members"]] == [consumer.client_id]
        assert found["subscriptions"]["Online"] == "a || b"
        assert (found["type"], found["model"]) == ("CONSUME_PASSIVELY", "CLUSTERING")
        assert any(consumer.client_id in line for line in sparrow("group", "connections", "online").lines)
        read(sparrow, "Elsewhere", "still", 1)
        assert "stop them before" in sparrow("group", "clone", "still", "online", status=1).err
        (told,) = sparrow("group", "status", "online", "--json").values
        assert told["client"] == consumer.client_id
        assert any(consumer.client_id in line for line in sparrow("group", "status", "online").lines)


def test_status_names_members_that_skipped_messages(
    sparrow: Sparrow, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def found(groups: GroupAdmin, group: str, *, stacks: bool) -> list[mq.MemberStatus]:
        told = ConsumerRunningInfo(properties={"skippedMessages": "2"})
        return [mq.MemberStatus("one", told), mq.MemberStatus("java", ConsumerRunningInfo())]

    monkeypatch.setattr(GroupAdmin, "status", found)
    assert [one["skipped"] for one in sparrow("group", "status", "g", "--json").values] == [2, 0]
    *_, last = sparrow("group", "status", "g").lines
    assert last == "one: skipped 2 messages that no broker could store; see its log"


def test_members_that_subscribe_differently_are_shown() -> None:
    def member(client: str, expression: str, model: str = "CLUSTERING") -> dict[str, Any]:
        wanted = (SubscriptionData("T", expression), SubscriptionData("%RETRY%g", "*"))
        info = ConsumerRunningInfo(properties={"messageModel": model}, subscriptions=wanted)
        return {"client": client, "subscribes": asked_text(mq.MemberStatus(client, info))}

    alike = [member("a", "x"), member("b", "x"), member("c", "y", "BROADCASTING")]
    assert unlike(alike) == []
    assert unlike([*alike, member("d", "*")]) == [
        "members subscribe differently, so messages are lost or stay unread:",
        "  d: T *",
        "  a, b: T x",
    ]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("first", "first"),
        ("last", "last"),
        ("0", datetime.fromtimestamp(0, UTC)),
        ("2024-05-01T12:30", datetime(2024, 5, 1, 12, 30, tzinfo=UTC)),
    ],
)
def test_places_to_go_to(text: str, place: object) -> None:
    assert moment(text) == place


@pytest.mark.parametrize("text", ["soon", "", "-1", "2024-13-01", "9" * 30, "²"])
def test_a_place_that_is_none(text: str) -> None:
    with pytest.raises(UsageError, check=about(value=text)):
        moment(text)


def test_groups_and_their_progress(sparrow: Sparrow) -> None:
    sparrow("topic", "create", "Progress", "--queues", "1")
    for body in ("a", "b", "c"):
        sparrow("send", "Progress", body)
    sparrow("consume", "Progress", "--group", "readers", "--from", "first", "--count", "2")
    assert "readers" in sparrow("group", "list").lines
    assert "readers" in sparrow("group", "list", "--json").values
    assert not [name for name in sparrow("group", "list").lines if name.startswith("CID_RMQ_SYS_")]
    assert len(sparrow("group", "list", "--all").lines) >= len(sparrow("group", "list").lines)
    (row,) = sparrow("group", "progress", "readers", "--topic", "Progress", "--json").values
    assert row.pop("in_flight") in (0, 1), "pulls are counted now and then"
    assert row == {
        "topic": "Progress",
        "broker": "broker-a",
        "queue": 0,
        "broker_offset": 3,
        "consumer_offset": 2,
        "lag": 1,
    }
    lines = sparrow("group", "progress", "readers", "--topic", "Progress").lines
    assert lines[-2].split()[:-1] == ["Progress", "broker-a", "0", "3", "2", "1"]
    assert lines[-1] == "1 message waits"


def test_progress_of_a_group_nobody_knows(sparrow: Sparrow) -> None:
    assert "no broker knows group 'nobody'" in sparrow("group", "progress", "nobody", status=1).err


def test_settings_of_a_group(sparrow: Sparrow) -> None:
    sparrow("group", "create", "configured", "--retries", "4")
    (row,) = sparrow("group", "config", "configured", "--json").values
    assert (row["broker"], row["groupName"], row["retryMaxTimes"]) == ("broker-a", "configured", 4)
    assert ["retryMaxTimes", "4"] in [line.split() for line in sparrow("group", "config", "configured").lines]
    assert "no broker knows group 'nobody'" in sparrow("group", "config", "nobody", status=1).err
