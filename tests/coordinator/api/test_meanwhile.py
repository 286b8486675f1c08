"""What changes while a request is under way: it is judged by what counts when it is carried out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import update
from tests.coordinator.api.furnished import PASSWORD, House, furnished

from sparrowmq.coordinator.api.shared import PREFIX
from sparrowmq.coordinator.audit import Actor
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.database.tables import token as token_table
from sparrowmq.coordinator.users import passwords, people
from sparrowmq.coordinator.users.people import Change

Work = Callable[[Database], None]


@pytest.fixture
def house(migrated: Path, tmp_path: Path) -> Iterator[House]:
    with furnished(migrated, tmp_path) as found:
        yield found


def edited(change: Change) -> Work:
    def work(database: Database) -> None:
        with database.write() as connection:
            people.edit(connection, "second", change, Actor("admin"))

    return work


def deleted(database: Database) -> None:
    with database.write() as connection:
        people.remove(connection, "second", Actor("admin"))


def ended(database: Database) -> None:
    with database.write() as connection:
        mine = token_table.c.person == "second"
        connection.execute(update(token_table).where(mine).values(expires_at=1))


def during(monkeypatch: pytest.MonkeyPatch, name: str, house: House, work: Work) -> None:
    """Have `work` done when a function of passwords, which takes its time, has ended."""
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
    [edited(Change(password_hash="another")), edited(Change(enabled=False)), deleted],
    ids=["password", "disabled", "deleted"],
)
def test_a_login_with_what_counts_no_more_gives_no_token(
    house: House, monkeypatch: pytest.MonkeyPatch, work: Work
) -> None:
    """A new password ends all tokens: one that is just being made with the old one, too."""
    during(monkeypatch, "matches", house, work)
    found = house.ask("POST", f"{PREFIX}/login", {"name": "second", "password": PASSWORD})
    assert (found.status, found.answer) == (401, {"error": "the name or the password is wrong"})
    assert "second" not in {row[1] for row in house.rows()["token"]}


@pytest.mark.proves("pmq:P3")
@pytest.mark.parametrize(
    ("work", "status", "words"),
    [
        (edited(Change(role="viewer")), 409, "what second may do was changed just now; try again"),
        (edited(Change(enabled=False)), 401, "the token is not known or has ended"),
        (deleted, 401, "the token is not known or has ended"),
        (ended, 401, "the token is not known or has ended"),
    ],
    ids=["demoted", "disabled", "deleted", "ended"],
)
def test_who_may_no_more_changes_nothing_with_a_request_that_began_before(
    house: House, monkeypatch: pytest.MonkeyPatch, work: Work, status: int, words: str
) -> None:
    during(monkeypatch, "hashed", house, work)
    body = {"name": "friend", "password": "a new password", "role": "admin"}
    found = house.ask("POST", f"{PREFIX}/people", body, house.tokens["second"])
    assert found.status == status
    assert words in found.answer["error"]
    assert "friend" not in {row[0] for row in house.rows()["person"]}


@pytest.mark.proves("pmq:P3")
def test_nor_does_it_repair_anything(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = house.survey.landscape

    async def slow(**options: bool) -> object:
        edited(Change(role="viewer"))(house.app.state.context.database)
        return await usual(**options)

    house.restore()
    monkeypatch.setattr(house.survey, "landscape", slow)
    number = house.numbers["finding-gone"]
    found = house.ask("POST", f"{PREFIX}/findings/{number}/repair", {}, house.tokens["second"])
    assert (found.status, found.answer["error"].partition(";")[0]) == (
        409,
        "what second may do was changed just now",
    )
    assert not house.survey.done


@pytest.mark.proves("pmq:P1")
def test_a_token_goes_by_what_its_person_is_now(house: House) -> None:
    """Not by what it was when the token was made; disabling and a new password end it for good."""
    database, mine = house.app.state.context.database, house.tokens["second"]
    edited(Change(role="viewer"))(database)
    assert house.ask("DELETE", f"{PREFIX}/people/viewer", token=mine).status == 403
    edited(Change(role="admin"))(database)
    assert house.ask("DELETE", f"{PREFIX}/people/viewer", token=mine).status == 200
    edited(Change(enabled=False))(database)
    edited(Change(enabled=True))(database)
    assert house.ask("GET", f"{PREFIX}/me", token=mine).status == 401
