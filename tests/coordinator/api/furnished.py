"""The API's application without server and services, on a database in which there is something of everything.

`House.ask` calls a route, `House.restore` puts the database back to how it was furnished. Entries of the
audit log can be added there and neither changed nor deleted: whatever a route did to them would be an error.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from argon2 import PasswordHasher
from fastapi import FastAPI
from sqlalchemy import Connection, insert, update
from tests.coordinator.cluster.explored import MadeUpAdmin, explorer
from tests.coordinator.services.surveyed import MadeUpSurvey
from tests.coordinator.upkeep.lands import broker, group, land, topic
from tests.support import sqlite_url

from sparrowmq.coordinator.alarms import table as alarms
from sparrowmq.coordinator.alarms.machine import AlarmPolicy, AlarmState
from sparrowmq.coordinator.alarms.outbox import Channels
from sparrowmq.coordinator.alarms.table import AlarmCheck, Condition
from sparrowmq.coordinator.api.app import make_app
from sparrowmq.coordinator.api.shared import Context
from sparrowmq.coordinator.cluster.resends import Resending
from sparrowmq.coordinator.database import tables
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.groups import dynamic_settings, resets
from sparrowmq.coordinator.leases import table as leases
from sparrowmq.coordinator.leases.rules import LeaseTimes, Owner
from sparrowmq.coordinator.records import findings, pipelines
from sparrowmq.coordinator.records.audit import Actor
from sparrowmq.coordinator.records.findings import Finding, Repair
from sparrowmq.coordinator.replicas import table as replicas
from sparrowmq.coordinator.replicas.decisions import ChangeKind, GroupChange, ReplicaMember
from sparrowmq.coordinator.services.base import board
from sparrowmq.coordinator.services.brokers import drains
from sparrowmq.coordinator.services.brokers.drains import DrainState
from sparrowmq.coordinator.services.groups import lag, limits
from sparrowmq.coordinator.services.groups.limits import Limit
from sparrowmq.coordinator.services.housekeeping import cleanup
from sparrowmq.coordinator.users import passwords, people, tokens
from sparrowmq.coordinator.users.people import PersonUpdate
from sparrowmq.core.clock import SystemClock
from sparrowmq.core.dynamic_settings import SettingPlace
from sparrowmq.core.stalls import StallBook

PASSWORD = "the password of all"
PEOPLE = {
    "admin": "admin", "operator": "operator", "owner": "viewer", "other": "viewer", "helper": "viewer",
    "guest": "viewer", "viewer": "viewer", "expired": "admin", "revoked": "admin", "disabled": "admin",
    "deleted": "admin", "second": "admin",
}  # fmt: skip
"""People by name and what they are of everything."""
GRANTS = {
    "owner": ("mine", "owner"),
    "other": ("theirs", "owner"),
    "helper": ("mine", "operator"),
    "guest": ("mine", "viewer"),
}
SURVEYED = land(
    broker("a", [topic("T")], [group("mine"), group("theirs")], {("mine", "T", 0): 9, ("theirs", "T", 0): 9}),
    listed={"n1": {"T", "gone"}},
    ends={("T", "a", 0): (0, 5)},
)
GUARDS = """
CREATE TRIGGER audit_stays BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'audit entries stay'); END;
CREATE TRIGGER audit_is_as_it_was BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'audit entries stay'); END;
"""
NO_AUDIT = """
CREATE TRIGGER no_audit BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'no room for audit entries'); END;
"""


@dataclass(frozen=True)
class Asked:
    """The answer of a route."""

    status: int
    answer: Any


class House:
    """The application, its database, and the tokens of all users."""

    def __init__(self, app: FastAPI, path: Path, template: Path, runner: asyncio.Runner) -> None:
        self.app, self.runner = app, runner
        self.tokens: dict[str, str] = {}
        self.token_ids: dict[str, int] = {}
        self.numbers: dict[str, int] = {}
        """Ids of alarms, findings by a name of them."""
        self.survey = MadeUpSurvey()
        self.admin = MadeUpAdmin()
        self._path, self._template = path, template

    def restore(self) -> None:
        with closing(sqlite3.connect(self._template)) as old, closing(sqlite3.connect(self._path)) as new:
            old.backup(new)
        self.survey.land = SURVEYED
        self.survey.done.clear()
        self.runner.run(self._resend())
        self.admin.done.clear()

    async def _resend(self) -> None:
        """A resend of the group `mine`, with the first number, that runs for a long time."""
        resends = self.app.state.context.explorer.resends
        await resends.close()
        resends._last = 0

        async def ended(one: Resending) -> None:
            self.admin.done.append(f"ended {one.number}")

        one = await resends.begin("mine", ["id-0", "id-1"], 0.001, ("test", "agreed"), ended)
        self.numbers["resend"] = one.number

    def keep(self) -> None:
        """Remember the current database as the initial one."""
        with closing(sqlite3.connect(self._path)) as old, closing(sqlite3.connect(self._template)) as new:
            old.backup(new)

    def script(self, text: str) -> None:
        with closing(sqlite3.connect(self._path)) as connection:
            connection.executescript(text)

    def rows(self) -> dict[str, list[tuple[Any, ...]]]:
        """All rows of the database."""
        with closing(sqlite3.connect(self._path)) as connection:
            found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            names = [name for (name,) in found]
            return {name: connection.execute(f'SELECT * FROM "{name}"').fetchall() for name in names}

    def entries(self) -> list[dict[str, Any]]:
        """The audit log, oldest first."""
        with closing(sqlite3.connect(self._path)) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute("SELECT * FROM audit ORDER BY id")]

    def ask(self, method: str, path: str, body: object = None, token: str = "") -> Asked:
        """Call a route."""
        return self.runner.run(self._ask(method, path, body, token))

    async def _ask(self, method: str, path: str, body: object, token: str) -> Asked:
        where, _, query = path.partition("?")
        data = b"" if body is None else json.dumps(body).encode()
        headers = [(b"content-type", b"application/json"), (b"host", b"test")]
        if token:
            headers.append((b"authorization", f"Bearer {token}".encode()))
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": where,
            "raw_path": where.encode(),
            "query_string": query.encode(),
            "headers": headers,
            "client": ("10.0.0.1", 1),
            "server": ("test", 80),
            "root_path": "",
            "state": {},
        }
        said: list[Any] = []
        sent_all = asyncio.Event()

        async def receive() -> dict[str, Any]:
            if sent_all.is_set():
                await asyncio.Event().wait()  # the client stays
            sent_all.set()
            return {"type": "http.request", "body": data, "more_body": False}

        async def send(message: Any) -> None:
            said.append(message)

        await self.app(scope, receive, send)
        text = b"".join(one.get("body", b"") for one in said[1:])
        is_json = dict(said[0]["headers"]).get(b"content-type") == b"application/json"
        return Asked(said[0]["status"], json.loads(text) if is_json else text.decode())


@contextmanager
def furnished(migrated: Path, home: Path) -> Iterator[House]:
    """A house in a directory, with a migrated database."""
    path = home / "coordinator.db"
    path.write_bytes(migrated.read_bytes())
    patched = pytest.MonkeyPatch()
    patched.setattr(passwords, "_hasher", PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
    database = Database(sqlite_url(path))
    survey, admin = MadeUpSurvey(), MadeUpAdmin()
    kinds = {one.name: one for one in (lag.KIND, cleanup.KIND)}
    context = Context(
        stalls=StallBook(),
        database=database,
        kinds=kinds,
        channels=Channels(),
        owner=Owner("me", "here:1"),
        times=LeaseTimes(15_000, 5_000, 2_000),
        clock=SystemClock(),
        survey=survey,
        explorer=explorer(survey, admin),
        wake=lambda name: None,
    )
    runner = asyncio.Runner()
    house = House(make_app(context), path, home / "template.db", runner)
    house.survey, house.admin = survey, admin
    try:
        board.ensure(database, list(kinds.values()))
        with database.write() as connection:
            _people(connection, house)
            _things(connection, house)
        house.script(GUARDS)
        house.keep()
        yield house
    finally:
        runner.close()
        database.close()
        patched.undo()


def _people(connection: Connection, house: House) -> None:
    actor, hash_ = Actor("test"), passwords.hashed(PASSWORD)
    for name, role in PEOPLE.items():
        people.add(connection, name, hash_, PersonUpdate(role=role), actor)
        made, house.tokens[name] = tokens.make(connection, name, "", 86_400_000, actor)
        house.token_ids[name] = made.id
    for name, (thing, role) in GRANTS.items():
        people.grant(connection, name, ("group", thing), role, actor)
    made, _ = tokens.make(connection, "second", "another's", 86_400_000, actor)
    house.numbers["token"] = made.id
    ended = tables.token.c.person == "expired"
    connection.execute(update(tables.token).where(ended).values(expires_at=1))
    tokens.revoke(connection, house.token_ids["revoked"], actor)
    # Were its token not looked at together with the person, it would be as good as before.
    off = tables.person.c.name == "disabled"
    connection.execute(update(tables.person).where(off).values(enabled=False))
    people.remove(connection, "deleted", actor)


def _things(connection: Connection, house: House) -> None:
    actor = Actor("test")
    for name in ("mine", "theirs"):
        limits.put(connection, name, "*", Limit(5, 0, True), actor)
        dynamic_settings.put(connection, name, "maximum", SettingPlace.parse("*"), 3, actor)
        connection.execute(insert(tables.managed_group).values(name=name, seen="{}"))
    progress = {"kind": "mirror", "state": "running", "rows": 1, "topics": []}
    pipelines.put(connection, actor, "mirror", "1", progress, for_any=False)
    _alarms(connection, house, actor)
    house.numbers["reset"] = resets.ask(
        connection, "mine", SettingPlace.parse("T"), resets.ResetTarget("last"), actor
    )
    (wish,) = resets.waiting(connection)
    resets.end(connection, wish, before={"T/a/0": 1}, after={"T/a/0": 2})
    _findings(connection, house)
    for number, name in enumerate(("fresh", "asked", "drained", "lost")):
        address, error = f"h:{number}", "it is gone" if name == "lost" else ""
        row = {"broker": name, "broker_id": 0, "address": address, "error": error, "checked_at": 9}
        connection.execute(insert(tables.broker_seen).values(first_seen=1, last_seen=1, **row))
    for name, state in (("asked", DrainState.ASKED), ("drained", DrainState.DRAINED)):
        drains.ask(connection, name, False, actor)
        mine = tables.drain.c.broker == name
        connection.execute(update(tables.drain).where(mine).values(state=str(state)))
    _replicas(connection, actor)
    board.set_paused(connection, cleanup.KIND, True, actor)
    assert leases.claim(connection, lag.KIND.name, Owner("you", "there:2"), 3_600_000)


def _replicas(connection: Connection, actor: Actor) -> None:
    """The brokers `asked`: a master, and a replica that is not in sync."""
    replicas.manage(connection, "asked", 3000, actor)
    before = replicas.one(connection, "asked").group
    members = {one: ReplicaMember(one, one, one, number) for number, one in enumerate(("h:1", "h:5"), 1)}
    after = replace(before, epoch=1, number=1, master="h:1", in_sync=("h:1",), members=members)
    replicas.save(connection, before, GroupChange(ChangeKind.FIRST, after, "as before"), actor)


def _alarms(connection: Connection, house: House, actor: Actor) -> None:
    seen = [Condition(f"{name} T", "behind", name, "T") for name in ("mine", "theirs", "woken")]
    seen.append(Condition("a", "a broker is gone"))
    check = AlarmCheck("lag", AlarmPolicy(reminder_ms=0), tuple(seen))
    alarms.observe(connection, check, actor, Channels())
    found = alarms.search(connection, list(AlarmState))
    house.numbers |= {f"alarm-{row.group or 'nobody'}": row.id for row in found}
    again = Condition("mine U", "behind", "mine", "U")
    alarms.observe(connection, AlarmCheck("age", AlarmPolicy(reminder_ms=0), (again,)), actor, Channels())
    (row,) = alarms.search(connection, list(AlarmState), rule="age")
    alarms.silence(connection, row.id, 5, actor, Channels())
    house.numbers["alarm-silenced"] = row.id


def _findings(connection: Connection, house: House) -> None:
    def offset(name: str) -> Repair:
        where = {"group": name, "topic": "T", "broker": "a", "queue_id": 0, "offset": 5}
        return Repair("set-offset", where, {"offset": 9})

    role = {"person": "owner", "kind": "group", "object": "mine"}
    proposed: Sequence[Finding] = (
        Finding("offset-beyond", "mine", "beyond", "mine", "T", {}, offset("mine")),
        Finding("offset-beyond", "theirs", "beyond", "theirs", "T", {}, offset("theirs")),
        Finding("limit-of-nothing", "limit", "of nothing", "mine", "", {},
                Repair("drop-limit", {"group": "mine", "topic": "*"}, {})),
        Finding("role-of-nothing", "role", "of nothing", "", "", {}, Repair("drop-role", role, {})),
        Finding("topic-of-no-broker", "gone", "nowhere", "", "gone", {},
                Repair("unlist-topic", {"topic": "gone"}, {"listed": ["n1"]})),
    )  # fmt: skip
    findings.replace(connection, "consistency", proposed)
    house.numbers |= {f"finding-{row.finding.key}": row.id for row in findings.search(connection)}
