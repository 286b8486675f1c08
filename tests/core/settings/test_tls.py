"""The settings of TLS by RocketMQ's names."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.settings.tls import TlsSettings, parse_tls

HERE = Path("/etc/rocketmq")
SERVER = {"tls.server.certPath": "s.pem", "tls.server.keyPath": "/keys/s.key"}


@pytest.mark.proves("remoting:1.6")
def test_every_tls_setting_is_parsed() -> None:
    found = parse_tls(
        {
            **SERVER,
            "tls.server.keyPassword": "p1",
            "tls.server.trustCertPath": "ca.pem",
            "tls.server.authClient": "true",
            "tls.server.need.client.auth": "Require",
            "tls.client.certPath": "c.pem",
            "tls.client.keyPath": "c.key",
            "tls.client.keyPassword": "p2",
            "tls.client.trustCertPath": "ca.pem",
            "tls.client.authServer": "TRUE",
            "tls.ciphers": "A,B",
            "tls.protocols": "TLSv1.2, TLSv1.3",
            "tls.test.mode.enable": "false",
        },
        HERE,
    )
    assert found == TlsSettings(
        server_cert=HERE / "s.pem",
        server_key=Path("/keys/s.key"),
        server_key_password="p1",
        server_trust_cert=HERE / "ca.pem",
        server_auth_client=True,
        server_need_client_auth="require",
        client_cert=HERE / "c.pem",
        client_key=HERE / "c.key",
        client_key_password="p2",
        client_trust_cert=HERE / "ca.pem",
        client_auth_server=True,
        ciphers="A,B",
        protocols=("TLSv1.2", "TLSv1.3"),
    )
    assert "p1" not in repr(found)
    assert "p2" not in repr(found)


def test_blank_settings_keep_the_defaults() -> None:
    assert parse_tls({"tls.server.certPath": " ", "tls.ciphers": ""}, HERE) == TlsSettings()


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ({"tls.server.certpath": "x"}, r"no such TLS setting; did you mean tls\.server\.certPath\?"),
        ({"colour": "x"}, r"colour: there is no such TLS setting; remove it"),
        ({"tls.test.mode.enable": "true"}, r"this release has no test mode; give tls\.server\.certPath"),
        ({"tls.server.authClient": "yes"}, r"authClient=yes: must be true or false"),
        ({"tls.server.need.client.auth": "want"}, r"auth=want: must be one of none, optional, require"),
        ({"tls.protocols": "SSLv3"}, r"tls\.protocols=SSLv3: takes TLSv1\.2 and TLSv1\.3"),
        ({"tls.protocols": ","}, r"tls\.protocols=,: takes"),
        ({"tls.server.certPath": "x"}, r"tls\.server\.keyPath is missing"),
        ({"tls.client.keyPath": "x"}, r"tls\.client\.certPath is missing"),
        ({**SERVER, "tls.server.authClient": "true"}, r"authClient=true: give tls\.server\.trustCertPath"),
        ({**SERVER, "tls.server.need.client.auth": "require"}, r"set tls\.server\.authClient=true too"),
    ],
)
def test_invalid_settings_are_named(texts: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        parse_tls(texts, HERE)


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(SettingsError) as error:
        parse_tls({"a": "1", "tls.client.authServer": "2"}, HERE)
    assert len(str(error.value).splitlines()) == 2
