"""The members' port with accounts and TLS, of a coordinator that leads beside brokers that have both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.certificates import Authority, tls_properties
from tests.coordinator.running import running
from tests.support import run, until

from sparrowmq import aio
from sparrowmq.coordinator import server
from sparrowmq.coordinator.database.connect import sqlite_url
from sparrowmq.core.errors import SettingsError
from sparrowmq.core.settings import CoordinatorSettings
from sparrowmq.testing import LocalCluster

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


def consumer(cluster: LocalCluster, group: str = "billing", **more: Any) -> aio.PushConsumer:
    settings = aio.ConsumerSettings(managed=True, consume_from="first", **more)
    made = aio.PushConsumer(group, namesrv=cluster.namesrv, settings=settings)
    made.subscribe("Orders", handler=lambda message: None)
    return made


def reads(one: aio.PushConsumer) -> bool:
    return {queue.queue_id for queue in one.assignment if queue.topic == "Orders"} == {0, 1}


@pytest.mark.proves("remoting:7.1", "remoting:7.2")
def test_members_join_with_the_accounts_that_brokers_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "plain_acl.yml").write_text(ACCOUNTS)
    monkeypatch.setenv("SPARROW_ACCESS_KEY", "administrator")
    monkeypatch.setenv("SPARROW_SECRET_KEY", "12345678")

    async def main(cluster: LocalCluster) -> None:
        async with aio.Admin(namesrv=cluster.namesrv) as admin:
            await admin.create_topic("Orders", queues=2)
            signed = {"consumerGroup": "billing", "AccessKey": "billing-app", "Signature": "forged"}
            assert "AclException" in await admin.consume_refusal(signed, b"x")
            assert "No accessKey" in await admin.consume_refusal({"consumerGroup": "billing"}, b"")
        async with consumer(cluster, access_key="billing-app", secret_key="ijklmnop") as mine:
            await until(lambda: reads(mine))
            stranger = consumer(cluster, access_key="stranger", secret_key="abcdefgh")
            async with stranger:
                await until(lambda: "group billing is not for this account" in caplog.text)
                assert stranger.assignment == []
            assert reads(mine), "nobody came between"

    with (
        LocalCluster(acl_enable=True, acl_path=tmp_path) as cluster,
        running(database_url=sqlite_url(tmp_path / "c.db"), namesrv_addr=cluster.namesrv),
    ):
        run(main(cluster))


@pytest.mark.proves("remoting:1.6")
def test_members_speak_tls_where_the_port_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
            await admin.create_topic("Orders", queues=2)
        async with consumer(cluster) as mine:
            await until(lambda: reads(mine))

    with (
        LocalCluster(use_tls=True, **tls) as cluster,  # type: ignore[arg-type]
        running(database_url=sqlite_url(tmp_path / "c.db"), namesrv_addr=cluster.namesrv, **tls),
    ):
        run(main(cluster))


def test_where_members_are_sent(tmp_path: Path) -> None:
    def told(**more: Any) -> str:
        return server._members_port(CoordinatorSettings(namesrv_addr="127.0.0.1:9876", **more)).told_host

    assert told() == "", "the address it is bound to"
    assert told(bind_address="0.0.0.0") == "127.0.0.1", "this machine's address on the way to the name server"
    assert told(bind_address="0.0.0.0", members_address="mq.example") == "mq.example"
    with pytest.raises(SettingsError, match="give tls"):
        told(tls_server_mode="enforcing")


def test_an_error_of_a_broker_is_not_a_refusal() -> None:
    async def main(cluster: LocalCluster) -> None:
        async with aio.Admin(namesrv=cluster.namesrv) as admin:
            assert await admin.consume_refusal({"consumerGroup": "nobody"}, b"") == ""

    with LocalCluster() as cluster:
        run(main(cluster))
