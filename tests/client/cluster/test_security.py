"""How settings change requests and connections: signatures, namespace fields, TLS."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from tests.certificates import Authority
from tests.client.fake import fake_cluster
from tests.support import about, run

from sparrowmq import aio
from sparrowmq.client.base.hooks import RpcHook
from sparrowmq.client.base.settings import ClientSettings
from sparrowmq.client.cluster.security import (
    CERT_VARIABLE,
    KEY_VARIABLE,
    Marker,
    Signer,
    request_hooks,
    tls_context,
)
from sparrowmq.core.errors import SettingsError
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.frame import Command
from sparrowmq.transport.signing import verify
from sparrowmq.transport.tls import FollowedContext

KEYS = {"access_key": "alice", "secret_key": "12345678"}


class Adder(RpcHook):
    """A user's hook that changes requests."""

    def before_request(self, address: str, command: Command) -> None:
        command.ext = {**command.ext, "added": "by hook"}


class TestHooks:
    def test_default_settings_add_nothing(self) -> None:
        assert request_hooks(ClientSettings()) == ()

    @pytest.mark.proves("client:A-83", "client:A-84", "client:B-126", "client:B-127")
    def test_signature_is_added_last_and_covers_everything(self) -> None:
        hooks = request_hooks(ClientSettings(hooks=[Adder()], namespace_v2="ns1", **KEYS))
        assert [type(hook) for hook in hooks] == [Marker, Adder, Signer]
        command = Command(10, ext={"topic": "T"}, body=b"x")
        for hook in hooks:
            assert isinstance(hook, RpcHook)
            hook.before_request("a:1", command)
        assert command.ext["topic"] == "T"
        assert (command.ext["nsd"], command.ext["ns"], command.ext["added"]) == ("true", "ns1", "by hook")
        assert verify(command.ext, b"x", "12345678")
        for name in ("topic", "ns", "added", "AccessKey"):
            assert not verify({**command.ext, name: "other"}, b"x", "12345678")


@pytest.mark.proves("client:B-127", "client:A-82", "remoting:7.1")
def test_every_request_of_a_reader_is_signed() -> None:
    async def main() -> None:
        async with fake_cluster("T") as cluster:
            reader = ClientSettings(namesrv=cluster.name_server.address, **KEYS)
            async with aio.PullConsumer("g", settings=reader) as consumer:
                queue = (await consumer.queues("T"))[0]
                await consumer.fetch_raw(queue, 0)
                await consumer.commit(queue, 1)
            seen = [command for broker in cluster.brokers.values() for command in broker.seen]
            assert {command.code for command in seen} >= {
                RequestCode.PULL_MESSAGE,
                RequestCode.UPDATE_CONSUMER_OFFSET,
            }
            for command in seen:
                assert command.ext["AccessKey"] == "alice", command
                assert verify(command.ext, command.body, "12345678"), command

    run(main())


