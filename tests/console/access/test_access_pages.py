"""Pages for access control of brokers: changes are previewed, names must be typed, no secret is shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.console.access.test_access import SECRET, guarded  # noqa: F401
from tests.console.access.test_people import secret
from tests.console.site import Reader, Site, site
from tests.support import sqlite_url

from sparrowmq.testing import LocalCluster

ODD = "<script>alert(1)</script>"


def looked(reader: Reader, path: str, fields: dict[str, str] | None = None) -> str:
    """The preview that a form shows."""
    sent = {"csrf": reader.page(path).hidden("csrf"), "step": "look"} | (fields or {})
    return reader.post(path, sent).words


def entries(found: Site, name: str) -> str:
    return found.call("GET", f"/audit?kind=access&object={name}").text


def test_user_is_created_changed_and_deleted(guarded: Site) -> None:  # noqa: F811
    admin = guarded.admin
    late = admin.change("/new/access-user", {"name": "bob", "kind": "normal"})
    assert late.status == 422 and "needs a password" in late.words
    made = admin.change("/new/access-user", {"name": "bob", "kind": "normal"}, new=SECRET)
    assert made.headers["location"] == "/access?_done=created"
    assert "bob normal" in admin.page("/access").part("access-users")
    there = admin.change("/new/access-user", {"name": "bob", "kind": "super"}, new=SECRET)
    assert there.status == 409 and "already exists" in there.words

    base = "/access/users/bob"
    assert f'href="{base}"' in admin.page("/access").text
    links = [f'href="{base}/{name}"' for name in ("change", "policy", "revoke", "delete")]
    assert all(one in admin.page(base).text for one in links)
    says = looked(admin, f"{base}/change", {"kind": "normal", "enabled": "disabled"})
    assert "enabled → disabled" in says and "Requests that bob signs are refused" in says
    assert admin.change(f"{base}/change", {"enabled": "disabled"}).status == 303
    assert "disabled" in admin.page(base).part("access-user")
    nothing = admin.change(f"{base}/change", {"enabled": "disabled"})
    assert nothing.status == 422 and "no changes" in nothing.words
    assert admin.change(f"{base}/change", {"enabled": "enabled"}, new=f"{SECRET}!").status == 303

    assert admin.change(f"{base}/delete").status == 422, "the name has to be typed"
    assert admin.change(f"{base}/delete", typed="bob").headers["location"] == "/access?_done=deleted"
    assert "bob" not in admin.page("/access").part("access-users")
    noted = entries(guarded, "bob")
    actions = [one["action"] for one in json.loads(noted)]
    assert actions == ["access-user.delete", "access-user.change", "access-user.change", "access-user.create"]
    assert SECRET not in noted and '"reason":"agreed"' in noted.replace(" ", "")


def test_policy_is_set_changed_and_deleted(guarded: Site) -> None:  # noqa: F811
    admin = guarded.admin
    assert admin.change("/new/access-user", {"name": "carol"}, new=SECRET).status == 303
    base = "/access/users/carol"
    given = {"resources": "Topic:Orders\nGroup:bill*", "actions": "pub, SUB", "decision": "allow"}
    says = looked(admin, f"{base}/policy", given)
    assert "carol, Topic:Orders: no policy → allow Pub, Sub from everywhere" in says
    assert admin.change(f"{base}/policy", given).status == 303
    assert "Group:bill* allow Pub, Sub" in admin.page(base).part("policies")
    form = admin.page(f"{base}/policy?resource=Topic%3AOrders")
    assert 'value="Pub, Sub"' in form.text and "Topic:Orders" in form.text, "the form begins with what is set"

    narrower = {"resources": "Topic:Orders", "actions": "Pub", "decision": "deny", "sources": "10.0.0.0/8"}
    says = looked(admin, f"{base}/policy", narrower)
    assert "allow Pub, Sub from everywhere → deny Pub from 10.0.0.0/8" in says
    assert admin.change(f"{base}/policy", narrower).status == 303
    assert "Topic:Orders deny Pub 10.0.0.0/8" in admin.page("/access").part("policies")

    path, fields = f"{base}/revoke", {"resource": "Topic:Orders"}
    assert "deny Pub from 10.0.0.0/8 → no policy" in looked(admin, path, fields)
    assert admin.change(path, fields).status == 422, "the name has to be typed"
    assert admin.change(path, fields, typed="carol").status == 303
    assert "Orders" not in admin.page(base).part("policies")
    assert "policies deleted with it: 1" in looked(admin, f"{base}/delete")
    assert admin.change(path, {"resource": ""}, typed="carol").status == 303
    assert admin.get(path).status == 404, "there is nothing left to delete"
    assert admin.change(f"{base}/delete", typed="carol").status == 303


def test_deleting_the_last_super_user_is_refused(guarded: Site) -> None:  # noqa: F811
    admin = guarded.admin
    for path, fields in (
        ("/access/users/root/delete", None),
        ("/access/users/root/change", {"enabled": "disabled"}),
        ("/access/users/root/change", {"kind": "normal"}),
    ):
        assert "root is the only enabled super user" in looked(admin, path, fields), path
    assert admin.change("/new/access-user", {"name": "second", "kind": "super"}, new=SECRET).status == 303
    assert "only enabled super user" not in looked(admin, "/access/users/root/delete")
    assert admin.change("/access/users/second/delete", typed="second").status == 303


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"resources": ""}, "at least one resource"),
        ({"resources": "T", "actions": "Fly"}, "'Fly' is not an action"),
        ({"resources": "T", "actions": ""}, "is not an action"),
        ({"resources": "x" * 300, "actions": "Pub"}, "at most 255 characters"),
        ({"resources": "\n".join(f"Topic:{n}" for n in range(101)), "actions": "Pub"}, "At most 100"),
    ],
)
def test_invalid_policies_are_refused_and_the_input_is_kept(
    guarded: Site,  # noqa: F811
    fields: dict[str, str],
    says: str,
) -> None:
    answer = guarded.admin.change("/access/users/root/policy", fields)
    assert answer.status == 422 and says in answer.words
    assert answer.typed("resources") == fields["resources"].replace("\n", "\r\n")


def test_markup_in_user_names_is_escaped(guarded: Site) -> None:  # noqa: F811
    admin = guarded.admin
    made = admin.change("/new/access-user", {"name": ODD}, new=SECRET)
    pages = [made, admin.page("/access")]
    if made.status == 303:
        assert "alert(1)" in pages[1].part("access-users")
        assert guarded.call("DELETE", f"/cluster/access/users/{ODD}".replace("/script", "%2Fscript")).status
    assert all("<script>alert" not in one.text for one in pages)


def test_concurrent_changes_of_one_user_do_not_overwrite_each_other(guarded: Site) -> None:  # noqa: F811
    admin = guarded.admin
    assert admin.change("/new/access-user", {"name": "dora"}, new=SECRET).status == 303
    path = "/access/users/dora/change"
    fields = {"csrf": admin.page(path).hidden("csrf"), "enabled": "disabled"}
    seen = admin.post(path, fields | {"step": "look"})
    assert admin.change(path, {"kind": "super"}).status == 303
    late = admin.post(path, fields | {"stamp": seen.hidden("stamp"), "step": "do", "reason": "mine"})
    assert late.status == 409 and "The situation has changed" in late.words
    assert admin.change("/access/users/dora/delete", typed="dora").status == 303
    assert admin.get(path).status == 404, "the user was deleted while its page was open"


def test_page_says_that_access_control_is_disabled_at_the_broker(
    empty_database: Path, tmp_path: Path
) -> None:
    path = tmp_path / "coordinator.db"
    path.write_bytes(empty_database.read_bytes())
    with (
        LocalCluster() as cluster,
        site(database_url=sqlite_url(path), namesrv_addr=cluster.namesrv) as unguarded,
    ):
        assert unguarded.admin.login("admin", unguarded.password).status == 303
        page = unguarded.admin.page("/access")
        assert "keep no users" in page.part("access-users") and "keep no users" in page.part("policies")


def test_only_admins_see_and_change_access_pages(guarded: Site) -> None:  # noqa: F811
    password = secret(guarded.admin.change("/new/person", {"name": "oscar", "role": "operator"}))
    oscar = guarded.reader("oscar", password)
    page = oscar.page("/access")
    for part in ("access-users", "policies"):
        assert "may not" in page.part(part)
    assert "/new/access-user" not in page.text
    csrf = page.hidden("csrf")
    sent = {
        "csrf": csrf,
        "step": "do",
        "stamp": "",
        "reason": "x",
        "typed": "root",
        "name": "eve",
        "new": SECRET,
    }
    for path in (
        "/new/access-user", "/access/users/root/change", "/access/users/root/policy",
        "/access/users/root/revoke", "/access/users/root/delete",
    ):  # fmt: skip
        assert oscar.get(path).status == 403, path
        assert oscar.post(path, sent).status == 403, path
