"""Sending one notice: to the log, to a webhook, by e-mail. Blocking calls, each with its own deadline.

The texts contain names that users chose, so they are escaped with `core.outside`; in a mail they are used
only in the body or in an encoded header.
"""

from __future__ import annotations

import http.client
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
from sparrowmq.core.outside import json_line, one_line

SECONDS: Final = 5.0
"""Timeout for connecting and for each answer."""
_log = logging.getLogger("sparrowmq.coordinator.alarms")
_ADDRESS_CHARS_MAX: Final = 254


@dataclass(frozen=True, slots=True)
class Smtp:
    """A mail server. With `user`, log in after STARTTLS; `tls` is none, starttls or always."""

    host: str
    port: int
    sender: str
    tls: str = "starttls"
    user: str = ""
    password: str = field(default="", repr=False)


Sender = Callable[[Notice], None]


def senders(smtp: Smtp | None) -> Mapping[str, Sender]:
    """The sender of each channel. A sender raises OSError, ValueError or the like if it fails."""
    found: dict[str, Sender] = {LOG: to_log, WEBHOOK: to_webhook}
    if smtp is not None:
        found[EMAIL] = lambda notice: to_mail(notice, smtp)
    return found


def to_log(notice: Notice) -> None:
    """Write one line to the logger `sparrowmq.coordinator.alarms`."""
    _log.warning("%s", headline(notice.body))


def to_webhook(notice: Notice) -> None:
    """POST the notice as JSON. Any 2xx answer is success; the body of the answer is not read."""
    url = urlsplit(notice.target)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ValueError("alarmWebhook is not a webhook URL; it must start with http:// or https://")
    kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    connection = kind(url.hostname, url.port, timeout=SECONDS)
    try:
        told = {
            name: one_line(value) if isinstance(value, str) else value for name, value in notice.body.items()
        }
        body = json_line({**told, "notice": notice.id}).encode()
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
    mail["Subject"] = headline(notice.body)[:200]
    mail["Date"] = localtime()
    mail["Message-ID"] = f"<sparrowmq-notice-{notice.id}@{smtp.host}>"
    mail.set_content(letter(notice.body))
    with _connected(smtp) as server:
        if smtp.user:
            server.login(smtp.user, smtp.password)
        server.send_message(mail)


def _connected(smtp: Smtp) -> smtplib.SMTP:
    """A connection to the mail server. A server without a valid certificate does not get the password."""
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
    return one_line(f"[{body['kind']}] {body['rule']}: {body['text']}")


def letter(body: Mapping[str, Any]) -> str:
    """The notice as a mail message."""
    lines = [str(body["text"]), ""]
    for name in ("alarm", "kind", "rule", "group", "topic", "object", "by", "reason"):
        if body.get(name):
            lines.append(f"{name}: {body[name]}")
    lines.append(f"since: {_utc(body['since_ms'])}")
    lines.append(f"at: {_utc(body['at_ms'])}")
    return "\n".join(map(one_line, lines)) + "\n"


def check_address(address: str) -> str:
    """The mail address, unchanged. Raises `SettingsError` if the text is not an address."""
    name, at, host = address.rpartition("@")
    plain = address.isprintable() and not any(char in address for char in ' ,;<>()"')
    if not (name and at and host) or not plain or len(address) > _ADDRESS_CHARS_MAX:
        text = f"{address!r} is not a mail address; write for example someone@example.org"
        raise SettingsError(text, value=address)
    return address


def _plain(body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: one_line(value) if isinstance(value, str) else value for name, value in body.items()}


def _utc(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(sep=" ", timespec="seconds")
