"""Users and policies as commands carry them, against what was recorded."""

from __future__ import annotations

import pytest
from tests.protocol.recorded import answers, requests

from sparrowmq.core.errors import ProtocolError
from sparrowmq.protocol.bodies.access import (
    AclInfo,
    PolicyEntryInfo,
    PolicyInfo,
    UserInfo,
    acls_from_json,
    acls_to_json,
    users_from_json,
    users_to_json,
)


def test_recorded_users() -> None:
    for _, command in [*requests(3001, 3002), *answers(3004)]:
        if command.body:
            assert sorted(UserInfo.decode(command.body).encode()) == sorted(command.body)
    for _, command in answers(3005):
        assert sorted(users_to_json(users_from_json(command.body))) == sorted(command.body)


def test_recorded_policies() -> None:
    for _, command in [*requests(3006, 3007), *answers(3009)]:
        if command.body:
            assert sorted(AclInfo.decode(command.body).encode()) == sorted(command.body)
    for _, command in answers(3010):
        assert sorted(acls_to_json(acls_from_json(command.body))) == sorted(command.body)


@pytest.mark.parametrize("data", [b"garbage", b"[1]", b'{"username":{},"policies":5}', b"[]x"])
def test_bodies_that_cannot_be_read(data: bytes) -> None:
    for decode in (users_from_json, acls_from_json, UserInfo.decode, AclInfo.decode):
        with pytest.raises(ProtocolError):
            decode(data)


def test_a_users_password_is_not_shown() -> None:
    shown = repr(UserInfo("u", "hidden", "Super", "enable"))
    assert "hidden" not in shown
    assert "username='u'" in shown


def test_policies_are_made_of_entries_by_type_and_resource() -> None:
    entry = PolicyEntryInfo("Topic:T", ["Pub"], None, "Allow")
    made = AclInfo.of("User:u", {"Custom": {"Topic:T": entry}, "Default": {}})
    assert made == AclInfo("User:u", [PolicyInfo("Custom", [entry]), PolicyInfo("Default", [])])
