"""How tools see consumers of the proxy: members of their group, running info, direct consumption."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.proxy.rig import ApiClient, connected, message, running, subscribing
from tests.support import about, run

from sparrowmq import aio
from sparrowmq.client.base.settings import ClientSettings
from sparrowmq.client.cluster.broker_api import command
from sparrowmq.client.cluster.instance import ClientInstance
from sparrowmq.core.errors import NoRoomError
from sparrowmq.protocol.bodies import ConsumeMessageDirectlyResult
from sparrowmq.protocol.call_headers import ConsumeMessageDirectlyRequest
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.proxy.calls import pending as module
from sparrowmq.proxy.calls.members import version_number
from sparrowmq.proxy.calls.pending import PendingAnswers
from sparrowmq.proxy.definition.messages import ClientType, Code, v2
from sparrowmq.testing import LocalCluster

GROUP = "readers"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as cluster:
        yield cluster


@asynccontextmanager
async def consumer_at(
    proxy: Any, topic: str, client_id: str = "c1", group: str = GROUP
) -> AsyncIterator[tuple[ApiClient, Any]]:
    """A connected push consumer, and its stream."""
    metadata = {"x-mq-language": "PYTHON", "x-mq-client-version": "5.1.2"}
    async with connected(proxy.address, client_id, **metadata) as client:
        await client.call("QueryRoute", _route_of(topic))
        settings = subscribing(group, topic)
        settings.client_type = ClientType.PUSH_CONSUMER
        stream, answer = await client.introduce(settings)
        assert answer.status.code == Code.OK
        yield client, stream


def _route_of(topic: str) -> Any:
    request = v2.QueryRouteRequest()
    request.topic.name = topic
    return request


async def members_of(admin: aio.Admin, group: str = GROUP) -> list[aio.GroupMemberInfo]:
    found = await admin.groups.connections(group)
    return [] if found is None else list(found.members)


async def becomes(admin: aio.Admin, ids: list[str]) -> list[aio.GroupMemberInfo]:
    """Wait until the group has these members."""
    async with asyncio.timeout(20):
        while True:
            found = await members_of(admin)
            if [one.client_id for one in found] == ids:
                return found
            await asyncio.sleep(0.05)


def test_tools_see_a_proxy_consumer_as_a_member_while_it_is_connected(cluster: LocalCluster) -> None:
    async def main() -> None:
        async with aio.Admin(namesrv=cluster.namesrv) as admin, running(cluster.namesrv) as proxy:
            await admin.topics.create("seen")
            async with consumer_at(proxy, "seen") as (client, stream):
                (one,) = await becomes(admin, ["c1"])
                assert (one.language, one.version) == ("PYTHON", 413 + 2 * 12)
                assert one.address.startswith("127.0.0.1:") and one.address != proxy.address
                found = await admin.groups.connections(GROUP)
                assert found is not None and set(found.subscriptions) == {"seen"}
                gone = v2.NotifyClientTerminationRequest()
                gone.group.name = GROUP
                assert (await client.call("NotifyClientTermination", gone)).status.code == Code.OK
                await becomes(admin, [])
                stream.cancel()
            async with consumer_at(proxy, "seen", "c2") as (_, stream):
                await becomes(admin, ["c2"])
                stream.cancel()
                await becomes(admin, [])

    run(main())


def test_members_at_proxies_are_excluded_from_queue_allocation(cluster: LocalCluster) -> None:
    async def main() -> None:
        async with aio.Admin(namesrv=cluster.namesrv) as admin, running(cluster.namesrv) as proxy:
            await admin.topics.create("divided")
            async with consumer_at(proxy, "divided") as (_, stream):
                await becomes(admin, ["c1"])
                asked = Command(RequestCode.GET_CONSUMER_LIST_BY_GROUP, ext={"consumerGroup": GROUP})
                async with _instance(cluster) as instance:
                    answer = await instance.remoting.call(cluster.broker_address, asked, 5)
                assert answer.code == ResponseCode.SYSTEM_ERROR and "no consumer" in (answer.remark or "")
                stream.cancel()

    run(main())


def test_proxy_registers_its_members_again_after_a_broker_restart() -> None:
    async def main(cluster: LocalCluster) -> None:
        async with aio.Admin(namesrv=cluster.namesrv) as admin, running(cluster.namesrv) as proxy:
            await admin.topics.create("again")
            async with consumer_at(proxy, "again") as (client, _):
                await becomes(admin, ["c1"])
                await asyncio.to_thread(cluster.restart_broker)
                beat = v2.HeartbeatRequest(client_type=ClientType.PUSH_CONSUMER)
                beat.group.name = GROUP
                async with asyncio.timeout(30):
                    while True:
                        assert (await client.call("Heartbeat", beat)).status.code == Code.OK
                        try:
                            if [one.client_id for one in await members_of(admin)] == ["c1"]:
                                return
                        except aio.SparrowError:
                            pass  # the broker is not back yet
                        await asyncio.sleep(0.2)

    with LocalCluster() as cluster:
        run(main(cluster))


def test_running_info_has_proxy_data_and_client_stacks(cluster: LocalCluster) -> None:
    async def main() -> None:
        async with aio.Admin(namesrv=cluster.namesrv) as admin, running(cluster.namesrv) as proxy:
            await admin.topics.create("asked")
            async with consumer_at(proxy, "asked") as (_, stream):
                await becomes(admin, ["c1"])
                status = await admin.groups.member(GROUP, "c1")
                assert status is not None and status.info is not None, status
                assert status.info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
                assert [one.topic for one in status.info.subscriptions] == ["asked"]

                asking = asyncio.ensure_future(admin.groups.member(GROUP, "c1", stacks=True))
                question = (await stream.read()).print_thread_stack_trace_command
                told = v2.TelemetryCommand(status=v2.Status(code=Code.OK))
                told.thread_stack_trace.nonce = "of nobody"
                await stream.write(told)
                told.thread_stack_trace.nonce = question.nonce
                told.thread_stack_trace.thread_stack_trace = "main: asleep"
                await stream.write(told)
                status = await asking
                assert status is not None and status.info is not None
                assert status.info.jstack == "main: asleep"
                stream.cancel()

    run(main())


@pytest.mark.parametrize(
    ("code", "result"),
    [
        (Code.OK, "CR_SUCCESS"),
        (Code.FAILED_TO_CONSUME_MESSAGE, "CR_LATER"),
        (Code.MESSAGE_CORRUPTED, "CR_RETURN_NULL"),
        (Code.UNSUPPORTED, None),
    ],
)
def test_client_consumes_a_message_directly(cluster: LocalCluster, code: int, result: str | None) -> None:
    async def main() -> None:
        async with aio.Admin(namesrv=cluster.namesrv) as admin, running(cluster.namesrv) as proxy:
            await admin.topics.create("direct")
            async with aio.Producer("p", namesrv=cluster.namesrv) as producer:
                sent = await producer.send(aio.Message("direct", b"again", tags="A"))
            async with consumer_at(proxy, "direct") as (_, stream), _instance(cluster) as instance:
                await becomes(admin, ["c1"])
                header = ConsumeMessageDirectlyRequest(
                    consumer_group=GROUP, client_id="c1", msg_id=sent.offset_message_id, topic="direct"
                )
                asked = command(RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
                asking = asyncio.ensure_future(instance.remoting.call(cluster.broker_address, asked, 10))
                question = (await stream.read()).verify_message_command
                assert (question.message.body, question.message.topic.name) == (b"again", "direct")
                assert question.message.system_properties.tag == "A"
                told = v2.TelemetryCommand(status=v2.Status(code=code))
                told.verify_message_result.nonce = question.nonce
                await stream.write(told)
                answer = await asking
                if result is None:
                    assert answer.code == ResponseCode.SYSTEM_ERROR
                    assert "the client c1 answered UNSUPPORTED" in (answer.remark or "")
                else:
                    found = ConsumeMessageDirectlyResult.decode(answer.body)
                    assert (found.consume_result, found.remark) == (result, "from gRPC client")
                stream.cancel()

    run(main())


@asynccontextmanager
async def _instance(cluster: LocalCluster) -> AsyncIterator[ClientInstance]:
    instance = ClientInstance(ClientSettings(namesrv=cluster.namesrv))
    try:
        yield instance
    finally:
        await instance.close()


def test_lag_of_a_group_includes_messages_being_consumed(cluster: LocalCluster) -> None:
    async def main() -> None:
        async with aio.Admin(namesrv=cluster.namesrv) as admin, running(cluster.namesrv) as proxy:
            await admin.topics.create("hidden", queues=1)
            async with consumer_at(proxy, "hidden", group="lagging") as (client, stream):
                await client.receive("lagging", "hidden", long_polling_timeout={"seconds": 5})
                for number in range(3):
                    await client.send(message("hidden", b"%d" % number, number=number))
                code, got = await client.receive("lagging", "hidden", batch_size=2)
                assert code == Code.OK and len(got) == 2
                (row,) = await admin.groups.progress("lagging", "hidden")
                assert (row.lag, row.in_flight) == (3, 2)
                ack = v2.AckMessageRequest()
                ack.group.name, ack.topic.name = "lagging", "hidden"
                ack.entries.add(message_id="1", receipt_handle=got[0].system_properties.receipt_handle)
                assert (await client.call("AckMessage", ack)).status.code == Code.OK
                (row,) = await admin.groups.progress("lagging", "hidden")
                assert (row.lag, row.in_flight) == (2, 1)
                stream.cancel()

    run(main())


def test_client_versions_are_converted_to_numbers() -> None:
    assert [version_number(text) for text in ("5.0.0", "5.3.4", "5.5.0", "5.2.0-SNAPSHOT")] == [
        413,
        481,
        513,
        453,
    ]
    assert [version_number(text) for text in ("", "4.9.4", "1.0.8", "5.10.1", "5.x.1", "5.1")] == [413] * 6


def test_only_the_client_that_was_asked_can_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        pending = PendingAnswers()
        told = v2.TelemetryCommand()
        told.verify_message_result.nonce = "n"
        with pending.waiting("c1", "n") as answer:
            pending.answered("c2", told)
            assert not answer.done()
            pending.answered("c1", told)
            pending.answered("c1", told)
            assert answer.result() is told
            monkeypatch.setattr(module, "QUESTIONS_MAX", 1)
            with pytest.raises(NoRoomError, check=about(limit=1)), pending.waiting("c1", "m"):
                pass
        assert not len(pending)
        pending.answered("c1", told)

    run(main())


def test_request_to_a_silent_client_times_out_when_the_brokers_request_does(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparrowmq.proxy.calls.questions.ANSWER_SECONDS", 0.1)

    async def main() -> None:
        async with aio.Admin(namesrv=cluster.namesrv) as admin, running(cluster.namesrv) as proxy:
            await admin.topics.create("silent")
            async with consumer_at(proxy, "silent") as (_, stream):
                await becomes(admin, ["c1"])
                status = await admin.groups.member(GROUP, "c1", stacks=True)
                assert status is not None and "did not answer within 0.1 s" in str(status.error)
                stream.cancel()

    run(main())
