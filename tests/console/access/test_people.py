"""Pages for users, roles and tokens: what is shown once, what ends sessions, and who may change them."""

from __future__ import annotations

import json
import re

import pytest
from tests.console.furnished import ODD
from tests.console.site import Answer, Reader, Site

PASSWORD = "the password of a tester"


def secret(found: Answer) -> str:
    """The secret that a page shows once."""
    assert found.status == 200, found.words
    shown = re.search(r"<pre[^>]*>([^<]+)</pre>", found.text)
    assert shown is not None
    assert found.headers["cache-control"] == "no-store"
    return shown[1]


def people(console: Site) -> dict[str, dict[str, object]]:
    return {one["name"]: one for one in json.loads(console.call("GET", "/people").text)}


def test_user_is_created_changed_and_deleted(console: Site, admin: Reader) -> None:
    made = admin.change("/new/person", {"name": "mallory", "role": "viewer", "email": ""})
    password = secret(made)
    reader = console.reader("mallory", password)
    assert "mallory" in admin.page("/people").part("people")
    there = admin.change("/new/person", {"name": "mallory", "role": "admin"})
    assert there.status == 409 and "already" in there.words

    seen = admin.post(
        "/people/mallory/change",
        {"csrf": admin.page("/people/mallory/change").hidden("csrf"), "step": "look", "role": "operator"},
    )
    assert "viewer → operator" in seen.words and "sessions and tokens of mallory end" in seen.words
    assert admin.change("/people/mallory/change", {"role": "operator"}).status == 303
    assert reader.get("/").status == 303, "another role ended the session"
    assert people(console)["mallory"]["role"] == "operator"

    granted = {"kind": "group", "object": ODD.group, "role": "owner"}
    assert admin.change("/people/mallory/grant", granted).status == 303
    assert ODD.group in admin.page("/people/mallory").part("objects")
    assert admin.change("/people/mallory/grant", granted | {"role": "none"}).status == 303
    assert ODD.group not in admin.page("/people/mallory").part("objects")

    wrong = admin.change("/people/mallory/password", {"new": "tiny-pw"})
    assert wrong.status == 422 and "tiny-pw" not in wrong.text, "a password is not sent back"
    assert admin.change("/people/mallory/password", {"new": PASSWORD}).status == 303
    console.reader("mallory", PASSWORD)
    assert admin.change("/people/mallory/delete").status == 422, "the name has to be typed"
    assert admin.change("/people/mallory/delete", typed="mallory").status == 303
    assert "mallory" not in people(console)
    noted = [one["action"] for one in json.loads(console.call("GET", "/audit?object=mallory").text)]
    assert noted[0] == "person.delete" and "person.add" in noted
    assert (
        PASSWORD not in console.call("GET", "/audit").text
        and password not in console.call("GET", "/audit").text
    )


def test_token_is_shown_once_and_revoked(console: Site, admin: Reader, viewer: Reader) -> None:
    made = viewer.change("/me/token", {"label": "mine", "days": "3"}, password=ODD.password)
    text = secret(made)
    assert text.startswith("smq_")
    ask = Reader(console.address).ask("GET", "/api/v1/me", headers={"Authorization": f"Bearer {text}"})
    assert json.loads(ask.text)["name"] == "viewer"
    page = viewer.page("/me")
    assert "mine" in page.part("tokens") and text not in page.text and "(this session)" in page.part("tokens")
    number = next(one["id"] for one in tokens(console, viewer) if one["label"] == "mine")
    assert viewer.change(f"/people/viewer/tokens/{number}/revoke").headers["location"] == "/me?_done=revoked"
    ask = Reader(console.address).ask("GET", "/api/v1/me", headers={"Authorization": f"Bearer {text}"})
    assert ask.status == 401
    wrong = viewer.change("/me/token", {"label": "long", "days": "30"})
    assert wrong.status == 403 and "password" in wrong.words
    for days in ("0", "x", "400"):
        assert viewer.change("/me/token", {"days": days}, password=ODD.password).status == 422


