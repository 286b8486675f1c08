from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.cli.conftest import Sparrow

from sparrowmq.testing import LocalCluster

FIRST = '{"username":"root","password":"toor1234"}'


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(
        tmp_path_factory.mktemp("store"),
        authentication_enabled=True,
        authorization_enabled=True,
        init_authentication_user=FIRST,
    ) as running:
        yield running


@pytest.fixture
def root(guarded: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> Sparrow:
    monkeypatch.setenv("SPARROW_ACCESS_KEY", "root")
    monkeypatch.setenv("SPARROW_SECRET_KEY", "toor1234")
    return Sparrow(guarded.namesrv)


@pytest.mark.proves("remoting:7.3")
def test_users_and_what_they_may_do(root: Sparrow, monkeypatch: pytest.MonkeyPatch) -> None:
    root("topic", "create", "Orders")
    root("user", "create", "alice", stdin="secret12\nsecret12\n")
    assert root("user", "list", "--json").values == [
        {"user": "alice", "kind": "normal", "status": "enabled"},
        {"user": "root", "kind": "super", "status": "enabled"},
    ]
    said = root("acl", "grant", "alice", "--resource", "Topic:Orders", "--action", "Pub", "--action", "Get")
    assert said.out == "user alice: Pub, Get allowed on Topic:Orders\n"
    root(
        "acl",
        "grant",
        "alice",
        "--resource",
        "Group:*",
        "--action",
        "Sub",
        "--source",
        "10.0.0.0/8",
        "--deny",
    )
    rows = root("acl", "list", "ali", "--json").values
    assert {(row["resource"], *row["actions"], *row["sources"], row["decision"]) for row in rows} == {
        ("Topic:Orders", "Pub", "Get", "allow"),
        ("Group:*", "Sub", "10.0.0.0/8", "deny"),
    }
    assert "Pub,Get" in root("acl", "list").out
    monkeypatch.setenv("SPARROW_ACCESS_KEY", "alice")
    monkeypatch.setenv("SPARROW_SECRET_KEY", "secret12")
    root("send", "Orders", "hello")
    assert "has no permission to access Cluster:" in root("user", "list", status=1).err
    monkeypatch.setenv("SPARROW_ACCESS_KEY", "root")
    monkeypatch.setenv("SPARROW_SECRET_KEY", "toor1234")
    revoked = root("acl", "revoke", "alice", "--resource", "Group:*", "--json").values
    assert revoked == [{"user": "alice", "removed": "Group:*"}]
    assert [row["resource"] for row in root("acl", "list", "--json").values] == ["Topic:Orders"]
    root("user", "update", "alice", "--disable", "--password", "-", stdin="other123\nother123\n")
    assert root("user", "list", "ali", "--json").values[0]["status"] == "disabled"
    assert root("user", "delete", "alice", "--json").values == [{"deleted": "alice"}]
    assert root("acl", "list", "--json").values == []
    assert "alice" not in root("user", "list").out


def test_what_is_not_given_or_not_there(root: Sparrow) -> None:
    assert "no change for user 'alice'" in root("user", "update", "alice", status=1).err
    assert "The user is not exist" in root("user", "update", "nobody", "--enable", status=1).err
    root("acl", "grant", "alice", status=2)


def test_brokers_without_access_control_say_so(sparrow: Sparrow) -> None:
    for command in (("user", "list"), ("acl", "list")):
        assert ". Is access control on there (" in sparrow(*command, status=1).err
