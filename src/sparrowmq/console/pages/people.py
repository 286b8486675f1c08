"""People, their roles and tokens, and what each may change in the own account."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from sparrowmq.console.tables import Column
from sparrowmq.console.visits import Done, Field, Form, Page, PagePart, Preview, Values, Visit, at
from sparrowmq.coordinator.api import people
from sparrowmq.coordinator.api.people import Grant, NewPerson, NewToken, PasswordChange, PersonChange
from sparrowmq.coordinator.users.passwords import PASSWORD_CHARS_MIN
from sparrowmq.coordinator.users.roles import GLOBAL_ROLES, OBJECT_KINDS, OBJECT_ROLES, RoleRight
from sparrowmq.coordinator.users.tokens import DAYS, DAYS_MAX
from sparrowmq.core.errors import RefusedError

PEOPLE: Final = (
    Column("name", link=lambda row: at("people", row["name"])),
    Column("role", "state", filtered=True),
    Column("enabled", "state", filtered=True),
    Column("email"),
    Column("objects", "list"),
    Column("created_ms", "time"),
)
OBJECTS: Final = (
    Column("kind", filtered=True),
    Column("object", link=lambda row: at(f"{row['kind']}s", row["object"])),
    Column("role", "state", filtered=True),
)
TOKENS: Final = (
    Column("id", "number", link=lambda row: row["link"]),
    Column("label"),
    Column("created_ms", "time"),
    Column("expires_ms", "time"),
    Column("maker"),
)
ME: Final = "/me"
NOBODY: Final = "none"
"""The option that removes the role for an object."""


async def everyone(visit: Visit) -> Values:
    """All people."""
    rows = [_row(one) for one in await visit.call(people.list_people, visit.caller)]
    return {"table": await visit.table("people", PEOPLE, rows, sort="name")}


def _row(one: Mapping[str, Any]) -> dict[str, Any]:
    objects = [f"{each['role']} of {each['kind']} {each['object']}" for each in one["objects"]]
    return dict(one) | {"enabled": "enabled" if one["enabled"] else "disabled", "objects": objects}


async def _one(visit: Visit) -> Mapping[str, Any]:
    """The person of the path; on the own page, the reader. Raises `RefusedError` (404)."""
    if "name" not in visit.request.path_params:
        return await visit.call(people.me, visit.caller)
    name = visit.named("name")
    for one in await visit.call(people.list_people, visit.caller):
        if one["name"] == name:
            return one
    raise RefusedError(f"there is no user {name[:64]!r}; list all to see them", status=404)


async def person(visit: Visit) -> Values:
    """One person."""
    one = _row(await _one(visit))
    facts = (
        ("name", "text", one["name"]),
        ("role", "state", one["role"]),
        ("enabled", "state", one["enabled"]),
        ("email", "text", one["email"] or "–"),
        ("created_ms", "time", one["created_ms"]),
    )
    return {"facts": facts}


async def objects(visit: Visit) -> Values:
    """Topics and groups for which the person has a role."""
    rows = (await _one(visit))["objects"]
    return {"table": await visit.table("objects", OBJECTS, rows, sort="object", empty="people.no-objects")}


async def tokens(visit: Visit) -> Values:
    """The person's tokens; only an admin sees those of others."""
    name = (await _one(visit))["name"]
    found = await visit.call(people.list_tokens, visit.caller, name)
    rows = [
        one | {"label": _label(visit, one), "link": at("people", name, "tokens", one["id"], "revoke")}
        for one in found
    ]
    return {"table": await visit.table("tokens", TOKENS, rows, sort="-created_ms", empty="people.no-tokens")}


def _label(visit: Visit, one: Mapping[str, Any]) -> str:
    """A token's label, and whether it is the session of this page."""
    mine = visit.words("people.this-session") if one["id"] == visit.caller.token.id else ""
    return " ".join(filter(None, (one["label"] or "–", mine)))


def _all(visit: Visit) -> Sequence[tuple[str, str]]:
    return [("people.new", "/new/person")] if visit.may(RoleRight.ADMINISTER) else []


