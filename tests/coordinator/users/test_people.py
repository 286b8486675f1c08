"""People in the database. `tests/databases` runs the same tests on PostgreSQL and MariaDB."""

from __future__ import annotations

from typing import Any

import pytest

from sparrowmq.coordinator import audit
from sparrowmq.coordinator.audit import Actor
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.users import people, tokens
from sparrowmq.coordinator.users.people import Change
from sparrowmq.coordinator.users.roles import Role
from sparrowmq.core.errors import InvalidNameError, RefusedError

ROOT = Actor("root", "why")
HOUR = 3_600_000


@pytest.fixture(autouse=True)
def admin(database: Database) -> None:
    do(database, people.add, "admin", "hash", Change(role="admin"))


def do(database: Database, call: Any, *arguments: Any) -> Any:
    with database.write() as connection:
        return call(connection, *arguments, ROOT)


def entries(database: Database, name: str) -> list[tuple[str, Any, Any]]:
    with database.read() as connection:
        found = audit.search(connection, audit.Search(object=name))
    return [(one.action, one.before, one.after) for one in reversed(found)]


def get(database: Database, name: str) -> people.Person:
    with database.read() as connection:
        return people.get(connection, name)


@pytest.mark.proves("pmq:P3")
def test_a_person_is_made_changed_and_deleted_with_entries(database: Database) -> None:
    do(database, people.add, "ann", "h1", Change(email="ann@x.org"))
    do(database, people.edit, "ann", Change(role="operator", password_hash="h2"))
    found = get(database, "ann")
    assert (found.role, found.email, found.enabled) == (Role.OPERATOR, "ann@x.org", True)
    with database.read() as connection:
        assert people.password_hash(connection, "ann") == "h2"
        assert people.password_hash(connection, "nobody") is None
        assert [one.name for one in people.everyone(connection)] == ["admin", "ann"]
    do(database, people.remove, "ann")
    told = entries(database, "ann")
    assert told == [
        ("person.add", None, {"role": "viewer", "email": "ann@x.org"}),
        ("person.edit", {"role": "viewer"}, {"role": "operator", "password": "changed"}),
        ("person.delete", {"role": "operator", "email": "ann@x.org", "objects": []}, None),
    ]
    assert "h2" not in repr(told)


@pytest.mark.parametrize(
    ("call", "arguments", "status", "text"),
    [
        (people.add, ("admin", "h", Change()), 409, "there is a person admin already"),
        (people.add, ("a b", "h", Change()), 422, "a person's name has"),
        (people.add, ("x" * 65, "h", Change()), 422, "a person's name has"),
        (people.add, ("x", "h", Change(role="king")), 422, "must be one of viewer, operator, admin"),
        (people.add, ("x", "h", Change(email="nonsense")), 422, "is no mail address"),
        (people.edit, ("nobody", Change(role="admin")), 404, "there is no person 'nobody'"),
        (people.edit, ("admin", Change()), 422, "nothing to change of admin"),
        (people.edit, ("admin", Change(role="viewer")), 409, "nobody who administers people"),
        (people.edit, ("admin", Change(enabled=False)), 409, "nobody who administers people"),
        (people.remove, ("admin",), 409, "nobody who administers people"),
        (people.remove, ("nobody",), 404, "there is no person"),
        (people.grant, ("admin", ("queue", "g"), "owner"), 422, "the kind must be one of topic, group"),
        (people.grant, ("admin", ("group", "g"), "admin"), 422, "must be one of viewer, owner, operator"),
        (people.grant, ("admin", ("group", "g"), None), 404, "admin has no role for the group g"),
        (people.grant, ("nobody", ("group", "g"), "owner"), 404, "there is no person"),
    ],
)
def test_what_is_refused_changes_nothing(
    database: Database, call: Any, arguments: tuple[Any, ...], status: int, text: str
) -> None:
    with pytest.raises(RefusedError, match=text) as caught:
        do(database, call, *arguments)
    assert caught.value.status == status
    with database.read() as connection:
        assert [one.name for one in people.everyone(connection)] == ["admin"]
        assert len(audit.search(connection, audit.Search())) == 1