class TestEnvironment:
    def test_keys_of_the_environment_are_used_without_settings(self) -> None:
        environment = {"SPARROW_ACCESS_KEY": "env", "SPARROW_SECRET_KEY": "s", "SPARROW_SECURITY_TOKEN": "t"}
        (signer,) = request_hooks(ClientSettings(), environment)
        assert isinstance(signer, Signer)
        assert (signer.credentials.access_key, signer.credentials.security_token) == ("env", "t")
        (signer,) = request_hooks(ClientSettings(**KEYS), environment)
        assert isinstance(signer, Signer)
        assert signer.credentials.access_key == "alice"
        assert request_hooks(ClientSettings(), {}) == ()

    @pytest.mark.parametrize(
        ("there", "missing"),
        [("SPARROW_ACCESS_KEY", "SPARROW_SECRET_KEY"), ("SPARROW_SECRET_KEY", "SPARROW_ACCESS_KEY")],
    )
    def test_single_key_is_refused(self, there: str, missing: str) -> None:
        with pytest.raises(SettingsError, check=about(setting=missing)) as error:
            request_hooks(ClientSettings(), {there: "hidden"})
        assert "hidden" not in str(error.value)

    def test_tls_settings_are_applied(self, tmp_path: Path) -> None:
        environment = {"SPARROW_CLIENT_TLS": "true", "SPARROW_CLIENT_TLS_CA": str(Authority(tmp_path).cert)}
        assert tls_context(ClientSettings(), environment) is not None
        assert tls_context(ClientSettings(tls=False), environment) is None
        for off in ("false", "0", "", " False "):
            assert tls_context(ClientSettings(), {"SPARROW_CLIENT_TLS": off}) is None
        assert tls_context(ClientSettings(), {**environment, "SPARROW_CLIENT_TLS": "1"}) is not None
        pair = Authority(tmp_path / "clients").sign("client")
        shown = {"SPARROW_CLIENT_TLS_CERT": str(pair.cert), "SPARROW_CLIENT_TLS_KEY": str(pair.key)}
        assert tls_context(ClientSettings(), {**environment, **shown}) is not None
        for name, missing in ((CERT_VARIABLE, KEY_VARIABLE), (KEY_VARIABLE, CERT_VARIABLE)):
            with pytest.raises(SettingsError, check=about(setting=missing)):
                tls_context(ClientSettings(), {**environment, name: shown[name]})
        with pytest.raises(SettingsError, check=about(setting="SPARROW_CLIENT_TLS", value="ture")):
            tls_context(ClientSettings(), {"SPARROW_CLIENT_TLS": "ture"})
        with pytest.raises(SettingsError, check=about(what="authority")):
            tls_context(ClientSettings(), {**environment, "SPARROW_CLIENT_TLS_CA": "none.pem"})


class TestSettings:
    def test_secrets_are_not_shown(self) -> None:
        settings = ClientSettings(**KEYS, security_token="tok", tls_key_password="pass1")
        for secret in ("12345678", "tok", "pass1"):
            assert secret not in repr(settings)
            assert secret not in repr(request_hooks(settings))
        assert "alice" in repr(settings)

    @pytest.mark.parametrize(
        ("values", "facts"),
        [
            ({"access_key": "a"}, {"setting": "secret_key", "other": "access_key"}),
            ({"secret_key": "s"}, {"setting": "access_key", "other": "secret_key"}),
            ({"access_key": "", "secret_key": "s"}, {"setting": "access_key", "other": ""}),
            ({"access_key": "a", "secret_key": ""}, {"setting": "secret_key", "other": ""}),
            ({"tls": True, "tls_cert": "c.pem"}, {"setting": "tls_key", "other": "tls_cert"}),
            ({"tls_ca": "ca.pem"}, {"setting": "tls", "value": False}),
            ({"client_ip": "my-host"}, {"setting": "client_ip", "value": "my-host"}),
        ],
    )
    def test_conflicting_settings_are_refused(self, values: dict[str, str], facts: dict[str, object]) -> None:
        with pytest.raises(SettingsError, check=about(**facts)):
            ClientSettings(**values)

    @pytest.mark.parametrize("address", ["10.0.0.5", "::1", "[2001:db8::1]"])
    def test_client_addresses_are_checked(self, address: str) -> None:
        assert ClientSettings(client_ip=address).client_ip == address


class TestTls:
    def test_tls_is_off_by_default(self) -> None:
        assert tls_context(ClientSettings()) is None

    def test_users_own_tls_context_is_used(self) -> None:
        own = ssl.create_default_context()
        assert tls_context(ClientSettings(tls=own)) is own

    def test_certificate_files_are_read(self, tmp_path: Path) -> None:
        authority = Authority(tmp_path)
        pair = authority.sign("client")
        context = tls_context(
            ClientSettings(tls=True, tls_ca=str(authority.cert), tls_cert=pair.cert, tls_key=str(pair.key))
        )
        assert isinstance(context, FollowedContext)
        assert context().verify_mode is ssl.CERT_REQUIRED
        with pytest.raises(SettingsError, check=about(what="authority")):
            tls_context(ClientSettings(tls=True, tls_ca=tmp_path / "none.pem"))

    def test_verification_is_disabled_only_on_request(self) -> None:
        context = tls_context(ClientSettings(tls=True, tls_verify=False))
        assert isinstance(context, FollowedContext)
        assert context().verify_mode is ssl.CERT_NONE
