"""TLS contexts: what is refused and why, and servers that follow their files."""

from __future__ import annotations

import os
import shutil
import ssl
from pathlib import Path

import pytest
from tests.certificates import Authority, Pair, tls_properties
from tests.support import about

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.settings.tls import TlsSettings, parse_tls
from sparrowmq.transport.tls import (
    ServerTls,
    client_context,
    handshake_failure,
    outgoing_context,
    outgoing_tls,
    read_tls_settings,
    server_context,
    server_tls,
)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def pair(authority: Authority) -> Pair:
    return authority.sign("server")


class TestFiles:
    def test_a_file_is_read_with_paths_beside_it(self, tmp_path: Path, pair: Pair) -> None:
        shutil.copy(pair.cert, tmp_path / "s.pem")
        shutil.copy(pair.key, tmp_path / "s.key")
        path = tls_properties(tmp_path, server__certPath="s.pem", server__keyPath="s.key")
        settings = read_tls_settings(path)
        assert (settings.server_cert, settings.server_key) == (tmp_path / "s.pem", tmp_path / "s.key")
        assert isinstance(server_context(settings), ssl.SSLContext)

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(SettingsError, check=about(setting="tls.config.file")):
            read_tls_settings(tmp_path / "none.properties")

    def test_errors_name_the_file(self, tmp_path: Path) -> None:
        path = tls_properties(tmp_path, server__certPth="x")
        with pytest.raises(SettingsError, match=r"tls\.properties: .*did you mean tls\.server\.certPath"):
            read_tls_settings(path)

    @pytest.mark.parametrize("mode", ["disabled", "permissive"])
    def test_without_a_certificate_there_is_no_tls(self, tmp_path: Path, mode: str) -> None:
        assert server_tls(None, mode) is None
        assert server_tls(tls_properties(tmp_path), mode) is None

    def test_disabled_reads_no_file(self, tmp_path: Path) -> None:
        assert server_tls(tmp_path / "none.properties", "disabled") is None

    @pytest.mark.parametrize("given", [True, False])
    def test_enforcing_needs_a_certificate(self, tmp_path: Path, given: bool) -> None:
        with pytest.raises(SettingsError, check=about(setting="tls.server.mode", other="tls.config.file")):
            server_tls(tls_properties(tmp_path) if given else None, "enforcing")

    def test_modes(self, tmp_path: Path, pair: Pair) -> None:
        path = tls_properties(tmp_path, server__certPath=pair.cert, server__keyPath=pair.key)
        for mode in ("permissive", "enforcing"):
            tls = server_tls(path, mode)
            assert tls is not None
            assert tls.enforcing is (mode == "enforcing")
            assert mode in repr(tls)


class TestContexts:
    def test_a_server_without_certificate(self) -> None:
        with pytest.raises(SettingsError, check=about(setting="tls.server.certPath")):
            server_context(TlsSettings())

    def test_a_key_of_another_certificate(self, authority: Authority, pair: Pair) -> None:
        other = authority.sign("other")
        with pytest.raises(SettingsError, check=about(what="key", value=other.key)):
            server_context(TlsSettings(server_cert=pair.cert, server_key=other.key))

    @pytest.mark.parametrize("which", ["cert", "key"])
    def test_files_that_are_not_there_or_garbage(self, tmp_path: Path, pair: Pair, which: str) -> None:
        bad = tmp_path / "bad.pem"
        for _ in range(2):
            files = {"server_cert": pair.cert, "server_key": pair.key, f"server_{which}": bad}
            with pytest.raises(SettingsError, check=about(what="key", value=files["server_key"])):
                server_context(TlsSettings(**files))
            bad.write_text("garbage")

    def test_encrypted_keys(self, authority: Authority) -> None:
        locked = authority.sign("locked", password="open sesame")
        files = {"server_cert": locked.cert, "server_key": locked.key}
        server_context(TlsSettings(**files, server_key_password="open sesame"))
        with pytest.raises(SettingsError, check=about(what="key", value=locked.key)):
            server_context(TlsSettings(**files, server_key_password="wrong"))
        with pytest.raises(SettingsError, check=about(what="password", value=locked.key)):
            server_context(TlsSettings(**files))
        client_context(cert=locked.cert, key=locked.key, key_password="open sesame", verify=False)

    def test_clients_check_by_default(self, authority: Authority) -> None:
        context = client_context(ca=authority.cert)
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.check_hostname
        assert client_context().verify_mode is ssl.CERT_REQUIRED
        blind = client_context(verify=False)
        assert (blind.verify_mode, blind.check_hostname) == (ssl.CERT_NONE, False)

    def test_an_authority_that_is_none(self, tmp_path: Path) -> None:
        path = tmp_path / "ca.pem"
        for _ in range(2):
            with pytest.raises(SettingsError, check=about(what="authority", value=path)):
                client_context(ca=path)
            path.write_text("garbage")

    @pytest.mark.proves("remoting:1.6")
    def test_servers_that_connect_check_only_when_told(self, authority: Authority) -> None:
        assert outgoing_context(TlsSettings()).verify_mode is ssl.CERT_NONE
        told = outgoing_context(TlsSettings(client_auth_server=True, client_trust_cert=authority.cert))
        assert (told.verify_mode, told.check_hostname) == (ssl.CERT_REQUIRED, True)
        settings = parse_tls(
            {
                "tls.client.authServer": "true",
                "tls.client.trustCertPath": str(authority.cert),
                "tls.client.checkServerName": "false",
            },
            authority.directory,
        )
        as_java = outgoing_context(settings)
        assert (as_java.verify_mode, as_java.check_hostname) == (ssl.CERT_REQUIRED, False)

    def test_servers_that_connect_follow_their_files(self, authority: Authority, tmp_path: Path) -> None:
        ca = tmp_path / "ca.pem"
        shutil.copy(authority.cert, ca)
        tls = outgoing_tls(TlsSettings(client_auth_server=True, client_trust_cert=ca))
        assert tls().verify_mode is ssl.CERT_REQUIRED
        assert str(ca) in repr(tls)
        with pytest.raises(SettingsError, check=about(what="authority", value=tmp_path / "none.pem")):
            outgoing_tls(TlsSettings(client_auth_server=True, client_trust_cert=tmp_path / "none.pem"))

    def test_client_certificates(self, authority: Authority, pair: Pair) -> None:
        files = TlsSettings(
            server_cert=pair.cert,
            server_key=pair.key,
            server_trust_cert=authority.cert,
            server_auth_client=True,
            server_need_client_auth="optional",
        )
        assert server_context(files).verify_mode is ssl.CERT_OPTIONAL

    def test_protocols_and_ciphers(self, pair: Pair) -> None:
        files = {"server_cert": pair.cert, "server_key": pair.key}
        context = server_context(
            TlsSettings(**files, protocols=("TLSv1.2",), ciphers="ECDHE-ECDSA-AES128-GCM-SHA256")
        )
        assert context.minimum_version == context.maximum_version == ssl.TLSVersion.TLSv1_2
        assert "ECDHE-ECDSA-AES128-GCM-SHA256" in {cipher["name"] for cipher in context.get_ciphers()}
        with pytest.raises(SettingsError, check=about(setting="tls.ciphers", value="NO_SUCH")):
            server_context(TlsSettings(**files, ciphers="NO_SUCH"))


