"""Namespaces: names as users write them in the client, with a prefix on the wire."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import msgspec
import pytest
from tests.protocol.recorded import requests
from tests.support import run, until

from sparrowmq import aio
from sparrowmq.client.base.settings import ClientSettings, ConsumerSettings, ProducerSettings
from sparrowmq.client.cluster.namespaces import (
    _BODIES,
    _NAMES,
    Namespaced,
    NamespacedHandlers,
    namespace_in,
    unwrap_messages,
)
from sparrowmq.core.errors import InvalidNameError
from sparrowmq.core.message import Message, MessageQueue, ReceivedMessage
from sparrowmq.core.names import is_system_topic
from sparrowmq.protocol import call_headers, headers, managed
from sparrowmq.protocol.bodies import calls, clients, stats, tables
from sparrowmq.protocol.bodies.base import Body
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.headers import Header
from sparrowmq.protocol.java_json import dumps, loads
from sparrowmq.protocol.pop import headers as pop_headers
from sparrowmq.protocol.pop import records as pop_records
from sparrowmq.testing import LocalCluster

HOOK = Namespaced("ns1")


NO_NAMES = {"defaultTopic", "topicFilterType", "topicList", "filterGroups"}
"""Fields that clients fill with a system topic or another word, or do not send."""
BODIES = {
    34: {"_WireProducer", "_WireConsumer", "WireSubscription"},
    41: {"LockBatchRequestBody"},
    42: {"LockBatchRequestBody"},
    46: {"CheckClientBody", "WireSubscription"},
    200: {"SubscriptionGroupConfig"},
    400: {"AssignmentRequest"},
    401: {"RequestMode"},
    90201: {"GroupPolicy", "QueueGrant", "PauseRule"},
    90211: {"JoinBody", "MemberBody"},
    90212: {"ReportBody", "NumberedQueue"},
    90213: {"LeaveBody"},
}
"""Which body of a request has which structs with names."""
OTHER_BODIES = {"GroupForbidden", "GroupList", "RetentionHold", "TopicConfig", "TopicList", "_WireOffset"}
"""Those of answers."""


def _is_below(kind: object, base: type) -> bool:
    return isinstance(kind, type) and issubclass(kind, base) and kind is not base


def _texts_like_names(kind: type[msgspec.Struct]) -> set[str]:
    """The text fields of a struct that are called like topics or groups."""
    return {
        one.encode_name
        for one in msgspec.structs.fields(kind)
        if re.search("topic|group", one.encode_name, re.IGNORECASE)
        and one.type in (str, str | None, list[str])
    }


def wrapped(code: int, ext: dict[str, str] | None = None, body: bytes = b"") -> Command:
    command = Command(code, ext=ext or {}, body=body)
    HOOK.before_request("a:1", command)
    return command


class TestRequests:
    @pytest.mark.proves("client:B-121", "client:B-122")
    @pytest.mark.parametrize(
        ("code", "ext", "sent"),
        [
            (105, {"topic": "T"}, {"topic": "ns1%T"}),
            (105, {"topic": "TBW102"}, {"topic": "TBW102"}),
            (11, {"topic": "%RETRY%g", "consumerGroup": "g", "subscription": "T"},
             {"topic": "%RETRY%ns1%g", "consumerGroup": "ns1%g", "subscription": "T"}),
            (36, {"group": "g", "originTopic": "T"}, {"group": "ns1%g", "originTopic": "ns1%T"}),
            (35, {"producerGroup": "CLIENT_INNER_PRODUCER", "clientID": "c"},
             {"producerGroup": "CLIENT_INNER_PRODUCER", "clientID": "c"}),
            (325, {"a": "p", "b": "c_REPLY_TOPIC"}, {"a": "p", "b": "c_REPLY_TOPIC"}),
            (310, {"a": "p", "b": "T", "c": "TBW102", "i": "PGROUP\x01p\x02TAGS\x01a"},
             {"a": "ns1%p", "b": "ns1%T", "c": "TBW102",
              "i": "PGROUP\x01ns1%p\x02TAGS\x01a\x02INSTANCE_ID\x01ns1\x02"}),
            (10, {"topic": "T", "properties": ""},
             {"topic": "ns1%T", "properties": "INSTANCE_ID\x01ns1\x02"}),
            (10, {"topic": "T"}, {"topic": "ns1%T", "properties": "INSTANCE_ID\x01ns1\x02"}),
            (320, {"a": "p", "b": "T"}, {"a": "ns1%p", "b": "ns1%T", "i": "INSTANCE_ID\x01ns1\x02"}),
            (10, {"topic": "T", "properties": "PGROUP\x02x\x01PGROUP\x01y\x02"},
             {"topic": "ns1%T",
              "properties": "PGROUP\x01\x02x\x01PGROUP\x01y\x02INSTANCE_ID\x01ns1\x02"}),
        ],
    )  # fmt: skip
    def test_headers_are_prefixed(self, code: int, ext: dict[str, str], sent: dict[str, str]) -> None:
        assert wrapped(code, ext).ext == sent

    @pytest.mark.proves("client:B-121")
    @pytest.mark.parametrize(
        ("code", "body", "sent"),
        [
            (34,
             {"clientID": "c",
              "producerDataSet": [{"groupName": "p"}, {"groupName": "CLIENT_INNER_PRODUCER"}],
              "consumerDataSet": [
                  {"groupName": "g", "subscriptionDataSet": [{"topic": "T", "subString": "T"}]},
                  {"groupName": "h", "subscriptionDataSet": None}]},
             {"clientID": "c",
              "producerDataSet": [{"groupName": "ns1%p"}, {"groupName": "CLIENT_INNER_PRODUCER"}],
              "consumerDataSet": [
                  {"groupName": "ns1%g", "subscriptionDataSet": [{"topic": "ns1%T", "subString": "T"}]},
                  {"groupName": "ns1%h", "subscriptionDataSet": None}]}),
            (34, {"clientID": "c"}, {"clientID": "c"}),
            (41, {"consumerGroup": "g", "mqSet": [{"topic": "T"}, {"topic": "%RETRY%g"}]},
             {"consumerGroup": "ns1%g", "mqSet": [{"topic": "ns1%T"}, {"topic": "%RETRY%ns1%g"}]}),
            (42, {"consumerGroup": "g"}, {"consumerGroup": "ns1%g"}),
            (46, {"clientId": "c", "group": "g", "subscriptionData": {"topic": "T", "subString": "a > 1"}},
             {"clientId": "c", "group": "ns1%g",
              "subscriptionData": {"topic": "ns1%T", "subString": "a > 1"}}),
            (200, {"groupName": "g", "retryMaxTimes": 3}, {"groupName": "ns1%g", "retryMaxTimes": 3}),
            (35, {"groupName": "g"}, {"groupName": "g"}),
            (401, {"consumerGroup": "g", "topic": "T", "mode": "POP"},
             {"consumerGroup": "ns1%g", "topic": "ns1%T", "mode": "POP"}),
            (90201,
             {"group": "g", "members": ["c"], "queues": [{"topic": "T", "owner": "c"}],
              "pauses": [{"topic": ""}, {"topic": "T"}]},
             {"group": "ns1%g", "members": ["c"], "queues": [{"topic": "ns1%T", "owner": "c"}],
              "pauses": [{"topic": ""}, {"topic": "ns1%T"}]}),
            (90212, {"group": "g", "topics": ["T", "%RETRY%g"], "released": [{"topic": "T"}]},
             {"group": "ns1%g", "topics": ["ns1%T", "%RETRY%ns1%g"], "released": [{"topic": "ns1%T"}]}),
            (90213, {"group": "g", "member": "T"}, {"group": "ns1%g", "member": "T"}),
        ],
    )  # fmt: skip
    def test_bodies_are_prefixed(self, code: int, body: Any, sent: Any) -> None:
        assert loads(wrapped(code, body=dumps(body)).body) == sent

    def test_no_name_of_a_header_is_forgotten(self) -> None:
        modules = headers, call_headers, pop_headers, managed
        kinds = {kind for module in modules for kind in vars(module).values() if _is_below(kind, Header)}
        assert len(kinds) > 70
        assert set.union(*map(_texts_like_names, kinds)) - NO_NAMES <= _NAMES

    def test_no_name_of_a_body_is_forgotten(self) -> None:
        modules = calls, clients, stats, tables, managed, pop_records
        kinds = {kind for module in modules for kind in vars(module).values() if _is_below(kind, Body)}
        named = {kind.__name__ for kind in kinds if _texts_like_names(kind)}
        assert named == set().union(*BODIES.values()) | OTHER_BODIES, "say which request has the new body"
        assert BODIES.keys() == _BODIES
        asked = [kind for kind in kinds if kind.__name__ not in OTHER_BODIES]
        assert set.union(*map(_texts_like_names, asked)) <= _NAMES

    def test_recorded_heartbeats_are_prefixed(self) -> None:
        seen = 0
        for _, command in requests(34):
            body = loads(wrapped(34, body=command.body).body)
            for producer in body.get("producerDataSet", ()):
                assert producer["groupName"] in ("CLIENT_INNER_PRODUCER",) or producer[
                    "groupName"
                ].startswith("ns1%")
            for consumer in body.get("consumerDataSet", ()):
                assert consumer["groupName"].startswith(("ns1%", "CID_RMQ_SYS_"))
                for data in consumer.get("subscriptionDataSet", ()):
                    seen += 1
                    assert data["topic"].startswith(("ns1%", "%RETRY%ns1%")) or is_system_topic(data["topic"])
        assert seen

    def test_recorded_locks_are_prefixed(self) -> None:
        for _, command in requests(41, 42):
            body = loads(wrapped(command.code, body=command.body).body)
            assert body["consumerGroup"].startswith("ns1%")
            assert all("ns1%" in queue["topic"] for queue in body["mqSet"])

    def test_nothing_is_prefixed_twice(self) -> None:
        command = wrapped(11, {"topic": "T", "consumerGroup": "g"})
        before = dict(command.ext)
        HOOK.before_request("a:1", command)
        assert command.ext == before

    def test_queues_in_answers_have_no_prefix(self) -> None:
        body = b'{"lockOKMQSet":[{"topic":"ns1%T"},{"topic":"%RETRY%ns1%g"},{"topic":"ns2%T"}]}'
        answer = Command(0, body=body)
        HOOK.after_response("a:1", Command(41), answer)
        assert answer.body == b'{"lockOKMQSet":[{"topic":"T"},{"topic":"%RETRY%g"},{"topic":"ns2%T"}]}'
        other = Command(0, body=body)
        HOOK.after_response("a:1", Command(105), other)
        assert other.body == body, "routes have no queues to rename"

    def test_policies_in_answers_have_no_prefix(self) -> None:
        policy = {"group": "ns1%g", "queues": [{"topic": "ns1%T"}], "pauses": [{"topic": ""}]}
        answer = Command(0, body=dumps({"policies": [policy], "retired": {"ns1%h": 7}}))
        HOOK.after_response("a:1", Command(90203), answer)
        policy = {"group": "g", "queues": [{"topic": "T"}], "pauses": [{"topic": ""}]}
        assert loads(answer.body) == {"policies": [policy], "retired": {"h": 7}}


class TestWhatBrokersAsk:
    @pytest.mark.proves("client:B-123")
    def test_names_lose_their_prefix(self) -> None:
        seen: list[tuple[str, Command]] = []
        handlers = NamespacedHandlers({40: lambda *told: seen.append(told)}, "ns1")
        handlers[40]("a:1", Command(40, ext={"consumerGroup": "ns1%g", "clientID": "ns1%c"}))
        handlers[40]("b:2", Command(40, ext={"consumerGroup": "other%g"}))
        assert [address for address, _ in seen] == ["a:1", "b:2"]
        assert [request.ext["consumerGroup"] for _, request in seen] == ["g", "other%g"]
        assert seen[0][1].ext["clientID"] == "ns1%c", "it is no name of a topic or group"
        assert (len(handlers), list(handlers), handlers.get(41)) == (1, [40], None)

    @pytest.mark.parametrize("later", [False, True])
    def test_queues_are_converted_in_both_directions(self, later: bool) -> None:
        asked: list[bytes] = []

        def serve(_: str, request: Command) -> Any:
            asked.append(request.body)
            answer = Command(0, body=b'{"t":{{"topic":"T"}:1}}')

            async def soon() -> Command:
                return answer

            return soon() if later else answer

        async def main() -> bytes:
            result = NamespacedHandlers({221: serve}, "ns1")[221](
                "a:1", Command(221, body=b'{"t":{{"topic":"ns1%T"}:5}}')
            )
            answer = await result if asyncio.iscoroutine(result) else result
            assert isinstance(answer, Command)
            return answer.body

        assert run(main()) == b'{"t":{{"topic":"ns1%T"}:1}}'
        assert asked == [b'{"t":{{"topic":"T"}:5}}']

    def test_other_bodies_and_missing_answers_are_not_changed(self) -> None:
        body = b'{"topic":"ns1%T"}'
        answer, asked = Command(0, body=b'{"topic":"T"}'), Command(40, body=body)
        handlers = NamespacedHandlers({40: lambda *_: answer, 220: lambda *_: None, 221: _nothing}, "ns1")
        assert handlers[40]("a:1", asked) is answer
        assert (asked.body, answer.body) == (body, b'{"topic":"T"}')
        assert handlers[220]("a:1", Command(220)) is None
        later = handlers[221]("a:1", Command(221))
        assert asyncio.iscoroutine(later)
        assert run(later) is None

    @pytest.mark.proves("client:B-124")
    def test_messages_show_the_topic_as_users_write_it(self) -> None:
        messages = [received("ns1%T"), received("%RETRY%ns1%g"), received("ns2%T")]
        unwrap_messages(None, messages)
        assert [message.topic for message in messages] == ["ns1%T", "%RETRY%ns1%g", "ns2%T"]
        unwrap_messages("ns1", messages)
        assert [message.topic for message in messages] == ["T", "%RETRY%g", "ns2%T"]
        assert [message.queue.topic for message in messages] == ["T", "%RETRY%g", "ns2%T"]


async def _nothing(address: str, request: Command) -> None:
    """No answer."""


def received(topic: str) -> ReceivedMessage:
    queue = MessageQueue(topic, "b", 0)
    return ReceivedMessage(queue, 0, 0, topic, b"", {}, 0, 0, 0, "", 0, "", 0, 0, 0, "")


class TestSettings:
    @pytest.mark.proves("client:B-125")
    def test_instance_endpoint_sets_the_namespace(self) -> None:
        assert namespace_in(ClientSettings(namesrv="http://MQ_INST_12_abc.cn.example:80")) == "MQ_INST_12_abc"
        assert namespace_in(ClientSettings(namesrv="MQ_INST_12_abc.cn.example:80", namespace="own")) == "own"
        assert namespace_in(ClientSettings(namesrv="127.0.0.1:9876")) is None
        assert namespace_in(ClientSettings()) is None

    @pytest.mark.parametrize("name", ["a%b", "a b", " "])
    def test_illegal_namespaces_are_refused(self, name: str) -> None:
        with pytest.raises(InvalidNameError):
            ClientSettings(namespace=name)


@pytest.mark.proves("client:B-12", "client:B-121", "client:B-124")
def test_two_namespaces_on_one_broker_are_separate() -> None:
    async def main(cluster: LocalCluster) -> None:
        got: dict[str, list[tuple[str, bytes]]] = {"red": [], "blue": []}

        async def consume(space: str) -> None:
            settings = ConsumerSettings(
                namesrv=cluster.namesrv, namespace=space, consume_from="first", rebalance_interval=0.2
            )

            def handle(message: Any) -> None:
                got[space].append((message.topic, message.body))

            async with aio.PushConsumer("billing", settings=settings) as consumer:
                consumer.subscribe("Orders", handler=handle)
                await until(lambda: len(got[space]) == 3)
                assert {queue.topic for queue in consumer.assignment} <= {"Orders", "%RETRY%billing"}

        for space in got:
            settings = ProducerSettings(namesrv=cluster.namesrv, namespace=space)
            async with aio.Producer("shop", settings=settings) as producer:
                for n in range(3):
                    result = await producer.send(Message("Orders", f"{space}{n}".encode()))
                    assert result.queue.topic == "Orders"
                assert {queue.topic for queue in await producer.queues("Orders")} == {"Orders"}
        await asyncio.gather(*(consume(space) for space in got))
        for space, messages in got.items():
            assert sorted(messages) == [("Orders", f"{space}{n}".encode()) for n in range(3)]
        async with aio.Admin(namesrv=cluster.namesrv) as admin:
            topics = await admin.topics.list(system=True)
            assert {"red%Orders", "blue%Orders", "%RETRY%red%billing"} <= set(topics)
            assert "Orders" not in topics
        reader = ClientSettings(namesrv=cluster.namesrv, namespace="red")
        async with aio.PullConsumer("audit", settings=reader) as consumer:
            found = []
            for queue in await consumer.queues("Orders"):
                pulled = await consumer.pull(queue, 0)
                found += [(message.topic, message.properties["INSTANCE_ID"]) for message in pulled.messages]
                await consumer.commit(queue, pulled.next_offset)
                assert await consumer.committed(queue) == pulled.next_offset
            assert found == [("Orders", "red")] * 3

    with LocalCluster() as cluster:
        run(main(cluster))


def test_what_tools_find_has_names_as_users_write_them() -> None:
    async def main(cluster: LocalCluster) -> None:
        settings = ProducerSettings(namesrv=cluster.namesrv, namespace="red")
        async with (
            aio.Admin(namesrv=cluster.namesrv, namespace="red") as admin,
            aio.Producer("shop", settings=settings) as producer,
        ):
            route = await admin.topics.create("Orders", queues=1)
            await admin.groups.create("billing")
            queue = route.subscribe_queues("Orders")[0]
            sent = await producer.send(Message("Orders", b"x", keys=["k"]))
            calls = admin.messages
            for found in (
                await until(lambda: calls.query("Orders", "k")),
                [await calls.get("Orders", sent.message_id)],
                [await calls.get("Orders", sent.offset_message_id)],
                [await calls.get_by_offset_id(sent.offset_message_id)],
            ):
                assert [(one.body, one.topic, one.queue) for one in found if one] == [(b"x", "Orders", queue)]
            await admin.groups.commit("billing", queue, 1)
            assert await admin.groups.reset("billing", "Orders", "first") == {queue: 0}
            assert await admin.dead_letters.list("billing") == []

    with LocalCluster() as cluster:
        run(main(cluster))


def test_popped_messages_and_their_dead_letters_have_names_as_users_write_them() -> None:
    async def main(cluster: LocalCluster) -> None:
        settings = ClientSettings(namesrv=cluster.namesrv, namespace="red")
        async with (
            aio.Admin(settings=settings) as admin,
            aio.Producer("shop", namesrv=cluster.namesrv, namespace="red") as producer,
            aio.SimpleConsumer("billing", settings=settings) as consumer,
        ):
            await admin.topics.create("Orders", queues=1)
            await producer.send(Message("Orders", b"x"))
            consumer.subscribe("Orders")
            (message,) = await consumer.receive(1)
            assert (message.topic, message.queue.topic) == ("Orders", "Orders")
            await consumer.dead_letter(message)
            (letter,) = await admin.dead_letters.list("billing")
            assert (letter.topic, letter.queue.topic) == ("%DLQ%billing", "%DLQ%billing")
            letter.properties["RETRY_TOPIC"] = "%RETRY%red%billing_red%Orders"  # it failed more than once
            await admin.dead_letters.resend_one("billing", letter)
            (again,) = await consumer.receive(1)
            assert (again.body, again.topic) == (b"x", "Orders")

    with LocalCluster() as cluster:
        run(main(cluster))
