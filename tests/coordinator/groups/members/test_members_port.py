"""The members' port with accounts and TLS, of a leading coordinator beside brokers that use both."""

from __future__ import annotations

import hmac
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.certificates import Authority, tls_properties
from tests.coordinator.running import running
from tests.support import about, run, sqlite_url, until

from sparrowmq import aio
from sparrowmq.broker.access.acl_import import import_accounts
from sparrowmq.broker.access.auth_store import AuthStore
from sparrowmq.coordinator import server
from sparrowmq.coordinator.cluster.clients import ClusterCalls
from sparrowmq.coordinator.groups import judging
from sparrowmq.core.errors import SettingsError
from sparrowmq.core.settings.servers import CoordinatorSettings
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.managed import COORDINATOR_KEY, COORDINATOR_NAMESPACE, JoinBody, LeaveBody
from sparrowmq.testing import LocalCluster
from sparrowmq.transport.client import RemotingClient

ACCOUNTS = """
accounts:
- {accessKey: administrator, secretKey: 12345678, admin: true}
- accessKey: billing-app
  secretKey: ijklmnop
  topicPerms: [Orders=PUB|SUB]
  groupPerms: [billing=SUB]
- accessKey: stranger
  secretKey: abcdefgh
  topicPerms: [Orders=SUB]
"""

JOIN = JoinBody("billing", "c", ["Orders"]).encode()


def consumer(cluster: LocalCluster, group: str = "billing", **more: Any) -> aio.PushConsumer:
    settings = aio.ConsumerSettings(managed=True, consume_from="first", **more)
    made = aio.PushConsumer(group, namesrv=cluster.namesrv, settings=settings)
    made.subscribe("Orders", handler=lambda message: None)
    return made


def reads(one: aio.PushConsumer) -> bool:
    return {queue.queue_id for queue in one.assignment if queue.topic == "Orders"} == {0, 1}


@pytest.mark.proves("remoting:7.1", "remoting:7.3")
def test_members_join_with_the_accounts_of_brokers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = AuthStore(tmp_path / "auth")
    accounts = import_accounts({"plain_acl.yml": ACCOUNTS.encode()})
    store.add(accounts.users, accounts.acls)
    monkeypatch.setenv("SPARROW_ACCESS_KEY", "administrator")
    monkeypatch.setenv("SPARROW_SECRET_KEY", "12345678")

    async def main(cluster: LocalCluster) -> None:
        async with aio.Admin(namesrv=cluster.namesrv) as admin:
            await admin.topics.create("Orders", queues=2)
            signed = {"consumerGroup": "billing", "AccessKey": "billing-app", "Signature": "forged"}
            assert "check signature failed" in await ClusterCalls(admin).consume_refusal(90211, signed, JOIN)
            unsigned = {"consumerGroup": "billing"}
            assert "username cannot be null" in await ClusterCalls(admin).consume_refusal(
                90211, unsigned, JOIN
            )
        async with consumer(cluster, access_key="billing-app", secret_key="ijklmnop") as mine:
            await until(lambda: reads(mine))
            stranger = consumer(cluster, access_key="stranger", secret_key="abcdefgh")
            async with stranger:
                await until(lambda: "this account may not use group billing" in caplog.text)
                assert stranger.assignment == []
            assert reads(mine), "nobody came between"

    with (
        LocalCluster(
            authentication_enabled=True, authorization_enabled=True, auth_config_path=tmp_path / "auth"
        ) as cluster,
        running(database_url=sqlite_url(tmp_path / "c.db"), namesrv_addr=cluster.namesrv),
    ):
        run(main(cluster))


@pytest.mark.proves("remoting:1.6")
def test_members_use_tls_where_the_port_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path / "ca")
    pair = authority.sign("server")
    config = tls_properties(
        tmp_path,
        server__certPath=pair.cert,
        server__keyPath=pair.key,
        client__trustCertPath=authority.cert,
        client__authServer="true",
    )
    monkeypatch.setenv("SPARROW_CLIENT_TLS", "true")
    monkeypatch.setenv("SPARROW_CLIENT_TLS_CA", str(authority.cert))
    tls = {"tls_server_mode": "enforcing", "tls_config_file": config}

    async def main(cluster: LocalCluster) -> None:
        async with aio.Admin(namesrv=cluster.namesrv) as admin:
            await admin.topics.create("Orders", queues=2)
        async with consumer(cluster) as mine:
            await until(lambda: reads(mine))

    with (
        LocalCluster(use_tls=True, **tls) as cluster,  # type: ignore[arg-type]
        running(database_url=sqlite_url(tmp_path / "c.db"), namesrv_addr=cluster.namesrv, **tls),
    ):
        run(main(cluster))


def test_members_are_sent_to_the_published_address(tmp_path: Path) -> None:
    def told(**more: Any) -> str:
        return server._members_port(CoordinatorSettings(namesrv_addr="127.0.0.1:9876", **more)).told_host

    assert told() == "", "the address it is bound to"
    assert told(bind_address="0.0.0.0") == "127.0.0.1", "this machine's address on the way to the name server"
    assert told(bind_address="0.0.0.0", members_address="mq.example") == "mq.example"
    with pytest.raises(SettingsError, check=about(setting="tls.server.mode")):
        told(tls_server_mode="enforcing")