def _links(visit: Visit) -> Sequence[tuple[str, str]]:
    if not visit.may(RoleRight.ADMINISTER):
        return ()
    base = at("people", visit.named("name"))
    names = ("change", "grant", "password", "token", "delete")
    return [(f"people.do-{name}", f"{base}/{name}") for name in names]


def _own(visit: Visit) -> Sequence[tuple[str, str]]:
    return [
        ("people.own-password", f"{ME}/password"),
        ("people.do-token", f"{ME}/token"),
    ]


# Changes


def _admin(visit: Visit) -> None:
    """Raise `RefusedError` (403), before anything is shown, if the user does not administer people."""
    visit.caller.need(RoleRight.ADMINISTER)


def _roles(visit: Visit) -> Sequence[tuple[str, str]]:
    return [(str(role), visit.words.named("role", str(role))) for role in GLOBAL_ROLES]


def _email(value: str = "") -> Field:
    return Field("email", "column.email", value=value, needed=False)


async def _new_fields(visit: Visit) -> Sequence[Field]:
    _admin(visit)
    return [
        Field("name", "login.name", help=visit.words("people.name-help")),
        Field("role", "column.role", "select", "viewer", _roles(visit)),
        _email(),
    ]


async def _preview_new(visit: Visit, given: Mapping[str, str]) -> Preview:
    _admin(visit)
    name, role = given.get("name", "").strip(), given.get("role", "")
    if not name:
        raise RefusedError(visit.words("people.name-missing"), status=422)
    if any(one["name"] == name for one in await visit.call(people.list_people, visit.caller)):
        raise RefusedError(visit.words("people.there", name=name), status=409)
    says = [visit.words("people.adds", name=name, role=visit.words.named("role", role))]
    return Preview([*says, visit.words("people.password-made")], stamp=repr((name, role)))


async def _add(visit: Visit, given: Mapping[str, str], reason: str) -> Done:
    name, email = given.get("name", "").strip(), given.get("email", "").strip()
    body = NewPerson(name=name[:65], role=given.get("role", "")[:20], email=email[:254], reason=reason)
    made = await visit.call(people.add_person, body, visit.caller)
    return Done("person", secret=made["password"], label="login.password")


async def _change_fields(visit: Visit) -> Sequence[Field]:
    _admin(visit)
    one = await _one(visit)
    enabled = [(name, visit.words.named("state", name)) for name in ("enabled", "disabled")]
    return [
        Field("role", "column.role", "select", one["role"], _roles(visit)),
        _email(one["email"]),
        Field("enabled", "column.enabled", "select", "enabled" if one["enabled"] else "disabled", enabled),
    ]


def _changed(one: Mapping[str, Any], given: Mapping[str, str], reason: str = "") -> PersonChange:
    """The values that differ. Fields that were not sent stay."""
    wanted: dict[str, Any] = {
        "role": given.get("role", one["role"])[:20],
        "email": given.get("email", one["email"]).strip()[:254],
        "enabled": given.get("enabled", "enabled" if one["enabled"] else "disabled") == "enabled",
    }
    return PersonChange(reason=reason, **{key: value for key, value in wanted.items() if value != one[key]})


async def _preview_person(visit: Visit, given: Mapping[str, str]) -> Preview:
    _admin(visit)
    one = await _one(visit)
    change = _changed(one, given)
    differs = change.model_dump(exclude={"reason", "password"}, exclude_none=True)
    says = [f"{visit.words(f'column.{key}')}: {_shown(visit, one[key])} → {_shown(visit, value)}"
            for key, value in differs.items()]  # fmt: skip
    if "role" in differs or differs.get("enabled") is False:
        says.append(visit.words("people.ends-sessions", name=one["name"]))
    return Preview(
        says or [visit.words("form.nothing")],
        stamp=repr((one["role"], one["email"], one["enabled"], differs)),
    )


def _shown(visit: Visit, value: object) -> str:
    if isinstance(value, bool):
        return visit.words("word.yes" if value else "word.no")
    return visit.words.named("role", str(value)) if value else "–"


