"""Alarms for receivers that hang or refuse are repeated until accepted; other receivers are not affected."""

from __future__ import annotations

import logging
import socket
from pathlib import Path

import pytest
from tests.coordinator.alarms.test_senders import Mailbox, hook, mail_server
from tests.coordinator.running import Running, running
from tests.coordinator.services.watched import place
from tests.support import sqlite_url, until_sync
from typer.testing import CliRunner

from sparrowmq.cli.main import app
from sparrowmq.coordinator.alarms import outbox, senders


def failing(it: Running) -> dict[tuple[str, str], str]:
    return {(one["channel"], one["target"]): one["error"] for one in it.get("/notices?failed=true")}


def receivers(box: Mailbox) -> list[str]:
    return sorted(address for envelope in box.got for address in envelope.rcpt_tos)


def fire(it: Running, group: str) -> None:
    """A group is far behind; the services that detect and report it run once."""
    it.cluster.seen.places[group] = [place(10**6)]
    it.call("PATCH", "/services/lag-alarm", {"options": {"checks": 1, "calm_checks": 1}})
    it.call("POST", "/services/lag-alarm/run", {})
    until_sync(lambda: [one for one in it.get("/alarms") if one["group"] == group])
    it.call("POST", "/services/notices/run", {})


def own(it: Running, name: str, group: str) -> None:
    """A user with an address, who owns a group."""
    it.person(name)
    assert it.call("PATCH", f"/people/{name}", {"email": f"{name}@x.org"})[0] == 200
    grant = {"name": name, "kind": "group", "object": group, "role": "owner"}
    status, answer = it.call("POST", "/grants", grant)
    assert status == 200, answer


@pytest.mark.proves("pmq:4")
def test_hanging_webhook_and_refusing_mail_server_delay_no_other_channel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(senders, "SECONDS", 0.2)
    monkeypatch.setattr(outbox, "RETRY_MS", 50)
    box = Mailbox("550 not here")
    with (
        socket.create_server(("127.0.0.1", 0)) as hanging,
        mail_server(box) as smtp,
        caplog.at_level("WARNING"),
    ):
        url = f"http://127.0.0.1:{hanging.getsockname()[1]}"
        settings = {
            "database_url": sqlite_url(tmp_path / "c.db"),
            "alarm_webhook": f"{url}/key",
            "alarm_email_to": "all@x.org",
            "smtp_host": smtp.host,
            "smtp_port": smtp.port,
            "smtp_from": smtp.sender,
            "smtp_tls": "none",
        }
        with running(**settings) as it:
            own(it, "ann", "billing")
            own(it, "bob", "other")
            assert it.call("PATCH", "/services/notices", {"interval_ms": 1000})[0] == 200
            fire(it, "billing")
            until_sync(lambda: len(failing(it)) == 3)
            found = failing(it)
            assert found["webhook", f"{url}/…"] == "no answer in time"
            assert "550" in found["email", "all@x.org"]
            assert found.keys() >= {("email", "ann@x.org")}
            assert sum("lag: the group billing" in text for text in caplog.messages) == 1
            text = "the service works on meanwhile"
            assert it.call("POST", "/alarms/1/acknowledge", {"reason": text})[0] == 200
            shown = _sparrow(it, monkeypatch, "alarm", "notices", "--failed")
            assert "email all@x.org" in shown
            assert "next try" in shown
            refused = len(box.got)
            box.answer = "250 OK"
            until_sync(lambda: ("email", "ann@x.org") not in failing(it))
            until_sync(lambda: ("email", "all@x.org") not in failing(it))
            assert refused >= 2
            assert set(receivers(box)) == {"all@x.org", "ann@x.org"}
            runs = it.get("/services/notices/runs?count=200")
            assert any("webhook to " in run["message"] for run in runs)
            assert all(run["outcome"] == "done" for run in runs)


def test_working_webhook_gets_each_change_once(tmp_path: Path) -> None:
    with (
        hook(204) as (url, got),
        running(database_url=sqlite_url(tmp_path / "c.db"), alarm_webhook=url) as it,
    ):
        fire(it, "g")
        until_sync(lambda: [body["kind"] for _, _, body in got] == ["firing"])
        it.cluster.seen.places["g"] = [place(0)]
        it.call("POST", "/services/lag-alarm/run", {})
        until_sync(lambda: it.get("/alarms") == [])
        it.call("POST", "/services/notices/run", {})
        until_sync(lambda: [body["kind"] for _, _, body in got] == ["firing", "resolved"])
        assert len({body["notice"] for _, _, body in got}) == 2


def _sparrow(it: Running, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    monkeypatch.setenv("SPARROW_COORDINATOR_URL", it.url)
    monkeypatch.setenv("SPARROW_TOKEN", it.token)
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "250"})
    assert result.exit_code == 0, result.output
    logging.getLogger().setLevel(logging.WARNING)
    return result.stdout
