"""The commands of access control, tested on their files; `test_access` tests them over the wire."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.broker.doubles import FakeConnection

from sparrowmq.broker.access.access_admin import AuthAdmin
from sparrowmq.broker.access.auth_store import AuthStore
from sparrowmq.protocol.bodies.access import (
    AclInfo,
    PolicyEntryInfo,
    PolicyInfo,
    UserInfo,
    acls_from_json,
    users_from_json,
)
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.frame import Command
from sparrowmq.transport.signing import Credentials, sign

PASSWORDS = {"root": "toor1234", "alice": "secret12"}


class Table:
    """A table of handlers, called with code and fields; a request with a user of `PASSWORDS` is signed."""

    def __init__(self, handlers: dict[int, Any]) -> None:
        self.handlers = handlers

    def __call__(self, code: int, body: bytes = b"", **ext: str) -> Command:
        command = Command(code, ext=ext, body=body)
        if ext.get("AccessKey") in PASSWORDS:
            sign(command, Credentials(ext["AccessKey"], PASSWORDS[ext["AccessKey"]]))
        made: Command = self.handlers[code](FakeConnection(), command)
        return made


ROOT = {"AccessKey": "root"}


class TestUsers:
    @pytest.fixture
    def ask(self, tmp_path: Path) -> Table:
        store = AuthStore(tmp_path / "auth")
        store.create_user(UserInfo("root", "toor1234", "Super"))
        store.create_user(UserInfo("alice", "secret12"))
        return Table(AuthAdmin(store).table())

    @pytest.mark.proves("remoting:2.7")
    def test_codes_are_handled(self, ask: Table) -> None:
        assert sorted(ask.handlers) == list(range(3001, 3011))
        assert RequestCode.AUTH_LIST_ACL == 3010

    def test_user_in_the_header_has_precedence_over_the_body(self, ask: Table) -> None:
        assert ask(3001, UserInfo("other", "password1").encode(), username="bob", **ROOT).code == 0
        assert ask(3001, UserInfo("carol", "password1").encode(), **ROOT).code == 0
        found = users_from_json(ask(3005, **ROOT).body)
        assert sorted(str(user.username) for user in found) == ["alice", "bob", "carol", "root"]
        assert [user.username for user in users_from_json(ask(3005, filter="lic", **ROOT).body)] == ["alice"]

    @pytest.mark.proves("remoting:7.3")
    def test_passwords_are_shown_only_to_super_users(self, ask: Table) -> None:
        for asker, shown in ((ROOT, "secret12"), ({"AccessKey": "alice"}, None), ({}, None)):
            assert UserInfo.decode(ask(3004, username="alice", **asker).body).password == shown
            listed = {user.username: user.password for user in users_from_json(ask(3005, **asker).body)}
            assert listed["alice"] == shown
        assert ask(3004, username="nobody", **ROOT).body == b""

    @pytest.mark.proves("remoting:7.3")
    @pytest.mark.parametrize(
        ("code", "name", "user", "what"),
        [
            (3001, "eve", UserInfo("eve", "password1", "Super"), "create"),
            (3002, "alice", UserInfo(user_type="Super"), "update"),
            (3002, "root", UserInfo(password="password1"), "update"),
            (3003, "root", UserInfo(), "delete"),
        ],
    )
    def test_only_super_users_change_super_users(
        self, ask: Table, code: int, name: str, user: UserInfo, what: str
    ) -> None:
        for asker in ({"AccessKey": "alice"}, {"AccessKey": "nobody"}, {}):
            answer = ask(code, user.encode(), username=name, **asker)
            assert (answer.code, answer.remark) == (16, f"The super user can only be {what} by super user")
        unsigned = Command(code, ext={"username": name, **ROOT}, body=user.encode())
        assert ask.handlers[code](FakeConnection(), unsigned).code == 16
        assert ask(code, user.encode(), username=name, **ROOT).code == 0

    def test_policies_are_created_and_deleted(self, ask: Table) -> None:
        entries = [PolicyEntryInfo(f"Topic:{name}", ["Pub"], None, "Allow") for name in "AB"]
        acl = AclInfo("User:other", [PolicyInfo(None, entries)])
        assert ask(3006, acl.encode(), subject="User:alice").code == 0
        got = AclInfo.decode(ask(3009, subject="User:alice").body)
        assert [one.resource for one in got.policies[0].entries] == ["Topic:A", "Topic:B"]
        assert acls_from_json(ask(3010, subjectFilter="ali", resourceFilter="Topic:B").body)
        assert ask(3010, subjectFilter="root").body in (b"", b"[]")
        assert ask(3008, subject="User:alice", resource="Topic:A").code == 0
        got = AclInfo.decode(ask(3009, subject="User:alice").body)
        assert [one.resource for one in got.policies[0].entries] == ["Topic:B"]
        assert ask(3008, subject="User:alice").code == 0
        assert ask(3009, subject="User:alice").body == b""
        unknown = ask(3009, subject="User:nobody")
        assert (unknown.code, unknown.remark) == (16, "The subject is not exist.")
