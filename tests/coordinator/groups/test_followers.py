"""Who goes by live knobs, from what members said and what is set."""

from __future__ import annotations

from sqlalchemy import insert
from tests.coordinator.groups.test_table import FIRST

from sparrowmq.coordinator.audit import Actor
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.database.tables import member_seen
from sparrowmq.coordinator.groups import followers, knobs
from sparrowmq.coordinator.groups import table as groups
from sparrowmq.coordinator.groups.followers import Followers
from sparrowmq.coordinator.groups.ledger import Kept, SeenMember
from sparrowmq.core.knobs import Place, Setting, Unable, fingerprint

ANN = Actor("ann", "why")
OLD, NEW = fingerprint([Setting("threads", Place(), 4)]), fingerprint([Setting("threads", Place(), 8)])


def managed(database: Database, **said: SeenMember) -> None:
    """The group `g` with members `p#1`, `q#1`, which said this."""
    with database.write() as connection:
        groups.save(connection, "g", 3, Kept(), FIRST, None)
        groups.see(connection, {"g": ({f"{name}#1": one for name, one in said.items()}, "")})


def put(database: Database, name: str, value: object, **more: int) -> None:
    with database.write() as connection:
        knobs.put(connection, "g", name, Place(), value, ANN, **more)


def found(database: Database) -> Followers:
    with database.read() as connection:
        return followers.followers(connection, "g")


def test_members_go_by_the_newest_or_by_older_ones_or_did_not_say(database: Database) -> None:
    managed(database, p=SeenMember(0, 9, 1, 0, NEW))
    assert found(database).newest == 0, "nothing is set yet"
    put(database, "threads", 8)
    assert found(database) == Followers(2, 1, ("q#1",), {})
    put(database, "maximum", 3)
    assert found(database).newest == 1, "members are not told of what plans obey"
    put(database, "threads", 4)
    assert found(database) == Followers(2, 0, ("p#1", "q#1"), {})


def test_who_goes_by_nothing_is_up_to_date_while_nothing_is_set(database: Database) -> None:
    managed(database, p=SeenMember(0, 9, 1, 0, 0), q=SeenMember(0, 9, 1, 0, OLD))
    assert found(database) == Followers(2, 1, ("q#1",), {})
    with database.read() as connection:
        p, q = groups.member_views(connection, "g")
    assert (p.knobs, q.knobs) == (0, OLD)


def test_knobs_that_members_cannot_go_by_are_named_with_why(database: Database) -> None:
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


def test_what_was_written_down_before_members_said_so_is_read(database: Database) -> None:
    managed(database)
    with database.write() as connection:
        old = groups.managed_group.update().values(seen='{"p#1": [250, 7750, 1, 3]}')
        connection.execute(old)
    assert found(database) == Followers(2, 0, ("p#1", "q#1"), {})


def test_many_who_are_behind_are_counted_and_the_first_are_named() -> None:
    views = [groups.MemberView(f"m{n:02}", FIRST.members["p#1"], 0, 0, knobs=OLD) for n in range(50)]
    result = followers.followers_of(views, NEW)
    assert (result.members, result.newest, len(result.older)) == (50, 0, followers.SHOWN_MAX)


def note(database: Database, group: str, name: str) -> str:
    with database.read() as connection:
        return followers.note(connection, group, name)


def test_whoever_sets_a_knob_is_told_that_nobody_is_there(database: Database) -> None:
    assert note(database, "g", "threads") == (
        "nobody is known to be in group g now: threads counts for those who come"
    )
    with database.write() as connection:
        connection.execute(
            insert(member_seen).values(group_name="g", client_id="java", first_seen=1, last_seen=1)
        )
    assert "has no managed members now, only others, which do not obey threads" in note(
        database, "g", "threads"
    )
    assert note(database, "g", "pause") == note(database, "g", "maximum") == ""
    assert note(database, "G", "pause").startswith("nobody is known to be in group G now")
    managed(database)
    assert note(database, "g", "threads") == ""
