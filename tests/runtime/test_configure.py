"""Where settings come from, which place wins, and what is said about bad files and open addresses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support import about

from sparrowmq.core.errors import SettingsError
from sparrowmq.runtime.configure import (
    Sources,
    broker_settings,
    coordinator_settings,
    nameserver_settings,
    proxy_settings,
    read_settings_file,
)

STOCK_BROKER_CONF = """\
# Licensed to the Apache Software Foundation (ASF)
brokerClusterName = DefaultCluster
brokerName = broker-x
brokerId = 0
haHousekeepingInterval = 20000
slaveTimeout = 3000
sendMessageThreadPoolNums = 4
brokerRole = ASYNC_MASTER
flushDiskType = ASYNC_FLUSH
"""


def test_the_stock_broker_conf_works(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(STOCK_BROKER_CONF)
    settings, warnings = broker_settings(Sources(file=conf))
    assert settings.broker_name == "broker-x"
    assert warnings == ["known to RocketMQ, without effect in this release: sendMessageThreadPoolNums"]


def test_toml_by_its_name(tmp_path: Path) -> None:
    conf = tmp_path / "broker.toml"
    conf.write_text('brokerName = "t"\nlistenPort = 7')
    assert read_settings_file(conf) == {"brokerName": "t", "listenPort": "7"}


def test_later_places_win(tmp_path: Path) -> None:
    conf = tmp_path / "b.conf"
    conf.write_text("brokerName=file\nregionId=file\nmaxMessageSize=2\nlistenPort=2")
    sources = Sources(
        defaults={"brokerName": "default", "flushIntervalCommitLog": "77"},
        file=conf,
        environment={"SPARROW_REGION_ID": "env", "SPARROW_MAX_MESSAGE_SIZE": "3", "SPARROW_LISTEN_PORT": "3"},
        assignments=["maxMessageSize=4", "listenPort=4"],
        options={"listenPort": "5"},
    )
    settings, _ = broker_settings(sources)
    assert settings.flush_interval_commit_log == 77
    assert settings.broker_name == "file"
    assert settings.region_id == "env"
    assert settings.max_message_size == 4
    assert settings.listen_port == 5


def test_the_name_server_has_variables_of_its_own() -> None:
    environment = {"SPARROW_LISTEN_PORT": "1", "SPARROW_NAMESERVER_LISTEN_PORT": "2"}
    assert nameserver_settings(Sources(environment=environment))[0].listen_port == 2
    assert broker_settings(Sources(environment=environment))[0].listen_port == 1


@pytest.mark.parametrize("make", [broker_settings, nameserver_settings])
def test_an_open_address_is_warned_of_once(make: Callable[[Sources], Any]) -> None:
    options = {"bindAddress": "10.1.2.3"}
    _, warnings = make(Sources(options=options))
    assert len(warnings) == 1
    assert warnings[0].startswith("bindAddress=10.1.2.3: anyone who can reach this address")


def test_an_open_address_with_access_control_is_not() -> None:
    options = {"bindAddress": "10.1.2.3", "authenticationEnabled": "true"}
    assert broker_settings(Sources(options=options))[1] == []


CLIENTS = "tls.server.trustCertPath=ca.pem\ntls.server.authClient=true\ntls.server.need.client.auth=%s\n"


@pytest.mark.parametrize("make", [broker_settings, nameserver_settings])
@pytest.mark.parametrize(
    ("mode", "clients", "said"),
    [
        ("enforcing", "", "Set tls.server.need.client.auth=require, with tls.server.authClient=true"),
        ("enforcing", CLIENTS % "optional", "Set tls.server.need.client.auth=require"),
        ("permissive", "", "TLS prevents eavesdropping but does not authenticate clients"),
        ("permissive", CLIENTS % "require", "Set tls.server.mode=enforcing"),
        ("disabled", CLIENTS % "require", "there is neither access control nor TLS"),
        ("enforcing", CLIENTS % "require", None),
    ],
)
def test_an_open_address_with_tls_needs_clients_with_certificates(
    tmp_path: Path, make: Any, mode: str, clients: str, said: str | None
) -> None:
    """TLS alone keeps nobody out."""
    file = tmp_path / "tls.properties"
    file.write_text(f"tls.server.certPath=a.pem\ntls.server.keyPath=a.key\n{clients}")
    options = {"bindAddress": "10.1.2.3", "tls.server.mode": mode, "tls.config.file": str(file)}
    _, warnings = make(Sources(options=options))
    assert len(warnings) == (said is not None)
    assert all(said in warning for warning in warnings)
    if said is not None and "Set " in said:
        assert ("authenticationEnabled" in warnings[0]) is (make is broker_settings)
    assert make(Sources(options={**options, "bindAddress": "127.0.0.1"}))[1] == []


def test_accounts_are_enough_with_tls_for_servers_only(tmp_path: Path) -> None:
    file = tmp_path / "tls.properties"
    file.write_text("tls.server.certPath=a.pem\ntls.server.keyPath=a.key\n")
    options = {"bindAddress": "10.1.2.3", "authenticationEnabled": "true", "tls.config.file": str(file)}
    assert broker_settings(Sources(options=options))[1] == []


def test_a_coordinator_is_warned_of_its_members_port(tmp_path: Path) -> None:
    file = tmp_path / "tls.properties"
    options = {"bindAddress": "10.1.2.3", "tls.config.file": str(file)}
    assert len(coordinator_settings(Sources(options=options))[1]) == 1, "the start will refuse the file"
    file.write_text("tls.server.certPath=a.pem\ntls.server.keyPath=a.key\n")
    members, http = coordinator_settings(Sources(options=options))[1]
    assert "they need no certificate. Set tls.server.need.client.auth=require" in members
    assert "passwords and tokens are sent unencrypted" in http


@pytest.mark.parametrize("make", [broker_settings, nameserver_settings, proxy_settings])
def test_a_metrics_port_that_others_reach_is_warned_of(make: Any) -> None:
    """There are no accounts for metrics, whatever the server itself demands."""
    options = {"metricsExporterType": "PROM", "metricsPromExporterHost": "10.1.2.3"}
    (warning,) = make(Sources(options=options))[1]
    assert warning.startswith("metricsPromExporterHost=10.1.2.3: anyone who can reach this address can read")
    for less in ({"metricsExporterType": "DISABLE"}, {"metricsPromExporterHost": "127.0.0.1"}):
        assert make(Sources(options={**options, **less}))[1] == []


def test_loopback_is_not_warned_of() -> None:
    assert broker_settings(Sources())[1] == []


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, check=about(what="file", value=tmp_path / "none.conf")):
        broker_settings(Sources(file=tmp_path / "none.conf"))


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    conf = tmp_path / "b.conf"
    conf.write_bytes(b"brokerName=\xff\xfe")
    with pytest.raises(SettingsError, check=about(what="file", value=conf)):
        read_settings_file(conf)


@pytest.mark.parametrize("name", ["b.conf", "b.toml"])
def test_a_byte_order_mark_belongs_to_no_name(tmp_path: Path, name: str) -> None:
    conf = tmp_path / name
    conf.write_bytes(b'\xef\xbb\xbfbrokerName = "x"\r\nlistenPort = 1\r\n')
    assert list(read_settings_file(conf)) == ["brokerName", "listenPort"]


def test_errors_name_the_place(tmp_path: Path) -> None:
    conf = tmp_path / "b.toml"
    conf.write_text("x = [")
    with pytest.raises(SettingsError, check=about(what="file", value=conf)):
        read_settings_file(conf)
    sources = Sources(environment={"SPARROW_LISTEN_PORT": "x"}, assignments=["nope=1"])
    with pytest.raises(SettingsError) as caught:
        broker_settings(sources)
    assert [line.split(":")[0] for line in str(caught.value).splitlines()] == ["environment", "--set"]
