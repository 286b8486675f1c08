"""Signatures of the gRPC API, and the rights of a signed caller."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import grpc
import pytest
from tests.proxy.rig import connected, message, publishing, running, subscribing
from tests.support import about, run

from sparrowmq import aio
from sparrowmq.client.base.settings import ClientSettings
from sparrowmq.core.errors import SettingsError
from sparrowmq.proxy.cluster.accounts import api_signature
from sparrowmq.proxy.definition.messages import ClientType, Code, v2
from sparrowmq.testing import LocalCluster


def as_root(cluster: LocalCluster) -> ClientSettings:
    return ClientSettings(namesrv=cluster.namesrv, access_key="root", secret_key="toor12345")


@pytest.fixture(scope="module")
def guarded() -> Iterator[LocalCluster]:
    with LocalCluster(
        authentication_enabled=True,
        authorization_enabled=True,
        init_authentication_user='{"username":"root","password":"toor12345"}',
    ) as cluster:

        async def main() -> None:
            async with aio.Admin(settings=as_root(cluster)) as admin:
                await admin.topics.create("allowed")
                await admin.topics.create("forbidden")
                await admin.users.create("ann", "ann-secret-1")
                await admin.users.grant("ann", ["Topic:allowed"], ["Pub"])

        run(main())
        yield cluster


def signed(name: str, secret: str) -> dict[str, str]:
    when = "20261123T120000Z"
    fields = f"Credential={name}, SignedHeaders=x-mq-date-time, Signature={api_signature(secret, when)}"
    return {"authorization": f"MQv2-HMAC-SHA1 {fields}", "x-mq-date-time": when}


def test_signature_matches_the_protocol() -> None:
    """HMAC-SHA1 of the text `date` with the key `key`, as computed by another tool."""
    assert api_signature("key", "date") == "e3721cfb5d27a1a45ce59c1b333d09bfb465d18a"


def test_callers_have_the_rights_of_their_accounts(guarded: LocalCluster) -> None:
    async def main() -> None:
        client = as_root(guarded)
        async with running(guarded.namesrv, client=client, authentication_enabled=True) as proxy:

            async def send(topic: str, metadata: dict[str, str]) -> int:
                async with connected(proxy.address, **metadata) as caller:
                    found: int = (await caller.send(message(topic))).status.code
                    return found

            assert await send("allowed", signed("root", "toor12345")) == Code.OK
            assert await send("allowed", signed("ann", "ann-secret-1")) == Code.OK
            assert await send("forbidden", signed("ann", "ann-secret-1")) == Code.FORBIDDEN
            for wrong in (signed("ann", "wrong"), signed("nobody", "x"), {}, {"authorization": "Basic x"}):
                assert await send("allowed", wrong) == Code.UNAUTHORIZED
            assert await send("forbidden", signed("root", "toor12345")) == Code.OK
            async with connected(proxy.address) as unsigned:
                stream = unsigned.telemetry()
                await stream.write(v2.TelemetryCommand(settings=publishing("allowed")))
                with pytest.raises(Exception, match="not signed"):
                    await stream.read()

    run(main())


def test_a_proxy_without_an_account_cannot_check_signatures(guarded: LocalCluster) -> None:
    async def main() -> None:
        async with running(guarded.namesrv, authentication_enabled=True):
            pass

    with pytest.raises(SettingsError, check=about(setting="authenticationEnabled")):
        run(main())


def test_warning_is_logged_when_the_proxy_account_is_no_super_user(guarded: LocalCluster) -> None:
    async def main() -> None:
        own = ClientSettings(namesrv=guarded.namesrv, access_key="ann", secret_key="ann-secret-1")
        async with (
            running(guarded.namesrv, client=own, authentication_enabled=True) as proxy,
            connected(proxy.address, **signed("root", "toor12345")) as caller,
        ):
            assert (await caller.send(message("allowed"))).status.code != Code.OK

    run(main())


def test_half_messages_are_shown_only_to_clients_that_may_send(guarded: LocalCluster) -> None:
    """A client that declares a topic it publishes to receives the brokers' transaction checks, which show
    half messages."""

    async def main() -> None:
        client = as_root(guarded)
        async with aio.Admin(settings=client) as admin:
            for topic in ("pays", "allowed-pays"):
                await admin.topics.create(topic, attributes={"message.type": "TRANSACTION"})
            await admin.users.grant("ann", ["Topic:allowed-pays"], ["Pub"])
        async with (
            running(guarded.namesrv, client=client, authentication_enabled=True) as proxy,
            connected(proxy.address, "ann-1", **signed("ann", "ann-secret-1")) as ann,
        ):
            _, answer = await ann.introduce(publishing("allowed-pays"))
            assert answer.status.code == Code.OK
            with pytest.raises(grpc.aio.AioRpcError, match="may not send to the topic 'pays'") as raised:
                await ann.introduce(publishing("allowed-pays", "pays"))
            assert raised.value.code() == grpc.StatusCode.PERMISSION_DENIED
            async with connected(proxy.address, "root-1", **signed("root", "toor12345")) as root:
                _, answer = await root.introduce(publishing("pays"))
                assert answer.status.code == Code.OK
        async with aio.Admin(settings=client) as admin:
            assert sum(each.messages for each in await admin.topics.status("pays")) == 0

    run(main())


def test_client_id_belongs_to_one_account(guarded: LocalCluster) -> None:
    async def main() -> None:
        client = as_root(guarded)
        async with (
            running(guarded.namesrv, client=client, authentication_enabled=True) as proxy,
            connected(proxy.address, "one", **signed("root", "toor12345")) as root,
            connected(proxy.address, "one", **signed("ann", "ann-secret-1")) as ann,
        ):
            await root.introduce(publishing("forbidden"))
            with pytest.raises(grpc.aio.AioRpcError, match="belongs to another account"):
                await ann.introduce(publishing("allowed"))
            gone = v2.NotifyClientTerminationRequest()
            beat = v2.HeartbeatRequest(client_type=ClientType.PRODUCER)
            assert (await ann.call("NotifyClientTermination", gone)).status.code == Code.FORBIDDEN
            assert (await ann.call("Heartbeat", beat)).status.code == Code.FORBIDDEN
            assert (await root.call("Heartbeat", beat)).status.code == Code.OK

    run(main())


def test_routes_require_rights_on_the_topic(guarded: LocalCluster) -> None:
    """As at Apache's proxy: a route needs Pub, Sub or Get of the topic; an assignment needs Sub of topic
    and group."""

    async def main() -> None:
        client = as_root(guarded)
        async with aio.Admin(settings=client) as admin:
            await admin.topics.create("looked-at")
            for name, right in (("sender", "Pub"), ("reader", "Sub"), ("looker", "Get")):
                await admin.users.create(name, f"{name}-secret-1")
                await admin.users.grant(name, ["Topic:looked-at"], [right])
            await admin.users.grant("reader", ["Group:readers"], ["Sub"])
        async with running(guarded.namesrv, client=client, authentication_enabled=True) as proxy:

            async def codes(name: str) -> tuple[int, int]:
                async with connected(proxy.address, name, **signed(name, f"{name}-secret-1")) as caller:
                    route = v2.QueryRouteRequest()
                    route.topic.name = "looked-at"
                    assignment = v2.QueryAssignmentRequest(topic=route.topic)
                    assignment.group.name = "readers"
                    first = await caller.call("QueryRoute", route)
                    second = await caller.call("QueryAssignment", assignment)
                    assert bool(first.message_queues) == (first.status.code == Code.OK)
                    return first.status.code, second.status.code

            assert await codes("sender") == (Code.OK, Code.FORBIDDEN)
            assert await codes("reader") == (Code.OK, Code.OK)
            assert await codes("looker") == (Code.OK, Code.FORBIDDEN)
            assert await codes("ann") == (Code.FORBIDDEN, Code.FORBIDDEN)

    run(main())


def test_only_members_of_a_group_receive_broker_requests_for_it(guarded: LocalCluster) -> None:
    """A client without the right to receive for a group is not listed as a member, so tools' requests do
    not reach it."""

    async def main() -> None:
        client = as_root(guarded)
        async with (
            aio.Admin(settings=client) as admin,
            running(guarded.namesrv, client=client, authentication_enabled=True) as proxy,
            connected(proxy.address, "intruder", **signed("ann", "ann-secret-1")) as ann,
            connected(proxy.address, "owner", **signed("root", "toor12345")) as root,
        ):
            route = v2.QueryRouteRequest()
            route.topic.name = "allowed"
            for each in (ann, root):
                assert (await each.call("QueryRoute", route)).status.code == Code.OK
                _, answer = await each.introduce(subscribing("guarded-group", "allowed"))
                assert answer.status.code == Code.OK
            async with asyncio.timeout(20):
                while True:
                    found = await admin.groups.connections("guarded-group")
                    if found is not None:
                        break
                    await asyncio.sleep(0.05)
            assert [one.client_id for one in found.members] == ["owner"]

    run(main())
