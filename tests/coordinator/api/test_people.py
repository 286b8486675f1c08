from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from argon2 import PasswordHasher
from tests.coordinator.running import Running

from sparrowmq.coordinator.users import passwords
from sparrowmq.coordinator.users.login_attempts import FAILURES_MAX


def test_first_user_is_an_admin_who_logs_in(api: Running) -> None:
    found = api.get("/me")
    assert (found["name"], found["role"]) == ("admin", "admin")
    assert api.started.first_password
    assert len(api.started.first_password) >= 20


def test_user_changes_are_audited_from_creation_to_deletion(api: Running) -> None:
    token = api.person("life")
    assert api.call("GET", "/me", token=token)[1]["role"] == "viewer"
    status, _ = api.call(
        "PATCH", "/people/life", {"role": "operator", "email": "l@x.org", "reason": "promoted"}
    )
    assert status == 200
    assert (
        api.call("POST", "/grants", {"name": "life", "kind": "group", "object": "g", "role": "owner"})[0]
        == 200
    )
    assert {one["name"]: one for one in api.get("/people")}["life"]["objects"] == [
        {"kind": "group", "object": "g", "role": "owner"}
    ]
    assert api.call("DELETE", "/people/life?reason=gone")[0] == 200
    assert api.call("GET", "/me", token=token)[0] == 401
    actions = [one["action"] for one in reversed(api.get("/audit?object=life"))]
    assert actions == ["person.add", "token.add", "person.edit", "person.delete"]
    assert api.get("/audit?object=life&action=person.edit")[0]["reason"] == "promoted"


def test_only_admins_manage_users(api: Running) -> None:
    for name, role in (("low", "viewer"), ("middle", "operator")):
        token = api.person(name, role)
        for method, path, body in (
            ("POST", "/people", {"name": "x"}),
            ("PATCH", "/people/admin", {"role": "viewer"}),
            ("DELETE", "/people/admin", None),
            ("POST", "/grants", {"name": name, "kind": "group", "object": "g", "role": "owner"}),
            ("POST", "/tokens", {"person": "admin"}),
            ("GET", "/tokens?person=admin", None),
        ):
            status, answer = api.call(method, path, body, token=token)
            assert status == 403, (method, path)
            assert answer["error"] == f"{name} may not administer this: this requires the role admin"


def test_users_manage_only_their_own_tokens(api: Running) -> None:
    token, other = api.person("owner-of-token"), api.person("another")
    body = {"label": "ci", "days": 5, "password": api.passwords["owner-of-token"]}
    status, made = api.call("POST", "/tokens", body, token=token)
    assert status == 201
    assert api.call("GET", "/me", token=made["token"])[1]["name"] == "owner-of-token"
    assert "token" not in api.call("GET", "/tokens", token=token)[1][0]
    assert api.call("DELETE", f"/tokens/{made['id']}", token=other)[0] == 403
    assert api.call("DELETE", f"/tokens/{made['id']}", token=token)[0] == 200
    assert api.call("GET", "/me", token=made["token"])[0] == 401
    assert api.call("POST", "/tokens", {"days": 400}, token=token)[0] == 422


def login(api: Running, name: str) -> str:
    body = {"name": name, "password": api.passwords[name]}
    return str(api.call("POST", "/login", body, token="")[1]["token"])


def is_let_in(api: Running, token: str) -> bool:
    return api.call("GET", "/me", token=token)[0] == 200


def test_tokens_made_with_a_login_never_outlive_it(api: Running) -> None:
    api.person("maker")
    first = login(api, "maker")
    for days in (366, 1):
        status, answer = api.call("POST", "/tokens", {"days": days}, token=first)
        assert status == 403
        assert "expires with the token it is made from, in 12.0 h; give the password" in answer["error"]
    wrong = {"days": 366, "password": "not the one"}
    assert api.call("POST", "/tokens", wrong, token=first)[0] == 401
    made = api.call("POST", "/tokens", {}, token=first)[1]
    mine = {one["id"]: one for one in api.call("GET", "/tokens", token=first)[1]}
    ends = next(one["expires_ms"] for one in mine.values() if one["label"] == "login")
    assert made["expires_ms"] == ends
    of_that = api.call("POST", "/tokens", {}, token=made["token"])[1]
    assert of_that["expires_ms"] == ends
    long = {"days": 366, "password": api.passwords["maker"]}
    kept = api.call("POST", "/tokens", long, token=first)[1]
    assert kept["expires_ms"] > ends + 300 * 86_400_000
    assert api.call("POST", "/logout", {}, token=first)[0] == 200
    assert not is_let_in(api, first)
    assert not is_let_in(api, made["token"])
    assert not is_let_in(api, of_that["token"])
    assert is_let_in(api, kept["token"]), "the password made it"


