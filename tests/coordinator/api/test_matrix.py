"""Everybody at every route: who may is let in, who may not changes nothing; every change has its audit entry,
or is not made.

The lines are written by hand, the routes are the application's: one without a line fails.
"""

from __future__ import annotations

import json
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest
from tests.coordinator.api.furnished import NO_AUDIT, PASSWORD, House, furnished

from sparrowmq.coordinator import api as package
from sparrowmq.coordinator.api.shared import PREFIX

STRANGERS: Final = ("nobody", "forged", "expired", "revoked", "disabled", "deleted")
"""Who has no token that counts; those that are people are admins: nothing but their token stops them."""
ALL: Final = frozenset({"admin", "operator", "owner", "other", "helper", "guest", "viewer"})
MAY: Final = {
    "open": ALL | set(STRANGERS),
    "self": ALL,
    "read": ALL,
    "edit": frozenset({"admin", "operator", "owner", "helper"}),
    "operate": frozenset({"admin", "operator"}),
    "administer": frozenset({"admin"}),
}
"""Who may what; to edit is to edit the group `mine`."""
TABLES_OF_NO_CHANGE: Final = frozenset({"audit"})
SECRETS: Final = (PASSWORD, "a new password", "$argon2")


@dataclass(frozen=True)
class Line:
    """A call of a route that succeeds for those who may. `at` may name numbers of the house; `{own}` is the
    caller's token.
    """

    route: str
    may: str
    at: str = ""
    body: Any = None
    entry: str = ""
    """The action of its audit entry; empty for what only reads."""


def line(route: str, may: str, at: str = "", body: Any = None, entry: str = "") -> Line:
    return Line(route, may, at, body, entry)


