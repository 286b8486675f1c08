"""Invalid requests and badly behaved clients: each gets its error code, and other clients are served."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from tests.proxy.http2.rig import H2Peer
from tests.proxy.rig import ApiClient, connected, message, publishing, running, subscribing
from tests.support import run, until

from sparrowmq import aio
from sparrowmq.proxy.base.limits import BODY_BYTES_MAX, FILTER_CHARS_MAX
from sparrowmq.proxy.calls import abandoned
from sparrowmq.proxy.definition.fields import FIELDS_MAX
from sparrowmq.proxy.definition.messages import SERVICE, ClientType, Code, FilterType, MessageType, v2
from sparrowmq.proxy.http2 import frames
from sparrowmq.proxy.http2.grpc import prefixed
from sparrowmq.testing import LocalCluster
from sparrowmq.transport import account

MIB = 1024 * 1024


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(auto_create_subscription_group=False) as running_cluster:
        running_cluster.create_topic("normal")
        running_cluster.create_topic("received", queues=1)
        running_cluster.create_topic("large", queues=1)

        async def main() -> None:
            async with aio.Admin(namesrv=running_cluster.namesrv) as admin:
                for group in ("mine", "other", "slow"):
                    await admin.groups.create(group)

        run(main())
        yield running_cluster


def sent(**system: Any) -> Any:
    return message("normal", **system)


def later(seconds: int) -> Any:
    made = message("normal", message_type=MessageType.DELAY)
    made.system_properties.delivery_timestamp.GetCurrentTime()
    made.system_properties.delivery_timestamp.seconds += seconds
    return made


def with_property(name: str, value: str) -> Any:
    made = message("normal")
    made.user_properties[name] = value
    return made


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (message("missing"), Code.TOPIC_NOT_FOUND),
        (message("normal", b""), Code.MESSAGE_BODY_EMPTY),
        (message("normal", bytes(BODY_BYTES_MAX + 1)), Code.MESSAGE_BODY_TOO_LARGE),
        (sent(message_id=" "), Code.ILLEGAL_MESSAGE_ID),
        (sent(tag="a|b"), Code.ILLEGAL_MESSAGE_TAG),
        (sent(keys=["\n"]), Code.ILLEGAL_MESSAGE_KEY),
        (sent(message_group="g"), Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        (sent(message_group="g" * 64), Code.ILLEGAL_MESSAGE_GROUP),
        (later(3600), Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        (later(25 * 3600), Code.ILLEGAL_DELIVERY_TIME),
        (with_property("UNIQ_KEY", "x"), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (with_property("a", "\x00"), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (with_property("a", "x" * 17_000), Code.MESSAGE_PROPERTIES_TOO_LARGE),
    ],
)
def test_invalid_messages_are_refused(cluster: LocalCluster, wrong: Any, code: int) -> None:
    async def main() -> None:
        async with running(cluster.namesrv) as proxy, connected(proxy.address) as client:
            assert (await client.send(wrong)).status.code == code

    run(main())


def test_unknown_group_is_refused(cluster: LocalCluster) -> None:
    async def main() -> None:
        async with running(cluster.namesrv) as proxy, connected(proxy.address) as client:
            code, got = await client.receive("nobody", "normal")
            assert (code, got) == (Code.CONSUMER_GROUP_NOT_FOUND, [])

    run(main())


def test_a_filter_that_is_too_long_is_refused(cluster: LocalCluster) -> None:
    """Brokers would read thousands of tokens at most, and each receive would carry the whole text to them."""

    async def main() -> None:
        async with running(cluster.namesrv) as proxy, connected(proxy.address) as client:
            text = v2.FilterExpression(type=FilterType.SQL, expression="x" * (FILTER_CHARS_MAX + 1))
            code, got = await client.receive("mine", "normal", filter_expression=text)
            assert (code, got) == (Code.ILLEGAL_FILTER_EXPRESSION, [])

    run(main())


def test_only_the_request_beyond_the_limit_is_refused(cluster: LocalCluster) -> None:
    async def main() -> None:
        async with running(cluster.namesrv) as proxy, connected(proxy.address) as client:
            with pytest.raises(grpc.aio.AioRpcError, match="the limit is") as raised:
                await client.send(message("normal", bytes(7 * MIB)))
            assert raised.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert (await client.send(message("normal"))).status.code == Code.OK

    run(main())


def test_messages_with_wrong_clocks_are_stored(cluster: LocalCluster) -> None:
    """Messages born in the far past or future, or due long ago, are stored."""

    async def main() -> None:
        async with running(cluster.namesrv) as proxy, connected(proxy.address) as client:
            for seconds in (0, 4_000_000_000, -1):
                made = message("normal")
                made.system_properties.born_timestamp.seconds = seconds
                assert (await client.send(made)).status.code == Code.OK

    run(main())


async def acked(client: ApiClient, group: str, handle: str) -> int:
    request = v2.AckMessageRequest()
    request.topic.name, request.group.name = "received", group
    request.entries.add(receipt_handle=handle, message_id="m")
    answer = await client.call("AckMessage", request)
    found: int = answer.entries[0].status.code
    return found


def test_handle_of_another_group_cannot_change_its_messages(cluster: LocalCluster) -> None:
    async def main() -> None:
        async with running(cluster.namesrv) as proxy, connected(proxy.address) as client:
            wait = v2.ReceiveMessageRequest().long_polling_timeout
            wait.seconds = 1
            await client.receive("mine", "received", long_polling_timeout=wait)
            assert (await client.send(message("received", b"mine"))).status.code == Code.OK
            hidden = v2.ReceiveMessageRequest().invisible_duration
            hidden.seconds = 10
            _, (got,) = await client.receive("mine", "received", invisible_duration=hidden)
            handle = got.system_properties.receipt_handle
            await acked(client, "other", handle)
            request = v2.ChangeInvisibleDurationRequest(receipt_handle=handle)
            request.topic.name, request.group.name = "received", "mine"
            request.invisible_duration.seconds = 1
            assert (await client.call("ChangeInvisibleDuration", request)).status.code == Code.OK

            async def again() -> list[Any]:
                return (await client.receive("mine", "received", invisible_duration=hidden))[1]

            (second,) = await until(again)
            assert second.body == b"mine"
            assert await acked(client, "mine", second.system_properties.receipt_handle) == Code.OK

    run(main())


def test_client_without_telemetry_can_send_and_receive(cluster: LocalCluster) -> None:
    """Calls that need the client's settings are refused."""

    async def main() -> None:
        async with running(cluster.namesrv) as proxy, connected(proxy.address) as client:
            assert (await client.send(message("normal"))).status.code == Code.OK
            beat = v2.HeartbeatRequest(client_type=ClientType.PRODUCER)
            assert (await client.call("Heartbeat", beat)).status.code == Code.UNRECOGNIZED_CLIENT_TYPE
            gone = v2.NotifyClientTerminationRequest()
            answer = await client.call("NotifyClientTermination", gone)
            assert answer.status.code == Code.UNRECOGNIZED_CLIENT_TYPE

    run(main())


