"""Hostile and broken input: forged and expired tokens, endless bodies, login storms."""

from __future__ import annotations

import json
from http.client import HTTPConnection
from pathlib import Path

import pytest
from sqlalchemy import update
from tests.coordinator.running import Running, running
from tests.support import sqlite_url

from sparrowmq.coordinator.api.app import BODY_BYTES_MAX
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.database.tables import token as token_table
from sparrowmq.coordinator.users import login_attempts
from sparrowmq.coordinator.users.login_attempts import FAILURES_MAX


def asked(api: Running, authorization: str) -> tuple[int, str]:
    """A change that needs a token."""
    headers = {"Content-Type": "application/json", "Authorization": authorization}
    status, answer = api.raw("POST", "/api/v1/tokens", b"{}", headers)
    return status, json.loads(answer)["error"] if status >= 400 else ""


def entries(api: Running) -> int:
    found = api.get("/audit?count=1")
    return int(found[0]["id"]) if found else 0


@pytest.mark.proves("pmq:P1")
def test_forged_changed_expired_or_revoked_tokens_are_refused(api: Running) -> None:
    good = api.person("holds-a-token")
    assert asked(api, f"Bearer {good}")[0] == 201
    _, ended = api.call("POST", "/tokens", {"person": "holds-a-token", "label": "ended"})
    _, gone = api.call("POST", "/tokens", {"person": "holds-a-token"})
    assert api.call("DELETE", f"/tokens/{gone['id']}")[0] == 200
    deleted = api.person("deleted-with-token")
    assert api.call("DELETE", "/people/deleted-with-token")[0] == 200
    database = Database(api.coordinator.settings.database_url)
    with database.write() as connection:
        mine = token_table.c.id == ended["id"]
        connection.execute(update(token_table).where(mine).values(expires_at=1))
    database.close()
    before = entries(api)
    wrong = (
        good[:-1] + ("a" if good[-1] != "a" else "b"),
        good[:-1],
        f"{good}x",
        good.upper(),
        "smq_",
        "x" * 8000,
    )
    for text in (*wrong, ended["token"], gone["token"], deleted, "' OR '1'='1", "smq_%", "\xff\xfe"):
        status, said = asked(api, f"Bearer {text}")
        assert (status, "type: sparrow login" in said) == (401, True), text
    for whole in ("", "Bearer", "Bearer ", f"Basic {good}", good):
        assert asked(api, whole)[0] == 401, whole
    assert entries(api) == before, "nothing was written"
    assert asked(api, f"bearer   {good} ")[0] == 201


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 30_000,
        b'{"name":' * 7_000,
        b'{"name": "x", "password": "y"}' + b"]" * 100,
        b"\xff\xfe\x00",
        b'{"a": 1e999}',
    ],
)
def test_deep_and_broken_bodies_are_refused_with_a_message(api: Running, body: bytes) -> None:
    status, answer = api.raw("POST", "/api/v1/login", body, {"Content-Type": "application/json"})
    assert status in (400, 422)
    assert json.loads(answer)["error"]
    assert api.call("GET", "/health")[0] == 200


def test_body_with_very_many_values_is_refused_before_each_gets_an_error(api: Running) -> None:
    for body in (
        b"{" + b",".join(b'"%d":1' % number for number in range(6000)) + b"}",
        b'{"name":[' + b"1," * 30_000 + b"1]}",
    ):
        status, answer = api.raw("POST", "/api/v1/login", body, {"Content-Type": "application/json"})
        assert (status, json.loads(answer)) == (
            413,
            {"error": "the body has too many values; the limit is 2000"},
        )


def test_endless_body_is_cut_off(api: Running) -> None:
    """It declares no length, so it is counted while it arrives."""
    host, _, port = api.url.removeprefix("http://").partition(":")
    connection = HTTPConnection(host, int(port), timeout=20)
    pieces = (b" " * 4096 for _ in range(BODY_BYTES_MAX // 4096 + 1))
    try:
        connection.request(
            "POST", "/api/v1/login", pieces, {"Content-Type": "application/json"}, encode_chunked=True
        )
        answer = connection.getresponse()
        assert (answer.status, json.loads(answer.read())) == (
            413,
            {"error": "the body is too large; the limit is 65536 bytes"},
        )
    finally:
        connection.close()


def test_login_storms_are_in_the_audit_log_once(
    migrated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login_attempts, "ADDRESS_TRIES_MAX", 1 + 2 * FAILURES_MAX)
    with running(database_url=sqlite_url(tmp_path / "storm.db")) as api:
        assert api.person("tried")
        for name in ("tried", "no-such-person-or-a-password", "third"):
            for _ in range(FAILURES_MAX + 2):
                api.call("POST", "/login", {"name": name, "password": "wrong"})
        found = [one for one in api.get("/audit") if one["action"].startswith("login.")]
        assert [(one["action"], one["object"]) for one in reversed(found)] == [
            ("login.locked", "tried"), ("login.locked", ""), ("login.storm", ""),
        ]  # fmt: skip
        assert {(one["actor"], one["reason"]) for one in found} == {("coordinator", "tries from 127.0.0.1")}
        assert "no-such-person" not in json.dumps(api.get("/audit"))


@pytest.mark.proves("pmq:P1")
def test_caller_cannot_choose_its_own_address(api: Running) -> None:
    """The audit log and the limits use the address of the connection."""
    api.person("forwarded")
    headers = {"Content-Type": "application/json", "X-Forwarded-For": "6.6.6.6", "Forwarded": "for=6.6.6.6"}
    body = {"name": "forwarded", "password": api.passwords["forwarded"]}
    assert api.raw("POST", "/api/v1/login", json.dumps(body).encode(), headers)[0] == 200
    (entry,) = api.get("/audit?actor=forwarded")
    assert entry["reason"] == "login from 127.0.0.1"