@pytest.mark.parametrize(
    "change", [{"role": "operator"}, {"enabled": False}, {"password": "another one!"}, None]
)
def test_derived_tokens_are_deleted_with_their_origin(api: Running, change: dict[str, object] | None) -> None:
    """Long-lived tokens, those made for others, and tokens made with them."""
    name, guest = f"boss-{len(str(change))}", f"guest-{len(str(change))}"
    api.person(name, "admin")
    kept = api.person(guest)
    own = {"days": 99, "password": api.passwords[name]}
    boss = api.call("POST", "/tokens", own, token=login(api, name))[1]["token"]
    given = api.call("POST", "/tokens", {**own, "person": guest}, token=boss)[1]["token"]
    of_given = api.call("POST", "/tokens", {}, token=given)[1]["token"]
    assert all(is_let_in(api, one) for one in (boss, given, of_given))
    if change is None:
        assert api.call("DELETE", f"/people/{name}")[0] == 200
    else:
        assert api.call("PATCH", f"/people/{name}", change)[0] == 200
    assert [one for one in (boss, given, of_given) if is_let_in(api, one)] == []
    assert is_let_in(api, kept), "somebody else made it"


def test_similar_names_are_the_same_name(api: Running) -> None:
    """Names that differ in trailing blanks, in case, or in the Unicode form of the same letters are
    refused."""
    api.person("anna")
    password = api.passwords["anna"]
    for name in (
        "anna ",
        "anna" + " " * 30,
        " anna",
        "ANNA",
        "Anna",
        "anna\u0000",
        "\uff41nna",
        "anna\u00ad",
        "anna\t",
    ):
        status, answer = api.call("POST", "/login", {"name": name, "password": password}, token="")
        assert (status, answer) == (401, {"error": "the name or the password is wrong"}), name
    assert login(api, "anna")


def test_user_logs_in_and_out(api: Running) -> None:
    api.person("visitor")
    status, answer = api.call(
        "POST", "/login", {"name": "visitor", "password": api.passwords["visitor"]}, token=""
    )
    assert status == 200
    assert api.call("POST", "/logout", {}, token=answer["token"])[0] == 200
    assert api.call("GET", "/me", token=answer["token"])[0] == 401


def test_changing_the_own_password_needs_the_old_one(api: Running) -> None:
    token, old = api.person("changer"), api.passwords["changer"]
    assert api.call("POST", "/me/password", {"old": "wrong one!", "new": "x" * 12}, token=token)[0] == 401
    assert api.call("POST", "/me/password", {"old": old, "new": "short"}, token=token)[0] == 422
    assert api.call("POST", "/me/password", {"old": old, "new": "a new password"}, token=token)[0] == 200
    assert api.call("GET", "/me", token=token)[0] == 401
    assert api.call("POST", "/login", {"name": "changer", "password": "a new password"})[0] == 200


def test_login_storm_is_refused_without_revealing_which_users_exist(api: Running) -> None:
    api.person("victim")
    for name in ("victim", "nobody-at-all"):
        answers = [
            api.call("POST", "/login", {"name": name, "password": "wrong"}) for _ in range(FAILURES_MAX + 1)
        ]
        assert [status for status, _ in answers] == [401] * FAILURES_MAX + [429]
        assert answers[0][1] == {"error": "the name or the password is wrong"}
        assert "too many login attempts for" in answers[-1][1]["error"]
    right = {"name": "victim", "password": api.passwords["victim"]}
    assert api.call("POST", "/login", right)[0] == 429


def test_simultaneous_attempts_count_before_the_first_has_failed(
    api: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passwords, "_hasher", PasswordHasher(time_cost=3))  # none ends before the last begins
    api.person("stormed")
    wrong = {"name": "stormed", "password": "wrong"}
    with ThreadPoolExecutor(20) as threads:
        answers = list(threads.map(lambda _: api.call("POST", "/login", wrong, token=""), range(20)))
    assert sorted(status for status, _ in answers) == [401] * FAILURES_MAX + [429] * (20 - FAILURES_MAX)


def test_disabled_user_is_logged_out_at_once(api: Running) -> None:
    token = api.person("leaver")
    assert api.call("PATCH", "/people/leaver", {"enabled": False})[0] == 200
    assert api.call("GET", "/me", token=token)[0] == 401
    assert api.call("POST", "/login", {"name": "leaver", "password": api.passwords["leaver"]})[0] == 401
