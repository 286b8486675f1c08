"""Users and policies through the admin client, at brokers that have access control on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from tests.client.fake import answer, fake_cluster
from tests.support import about, run

from sparrowmq import aio
from sparrowmq.client.admin.types import AccessGrant, AccessUser
from sparrowmq.client.base.settings import ClientSettings, ProducerSettings
from sparrowmq.core.errors import BrokerError, ClientError
from sparrowmq.core.message import Message
from sparrowmq.protocol.bodies.access import AclInfo, PolicyEntryInfo, PolicyInfo, acls_to_json
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.testing import LocalCluster

FIRST = '{"username":"root","password":"toor1234"}'


def ask(where: str, key: str, secret: str, work: Callable[[aio.Admin], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        settings = ClientSettings(namesrv=where, access_key=key, secret_key=secret)
        async with aio.Admin(settings=settings) as admin:
            return await work(admin)

    return run(main())


def send(where: str, key: str, secret: str) -> None:
    async def main() -> None:
        settings = ProducerSettings(namesrv=where, access_key=key, secret_key=secret, retries=0)
        async with aio.Producer("p", settings=settings) as producer:
            await producer.send(Message("Orders", b"x"))

    run(main())


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with LocalCluster(
        tmp_path_factory.mktemp("store"),
        authentication_enabled=True,
        authorization_enabled=True,
        init_authentication_user=FIRST,
    ) as cluster:
        ask(cluster.namesrv, "root", "toor1234", lambda admin: admin.topics.create("Orders", 1))
        yield cluster.namesrv


class TestUsers:
    @pytest.mark.proves("remoting:2.7", "remoting:7.3")
    def test_user_is_created_changed_and_deleted(self, namesrv: str) -> None:
        async def begin(admin: aio.Admin) -> None:
            await admin.users.create("alice", "first123")
            with pytest.raises(BrokerError, check=about(code=16, remark="The user is existed")):
                await admin.users.create("alice", "other")
            assert await admin.users.list("ali") == [AccessUser("alice", False, True)]
            await admin.users.grant("alice", ["Topic:Orders"], ["Pub", "Get"], sources=["127.0.0.0/8"])
            assert await admin.users.grants("alice") == [
                AccessGrant("alice", "Topic:Orders", ("Pub", "Get"), ("127.0.0.0/8",))
            ]

        async def disable(admin: aio.Admin) -> None:
            await admin.users.update("alice", enabled=False)
            assert await admin.users.list("ali") == [AccessUser("alice", False, False)]

        async def renew(admin: aio.Admin) -> None:
            await admin.users.update("alice", enabled=True, password="second12")
            await admin.users.grant("alice", ["Topic:Orders"], ["Pub"], allow=False)

        async def end(admin: aio.Admin) -> None:
            (told,) = await admin.users.grants("alice")
            assert not told.allow
            await admin.users.revoke("alice", "Topic:Orders")
            assert await admin.users.grants("alice") == []
            with pytest.raises(BrokerError, check=about(code=16, remark="The acl is not exist.")):
                await admin.users.revoke("alice")
            await admin.users.delete("alice")
            await admin.users.delete("alice")
            assert await admin.users.list() == [AccessUser("root", True, True)]

        root = ("root", "toor1234")
        ask(namesrv, *root, begin)
        send(namesrv, "alice", "first123")
        ask(namesrv, *root, disable)
        with pytest.raises(BrokerError, check=about(code=16, remark="User:alice is disabled.")):
            send(namesrv, "alice", "first123")
        ask(namesrv, *root, renew)
        with pytest.raises(BrokerError, check=about(code=16, remark="check signature failed.")):
            send(namesrv, "alice", "first123")
        with pytest.raises(BrokerError, check=about(code=16)):
            send(namesrv, "alice", "second12")
        ask(namesrv, *root, end)

    def test_kinds_of_users_are_supported(self, namesrv: str) -> None:
        async def work(admin: aio.Admin) -> None:
            await admin.users.create("boss", "boss1234", super_user=True)
            await admin.users.update("boss", super_user=False)
            assert await admin.users.list("boss") == [AccessUser("boss", False, True)]
            with pytest.raises(BrokerError, check=about(code=16, remark="The user is not exist")):
                await admin.users.update("nobody", enabled=True)
            await admin.users.delete("boss")

        ask(namesrv, "root", "toor1234", work)

    @pytest.mark.parametrize(
        ("work", "text"),
        [
            (lambda admin: admin.users.create(" ", "x"), "the user is empty"),
            (lambda admin: admin.users.create("x", ""), "the password is empty"),
            (lambda admin: admin.users.update("x"), "no change for user 'x'"),
            (lambda admin: admin.users.grant("x", [], ["Pub"]), "no grant for user 'x'"),
            (lambda admin: admin.users.grant("x", "Topic:A", ["Pub"]), "lists of strings"),
            (lambda admin: admin.users.list(cluster="none"), "there is no cluster 'none'"),
        ],
    )
    def test_invalid_arguments_are_not_sent(self, namesrv: str, work: Any, text: str) -> None:
        with pytest.raises(ClientError, match=text):
            ask(namesrv, "root", "toor1234", work)

    def test_broker_refusals_are_raised(self, namesrv: str) -> None:
        async def work(admin: aio.Admin) -> None:
            with pytest.raises(BrokerError, check=about(code=16)):
                await admin.users.grant("none", ["*"], ["All"])
            with pytest.raises(BrokerError, check=about(code=16, remark="The actions Fly are illegal.")):
                await admin.users.grant("root", ["*"], ["Fly"])

        ask(namesrv, "root", "toor1234", work)


def test_every_master_is_called_before_a_refusal_is_raised() -> None:
    async def main() -> None:
        told: list[str] = []
        async with fake_cluster("T", brokers=2) as cluster, aio.Admin(cluster.namesrv) as admin:

            def refuse_first(conn: Any, command: Any) -> Any:
                told.append(command.ext["username"])
                return answer(16, remark="not you") if len(told) == 1 else answer()

            for broker in cluster.brokers.values():
                broker.learn(RequestCode.AUTH_DELETE_USER, refuse_first)
            with pytest.raises(BrokerError, check=about(code=16, remark="not you")):
                await admin.users.delete("alice")
            assert told == ["alice", "alice"]

    run(main())


def test_default_policies_are_marked() -> None:
    async def main() -> None:
        entry = PolicyEntryInfo("*", ["All"], None, "DENY")
        body = acls_to_json([AclInfo("User:a", [PolicyInfo("DEFAULT", [entry])])])
        async with fake_cluster("T") as cluster, aio.Admin(cluster.namesrv) as admin:
            cluster.broker.learn(RequestCode.AUTH_LIST_ACL, lambda conn, command: answer(body=body))
            assert await admin.users.grants() == [
                AccessGrant("a", "*", ("All",), (), allow=False, default=True)
            ]

    run(main())


@pytest.mark.parametrize(
    ("code", "remark"),
    [
        (1, "An system error occurred, please try again later."),
        (1, "java.lang.IllegalStateException: The authorizationMetadataProvider is not configured."),
        (3, " not supported"),
    ],
)
def test_support_for_users_is_detected(code: int, remark: str) -> None:
    """Apache's brokers without access control answer with an unspecific error."""

    async def main() -> None:
        async with fake_cluster("T") as cluster, aio.Admin(namesrv=cluster.namesrv) as admin:
            cluster.broker.learn(RequestCode.AUTH_LIST_USER, lambda conn, c: answer(code, remark=remark))
            with pytest.raises(BrokerError, match=r"Is access control on there \(authenticationEnabled"):
                await admin.users.list()

    run(main())