async def _change(visit: Visit, given: Mapping[str, str], reason: str) -> str:
    body = _changed(await _one(visit), given, reason)
    await visit.call(people.edit_person, visit.named("name"), body, visit.caller)
    return "saved"


async def _grant_fields(visit: Visit) -> Sequence[Field]:
    _admin(visit)
    roles = [(str(role), visit.words.named("role", str(role))) for role in OBJECT_ROLES]
    return [
        Field(
            "kind",
            "column.kind",
            "select",
            "group",
            [(one, visit.words(f"column.{one}")) for one in OBJECT_KINDS],
        ),
        Field("object", "column.name"),
        Field("role", "column.role", "select", "owner", [*roles, (NOBODY, visit.words("people.no-role"))]),
    ]


async def _preview_grant(visit: Visit, given: Mapping[str, str]) -> Preview:
    _admin(visit)
    one, kind, thing = await _one(visit), given.get("kind", ""), given.get("object", "").strip()
    if not thing:
        raise RefusedError(visit.words("people.object-missing"), status=422)
    role = given.get("role", "")
    now = {(each["kind"], each["object"]): each["role"] for each in one["objects"]}.get((kind, thing))
    before = visit.words.named("role", now) if now else visit.words("people.no-role")
    after = visit.words("people.no-role") if role == NOBODY else visit.words.named("role", role)
    says = visit.words(
        "people.grants", name=one["name"], object=f"{kind} {thing}", before=before, after=after
    )
    return Preview([says], stamp=repr((kind, thing, now, role)))


async def _grant(visit: Visit, given: Mapping[str, str], reason: str) -> str:
    role = given.get("role", "")
    body = Grant(
        name=visit.named("name"),
        kind=given.get("kind", ""),
        object=given.get("object", "").strip(),
        role=None if role == NOBODY else role,
        reason=reason,
    )
    await visit.call(people.grant, body, visit.caller)
    return "saved"


def _new_password(visit: Visit) -> Field:
    least = visit.words("people.password-help", least=PASSWORD_CHARS_MIN)
    return Field("new", "people.new-password", "password", help=least)


async def _password_fields(visit: Visit) -> Sequence[Field]:
    _admin(visit)
    return [_new_password(visit)]


async def _preview_password(visit: Visit, given: Mapping[str, str]) -> Preview:
    one = await _one(visit)
    if "name" in visit.request.path_params:
        _admin(visit)
    return Preview([visit.words("people.ends-sessions", name=one["name"])], stamp=one["name"])


async def _set_password(visit: Visit, given: Mapping[str, str], reason: str) -> str:
    body = PersonChange(password=given.get("new", "")[:1000], reason=reason)
    await visit.call(people.edit_person, visit.named("name"), body, visit.caller)
    return "saved"


async def _own_password_fields(visit: Visit) -> Sequence[Field]:
    return [Field("old", "people.old-password", "password"), _new_password(visit)]


async def _own_password(visit: Visit, given: Mapping[str, str], reason: str) -> str:
    old, new = (given.get(name, "")[:1000] for name in ("old", "new"))
    body = PasswordChange(old=old, new=new, reason=reason)
    await visit.call(people.change_password, body, visit.request, visit.caller)
    return "saved"


async def _token_fields(visit: Visit) -> Sequence[Field]:
    if "name" in visit.request.path_params:
        _admin(visit)
    return [
        Field("label", "column.label", needed=False, help=visit.words("people.label-help")),
        Field("days", "people.days", "number", str(DAYS), help=f"1–{DAYS_MAX}"),
        Field(
            "password",
            "people.your-password",
            "password",
            help=visit.words("people.token-help"),
            needed=False,
        ),
    ]


async def _preview_token(visit: Visit, given: Mapping[str, str]) -> Preview:
    one = await _one(visit)
    found = await visit.call(people.list_tokens, visit.caller, one["name"])
    role = visit.words.named("role", one["role"])
    says = visit.words("people.makes-token", name=one["name"], role=role)
    return Preview([says], stamp=repr([each["id"] for each in found]))


