"""Sending one notice: to the log, to a webhook, by e-mail. Blocking calls, each with a deadline of its own.

The texts come from names other people chose: in a mail they are body or an encoded header, never a header's
lines.
"""

from __future__ import annotations

import http.client
import json
import logging
import smtplib
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import localtime
from typing import Any, Final
from urllib.parse import urlsplit

from sparrowmq.coordinator.alarms.outbox import EMAIL, LOG, WEBHOOK, Notice
from sparrowmq.core.errors import SettingsError

SECONDS: Final = 5.0
"""How long connecting, and each wait for an answer, may take."""
_log = logging.getLogger("sparrowmq.coordinator.alarms")
_ADDRESS_CHARS_MAX: Final = 254


@dataclass(frozen=True, slots=True)
class Smtp:
    """A mail server. With `user` it is logged in at, after STARTTLS; `tls` is none, starttls or always."""

    host: str
    port: int
    sender: str
    tls: str = "starttls"
    user: str = ""
    password: str = field(default="", repr=False)


Sender = Callable[[Notice], None]


def senders(smtp: Smtp | None) -> Mapping[str, Sender]:
    """How each channel is sent by. A sender raises OSError, ValueError or the like when it could not."""
    found: dict[str, Sender] = {LOG: to_log, WEBHOOK: to_webhook}
    if smtp is not None:
        found[EMAIL] = lambda notice: to_mail(notice, smtp)
    return found


def to_log(notice: Notice) -> None:
    """One line on the logger `sparrowmq.coordinator.alarms`."""
    _log.warning("%s", headline(notice.body))


def to_webhook(notice: Notice) -> None:
    """POST the notice as JSON. Any 2xx answer is success; nothing of the answer's body is read."""
    url = urlsplit(notice.target)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ValueError(f"{notice.target!r} is no address for a webhook; it starts with http:// or https://")
    kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    connection = kind(url.hostname, url.port, timeout=SECONDS)
    try:
        body = json.dumps({**notice.body, "notice": notice.id}, ensure_ascii=False).encode()
        headers = {"Content-Type": "application/json", "User-Agent": "sparrowmq-coordinator"}
        connection.request("POST", (url.path or "/") + (f"?{url.query}" if url.query else ""), body, headers)
        status = connection.getresponse().status
    finally:
        connection.close()
    if not 200 <= status < 300:
        raise OSError(f"the webhook answered with status {status}")


def to_mail(notice: Notice, smtp: Smtp) -> None:
    """Send the notice as plain text to its one receiver."""
    mail = EmailMessage()
    mail["From"], mail["To"] = smtp.sender, notice.target
    mail["Subject"] = _one_line(headline(notice.body))[:200]
    mail["Date"] = localtime()
    mail["Message-ID"] = f"<sparrowmq-notice-{notice.id}@{smtp.host}>"
    mail.set_content(letter(notice.body))
    with _connected(smtp) as server:
        if smtp.user:
            server.login(smtp.user, smtp.password)
        server.send_message(mail)


def _connected(smtp: Smtp) -> smtplib.SMTP:
    """A connection to the mail server. Whoever has no certificate for its name gets no password."""
    if smtp.tls == "none":
        return smtplib.SMTP(smtp.host, smtp.port, timeout=SECONDS)
    trusted = ssl.create_default_context()
    if smtp.tls == "always":
        return smtplib.SMTP_SSL(smtp.host, smtp.port, timeout=SECONDS, context=trusted)
    server = smtplib.SMTP(smtp.host, smtp.port, timeout=SECONDS)
    try:
        server.starttls(context=trusted)
    except BaseException:
        server.close()
        raise
    return server


def headline(body: Mapping[str, Any]) -> str:
    """The notice in one line."""
    return _one_line(f"[{body['kind']}] {body['rule']}: {body['text']}")


def letter(body: Mapping[str, Any]) -> str:
    """The notice as a letter."""
    lines = [str(body["text"]), ""]
    for name in ("alarm", "kind", "rule", "group", "topic", "object", "by", "reason"):
        if body.get(name):
            lines.append(f"{name}: {body[name]}")
    lines.append(f"since: {_utc(body['since_ms'])}")
    lines.append(f"at: {_utc(body['at_ms'])}")
    return "\n".join(_one_line(line) for line in lines) + "\n"


def check_address(address: str) -> str:
    """The mail address as it is. Raises `SettingsError` for a text that is none."""
    name, at, host = address.rpartition("@")
    plain = address.isprintable() and not any(char in address for char in ' ,;<>()"')
    if not (name and at and host) or not plain or len(address) > _ADDRESS_CHARS_MAX:
        raise SettingsError(f"{address!r} is no mail address; write for example someone@example.org")
    return address


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _utc(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(sep=" ", timespec="seconds")
