"""Which members apply the dynamic settings, according to their reports."""

from __future__ import annotations

from sqlalchemy import insert
from tests.coordinator.groups.storage.test_table import FIRST

from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.database.tables import managed_group, member_seen
from sparrowmq.coordinator.groups import dynamic_settings, followers
from sparrowmq.coordinator.groups import table as groups
from sparrowmq.coordinator.groups.followers import Followers
from sparrowmq.coordinator.groups.group_metadata import KeptGroup, SeenMember
from sparrowmq.coordinator.records.audit import Actor
from sparrowmq.core.dynamic_settings import SettingPlace, SettingValue, Unable, fingerprint

ANN = Actor("ann", "why")
OLD, NEW = (
    fingerprint([SettingValue("threads", SettingPlace(), 4)]),
    fingerprint([SettingValue("threads", SettingPlace(), 8)]),
)


def managed(database: Database, **said: SeenMember) -> None:
    """The group `g` with members `p#1` and `q#1`, which sent these reports."""
    with database.write() as connection:
        groups.save(connection, "g", 3, KeptGroup(), FIRST, None)
        groups.see(connection, {"g": ({f"{name}#1": one for name, one in said.items()}, "")})


def put(database: Database, name: str, value: object, **more: int) -> None:
    with database.write() as connection:
        dynamic_settings.put(connection, "g", name, SettingPlace(), value, ANN, **more)


def found(database: Database) -> Followers:
    with database.read() as connection:
        return followers.followers(connection, "g")


def test_members_apply_the_newest_settings_or_older_ones_or_did_not_report(database: Database) -> None:
    managed(database, p=SeenMember(0, 9, 1, 0, NEW))
    assert found(database).newest == 0, "nothing is set yet"
    put(database, "threads", 8)
    assert found(database) == Followers(2, 1, ("q#1",), {})
    put(database, "maximum", 3)
    assert found(database).newest == 1, "members are not told of what plans obey"
    put(database, "threads", 4)
    assert found(database) == Followers(2, 0, ("p#1", "q#1"), {})


def test_member_without_settings_is_up_to_date_while_none_are_set(database: Database) -> None:
    managed(database, p=SeenMember(0, 9, 1, 0, 0), q=SeenMember(0, 9, 1, 0, OLD))
    assert found(database) == Followers(2, 1, ("q#1",), {})
    with database.read() as connection:
        p, q = groups.member_views(connection, "g")
    assert (p.applied_revision, q.applied_revision) == (0, OLD)


def test_settings_that_members_cannot_apply_are_listed_with_reasons(database: Database) -> None:
    put(database, "threads", 8)
    managed(
        database,
        p=SeenMember(0, 9, 1, 0, NEW, {"batch": "single", "threads": "pulls"}),
        q=SeenMember(0, 9, 1, 0, NEW, {"batch": "a newer word"}),
    )
    assert found(database) == Followers(
        2,
        2,
        (),
        {
            "batch": (("p#1", Unable.SINGLE.text), ("q#1", "a newer word")),
            "threads": (("p#1", Unable.PULLS.text),),
        },
    )


def test_reports_of_an_older_release_are_read(database: Database) -> None:
    managed(database)
    with database.write() as connection:
        old = managed_group.update().values(seen='{"p#1": [250, 7750, 1, 3]}')
        connection.execute(old)
    assert found(database) == Followers(2, 0, ("p#1", "q#1"), {})


def test_outdated_members_are_counted_and_the_first_are_named() -> None:
    views = [
        groups.MemberView(f"m{n:02}", FIRST.members["p#1"], 0, 0, applied_revision=OLD) for n in range(50)
    ]
    result = followers.followers_of(views, NEW)
    assert (result.members, result.newest, len(result.older)) == (50, 0, followers.SHOWN_MAX)


def note(database: Database, group: str, name: str) -> str:
    with database.read() as connection:
        return followers.note(connection, group, name)


def test_setting_a_value_warns_when_no_member_is_known(database: Database) -> None:
    assert note(database, "g", "threads") == (
        "group g has no known members now; threads applies to members that join later"
    )
    with database.write() as connection:
        connection.execute(
            insert(member_seen).values(group_name="g", client_id="java", first_seen=1, last_seen=1)
        )
    assert "has no managed members now; its unmanaged members do not apply threads" in note(
        database, "g", "threads"
    )
    assert note(database, "g", "pause") == note(database, "g", "maximum") == ""
    assert note(database, "G", "pause").startswith("group G has no known members now")
    managed(database)
    assert note(database, "g", "threads") == ""
