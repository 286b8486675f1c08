"""The permissions that requests need under 5.x access control: by header, by body, by the position of a
message.
"""

from __future__ import annotations

import pytest
from tests.protocol.recorded import requests

from sparrowmq.broker.access.auth_needs import Need, needs, topic_need
from sparrowmq.core.errors import ProtocolError
from sparrowmq.core.subscription import SubscriptionData
from sparrowmq.protocol.bodies import ConsumerData, HeartbeatData
from sparrowmq.protocol.frame import Command


def need(resource: str, *actions: str) -> Need:
    kind, _, name = resource.partition(":")
    return Need(kind, name, frozenset(actions or ["Pub"]))


@pytest.mark.proves("remoting:7.3")
@pytest.mark.parametrize(
    ("code", "ext", "needed"),
    [
        (310, {"b": "T"}, [need("Topic:T")]),
        (10, {"topic": "%RETRY%g"}, [need("Group:g", "Sub")]),
        (11, {"topic": "T", "consumerGroup": "g"}, [need("Topic:T", "Sub"), need("Group:g", "Sub")]),
        (11, {"topic": "%RETRY%g", "consumerGroup": "g"}, [need("Group:g", "Sub")]),
        (
            11,
            {"topic": "%RETRY%h", "consumerGroup": "g"},
            [need("Group:h", "Sub"), need("Group:g", "Sub")],
        ),
        (11, {"topic": "rmq_sys_wheel_timer"}, [need("Cluster:c", "Update")]),
        (361, {"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, [need("Cluster:c", "Update")]),
        (12, {"topic": "SCHEDULE_TOPIC_XXXX"}, [need("Cluster:c", "Update")]),
        (15, {"topic": "SCHEDULE_TOPIC_XXXX"}, [need("Cluster:c", "Update")]),
        (30, {"topic": "SCHEDULE_TOPIC_XXXX"}, [need("Cluster:c", "Get")]),
        (
            11,
            {"topic": "T", "consumerGroup": "%RETRY%"},
            [need("Topic:T", "Sub"), need("Group:%RETRY%", "Sub")],
        ),
        (14, {"topic": "SCHEDULE_TOPIC_XXXX"}, [need("Cluster:c", "Get")]),
        (310, {"b": "rmq_sys_wheel_timer"}, [need("Cluster:c", "Update")]),
        (361, {"topic": "T", "consumerGroup": "g"}, [need("Topic:T", "Sub"), need("Group:g", "Sub")]),
        (14, {"topic": "T"}, [need("Topic:T", "Sub", "Get")]),
        (15, {"consumerGroup": "g"}, [need("Group:g", "Sub", "Update")]),
        (36, {"group": "g"}, [need("Group:g", "Sub")]),
        (12, {"topic": "T"}, [need("Topic:T", "Sub", "Get")]),
        (37, {"topic": "T"}, []),
        (37, {"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, []),
        (37, {}, []),
        (35, {"producerGroup": "p"}, []),
        (46, {}, []),
        (325, {"b": "c_REPLY_TOPIC"}, [need("Topic:c_REPLY_TOPIC")]),
        (324, {"topic": "T"}, [need("Topic:T")]),
        (17, {"topic": "T"}, [need("Topic:T", "Create")]),
        (207, {"groupName": "g"}, [need("Group:g", "Delete")]),
        (300, {"topic": "%RETRY%g"}, [need("Group:g", "Get")]),
        (28, {}, [need("Cluster:c", "Get")]),
        (25, {}, [need("Cluster:c", "Update")]),
        (33, {}, [need("Cluster:c", "Get")]),
        (3001, {}, [need("Cluster:c", "Update")]),
        (3005, {}, [need("Cluster:c", "Get")]),
        (99999, {"topic": "T"}, [need("Cluster:c", "Update")]),
    ],
)
def test_header_decides_the_permission(code: int, ext: dict[str, str], needed: list[Need]) -> None:
    assert needs(Command(code, ext=ext), "c") == needed


@pytest.mark.proves("remoting:7.3")
def test_recorded_bodies_need_the_right_permissions() -> None:
    heartbeats = [needs(command, "c") for _, command in requests(34)]
    assert any(heartbeats)
    for found in heartbeats:
        assert all("%RETRY%" not in each.name and each.actions == {"Sub"} for each in found)
    for _, command in requests(41, 42):
        found = needs(command, "c")
        assert found[0].kind == "Group"
        assert {each.kind for each in found[1:]} <= {"Topic"}
    for _, command in requests(200):
        assert [each.actions for each in needs(command, "c")] == [{"Create"}]


def test_retry_topics_of_other_groups_need_permission() -> None:
    """A group's own retry topic needs no further permission; that of another group does."""
    topics = (SubscriptionData("%RETRY%g"), SubscriptionData("%RETRY%h"))
    body = HeartbeatData(client_id="c", consumers=(ConsumerData("g", subscriptions=topics),)).encode()
    assert needs(Command(34, body=body), "c") == [need("Group:g", "Sub"), need("Group:h", "Sub")]


@pytest.mark.parametrize(
    ("code", "topic", "needed"),
    [
        (33, "T", need("Topic:T", "Sub", "Get")),
        (36, "T", need("Topic:T", "Sub", "Get")),
        (37, "T", need("Topic:T", "Pub")),
        (323, "T", need("Topic:T", "Update")),
        (36, "%RETRY%g", need("Group:g", "Sub", "Get")),
        (33, "RMQ_SYS_TRANS_HALF_TOPIC", need("Cluster:c", "Update")),
    ],
)
def test_stored_message_decides_the_permission(code: int, topic: str, needed: Need) -> None:
    assert topic_need(code, topic, "c") == needed


def test_unreadable_bodies_are_refused() -> None:
    for code in (34, 41, 42, 200):
        with pytest.raises(ProtocolError):
            needs(Command(code, body=b"garbage"), "c")
