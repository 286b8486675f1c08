"""Users in the database. `tests/databases` runs the same tests on PostgreSQL and MariaDB."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support import about

from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.records import audit
from sparrowmq.coordinator.records.audit import Actor
from sparrowmq.coordinator.users import people, tokens
from sparrowmq.coordinator.users.people import PersonUpdate
from sparrowmq.coordinator.users.roles import Role
from sparrowmq.core.errors import InvalidNameError, RefusedError

ROOT = Actor("root", "why")
HOUR = 3_600_000


@pytest.fixture(autouse=True)
def admin(database: Database) -> None:
    do(database, people.add, "admin", "hash", PersonUpdate(role="admin"))


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
def test_user_is_created_changed_and_deleted_with_audit_entries(database: Database) -> None:
    do(database, people.add, "ann", "h1", PersonUpdate(email="ann@x.org"))
    do(database, people.edit, "ann", PersonUpdate(role="operator", password_hash="h2"))
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
    ("call", "arguments", "facts"),
    [
        (people.add, ("admin", "h", PersonUpdate()), {"status": 409, "what": "user", "value": "admin"}),
        (people.add, ("a b", "h", PersonUpdate()), {"status": 422, "what": "name", "value": "a b"}),
        (people.add, ("x" * 65, "h", PersonUpdate()), {"status": 422, "what": "name", "value": "x" * 65}),
        (people.add, ("x", "h", PersonUpdate(role="king")), {"status": 422, "what": "role", "value": "king"}),
        (
            people.add,
            ("x", "h", PersonUpdate(email="nonsense")),
            {"status": 422, "what": "email", "value": "nonsense"},
        ),
        (
            people.edit,
            ("nobody", PersonUpdate(role="admin")),
            {"status": 404, "what": "user", "value": "nobody"},
        ),
        (people.edit, ("admin", PersonUpdate()), {"status": 422, "what": "change"}),
        (people.edit, ("admin", PersonUpdate(role="viewer")), {"status": 409, "what": "role"}),
        (people.edit, ("admin", PersonUpdate(enabled=False)), {"status": 409, "what": "role"}),
        (people.remove, ("admin",), {"status": 409, "what": "role"}),
        (people.remove, ("nobody",), {"status": 404, "what": "user", "value": "nobody"}),
        (people.grant, ("admin", ("queue", "g"), "owner"), {"status": 422, "what": "kind", "value": "queue"}),
        (people.grant, ("admin", ("group", "g"), "admin"), {"status": 422, "what": "role", "value": "admin"}),
        (people.grant, ("admin", ("group", "g"), None), {"status": 404, "what": "group", "value": "g"}),
        (
            people.grant,
            ("nobody", ("group", "g"), "owner"),
            {"status": 404, "what": "user", "value": "nobody"},
        ),
    ],
)
def test_refused_change_changes_nothing(
    database: Database, call: Any, arguments: tuple[Any, ...], facts: dict[str, object]
) -> None:
    with pytest.raises(RefusedError, check=about(**facts)):
        do(database, call, *arguments)
    with database.read() as connection:
        assert [one.name for one in people.everyone(connection)] == ["admin"]
        assert len(audit.search(connection, audit.Search())) == 1


def test_roles_for_single_objects_are_granted(database: Database) -> None:
    do(database, people.add, "ann", "h", PersonUpdate())
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


def test_roles_of_an_object_are_listed_and_deleted_with_the_user(database: Database) -> None:
    for name in ("bob", "ann", "eve"):
        do(database, people.add, name, "h", PersonUpdate())
    do(database, people.grant, "bob", ("group", "g"), "viewer")
    do(database, people.grant, "ann", ("group", "g"), "owner")
    do(database, people.grant, "ann", ("topic", "g"), "operator")
    do(database, people.edit, "ann", PersonUpdate(enabled=False))
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
def test_token_belongs_to_its_user_until_it_expires(database: Database) -> None:
    found, text = do(database, tokens.make, "admin", "ci", HOUR)
    with database.read() as connection:
        person, token = tokens.holder(connection, text)
        assert (person.name, token) == ("admin", found)
        assert tokens.of(connection, "admin") == [found]
        for forged in (text + "x", text[:-1], "", "smq_", "' OR 1=1 --", text.upper()):
            with pytest.raises(RefusedError, check=about(status=401)):
                tokens.holder(connection, forged)
    assert text not in repr(entries(database, "admin"))
    do(database, tokens.revoke, found.id)
    with database.read() as connection, pytest.raises(RefusedError):
        tokens.holder(connection, text)


@pytest.mark.parametrize("change", [PersonUpdate(password_hash="new"), PersonUpdate(enabled=False)])
def test_new_password_or_disabling_ends_all_tokens(database: Database, change: PersonUpdate) -> None:
    do(database, people.add, "ann", "h", PersonUpdate())
    _, text = do(database, tokens.make, "ann", "", HOUR)
    do(database, people.edit, "ann", change)
    with database.read() as connection:
        assert tokens.of(connection, "ann") == []
        with pytest.raises(RefusedError):
            tokens.holder(connection, text)


def test_tokens_are_bounded(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "TOKENS_MAX", 2)
    for lifetime in (0, 59_999, 367 * 86_400_000):
        with pytest.raises(RefusedError, check=about(status=422, what="lifetime", value=lifetime)):
            do(database, tokens.make, "admin", "", lifetime)
    with pytest.raises(RefusedError, check=about(status=422, what="label", limit=100)):
        do(database, tokens.make, "admin", "x" * 101, HOUR)
    for _ in range(2):
        do(database, tokens.make, "admin", "", HOUR)
    with pytest.raises(RefusedError, check=about(status=409, limit=2)):
        do(database, tokens.make, "admin", "", HOUR)
    with pytest.raises(RefusedError, check=about(status=404, what="token", value=12345)):
        do(database, tokens.revoke, 12345)
    with pytest.raises(RefusedError, check=about(status=404, what="user", value="nobody")):
        do(database, tokens.make, "nobody", "", HOUR)


def test_a_person_with_very_many_logins_gets_in(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest login ends, with what was made from it. Other tokens stay, and do not count."""
    monkeypatch.setattr(tokens, "TOKENS_MAX", 2)
    do(database, people.add, "other", "hash", PersonUpdate())
    kept, text = do(database, tokens.make, "admin", "login", 86_400_000)
    do(database, tokens.make, "admin", "", HOUR)
    first, _ = do(database, tokens.log_in, "admin")
    with database.write() as connection:
        child, _ = tokens.make(connection, "other", "", None, ROOT, parent=first)
    second, _ = do(database, tokens.log_in, "admin")
    third, latest = do(database, tokens.log_in, "admin")
    with database.read() as connection:
        held = {one.id for one in tokens.of(connection, "admin")}
        assert tokens.holder(connection, latest)[1] == third
        assert tokens.holder(connection, text)[1] == kept
        assert child.id not in {one.id for one in tokens.of(connection, "other")}
    assert first.id not in held and {kept.id, second.id, third.id} <= held and len(held) == 4
    assert ("token.delete", {"id": first.id, "label": "login"}, None) in entries(database, "admin")
    with pytest.raises(RefusedError, check=about(status=409, limit=2)):
        do(database, tokens.make, "admin", "", HOUR)
