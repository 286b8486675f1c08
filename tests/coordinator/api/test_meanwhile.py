"""Changes during a request: the rights at the time of its execution decide."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import update
from tests.coordinator.api.furnished import PASSWORD, House, furnished

from sparrowmq.coordinator.api.shared import PREFIX
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.database.tables import token as token_table
from sparrowmq.coordinator.records.audit import Actor
from sparrowmq.coordinator.users import passwords, people
from sparrowmq.coordinator.users.people import PersonUpdate

Work = Callable[[Database], None]


@pytest.fixture
def house(migrated: Path, tmp_path: Path) -> Iterator[House]:
    with furnished(migrated, tmp_path) as found:
        yield found


def edited(change: PersonUpdate) -> Work:
    def work(database: Database) -> None:
        with database.write() as connection:
            people.edit(connection, "second", change, Actor("admin"))

    return work


def deleted(database: Database) -> None:
    with database.write() as connection:
        people.remove(connection, "second", Actor("admin"))


def granted(database: Database) -> None:
    with database.write() as connection:
        people.grant(connection, "second", ("group", "another"), "viewer", Actor("admin"))


def ended(database: Database) -> None:
    with database.write() as connection:
        mine = token_table.c.person == "second"
        connection.execute(update(token_table).where(mine).values(expires_at=1))


def during(monkeypatch: pytest.MonkeyPatch, name: str, house: House, work: Work) -> None:
    """Run `work` when a password function, which takes some time, has ended."""
    usual = getattr(passwords, name)

    def slow(*arguments: object) -> object:
        found = usual(*arguments)
        monkeypatch.setattr(passwords, name, usual)
        work(house.app.state.context.database)
        return found

    monkeypatch.setattr(passwords, name, slow)


@pytest.mark.proves("pmq:P1")
@pytest.mark.parametrize(
    "work",
    [edited(PersonUpdate(password_hash="another")), edited(PersonUpdate(enabled=False)), deleted],
    ids=["password", "disabled", "deleted"],
)
def test_login_with_outdated_credentials_gives_no_token(
    house: House, monkeypatch: pytest.MonkeyPatch, work: Work
) -> None:
    """A new password ends all tokens, including one that is being made with the old password."""
    during(monkeypatch, "matches", house, work)
    found = house.ask("POST", f"{PREFIX}/login", {"name": "second", "password": PASSWORD})
    assert (found.status, found.answer) == (401, {"error": "the name or the password is wrong"})
    assert "second" not in {row[1] for row in house.rows()["token"]}


@pytest.mark.proves("pmq:P3")
@pytest.mark.parametrize(
    ("work", "status", "words"),
    [
        (granted, 409, "what second may do has just changed; try again"),
        (edited(PersonUpdate(role="viewer")), 401, "the token is unknown or has expired"),
        (edited(PersonUpdate(enabled=False)), 401, "the token is unknown or has expired"),
        (deleted, 401, "the token is unknown or has expired"),
        (ended, 401, "the token is unknown or has expired"),
    ],
    ids=["granted", "demoted", "disabled", "deleted", "ended"],
)
def test_user_who_lost_a_right_cannot_change_anything_with_a_running_request(
    house: House, monkeypatch: pytest.MonkeyPatch, work: Work, status: int, words: str
) -> None:
    during(monkeypatch, "hashed", house, work)
    body = {"name": "friend", "password": "a new password", "role": "admin"}
    found = house.ask("POST", f"{PREFIX}/people", body, house.tokens["second"])
    assert found.status == status
    assert words in found.answer["error"]
    assert "friend" not in {row[0] for row in house.rows()["person"]}


@pytest.mark.proves("pmq:P3")
def test_user_who_lost_a_right_cannot_repair_anything(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = house.survey.landscape

    async def slow(**options: bool) -> object:
        granted(house.app.state.context.database)
        return await usual(**options)

    house.restore()
    monkeypatch.setattr(house.survey, "landscape", slow)
    number = house.numbers["finding-gone"]
    found = house.ask("POST", f"{PREFIX}/findings/{number}/repair", {}, house.tokens["second"])
    assert (found.status, found.answer["error"].partition(";")[0]) == (
        409,
        "what second may do has just changed",
    )
    assert not house.survey.done


@pytest.mark.proves("pmq:P1")
def test_token_has_the_current_rights_of_its_user(house: House) -> None:
    """Not those at its creation; another role, disabling and a new password end it permanently: a leaked
    viewer token must not become an admin token."""
    database, mine, limit = (
        house.app.state.context.database,
        house.tokens["viewer"],
        f"{PREFIX}/limits/another",
    )
    assert house.ask("PUT", limit, {"messages": 1, "age_ms": 0}, mine).status == 403
    with database.write() as connection:
        people.grant(connection, "viewer", ("group", "another"), "owner", Actor("admin"))
    assert house.ask("PUT", limit, {"messages": 1, "age_ms": 0}, mine).status == 200
    with database.write() as connection:
        people.edit(connection, "viewer", PersonUpdate(role="viewer"), Actor("admin"))
    assert house.ask("GET", f"{PREFIX}/me", token=mine).status == 200, "it has that role already"
    with database.write() as connection:
        people.edit(connection, "viewer", PersonUpdate(role="admin"), Actor("admin"))
    assert house.ask("GET", f"{PREFIX}/me", token=mine).status == 401
    mine = house.tokens["second"]
    edited(PersonUpdate(enabled=False))(database)
    edited(PersonUpdate(enabled=True))(database)
    assert house.ask("GET", f"{PREFIX}/me", token=mine).status == 401