async def _make_token(visit: Visit, given: Mapping[str, str], reason: str) -> Done:
    days = given.get("days", "").strip()
    if not (days.isascii() and days.isdecimal() and len(days) <= 4):
        raise RefusedError(f"days must be a whole number from 1 to {DAYS_MAX}, not {days[:40]!r}", status=422)
    name = (await _one(visit))["name"]
    body = NewToken(
        label=given.get("label", "").strip()[:101],
        days=int(days),
        password=given.get("password", "")[:1000] or None,
        person=name,
        reason=reason,
    )
    made = await visit.call(people.add_token, body, visit.request, visit.caller)
    return Done("token", secret=made["token"], label="people.token")


async def _nothing(visit: Visit) -> Sequence[Field]:
    return ()


async def _preview_revoke(visit: Visit, given: Mapping[str, str]) -> Preview:
    one, number = await _one(visit), visit.named("number")
    for each in await visit.call(people.list_tokens, visit.caller, one["name"]):
        if str(each["id"]) == number:
            return Preview(
                [visit.words("people.revokes", label=each["label"] or number, name=one["name"])], stamp=number
            )
    raise RefusedError(f"{one['name']} has no token {number[:20]}; it may have ended", status=404)


async def _revoke(visit: Visit, given: Mapping[str, str], reason: str) -> str:
    await _preview_revoke(visit, given)
    await visit.call(people.delete_token, int(visit.named("number")), visit.caller, reason)
    return "revoked"


async def _preview_delete(visit: Visit, given: Mapping[str, str]) -> Preview:
    _admin(visit)
    one = await _one(visit)
    says = visit.words("people.deletes", name=one["name"], count=len(one["objects"]))
    return Preview([says], stamp=repr(one["objects"]))


async def _delete(visit: Visit, given: Mapping[str, str], reason: str) -> str:
    await visit.call(people.delete_person, visit.named("name"), visit.caller, reason)
    return "deleted"


def _of(visit: Visit) -> str:
    """The page of the person that a change affects; for the reader, the own page."""
    name = visit.request.path_params.get("name", visit.caller.person.name)
    return ME if name == visit.caller.person.name else f"/people/{quote(name, safe='')}"


def _name(visit: Visit) -> str:
    return visit.named("name")


def _list(visit: Visit) -> str:
    return "/people"


def _form(path: str, title: str, steps: tuple[Any, Any, Any], **more: Any) -> Form:
    fields, preview, act = steps
    return Form(path, title, "people", fields, preview, act, **({"back": _of} | more))


OBJECT_PARTS: Final = (
    PagePart("person", person, template="facts"),
    PagePart("objects", objects),
    PagePart("tokens", tokens),
)
PAGES: Final = (
    Page("/people", "page.people", "people", (PagePart("people", everyone),), links=_all),
    Page(ME, "page.me", "people", OBJECT_PARTS, links=_own),
    Page("/people/{name}", "page.person", "people", OBJECT_PARTS, links=_links),
)
FORMS: Final[Sequence[Form]] = (
    _form("/new/person", "people.new", (_new_fields, _preview_new, _add), back=_list, looks_first=True),
    _form(
        "/people/{name}/change",
        "people.do-change",
        (_change_fields, _preview_person, _change),
        looks_first=True,
    ),
    _form(
        "/people/{name}/grant", "people.do-grant", (_grant_fields, _preview_grant, _grant), looks_first=True
    ),
    _form(
        "/people/{name}/password", "people.do-password", (_password_fields, _preview_password, _set_password)
    ),
    _form("/people/{name}/token", "people.do-token", (_token_fields, _preview_token, _make_token)),
    _form("/people/{name}/tokens/{number}/revoke", "people.do-revoke", (_nothing, _preview_revoke, _revoke)),
    _form(
        "/people/{name}/delete",
        "people.do-delete",
        (_nothing, _preview_delete, _delete),
        typed=_name,
        back=_list,
    ),
    _form(f"{ME}/password", "people.own-password", (_own_password_fields, _preview_password, _own_password)),
    _form(f"{ME}/token", "people.do-token", (_token_fields, _preview_token, _make_token)),
)