def tokens(console: Site, reader: Reader) -> list[dict[str, object]]:
    token = reader.cookies["sparrow_session"]
    found = Reader(console.address).ask("GET", "/api/v1/tokens", headers={"Authorization": f"Bearer {token}"})
    listed: list[dict[str, object]] = json.loads(found.text)
    return listed


def test_changing_the_own_password_needs_the_old_one(console: Site, admin: Reader) -> None:
    password = secret(admin.change("/new/person", {"name": "carol", "role": "viewer"}))
    reader = console.reader("carol", password)
    wrong = reader.change("/me/password", {"old": "not this one", "new": PASSWORD})
    assert wrong.status == 401 and "old password is wrong" in wrong.words
    assert PASSWORD not in wrong.text and "not this one" not in wrong.text
    assert reader.change("/me/password", {"old": password, "new": PASSWORD}).status == 303
    assert reader.get("/").status == 303, "it ended the session"
    (entry,) = json.loads(console.call("GET", "/audit?actor=carol&action=person.edit").text)
    assert (entry["object"], entry["reason"]) == ("carol", "agreed"), "the reason of the form is kept"
    console.reader("carol", PASSWORD)
    assert admin.change("/people/carol/delete", typed="carol").status == 303


def test_users_cannot_raise_their_own_role(console: Site, viewer: Reader) -> None:
    csrf = viewer.page("/").hidden("csrf")
    before = people(console)
    own = {"csrf": csrf, "step": "do", "reason": "x", "stamp": "", "typed": "admin", "role": "admin"}
    for path, fields in (
        ("/new/person", {"name": "eve"}),
        ("/people/viewer/change", {"email": "", "enabled": "enabled"}),
        ("/people/viewer/grant", {"kind": "group", "object": ODD.group, "role": "owner"}),
        ("/people/admin/password", {"new": PASSWORD}),
        ("/people/admin/token", {"label": "x", "days": "1", "password": ODD.password}),
        ("/people/admin/delete", {}),
    ):
        for step in ("look", "do"):
            answer = viewer.post(path, own | fields | {"step": step})
            assert answer.status == 403 and "may not" in answer.words, (path, step, answer.words[-200:])
        assert viewer.get(path).status == 403
    number = next(one["id"] for one in json.loads(console.call("GET", "/tokens").text))
    answer = viewer.post(f"/people/admin/tokens/{number}/revoke", own)
    assert answer.status == 403
    page = viewer.page("/people/admin")
    assert "may not" in page.part("tokens"), "tokens of others are not shown"
    # Fields that a form does not have change nothing: another person, another role.
    sent = {"label": "x", "days": "1", "password": ODD.password, "person": "admin", "role": "admin"}
    made = viewer.change("/me/token", sent)
    ask = Reader(console.address).ask(
        "GET", "/api/v1/me", headers={"Authorization": f"Bearer {secret(made)}"}
    )
    assert json.loads(ask.text)["name"] == "viewer" and json.loads(ask.text)["role"] == "viewer"
    assert people(console) == before


def test_last_admin_cannot_be_removed(console: Site, admin: Reader) -> None:
    answer = admin.change("/people/admin/change", {"role": "viewer"})
    assert answer.status == 409 and "no administrator" in answer.words
    assert admin.change("/people/admin/delete", typed="admin").status == 409


@pytest.mark.parametrize(
    "name", ["<script>alert(1)</script>", "a b", "=1+1", "../x", "", "\u202egpj", "x" * 65]
)
def test_invalid_names_are_refused_and_escaped(console: Site, admin: Reader, name: str) -> None:
    answer = admin.change("/new/person", {"name": name, "role": "viewer"})
    assert answer.status == 422 and "<script>alert" not in answer.text and "\u202e" not in answer.text
    for path in (f"/people/{name}" if name and "/" not in name else "/people/%3Cscript%3E",):
        found = admin.get(path.replace(" ", "%20").replace("<", "%3C").replace("\u202e", "%E2%80%AE"))
        assert "<script>alert" not in found.text and "\u202e" not in found.text


@pytest.mark.parametrize("role", ["owner", "root", "admin\n"])
def test_invalid_roles_are_refused(admin: Reader, role: str) -> None:
    assert admin.change("/new/person", {"name": "dave", "role": role}).status == 422