def test_roles_for_single_objects(database: Database) -> None:
    do(database, people.add, "ann", "h", Change())
    do(database, people.grant, "ann", ("group", "g"), "viewer")
    do(database, people.grant, "ann", ("group", "g"), "owner")
    do(database, people.grant, "ann", ("topic", "t"), "operator")
    assert get(database, "ann").objects == {("group", "g"): Role.OWNER, ("topic", "t"): Role.OPERATOR}
    do(database, people.grant, "ann", ("topic", "t"), None)
    assert get(database, "ann").objects == {("group", "g"): Role.OWNER}
    assert entries(database, "g") == [
        ("grant", None, {"person": "ann", "role": "viewer"}),
        ("grant", {"person": "ann", "role": "viewer"}, {"person": "ann", "role": "owner"}),
    ]
    with pytest.raises(InvalidNameError):
        do(database, people.grant, "ann", ("topic", "no topic!"), "owner")


def test_who_has_a_role_for_an_object_and_what_is_lost_with_a_person(database: Database) -> None:
    for name in ("bob", "ann", "eve"):
        do(database, people.add, name, "h", Change())
    do(database, people.grant, "bob", ("group", "g"), "viewer")
    do(database, people.grant, "ann", ("group", "g"), "owner")
    do(database, people.grant, "ann", ("topic", "g"), "operator")
    do(database, people.edit, "ann", Change(enabled=False))
    with database.read() as connection:
        found = people.having(connection, ("group", "g"))
        assert [(one.name, one.enabled, role) for one, role in found] == [
            ("ann", False, Role.OWNER),
            ("bob", True, Role.VIEWER),
        ]
        assert people.having(connection, ("topic", "other")) == []
        with pytest.raises(InvalidNameError):
            people.having(connection, ("group", "no group!"))
    do(database, people.remove, "ann")
    deleted = entries(database, "ann")[-1]
    assert (deleted[0], deleted[1]["objects"]) == (
        "person.delete",
        ["owner of group g", "operator of topic g"],
    )


@pytest.mark.proves("pmq:P1")
def test_a_token_is_its_person_until_it_ends(database: Database) -> None:
    found, text = do(database, tokens.make, "admin", "ci", HOUR)
    with database.read() as connection:
        person, token = tokens.holder(connection, text)
        assert (person.name, token) == ("admin", found)
        assert tokens.of(connection, "admin") == [found]
        for forged in (text + "x", text[:-1], "", "smq_", "' OR 1=1 --", text.upper()):
            with pytest.raises(RefusedError, match="not known or has ended") as caught:
                tokens.holder(connection, forged)
            assert caught.value.status == 401
    assert text not in repr(entries(database, "admin"))
    do(database, tokens.revoke, found.id)
    with database.read() as connection, pytest.raises(RefusedError):
        tokens.holder(connection, text)


@pytest.mark.parametrize("change", [Change(password_hash="new"), Change(enabled=False)])
def test_a_new_password_and_being_disabled_end_all_tokens(database: Database, change: Change) -> None:
    do(database, people.add, "ann", "h", Change())
    _, text = do(database, tokens.make, "ann", "", HOUR)
    do(database, people.edit, "ann", change)
    with database.read() as connection:
        assert tokens.of(connection, "ann") == []
        with pytest.raises(RefusedError):
            tokens.holder(connection, text)


def test_bounds_of_tokens(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "TOKENS_MAX", 2)
    for lifetime in (0, 59_999, 367 * 86_400_000):
        with pytest.raises(RefusedError, match="a token lives from 1 minute to 366 days"):
            do(database, tokens.make, "admin", "", lifetime)
    with pytest.raises(RefusedError, match="a label has at most 100 characters"):
        do(database, tokens.make, "admin", "x" * 101, HOUR)
    for _ in range(2):
        do(database, tokens.make, "admin", "", HOUR)
    with pytest.raises(RefusedError, match="admin has 2 tokens, which is the limit"):
        do(database, tokens.make, "admin", "", HOUR)
    with pytest.raises(RefusedError, match="there is no token 12345"):
        do(database, tokens.revoke, 12345)
    with pytest.raises(RefusedError, match="there is no person"):
        do(database, tokens.make, "nobody", "", HOUR)