WHY = {"reason": "agreed"}
LINES: Final = (
    line("GET /health", "open"),
    line("POST /login", "open", body={"name": "second", "password": PASSWORD}, entry="token.add"),
    line("POST /logout", "self", entry="token.delete"),
    line("GET /me", "self"),
    line("POST /me/password", "self", body={"old": PASSWORD, "new": "a new password"}, entry="person.edit"),
    line("GET /people", "read"),
    line(
        "POST /people",
        "administer",
        body={"name": "new", "password": "a new password", **WHY},
        entry="person.add",
    ),
    line(
        "PATCH /people/{name}",
        "administer",
        "/people/viewer",
        {"password": "a new password", **WHY},
        "person.edit",
    ),
    line("PATCH /people/{name}", "administer", "/people/owner", {"role": "admin", **WHY}, "person.edit"),
    line("DELETE /people/{name}", "administer", "/people/second?reason=agreed", entry="person.delete"),
    line("GET /grants", "read", "/grants?kind=group&object=mine"),
    line(
        "POST /grants",
        "administer",
        body={"name": "viewer", "kind": "group", "object": "mine", "role": "owner", **WHY},
        entry="grant",
    ),
    line(
        "POST /grants",
        "administer",
        body={"name": "other", "kind": "group", "object": "theirs", **WHY},
        entry="revoke",
    ),
    line("GET /tokens", "self"),
    line("GET /tokens", "administer", "/tokens?person=second"),
    line("POST /tokens", "self", body={"label": "mine", **WHY}, entry="token.add"),
    line("POST /tokens", "administer", body={"person": "second", **WHY}, entry="token.add"),
    line("DELETE /tokens/{number}", "self", "/tokens/{own}?reason=agreed", entry="token.delete"),
    line("DELETE /tokens/{number}", "administer", "/tokens/{token}?reason=agreed", entry="token.delete"),
    line("GET /brokers", "read"),
    line("GET /brokers/{name}", "read", "/brokers/fresh"),
    line("POST /brokers/{name}/drain", "operate", "/brokers/fresh/drain", WHY, "broker.drain"),
    line("POST /brokers/{name}/cancel", "operate", "/brokers/asked/cancel", WHY, "broker.cancel"),
    line("POST /brokers/{name}/remove", "operate", "/brokers/drained/remove", WHY, "broker.remove"),
    line("POST /brokers/{name}/forget", "operate", "/brokers/lost/forget", WHY, "broker.forget"),
    line("GET /groups", "read"),
    line("GET /groups/{group}", "read", "/groups/mine"),
    line("GET /groups/{group}/members", "read", "/groups/mine/members"),
    line("GET /groups/{group}/plans", "read", "/groups/mine/plans"),
    line("GET /groups/{group}/preview", "read", "/groups/mine/preview"),
    line("GET /roster", "read"),
    line("GET /services", "read"),
    line("GET /services/{name}", "read", "/services/lag-alarm"),
    line("GET /services/{name}/runs", "read", "/services/lag-alarm/runs"),
    line(
        "PATCH /services/{name}",
        "operate",
        "/services/lag-alarm",
        {"interval_ms": 9000, **WHY},
        "service.interval",
    ),
    line(
        "PATCH /services/{name}",
        "operate",
        "/services/lag-alarm",
        {"options": {"checks": 3}, **WHY},
        "service.options",
    ),
    line(
        "PATCH /services/{name}",
        "administer",
        "/services/audit-cleanup",
        {"options": {"keep_days": 1}, **WHY},
        "service.options",
    ),
    line("POST /services/{name}/pause", "operate", "/services/lag-alarm/pause", WHY, "service.pause"),
    line("POST /services/{name}/resume", "operate", "/services/audit-cleanup/resume", WHY, "service.resume"),
    line("POST /services/{name}/run", "operate", "/services/lag-alarm/run", WHY, "service.run"),
    line(
        "POST /services/{name}/hand-over",
        "operate",
        "/services/lag-alarm/hand-over",
        WHY,
        "service.hand-over",
    ),
    line("GET /alarms", "read"),
    line(
        "POST /alarms/{number}/acknowledge",
        "edit",
        "/alarms/{alarm-mine}/acknowledge",
        WHY,
        "alarm.acknowledged",
    ),
    line(
        "POST /alarms/{number}/acknowledge",
        "operate",
        "/alarms/{alarm-nobody}/acknowledge",
        WHY,
        "alarm.acknowledged",
    ),
    line(
        "POST /alarms/{number}/silence",
        "edit",
        "/alarms/{alarm-mine}/silence",
        {"minutes": 5, **WHY},
        "alarm.silenced",
    ),
    line(
        "POST /alarms/{number}/silence",
        "operate",
        "/alarms/{alarm-nobody}/silence",
        {"minutes": 5, **WHY},
        "alarm.silenced",
    ),
    line("POST /alarms/{number}/wake", "edit", "/alarms/{alarm-silenced}/wake", WHY, "alarm.firing"),
    line("GET /notices", "operate"),
    line("GET /limits", "read"),
    line("PUT /limits/{group}", "edit", "/limits/mine", {"messages": 7, "age_ms": 0, **WHY}, "limit"),
    line("DELETE /limits/{group}", "edit", "/limits/mine?reason=agreed", entry="limit"),
    line("GET /audit", "read"),
    line("GET /knobs", "read"),
    line("GET /knobs/set", "read"),
    line("GET /groups/{group}/knobs", "read", "/groups/mine/knobs"),
    line(
        "PUT /groups/{group}/knobs/{name}",
        "edit",
        "/groups/mine/knobs/threads",
        {"value": 4, **WHY},
        "knob.set",
    ),
    line(
        "DELETE /groups/{group}/knobs/{name}",
        "edit",
        "/groups/mine/knobs/maximum?reason=agreed",
        entry="knob.unset",
    ),
    line(
        "POST /groups/{group}/resets",
        "edit",
        "/groups/mine/resets",
        {"place": "T", "to": "first", **WHY},
        "group.reset",
    ),
    line("GET /groups/{group}/resets", "read", "/groups/mine/resets"),
    line("GET /findings", "read"),
    line("GET /findings/{number}", "read", "/findings/{finding-mine}"),
    line("POST /findings/{number}/repair", "edit", "/findings/{finding-mine}/repair", WHY, "repair.begin"),
    line("POST /findings/{number}/repair", "edit", "/findings/{finding-limit}/repair", WHY, "limit"),
    line("POST /findings/{number}/repair", "administer", "/findings/{finding-role}/repair", WHY, "revoke"),
    line("POST /findings/{number}/repair", "operate", "/findings/{finding-gone}/repair", WHY, "repair.begin"),
)
WRITES: Final = tuple(one for one in LINES if one.entry)


def name_of(one: Line) -> str:
    return f"{one.route} {one.at}".strip()