def test_broker_error_is_not_a_refusal() -> None:
    async def main(cluster: LocalCluster) -> None:
        async with aio.Admin(namesrv=cluster.namesrv) as admin:
            assert await ClusterCalls(admin).consume_refusal(90211, {"consumerGroup": "nobody"}, JOIN) == ""

    with LocalCluster() as cluster:
        run(main(cluster))


ROOT = {"username": "root", "password": "root-password"}


@pytest.mark.parametrize("missing", ["Group:billing", "Topic:Orders", "everything but Get", "nothing"])
def test_joining_needs_the_rights_of_pulling(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture, missing: str
) -> None:
    monkeypatch.setenv("SPARROW_ACCESS_KEY", ROOT["username"])
    monkeypatch.setenv("SPARROW_SECRET_KEY", ROOT["password"])

    async def main(cluster: LocalCluster) -> None:
        async with aio.Admin(namesrv=cluster.namesrv) as admin:
            await admin.topics.create("Orders", queues=2)
            await admin.users.create("app", "app-password")
            for thing in ("Group:billing", "Topic:Orders"):
                if missing == "everything but Get":
                    await admin.users.grant("app", [thing], ["Get"])
                elif thing != missing:
                    await admin.users.grant("app", [thing], ["Sub", "Get"])
            await admin.users.grant("app", ["Topic:TBW102"], ["Get"])
        async with consumer(cluster, access_key="app", secret_key="app-password") as one:
            if missing == "nothing":
                await until(lambda: reads(one))
            else:
                await until(lambda: "this account may not use group billing" in caplog.text)
                assert one.assignment == []

    settings = {"authentication_enabled": True, "authorization_enabled": True}
    with (
        LocalCluster(init_authentication_user=json.dumps(ROOT), **settings) as cluster,
        running(database_url=sqlite_url(tmp_path / "c.db"), namesrv_addr=cluster.namesrv),
    ):
        run(main(cluster))


@pytest.mark.parametrize("how", ["deleted", "other password", "right taken away"])
def test_account_that_loses_the_right_is_removed_and_its_queues_move(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    monkeypatch.setenv("SPARROW_ACCESS_KEY", ROOT["username"])
    monkeypatch.setenv("SPARROW_SECRET_KEY", ROOT["password"])
    monkeypatch.setattr(judging, "SIGNED_SECONDS", 0.5)

    async def main(cluster: LocalCluster) -> None:
        async with aio.Admin(namesrv=cluster.namesrv) as admin:
            await admin.topics.create("Orders", queues=2)
            for name in ("leaving", "staying"):
                await admin.users.create(name, f"{name}-password")
                await admin.users.grant(name, ["Group:billing", "Topic:Orders"], ["Sub", "Get"])
            async with consumer(cluster, access_key="leaving", secret_key="leaving-password") as one:
                await until(lambda: reads(one))
                async with consumer(cluster, access_key="staying", secret_key="staying-password") as other:
                    await until(lambda: any(queue.topic == "Orders" for queue in other.assignment))
                    if how == "deleted":
                        await admin.users.delete("leaving")
                    elif how == "other password":
                        await admin.users.update("leaving", password="another-password")
                    else:
                        await admin.users.revoke("leaving")
                    await until(lambda: reads(other))
                    await until(lambda: one.assignment == [])
        assert "may no longer consume for group billing and is removed" in caplog.text

    settings = {"authentication_enabled": True, "authorization_enabled": True}
    with (
        LocalCluster(init_authentication_user=json.dumps(ROOT), **settings) as cluster,
        running(database_url=sqlite_url(tmp_path / "c.db"), namesrv_addr=cluster.namesrv),
    ):
        run(main(cluster))


def test_database_contents_cannot_impersonate_a_member(tmp_path: Path) -> None:
    async def main(cluster: LocalCluster, path: Path) -> None:
        async with aio.Admin(namesrv=cluster.namesrv) as admin:
            await admin.topics.create("Orders", queues=2)
            where = await admin.name_servers.value(COORDINATOR_NAMESPACE, COORDINATOR_KEY)
        async with consumer(cluster) as mine:
            await until(lambda: reads(mine))
            with closing(sqlite3.connect(path)) as found:
                await until(lambda: found.execute("SELECT count(*) FROM managed_member").fetchone()[0])
                ((member, digest),) = found.execute("SELECT member, proof FROM managed_member").fetchall()
                texts = [str(cell) for table in ("secret", "managed_member", "managed_group")
                         for row in found.execute(f"SELECT * FROM {table}") for cell in row]  # fmt: skip
            assert len(digest) == 64
            keys = [text.encode() for text in texts] + [bytes.fromhex(digest)]
            forged = [hmac.new(key, f"billing\0{member}".encode(), "sha256").hexdigest()[:32] for key in keys]
            remoting = RemotingClient()
            try:
                for proof in [*texts, *forged]:
                    body = LeaveBody("billing", member, proof).encode()
                    answer = await remoting.call(str(where), Command(90213, body=body), 5.0)
                    assert answer.code == ResponseCode.MEMBER_UNKNOWN, proof
            finally:
                await remoting.close()
            assert reads(mine)

    path = tmp_path / "c.db"
    with (
        LocalCluster() as cluster,
        running(database_url=sqlite_url(path), namesrv_addr=cluster.namesrv),
    ):
        run(main(cluster, path))
