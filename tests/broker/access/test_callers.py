"""A client id belongs to the account that used it first, while it is connected."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.rig import connection

from sparrowmq.broker.access import callers
from sparrowmq.broker.access.callers import ClientOwners, Principal
from sparrowmq.protocol.bodies import AssignmentRequest, HeartbeatData, LockBatchRequestBody, ProducerData
from sparrowmq.protocol.frame import Command


def owners() -> ClientOwners:
    return ClientOwners(lambda host, command: Principal.account(command.ext["AccessKey"]))


def speak(table: ClientOwners, conn: Any, who: str, client_id: str, code: int = 34) -> Any:
    """The answer to a request that names a client; `done` when its handler was called."""
    body = {
        34: lambda: HeartbeatData(client_id=client_id, producers=(ProducerData("p"),)).encode(),
        35: lambda: b"",
        41: lambda: LockBatchRequestBody(client_id, "g").encode(),
        42: lambda: LockBatchRequestBody(client_id, "g").encode(),
        400: lambda: AssignmentRequest(client_id, "g", "AVG", "T").encode(),
    }[code]()
    handlers = table.guard({code: lambda conn, command: "done"})
    return handlers[code](conn, Command(code, ext={"AccessKey": who, "clientID": client_id}, body=body))


@pytest.mark.parametrize("code", [34, 35, 41, 42, 400])
def test_account_cannot_use_the_client_id_of_another(code: int) -> None:
    table, first, second = owners(), connection(1), connection(2)
    assert speak(table, first, "alice", "c") == "done"
    refused = speak(table, second, "mallory", "c", code)
    assert refused.code == 16
    assert "the client id 'c' belongs to another account, whose client is connected" in refused.remark
    assert speak(table, second, "mallory", "d", code) == "done"
    assert speak(table, second, "alice", "c", code) == "done", "a second connection of the same account"


def test_id_is_free_after_its_last_connection_closes() -> None:
    table, first, second, other = owners(), connection(1), connection(2), connection(3)
    speak(table, first, "alice", "c")
    speak(table, second, "alice", "c")
    table.connection_lost(first)
    assert speak(table, other, "mallory", "c").code == 16
    table.connection_lost(second)
    assert speak(table, other, "mallory", "c") == "done"
    assert table.caller(other) == Principal.account("mallory")
    assert table.caller(second) is None
    table.connection_lost(other)
    table.connection_lost(other)
    assert repr(table) == "<ClientOwners 0 client ids on 0 connections>"


def test_only_heartbeats_claim_an_id(monkeypatch: pytest.MonkeyPatch) -> None:
    table = owners()
    assert speak(table, connection(1), "mallory", "c", 41) == "done"
    assert speak(table, connection(2), "alice", "c") == "done"


def test_number_of_client_ids_per_connection_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers, "CLIENT_IDS_MAX", 2)
    table, conn = owners(), connection(1)
    assert [speak(table, conn, "alice", name) for name in "abab"] == ["done"] * 4
    refused = speak(table, conn, "alice", "c")
    assert "is used by 2 clients, which is the limit" in refused.remark
    assert repr(table) == "<ClientOwners 2 client ids on 1 connections>"
