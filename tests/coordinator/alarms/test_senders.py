"""Notices to real receivers: a webhook, a mail server, and receivers that hang, refuse or answer nonsense."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from http.client import InvalidURL
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, Session
from tests.certificates import Authority
from tests.support import about, free_port

from sparrowmq.coordinator.alarms import senders
from sparrowmq.coordinator.alarms.outbox import EMAIL, LOG, WEBHOOK, Notice
from sparrowmq.coordinator.alarms.senders import Smtp, check_address, headline, letter, to_mail, to_webhook
from sparrowmq.core.errors import SettingsError

BODY = {
    "kind": "firing",
    "rule": "lag",
    "alarm": 3,
    "group": "g",
    "topic": "t",
    "object": "g t",
    "text": "g ist 5 hinten: äöü\r\nBcc: eve@x.org",
    "since_ms": 0,
    "at_ms": 90_000,
    "by": "service:lag-alarm",
    "reason": "",
}


def notice(channel: str, target: str = "") -> Notice:
    return Notice(17, channel, target, BODY, 0)


class Hook(BaseHTTPRequestHandler):
    status = 204
    got: list[Any]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.got.append((self.path, self.headers["Content-Type"], json.loads(body)))
        self.send_response(self.status)
        if self.status == 302:
            self.send_header("Location", self.path.partition("to=")[2])
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def hook(status: int) -> Iterator[tuple[str, list[Any]]]:
    got: list[Any] = []
    server = HTTPServer(("127.0.0.1", 0), type("It", (Hook,), {"status": status, "got": got}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", got
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_webhook_gets_the_notice_as_json() -> None:
    with hook(204) as (url, got):
        to_webhook(notice(WEBHOOK, f"{url}/a/b?key=1"))
    told = {**BODY, "text": r"g ist 5 hinten: äöü\r\nBcc: eve@x.org", "notice": 17}
    assert got == [("/a/b?key=1", "application/json", told)]


def test_refusing_webhook_is_a_failure() -> None:
    with hook(500) as (url, _), pytest.raises(OSError, match="status 500"):
        to_webhook(notice(WEBHOOK, url))


@pytest.mark.parametrize("target", ["ftp://x/", "nonsense", "http://"])
def test_invalid_address_is_a_failure(target: str) -> None:
    with pytest.raises(ValueError, match="is not a webhook URL"):
        to_webhook(notice(WEBHOOK, target))


def test_hanging_or_missing_webhook_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(senders, "SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as listening, pytest.raises(TimeoutError):
        to_webhook(notice(WEBHOOK, f"http://127.0.0.1:{listening.getsockname()[1]}"))
    with pytest.raises(OSError):
        to_webhook(notice(WEBHOOK, f"http://127.0.0.1:{free_port()}"))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


class Mailbox:
    def __init__(self, answer: str = "250 OK") -> None:
        self.answer, self.got = answer, list[Envelope]()

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        self.got.append(envelope)
        return self.answer


@contextmanager
def mail_server(box: Mailbox, **options: Any) -> Iterator[Smtp]:
    controller = Controller(box, hostname="127.0.0.1", port=free_port(), **options)
    controller.start()
    try:
        yield Smtp("127.0.0.1", controller.port, "mq@x.org", "none")
    finally:
        asyncio.run_coroutine_threadsafe(_served(), controller.loop).result(20)
        controller.stop()


async def _served() -> None:
    """Wait until every connection has ended: the server stops without closing them."""
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    if others:
        await asyncio.wait(others, timeout=10)
    await asyncio.sleep(0.01)  # transports let go of their sockets


def test_mail_is_delivered_and_names_cannot_add_headers() -> None:
    box = Mailbox()
    with mail_server(box) as smtp:
        to_mail(notice(EMAIL, "ann@x.org"), smtp)
    (found,) = box.got
    assert (found.mail_from, found.rcpt_tos) == ("mq@x.org", ["ann@x.org"])
    assert isinstance(found.content, bytes)
    mail = message_from_bytes(found.content, policy=policy.default)
    assert mail["Subject"] == r"[firing] lag: g ist 5 hinten: äöü\r\nBcc: eve@x.org"
    assert mail["Bcc"] is None
    assert mail["Message-ID"] == "<sparrowmq-notice-17@127.0.0.1>"
    assert abs(mail["Date"].datetime.timestamp() - time.time()) < 3600
    text = mail.get_content()
    assert "alarm: 3" in text.splitlines(), "what to acknowledge or silence"
    assert "group: g" in text
    assert "at: 1970-01-01 00:01:30+00:00" in text


@pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS")
def test_mail_server_that_requires_a_login_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(senders, "SECONDS", 1.0)  # this server lets a wrong login wait
    tried: list[Any] = []

    def authenticate(*arguments: Any) -> AuthResult:
        tried.append(arguments[-1])
        return AuthResult(success=arguments[-1].password == b"secret")

    box = Mailbox()
    options = {"auth_require_tls": False, "authenticator": authenticate, "auth_required": True}
    with mail_server(box, **options) as smtp:
        right = Smtp(smtp.host, smtp.port, smtp.sender, "none", "mq", "secret")
        to_mail(notice(EMAIL, "ann@x.org"), right)
        with pytest.raises(OSError):
            to_mail(
                notice(EMAIL, "ann@x.org"), Smtp(smtp.host, smtp.port, smtp.sender, "none", "mq", "wrong")
            )
    assert len(box.got) == 1
    assert len(tried) >= 2
    assert "secret" not in repr(right)


def test_refusing_or_missing_mail_server_is_a_failure() -> None:
    with mail_server(Mailbox("550 not here")) as smtp:
        with pytest.raises(OSError, match="550"):
            to_mail(notice(EMAIL, "ann@x.org"), smtp)
        with pytest.raises(OSError, match="STARTTLS"):
            to_mail(notice(EMAIL, "ann@x.org"), Smtp(smtp.host, smtp.port, "mq@x.org"))
    with pytest.raises(OSError):
        to_mail(notice(EMAIL, "ann@x.org"), smtp)


@pytest.mark.parametrize("tls", ["starttls", "always"])
def test_mail_server_without_a_valid_certificate_gets_neither_password_nor_mail(
    tls: str, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair, box = authority.sign("mail"), Mailbox()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    options = {"tls_context": context} if tls == "starttls" else {"ssl_context": context}
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.cert))  # also tells the controller's own client
    with mail_server(box, **options) as found:
        smtp = Smtp(found.host, found.port, "mq@x.org", tls)
        monkeypatch.setenv("SSL_CERT_FILE", str(pair.key))
        with pytest.raises(ssl.SSLCertVerificationError):
            to_mail(notice(EMAIL, "ann@x.org"), smtp)
        assert not box.got
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.cert))
        to_mail(notice(EMAIL, "ann@x.org"), smtp)
    assert len(box.got) == 1


@pytest.mark.parametrize("target", ["/a\r\nX: y", "/a b", "/a\0", "?\r\n\r\nGET / HTTP/1.1"])
def test_address_adds_no_lines_to_a_webhooks_request(target: str) -> None:
    with hook(204) as (url, got):
        with pytest.raises((ValueError, OSError, InvalidURL)):
            to_webhook(notice(WEBHOOK, url + target))
        assert not got


def test_webhook_redirects_are_not_followed() -> None:
    """Notices go only where the settings say."""
    refused = pytest.raises(OSError, match="status 302")
    with hook(204) as (elsewhere, stolen), hook(302) as (url, got), refused:
        to_webhook(notice(WEBHOOK, f"{url}/?to={elsewhere}"))
    assert (len(got), stolen) == (1, [])


def test_log_gets_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "sparrowmq.coordinator.alarms"):
        senders.senders(None)[LOG](notice(LOG))
    assert caplog.messages == [r"[firing] lag: g ist 5 hinten: äöü\r\nBcc: eve@x.org"]
    assert EMAIL not in senders.senders(None)
    assert EMAIL in senders.senders(Smtp("h", 1, "a@b"))


def test_subject_and_text_contain_no_injected_line_breaks() -> None:
    assert "\n" not in headline(BODY)
    assert "Bcc: eve@x.org" not in letter(BODY).splitlines()


@pytest.mark.parametrize(
    "address", ["", "x", "@x", "a@", "a b@x", "a@x,b@x", "a@x\nBcc: b@x", "a" * 250 + "@x.org"]
)
def test_invalid_addresses_are_refused(address: str) -> None:
    with pytest.raises(SettingsError, check=about(value=address)):
        check_address(address)
    assert check_address("ann.b+mq@x.org") == "ann.b+mq@x.org"