class TestReload:
    def make(self, tmp_path: Path, pair: Pair) -> tuple[ServerTls, list[float], Pair]:
        own = Pair(tmp_path / "s.pem", tmp_path / "s.key")
        shutil.copy(pair.cert, own.cert)
        shutil.copy(pair.key, own.key)
        now = [0.0]
        tls = ServerTls(TlsSettings(server_cert=own.cert, server_key=own.key), monotonic=lambda: now[0])
        return tls, now, own

    def renew(self, own: Pair, pair: Pair, *, key: bool = True) -> None:
        shutil.copy(pair.cert, own.cert)
        if key:
            shutil.copy(pair.key, own.key)
        for path in (own.cert, own.key):  # as if time had passed: clocks of file systems are coarse
            stat = path.stat()
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 10_000_000))

    def test_files_that_stay_keep_the_context(self, tmp_path: Path, pair: Pair) -> None:
        tls, now, _ = self.make(tmp_path, pair)
        first = tls.context()
        now[0] = 100.0
        assert tls.context() is first

    def test_changed_files_are_taken_when_a_second_has_passed(
        self, tmp_path: Path, authority: Authority, pair: Pair
    ) -> None:
        tls, now, own = self.make(tmp_path, pair)
        first = tls.context()
        self.renew(own, authority.sign("renewed"))
        now[0] = 0.9
        assert tls.context() is first
        now[0] = 1.0
        second = tls.context()
        assert second is not first
        now[0] = 2.0
        assert tls.context() is second

    def test_a_half_change_waits_for_its_other_half(
        self, tmp_path: Path, authority: Authority, pair: Pair, caplog: pytest.LogCaptureFixture
    ) -> None:
        tls, now, own = self.make(tmp_path, pair)
        first = tls.context()
        renewed = authority.sign("half")
        self.renew(own, renewed, key=False)
        now[0] = 1.0
        assert tls.context() is first
        assert "cannot be loaded; the previous ones stay" in caplog.text
        shutil.copy(renewed.key, own.key)
        now[0] = 2.0
        assert tls.context() is not first

    def test_a_file_that_vanished_leaves_the_context(self, tmp_path: Path, pair: Pair) -> None:
        tls, now, own = self.make(tmp_path, pair)
        first = tls.context()
        own.cert.unlink()
        now[0] = 1.0
        assert tls.context() is first


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("WRONG_VERSION_NUMBER", r"h:1 does not speak TLS; turn TLS on there, or off here"),
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", r"the TLS handshake with h:1 failed: TLSV13_ALERT"),
    ],
)
def test_failures_say_what_to_do(reason: str, said: str) -> None:
    error = ssl.SSLError(1, reason)
    error.reason = reason
    assert said in handshake_failure("h:1", error)