def test_flood_of_settings_ends_the_stream(cluster: LocalCluster) -> None:
    async def main() -> None:
        async with running(cluster.namesrv) as proxy, connected(proxy.address, "good") as good:
            peer = H2Peer(*await asyncio.open_connection("127.0.0.1", proxy.port))
            await peer.greet()
            command = v2.TelemetryCommand(settings=subscribing("mine", "normal")).SerializeToString()
            peer.write(peer.headers(1, f"/{SERVICE}/Telemetry", x_mq_client_id="flood"))
            peer.write(frames.frame(frames.DATA, 0, 1, prefixed(command)) * 5_000)
            _, told = await peer.response()
            assert told["grpc-status"] in ("8", "13")
            stream, answer = await good.introduce(publishing("normal"))
            assert answer.status.code == Code.OK
            stream.cancel()
            await peer.close()

    run(main())


def test_unread_messages_are_returned_to_the_broker(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Receives of a client that does not read are refused when memory is full; other clients get the
    messages."""
    monkeypatch.setattr(account, "STALL_SECONDS", 0.5)
    monkeypatch.setattr(account, "LOOK_SECONDS", 0.05)

    async def main() -> None:
        async with (
            running(cluster.namesrv, connection_memory_max=16 * MIB) as proxy,
            connected(proxy.address, "good") as good,
        ):
            wait = v2.ReceiveMessageRequest().long_polling_timeout
            wait.seconds = 1
            await good.receive("slow", "large", long_polling_timeout=wait)
            body = bytes(MIB)
            for number in range(40):
                assert (await good.send(message("large", body, number=number))).status.code == Code.OK
            peer = H2Peer(*await asyncio.open_connection("127.0.0.1", proxy.port))
            await peer.greet()
            request = v2.ReceiveMessageRequest(batch_size=1)
            request.group.name, request.message_queue.topic.name = "slow", "large"
            request.invisible_duration.seconds = 10
            for number in range(40):
                path = f"/{SERVICE}/ReceiveMessage"
                peer.write(
                    peer.call(2 * number + 1, path, request.SerializeToString(), x_mq_client_id="slow")
                )
            await asyncio.sleep(1)
            bodies: set[str] = set()

            async def all_of_them() -> bool:
                _, got = await good.receive("slow", "large", long_polling_timeout=wait)
                bodies.update(each.system_properties.message_id for each in got)
                return len(bodies) == 40

            await until(all_of_them)
            await peer.close()

    run(main())


def test_reset_receives_count_towards_the_limit(
    cluster: LocalCluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Brokers still hold them, so a client that starts and resets many is refused."""
    monkeypatch.setattr(abandoned, "ABANDONED_MAX", 4)

    async def main() -> None:
        async with running(cluster.namesrv) as proxy, connected(proxy.address, "good") as good:
            peer = H2Peer(*await asyncio.open_connection("127.0.0.1", proxy.port))
            await peer.greet()
            request = v2.ReceiveMessageRequest(batch_size=1)
            request.group.name, request.message_queue.topic.name = "mine", "normal"
            request.filter_expression.expression = "none"
            request.invisible_duration.seconds = 10
            request.long_polling_timeout.seconds = 6
            numbers = range(1, 13, 2)
            for number in numbers:
                path = f"/{SERVICE}/ReceiveMessage"
                peer.write(peer.call(number, path, request.SerializeToString(), x_mq_client_id="resets"))
            await asyncio.sleep(1)
            for number in numbers:
                peer.write(frames.reset_frame(number, frames.CANCEL))
            await asyncio.sleep(0.2)
            wait = v2.ReceiveMessageRequest().long_polling_timeout
            wait.seconds = 5
            code, _ = await good.receive("mine", "normal", long_polling_timeout=wait)
            assert code == Code.TOO_MANY_REQUESTS
            await peer.close()

    run(main())


def test_requests_with_too_many_fields_are_refused(cluster: LocalCluster) -> None:
    """The parser makes an object from as little as two bytes."""

    async def main() -> None:
        async with running(cluster.namesrv) as proxy, connected(proxy.address) as client:
            many = v2.SendMessageRequest(messages=[v2.Message()] * (FIELDS_MAX + 1))
            with pytest.raises(grpc.aio.AioRpcError, match="50000 fields") as raised:
                await client.call("SendMessage", many)
            assert raised.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert (await client.send(message("normal", bytes(MIB)))).status.code == Code.OK

    run(main())


def test_too_large_endpoints_are_refused(cluster: LocalCluster) -> None:
    """The answer would repeat them for each queue."""

    async def main() -> None:
        async with running(cluster.namesrv) as proxy, connected(proxy.address) as client:
            for request in (v2.QueryRouteRequest(), v2.QueryAssignmentRequest()):
                request.topic.name = "normal"
                for number in range(200):
                    request.endpoints.addresses.add(host=f"10.0.0.{number}")
                name = type(request).__name__.removesuffix("Request")
                if name == "QueryAssignment":
                    request.group.name = "mine"
                assert (await client.call(name, request)).status.code == Code.ILLEGAL_ACCESS_POINT
                del request.endpoints.addresses[20:]
                assert (await client.call(name, request)).status.code == Code.OK

    run(main())
