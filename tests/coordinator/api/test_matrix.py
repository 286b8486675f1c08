"""Every role at every route: permitted users succeed, others change nothing; every change has its audit
entry, or is not made.

The lines are written by hand, the routes are the application's: a new route fails until it has a line."""

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
    "operate-mine": frozenset({"admin", "operator", "helper"}),
    "administer": frozenset({"admin"}),
}
"""Who may what; to edit is to edit the group `mine`, which `operate-mine` is about, too."""
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
    line("GET /replica-groups", "read"),
    line("GET /replica-groups/{name}", "read", "/replica-groups/asked"),
    line(
        "POST /replica-groups/{name}/manage",
        "operate",
        "/replica-groups/fresh/manage",
        WHY,
        "replicas.manage",
    ),
    line(
        "POST /replica-groups/{name}/release",
        "operate",
        "/replica-groups/asked/release",
        WHY,
        "replicas.release",
    ),
    line(
        "POST /replica-groups/{name}/elect",
        "operate",
        "/replica-groups/asked/elect",
        {"target": "h:1", **WHY},
        "replicas.elect",
    ),
    line(
        "POST /replica-groups/{name}/elect-unclean",
        "operate",
        "/replica-groups/asked/elect-unclean",
        {"target": "h:5", **WHY},
        "replicas.unclean",
    ),
    line("GET /cluster/servers", "read"),
    line("GET /cluster/servers/{address}/settings", "read", "/cluster/servers/a/settings"),
    line("GET /cluster/servers/{address}/stalls", "read", "/cluster/servers/a:1/stalls"),
    line("GET /cluster/servers/{address}/bounds", "read", "/cluster/servers/a:1/bounds"),
    line("GET /cluster/disks", "read"),
    line("GET /cluster/holds", "read"),
    line("PUT /cluster/holds/{topic}", "operate", "/cluster/holds/T", {"group": "mine", **WHY}, "hold.set"),
    line("DELETE /cluster/holds/{topic}", "operate", "/cluster/holds/T?reason=agreed", entry="hold.release"),
    line("GET /cluster/groups/{group}/policies", "read", "/cluster/groups/mine/policies"),
    line("GET /cluster/lag", "read"),
    line("GET /cluster/topics", "read"),
    line("GET /cluster/topics/{topic}", "read", "/cluster/topics/T"),
    line("GET /cluster/topics/{topic}/groups", "read", "/cluster/topics/T/groups"),
    line("GET /cluster/topics/{topic}/removal", "read", "/cluster/topics/T/removal"),
    line("GET /cluster/topics/{topic}/retention", "read", "/cluster/topics/T/retention"),
    line("GET /cluster/topics/{topic}/senders", "read", "/cluster/topics/T/senders"),
    line("GET /cluster/topics/{topic}/use", "read", "/cluster/topics/T/use"),
    line(
        "PUT /cluster/topics/{topic}", "operate", "/cluster/topics/New", {"queues": 4, **WHY}, "topic.create"
    ),
    line("PUT /cluster/topics/{topic}", "operate", "/cluster/topics/T", {"perm": 4, **WHY}, "topic.change"),
    line(
        "DELETE /cluster/topics/{topic}", "operate", "/cluster/topics/T?reason=agreed", entry="topic.delete"
    ),
    line("GET /cluster/groups/{group}", "read", "/cluster/groups/mine"),
    line("GET /cluster/groups/{group}/members/{client_id}", "read", "/cluster/groups/mine/members/one"),
    line(
        "GET /cluster/groups/{group}/takeover-preview",
        "read",
        "/cluster/groups/mine/takeover-preview?source=theirs",
    ),
    line(
        "POST /cluster/groups/{group}/takeover",
        "edit",
        "/cluster/groups/mine/takeover",
        {"source": "theirs", **WHY},
        "group.takeover",
    ),
    line("GET /find", "read", "/find?text=mine"),
    line("GET /cluster/messages", "read", "/cluster/messages?text=k"),
    line("GET /cluster/servers/{address}/changeable", "read", "/cluster/servers/a/changeable"),
    line(
        "PATCH /cluster/servers/{address}/settings",
        "operate",
        "/cluster/servers/a/settings",
        {"changes": {"fileReservedTime": "48"}, **WHY},
        "broker.settings",
    ),
    line("GET /cluster/servers/{address}/clients", "read", "/cluster/servers/a/clients"),
    line("GET /cluster/servers/{address}/replication", "read", "/cluster/servers/a/replication"),
    line("GET /cluster/history/size", "read"),
    line("GET /cluster/name-servers/{address}", "read", "/cluster/name-servers/n1"),
    line("GET /pipelines", "read"),
    line("GET /pipelines/{name}", "read", "/pipelines/mirror"),
    line(
        "PUT /pipelines/{name}",
        "self",
        "/pipelines/fresh",
        {"kind": "mirror", "run": "1"},
        "pipeline.add",
    ),
    line("DELETE /pipelines/{name}", "operate", "/pipelines/mirror?reason=agreed", entry="pipeline.forget"),
    line("GET /cluster/access/users", "administer"),
    line(
        "PUT /cluster/access/users/{user}",
        "administer",
        "/cluster/access/users/new",
        {"password": PASSWORD, **WHY},
        "access-user.create",
    ),
    line(
        "PUT /cluster/access/users/{user}",
        "administer",
        "/cluster/access/users/alice",
        {"enabled": False, **WHY},
        "access-user.change",
    ),
    line(
        "DELETE /cluster/access/users/{user}",
        "administer",
        "/cluster/access/users/alice?reason=agreed",
        entry="access-user.delete",
    ),
    line("GET /cluster/access/policies", "administer", "/cluster/access/policies?user=alice"),
    line(
        "POST /cluster/access/policies/{user}",
        "administer",
        "/cluster/access/policies/alice",
        {"resources": ["Topic:T"], "actions": ["Pub"], **WHY},
        "access-policy.set",
    ),
    line(
        "DELETE /cluster/access/policies/{user}",
        "administer",
        "/cluster/access/policies/alice?reason=agreed",
        entry="access-policy.delete",
    ),
    line("GET /cluster/groups/{group}/progress", "read", "/cluster/groups/mine/progress"),
    line(
        "GET /cluster/groups/{group}/reset-preview",
        "read",
        "/cluster/groups/mine/reset-preview?place=T&to=first",
    ),
    line("GET /cluster/groups/{group}/undo-preview", "read", "/cluster/groups/mine/undo-preview"),
    line("GET /cluster/history", "read"),
    line("GET /cluster/history/topics/{topic}", "read", "/cluster/history/topics/T?range=24h"),
    line("GET /cluster/history/groups/{group}", "read", "/cluster/history/groups/mine?range=30d"),
    line("GET /cluster/history/brokers/{broker}", "read", "/cluster/history/brokers/a"),
    line("GET /cluster/history/services/{service}", "read", "/cluster/history/services/lag-alarm"),
    line("GET /cluster/metrics", "read"),
    line("GET /cluster/messages/{topic}/by-id", "read", "/cluster/messages/T/by-id?id=id-0"),
    line("GET /cluster/messages/{topic}/by-key", "read", "/cluster/messages/T/by-key?key=k"),
    line("GET /cluster/messages/{topic}/at", "read", "/cluster/messages/T/at?broker=a&queue=0"),
    line("GET /cluster/messages/{topic}/between", "read", "/cluster/messages/T/between"),
    line("GET /cluster/messages/{topic}/search", "read", "/cluster/messages/T/search?tags=t"),
    line("GET /cluster/messages/{topic}/export", "read", "/cluster/messages/T/export?count=1"),
    line("GET /cluster/messages/{topic}/selection", "read", "/cluster/messages/T/selection?place=a/0/1"),
    line("GET /cluster/messages/{topic}/newest", "read", "/cluster/messages/T/newest?sql=a%20IS%20NULL"),
    line("GET /cluster/messages/{topic}/life", "read", "/cluster/messages/T/life?id=id-0"),
    line("GET /cluster/delayed", "read"),
    line("GET /cluster/halves", "read"),
    line("GET /cluster/traces", "read", "/cluster/traces?id=id-0"),
    line(
        "POST /cluster/messages/{topic}",
        "operate",
        "/cluster/messages/T",
        {"body": "x", **WHY},
        "message.send",
    ),
    line(
        "POST /cluster/messages/{topic}/resend",
        "operate",
        "/cluster/messages/T/resend",
        {"broker": "a", "queue": 0, "offset": 2, **WHY},
        "message.resend",
    ),
    line("GET /cluster/dead-letters", "read"),
    line("GET /cluster/dead-letters/{group}", "read", "/cluster/dead-letters/mine"),
    line(
        "POST /cluster/dead-letters/{group}/resend",
        "edit",
        "/cluster/dead-letters/mine/resend",
        {"message_ids": ["id-0"], **WHY},
        "dead-letters.resend",
    ),
    line("GET /cluster/dead-letters/{group}/resends", "read", "/cluster/dead-letters/mine/resends"),
    line(
        "POST /cluster/dead-letters/{group}/resends",
        "edit",
        "/cluster/dead-letters/mine/resends",
        {"message_ids": ["id-0"], "per_second": 5.0, **WHY},
        "dead-letters.resend",
    ),
    line(
        "POST /cluster/dead-letters/{group}/resends/{number}/stop",
        "edit",
        "/cluster/dead-letters/mine/resends/{resend}/stop",
        WHY,
        "dead-letters.stop",
    ),
    line(
        "DELETE /cluster/dead-letters/{group}",
        "operate-mine",
        "/cluster/dead-letters/mine?reason=agreed",
        entry="dead-letters.purge",
    ),
    line("GET /groups", "read"),
    line("GET /groups/{group}", "read", "/groups/mine"),
    line("GET /groups/{group}/members", "read", "/groups/mine/members"),
    line("GET /groups/{group}/plans", "read", "/groups/mine/plans"),
    line("GET /groups/{group}/preview", "read", "/groups/mine/preview"),
    line("GET /groups/{group}/would-be", "read", "/groups/theirs/would-be"),
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
    line("GET /stalls", "read"),
    line("PUT /limits/{group}", "edit", "/limits/mine", {"messages": 7, "age_ms": 0, **WHY}, "limit"),
    line("DELETE /limits/{group}", "edit", "/limits/mine?reason=agreed", entry="limit"),
    line("GET /audit", "read"),
    line("GET /audit/export", "read", "/audit/export?format=jsonl"),
    line("GET /settings", "read"),
    line("GET /settings/set", "read"),
    line("GET /groups/{group}/settings", "read", "/groups/mine/settings"),
    line(
        "PUT /groups/{group}/settings/{name}",
        "edit",
        "/groups/mine/settings/threads",
        {"value": 4, **WHY},
        "setting.set",
    ),
    line(
        "DELETE /groups/{group}/settings/{name}",
        "edit",
        "/groups/mine/settings/maximum?reason=agreed",
        entry="setting.unset",
    ),
    line("GET /knobs", "read"),
    line("GET /knobs/set", "read"),
    line("GET /groups/{group}/knobs", "read", "/groups/mine/knobs"),
    line(
        "PUT /groups/{group}/knobs/{name}",
        "edit",
        "/groups/mine/knobs/threads",
        {"value": 4, **WHY},
        "setting.set",
    ),
    line(
        "DELETE /groups/{group}/knobs/{name}",
        "edit",
        "/groups/mine/knobs/maximum?reason=agreed",
        entry="setting.unset",
    ),
    line(
        "POST /groups/{group}/resets",
        "edit",
        "/groups/mine/resets",
        {"place": "T", "to": "first", **WHY},
        "group.reset",
    ),
    line(
        "POST /groups/{group}/resets/{number}/undo",
        "edit",
        "/groups/mine/resets/{reset}/undo",
        WHY,
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
    """Method and path of every route in the package's modules."""
    found = set()
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        router = getattr(import_module(module.name), "router", None)
        for route in getattr(router, "routes", ()):
            found |= {(method, PREFIX + route.path) for method in route.methods}
    return found


def test_every_route_has_its_line(house: House) -> None:
    described = {
        (method.upper(), path) for path, methods in house.app.openapi()["paths"].items() for method in methods
    }
    apart = {
        (method, path)
        for route in house.app.routes
        if (path := getattr(route, "path", None)) and path != "/openapi.json"
        for method in getattr(route, "methods", ())
    }
    assert described == routes() | apart, "nothing is hidden, nothing is described that is not there"
    lines = {tuple(one.route.replace(" ", f" {PREFIX}").split(" ")) for one in LINES}
    assert lines == described, "write a line for each route, with who may"
    reading = {one.route for one in LINES if not one.entry}
    assert {route.partition(" ")[0] for route in reading} == {"GET"}, "what is no GET changes something"
    assert not any(one.route.startswith("GET") for one in WRITES)


@pytest.mark.proves("pmq:P1", "pmq:P2", "pmq:P3", "pmq:8.1")
@pytest.mark.parametrize("one", LINES, ids=name_of)
def test_permitted_users_succeed_and_others_change_nothing(house: House, one: Line) -> None:
    house.restore()
    before = house.rows()
    for who in sorted((ALL | set(STRANGERS)) - MAY[one.may]):
        status, answer = call(house, one, who)
        assert status == (401 if who in STRANGERS else 403), (who, answer)
        assert list(answer) == ["error"]
        assert house.rows() == before, who
    assert not house.survey.done
    assert not house.admin.done
    for who in sorted(MAY[one.may]):
        status, answer = call(house, one, who)
        assert 200 <= status < 300, (who, answer)
        if one.entry:
            check_entries(house, one, who, before)
            house.restore()
        else:
            assert house.rows() == before, who


def check_entries(house: House, one: Line, who: str, before: dict[str, list[tuple[Any, ...]]]) -> None:
    """Check the audit entries of the change: who, what and why, and no secret."""
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
    changed = any(rows != before[name] for name, rows in after.items() if name not in TABLES_OF_NO_CHANGE)
    assert changed or house.admin.done


@pytest.mark.proves("pmq:P3")
@pytest.mark.parametrize("one", WRITES, ids=name_of)
def test_change_whose_audit_entry_cannot_be_written_is_not_made(house: House, one: Line) -> None:
    """The audit entry is in the same transaction."""
    house.restore()
    house.script(NO_AUDIT)
    before = house.rows()
    status, answer = call(house, one, "admin")
    assert (status, list(answer)) == (503, ["error"])
    assert "no room for audit entries" in answer["error"]
    assert house.rows() == before
    assert not house.survey.done
    assert not house.admin.done


@pytest.mark.proves("pmq:P3")
def test_no_route_changes_or_deletes_audit_entries(house: House) -> None:
    """The log is only read; its rows in the tests above are also guarded against changes."""
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
