from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tests.coordinator.running import Running

from sparrowmq.coordinator.users.tries import FAILURES_MAX


def test_the_first_person_is_an_admin_who_logs_in(api: Running) -> None:
    found = api.get("/me")
    assert (found["name"], found["role"]) == ("admin", "admin")
    assert api.started.first_password
    assert len(api.started.first_password) >= 20


def test_a_person_lives_and_everything_is_audited(api: Running) -> None:
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


def test_only_admins_manage_people(api: Running) -> None:
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
            assert answer["error"] == f"{name} may not administer this: that needs the role admin"


def test_tokens_are_ones_own_business(api: Running) -> None:
    token, other = api.person("owner-of-token"), api.person("another")
    status, made = api.call("POST", "/tokens", {"label": "ci", "days": 5}, token=token)
    assert status == 201
    assert api.call("GET", "/me", token=made["token"])[1]["name"] == "owner-of-token"
    assert "token" not in api.call("GET", "/tokens", token=token)[1][0]
    assert api.call("DELETE", f"/tokens/{made['id']}", token=other)[0] == 403
    assert api.call("DELETE", f"/tokens/{made['id']}", token=token)[0] == 200
    assert api.call("GET", "/me", token=made["token"])[0] == 401
    assert api.call("POST", "/tokens", {"days": 400}, token=token)[0] == 422


def test_login_and_logout(api: Running) -> None:
    api.person("visitor")
    status, answer = api.call(
        "POST", "/login", {"name": "visitor", "password": api.passwords["visitor"]}, token=""
    )
    assert status == 200
    assert api.call("POST", "/logout", {}, token=answer["token"])[0] == 200
    assert api.call("GET", "/me", token=answer["token"])[0] == 401


def test_the_own_password_is_changed_with_the_old_one(api: Running) -> None:
    token, old = api.person("changer"), api.passwords["changer"]
    assert api.call("POST", "/me/password", {"old": "wrong one!", "new": "x" * 12}, token=token)[0] == 401
    assert api.call("POST", "/me/password", {"old": old, "new": "short"}, token=token)[0] == 422
    assert api.call("POST", "/me/password", {"old": old, "new": "a new password"}, token=token)[0] == 200
    assert api.call("GET", "/me", token=token)[0] == 401
    assert api.call("POST", "/login", {"name": "changer", "password": "a new password"})[0] == 200


def test_a_storm_of_logins_is_refused_without_telling_who_there_is(api: Running) -> None:
    api.person("victim")
    for name in ("victim", "nobody-at-all"):
        answers = [
            api.call("POST", "/login", {"name": name, "password": "wrong"}) for _ in range(FAILURES_MAX + 1)
        ]
        assert [status for status, _ in answers] == [401] * FAILURES_MAX + [429]
        assert answers[0][1] == {"error": "the name or the password is wrong"}
        assert "too many tries of" in answers[-1][1]["error"]
    right = {"name": "victim", "password": api.passwords["victim"]}
    assert api.call("POST", "/login", right)[0] == 429


def test_a_storm_of_tries_at_once_does_not_pass_before_the_first_has_failed(api: Running) -> None:
    api.person("stormed")
    wrong = {"name": "stormed", "password": "wrong"}
    with ThreadPoolExecutor(20) as threads:
        answers = list(threads.map(lambda _: api.call("POST", "/login", wrong, token=""), range(20)))
    assert sorted(status for status, _ in answers) == [401] * FAILURES_MAX + [429] * (20 - FAILURES_MAX)


def test_someone_disabled_is_out_at_once(api: Running) -> None:
    token = api.person("leaver")
    assert api.call("PATCH", "/people/leaver", {"enabled": False})[0] == 200
    assert api.call("GET", "/me", token=token)[0] == 401
    assert api.call("POST", "/login", {"name": "leaver", "password": api.passwords["leaver"]})[0] == 401
