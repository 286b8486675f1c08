"""The table of rights of the members' port: each request that it serves has a row."""

from __future__ import annotations

from typing import Any

import pytest

from sparrowmq.broker.access.rights import RIGHTS as OF_BROKER
from sparrowmq.coordinator.groups.members import RIGHTS, MemberServer, Port
from sparrowmq.protocol.codes import RequestCode as Code
from sparrowmq.protocol.managed import JoinBody, LeaveBody

NO_GROUPS: Any = None


def test_requests_and_rows_match() -> None:
    assert MemberServer(NO_GROUPS, port=Port("127.0.0.1")).handlers().keys() == RIGHTS.keys()


def test_port_is_not_created_with_a_handler_without_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    real = MemberServer.handlers
    monkeypatch.setattr(MemberServer, "handlers", lambda server: {**real(server), 90399: print})
    with pytest.raises(LookupError, match=r"90399: .* no row in RIGHTS of sparrowmq\.coordinator\.groups"):
        MemberServer(NO_GROUPS, port=Port("127.0.0.1"))


def test_joining_needs_what_the_broker_judges_and_the_rest_a_proof() -> None:
    join = RIGHTS[Code.JOIN_MANAGED_GROUP]
    assert join is OF_BROKER[Code.JOIN_MANAGED_GROUP]
    body = JoinBody("g", "c", ["T", "%RETRY%g"]).encode()
    assert (join.actions, join.resources({}, body)) == ({"Sub"}, [("Group", "g"), ("Topic", "T")])
    leave = RIGHTS[Code.LEAVE_MANAGED_GROUP].resources({}, LeaveBody("g", "c#1", "").encode())
    assert leave == [("Group", "g")]
    assert {code for code, right in RIGHTS.items() if right.proof} == RIGHTS.keys() - {
        Code.JOIN_MANAGED_GROUP
    }
