"""The relay that records exchanges passes them on as they are, and keeps both sides."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from tests.interop.client5.relay import Exchange, Relay, readdressed
from tests.proxy.rig import METHODS, ThreadedProxy, connected, message, publishing
from tests.support import run

from sparrowmq.proxy.definition.messages import Code
from sparrowmq.testing import LocalCluster

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def proxy() -> Iterator[ThreadedProxy]:
    with LocalCluster() as cluster:
        cluster.create_topic("relayed", 1)
        with ThreadedProxy(cluster.namesrv) as running:
            yield running


def only(exchanges: list[Exchange], method: str) -> Exchange:
    (found,) = (one for one in exchanges if one.method == method)
    return found


def test_calls_of_every_kind_pass_and_are_kept(proxy: ThreadedProxy) -> None:
    async def main(address: str) -> None:
        async with connected(address, "c7", **{"x-mq-language": "NONE"}) as client:
            stream, settings = await client.introduce(publishing("relayed"))
            assert settings.status.code == Code.OK
            assert (await client.send(message("relayed", b"passed"))).status.code == Code.OK
            while not (got := (await client.receive("readers", "relayed"))[1]):
                pass
            assert [one.body for one in got] == [b"passed"]
            await stream.done_writing()
            stream.cancel()

    with Relay(proxy.address) as relay:
        asyncio.run(asyncio.wait_for(main(relay.address), 60))
        kept = relay.take()
        assert relay.take() == []
    sent = only(kept, "SendMessage")
    assert sent.metadata == {"x-mq-client-id": "c7", "x-mq-language": "NONE"}
    request = METHODS["SendMessage"].request.FromString(sent.requests[0])
    response = METHODS["SendMessage"].response.FromString(sent.responses[0])
    assert (request.messages[0].body, response.status.code) == (b"passed", Code.OK)
    received = [one for one in kept if one.method == "ReceiveMessage"][-1]
    assert [
        METHODS["ReceiveMessage"].response.FromString(one).WhichOneof("content") for one in received.responses
    ] == [
        "status",
        "message",
        "delivery_timestamp",
    ]
    told = only(kept, "Telemetry")
    assert (len(told.requests), len(told.responses)) == (1, 1)


@pytest.mark.parametrize("method", ["QueryRoute", "QueryAssignment"])
def test_clients_go_on_through_the_relay(method: str) -> None:
    said = METHODS[method].response()
    queue = said.message_queues.add() if method == "QueryRoute" else said.assignments.add().message_queue
    queue.broker.endpoints.addresses.add(host="10.0.0.1", port=8081)
    passed = readdressed(METHODS[method], said.SerializeToString(), "127.0.0.1:4711")
    (address,) = queue.broker.endpoints.addresses
    address.host, address.port = "127.0.0.1", 4711
    assert METHODS[method].response.FromString(passed) == said


def test_what_ends_a_call_is_passed_and_kept(proxy: ThreadedProxy) -> None:
    async def main(address: str) -> None:
        async with connected(address) as client:
            stream = client.telemetry()
            await stream.write(METHODS["Telemetry"].request(settings={}))
            assert (await stream.code()).name == "INVALID_ARGUMENT"

    with Relay(proxy.address) as relay:
        run(main(relay.address))
        assert [one.status for one in relay.take()] == ["INVALID_ARGUMENT"]