@pytest.fixture(scope="module")
def house(migrated: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with furnished(migrated, tmp_path_factory.mktemp("matrix")) as found:
        yield found


def call(house: House, one: Line, who: str) -> tuple[int, Any]:
    method, _, path = one.route.partition(" ")
    at = (one.at or path).replace("{own}", str(house.token_ids.get(who, 0)))
    for key, number in house.numbers.items():
        at = at.replace(f"{{{key}}}", str(number))
    token = {"nobody": "", "forged": "smq_" + "x" * 43}.get(who) or house.tokens.get(who, "")
    body = one.body if one.body is not None or method in ("GET", "DELETE") else {}
    found = house.ask(method, PREFIX + at, body, token)
    return found.status, found.answer


def routes() -> set[tuple[str, str]]:
    """Method and path of every route that modules of the package have."""
    found = set()
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        router = getattr(import_module(module.name), "router", None)
        for route in getattr(router, "routes", ()):
            found |= {(method, PREFIX + route.path) for method in route.methods}
    return found


def test_every_route_has_its_line(house: House) -> None:
    described = {
        (method.upper(), path) for path, methods in house.app.openapi()["paths"].items() for method in methods
    }
    apart = {
        (method, route.path)
        for route in house.app.routes
        if (path := getattr(route, "path", None)) and path != "/openapi.json"
        for method in route.methods
    }
    assert described == routes() | apart, "nothing is hidden, nothing is described that is not there"
    lines = {tuple(one.route.replace(" ", f" {PREFIX}").split(" ")) for one in LINES}
    assert lines == described, "write a line for each route, with who may"
    reading = {one.route for one in LINES if not one.entry}
    assert {route.partition(" ")[0] for route in reading} == {"GET"}, "what is no GET changes something"
    assert not any(one.route.startswith("GET") for one in WRITES)


@pytest.mark.proves("pmq:P1", "pmq:P2", "pmq:P3", "pmq:8.1")
@pytest.mark.parametrize("one", LINES, ids=name_of)
def test_who_may_is_let_in_and_who_may_not_changes_nothing(house: House, one: Line) -> None:
    house.restore()
    before = house.rows()
    for who in sorted((ALL | set(STRANGERS)) - MAY[one.may]):
        status, answer = call(house, one, who)
        assert status == (401 if who in STRANGERS else 403), (who, answer)
        assert list(answer) == ["error"]
        assert house.rows() == before, who
    assert not house.survey.done
    for who in sorted(MAY[one.may]):
        status, answer = call(house, one, who)
        assert 200 <= status < 300, (who, answer)
        if one.entry:
            check_entries(house, one, who, before)
            house.restore()
        else:
            assert house.rows() == before, who


def check_entries(house: House, one: Line, who: str, before: dict[str, list[tuple[Any, ...]]]) -> None:
    """What the change left in the audit log: who, what and why, and no secret."""
    made = house.entries()[len(before["audit"]) :]
    assert made, f"{one.route} left no entry"
    actor = "second" if one.may == "open" else who
    assert {entry["actor"] for entry in made} == {actor}
    assert one.entry in {entry["action"] for entry in made}, made
    for entry in made:
        assert entry["reason"] == "agreed" or one.may in ("open", "self")
    told = json.dumps(made)
    after = house.rows()
    hidden = [row[1] for row in after["person"]] + [row[2] for row in after["token"]]
    for secret in (*SECRETS, "smq_", *hidden):
        assert secret not in told, one.route
    assert any(rows != before[name] for name, rows in after.items() if name not in TABLES_OF_NO_CHANGE)


@pytest.mark.proves("pmq:P3")
@pytest.mark.parametrize("one", WRITES, ids=name_of)
def test_a_change_whose_entry_cannot_be_written_is_not_made(house: House, one: Line) -> None:
    """Its audit entry is in its own transaction: neither is without the other."""
    house.restore()
    house.script(NO_AUDIT)
    before = house.rows()
    status, answer = call(house, one, "admin")
    assert (status, list(answer)) == (503, ["error"])
    assert "no room for audit entries" in answer["error"]
    assert house.rows() == before
    assert not house.survey.done


@pytest.mark.proves("pmq:P3")
def test_entries_are_neither_changed_nor_deleted_by_any_route(house: House) -> None:
    """The log is read only; the rows of the tests above are guarded against changes, too."""
    house.restore()
    (entry, *_) = house.entries()
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        for path in ("/audit", f"/audit/{entry['id']}"):
            found = house.ask(method, PREFIX + path, {}, house.tokens["admin"])
            assert found.status in (404, 405)
    for statement in ("DELETE FROM audit", "UPDATE audit SET actor = ''"):
        with pytest.raises(Exception, match="audit entries stay"):
            house.script(statement)
    assert house.entries()[0] == entry
