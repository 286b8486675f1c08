"""Users of brokers (5.x) and their policies, as one master has them. Changes are made at every master."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

from sparrowmq.console.tables import Column
from sparrowmq.console.visits import Field, Form, Page, PagePart, Preview, Values, Visit, at
from sparrowmq.coordinator.api.told import access
from sparrowmq.coordinator.api.told.access import ENTRIES_MAX, NAME_CHARS_MAX, BrokerUser, Policy
from sparrowmq.coordinator.users.roles import RoleRight
from sparrowmq.core.errors import RefusedError

T = TypeVar("T")
ACTIONS: Final = ("Pub", "Sub", "Create", "Update", "Delete", "Get", "List", "All")
OFF: Final = "Is access control on there"
"""In errors of brokers without this kind of access control."""
ALL: Final = ""
"""The choice that takes back all policies of a user."""
USERS: Final = (
    Column("name", link=lambda row: at("access", "users", row["name"])),
    Column("kind", "state", filtered=True),
    Column("enabled", "state", filtered=True),
)
POLICIES: Final = (
    Column("resource", link=lambda row: _of_resource(row["user"], row["resource"], "policy")),
    Column("decision", "state", filtered=True),
    Column("actions", "list"),
    Column("sources", "list"),
    Column("default"),
)
ALL_POLICIES: Final = (Column("user", link=lambda row: at("access", "users", row["user"])), *POLICIES)


def _of_resource(user: str, resource: str, form: str) -> str:
    return f"{at('access', 'users', user, form)}?{urlencode({'resource': resource})}"


async def everyone(visit: Visit) -> Values:
    """All users of the brokers."""
    found = await unless_off(access.list_users(visit.caller))
    empty = "access.off" if found is None else "access.no-users"
    rows = [_row(one) for one in found or ()]
    return {"table": await visit.table("access-users", USERS, rows, sort="name", empty=empty)}


async def unless_off(asked: Awaitable[T]) -> T | None:
    """The brokers' answer, or None if they have no access control of this kind. Raises other errors."""
    try:
        return await asked
    except RefusedError as error:
        if OFF not in str(error):
            raise
        return None


async def all_policies(visit: Visit) -> Values:
    """The policies of all users."""
    return await _policies(visit, "", ALL_POLICIES)


async def user(visit: Visit) -> Values:
    """One user."""
    one = _row(await _one(visit))
    facts = [("name", "text", one["name"]), *((key, "state", one[key]) for key in ("kind", "enabled"))]
    return {"facts": facts}


async def policies(visit: Visit) -> Values:
    """The policies of one user."""
    return await _policies(visit, visit.named("user"), POLICIES)


async def _policies(visit: Visit, name: str, columns: Sequence[Column]) -> Values:
    found = await unless_off(access.list_policies(visit.caller, name))
    empty = "access.off" if found is None else "access.no-policies"
    rows = [dict(one) | {"decision": "allow" if one["allow"] else "deny"} for one in found or ()]
    table = await visit.table("policies", columns, rows, sort="resource", empty=empty)
    return {"table": table}


def _row(one: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": one["name"],
        "kind": "super" if one["super_user"] else "normal",
        "enabled": "enabled" if one["enabled"] else "disabled",
    }


async def _one(visit: Visit) -> Mapping[str, Any]:
    """The user of the path. Raises `RefusedError` (404)."""
    name = visit.named("user")
    for one in await access.list_users(visit.caller):
        if one["name"] == name:
            return one
    raise RefusedError(f"the brokers have no user {name[:64]!r}; list all to see them", status=404)


def _links(visit: Visit) -> Sequence[tuple[str, str]]:
    if not visit.may(RoleRight.ADMINISTER):
        return ()
    base = at("access", "users", visit.named("user"))
    return [(f"access.do-{name}", f"{base}/{name}") for name in ("change", "policy", "revoke", "delete")]


# Changes


def _choices(visit: Visit, *names: str) -> Sequence[tuple[str, str]]:
    return [(name, visit.words.named("state", name)) for name in names]


async def _new_fields(visit: Visit) -> Sequence[Field]:
    visit.caller.need(RoleRight.ADMINISTER)
    return [
        Field("name", "column.name"),
        Field("kind", "column.kind", "select", "normal", _choices(visit, "normal", "super")),
        Field("new", "login.password", "password", help=visit.words("access.password-help"), needed=False),
    ]


async def _preview_new(visit: Visit, given: Mapping[str, str]) -> Preview:
    visit.caller.need(RoleRight.ADMINISTER)
    name, kind = given.get("name", "").strip(), given.get("kind", "normal")
    if not 0 < len(name) <= NAME_CHARS_MAX:
        raise RefusedError(visit.words("access.name-missing", most=NAME_CHARS_MAX), status=422)
    if any(one["name"] == name for one in await access.list_users(visit.caller)):
        raise RefusedError(visit.words("people.there", name=name), status=409)
    says = [visit.words("access.adds-super" if kind == "super" else "access.adds", name=name)]
    return Preview(says, stamp=repr((name, kind)))


async def _add(visit: Visit, given: Mapping[str, str], reason: str) -> str:
    name, password = given.get("name", "").strip(), _password(visit, given)
    if password is None:
        raise RefusedError(visit.words("access.password-missing"), status=422)
    body = BrokerUser(password=password, super_user=given.get("kind") == "super", reason=reason)
    await access.put_user(name, body, visit.caller)
    return "created"


async def _change_fields(visit: Visit) -> Sequence[Field]:
    visit.caller.need(RoleRight.ADMINISTER)
    one = _row(await _one(visit))
    return [
        Field("kind", "column.kind", "select", one["kind"], _choices(visit, "normal", "super")),
        Field("enabled", "column.enabled", "select", one["enabled"], _choices(visit, "enabled", "disabled")),
        Field("new", "people.new-password", "password", help=visit.words("access.keep-help"), needed=False),
    ]


def _wanted(one: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, bool]:
    """What differs, by the names of the API. Fields that were not sent stay."""
    wanted: dict[str, bool] = {}
    for key, field, word in (("super_user", "kind", "super"), ("enabled", "enabled", "enabled")):
        if field in given and (given[field] == word) != one[key]:
            wanted[key] = not one[key]
    return wanted


async def _preview_change(visit: Visit, given: Mapping[str, str]) -> Preview:
    visit.caller.need(RoleRight.ADMINISTER)
    everybody = await access.list_users(visit.caller)
    one = await _one(visit)
    after = dict(one) | _wanted(one, given)
    before_row, after_row = _row(one), _row(after)
    says = [
        f"{visit.words(f'column.{key}')}: {visit.words.named('state', before_row[key])} → "
        f"{visit.words.named('state', after_row[key])}"
        for key in ("kind", "enabled")
        if before_row[key] != after_row[key]
    ]
    if one["enabled"] and not after["enabled"]:
        says.append(visit.words("access.disables", name=one["name"]))
    if _rules(one) and not _rules(after):
        says += _last_super(visit, everybody, one["name"])
    says.append(visit.words("access.password-too"))
    return Preview(says, stamp=repr((before_row, after_row)))


def _rules(one: Mapping[str, Any]) -> bool:
    return bool(one["super_user"] and one["enabled"])


def _last_super(visit: Visit, everybody: Sequence[Mapping[str, Any]], name: str) -> list[str]:
    """A warning if no other user has all rights."""
    if any(_rules(one) for one in everybody if one["name"] != name):
        return []
    return [visit.words("access.last-super", name=name)]


async def _change(visit: Visit, given: Mapping[str, str], reason: str) -> str:
    wanted, password = _wanted(await _one(visit), given), _password(visit, given)
    if not wanted and password is None:
        raise RefusedError(visit.words("form.nothing"), status=422)
    body = BrokerUser(password=password, reason=reason, **wanted)
    await access.put_user(visit.named("user"), body, visit.caller)
    return "saved"


def _password(visit: Visit, given: Mapping[str, str]) -> str | None:
    text = given.get("new", "")
    if len(text) > NAME_CHARS_MAX:
        raise RefusedError(visit.words("access.password-long", most=NAME_CHARS_MAX), status=422)
    return text or None


async def _policy_fields(visit: Visit) -> Sequence[Field]:
    visit.caller.need(RoleRight.ADMINISTER)
    asked = visit.query.get("resource")
    held = [one for one in await _held(visit) if one["resource"] == asked]
    fresh = {"resource": "", "actions": ("Pub", "Sub"), "sources": (), "allow": True}
    one: Mapping[str, Any] = held[0] if held else fresh
    return [
        Field("resources", "access.resources", "lines", one["resource"],
              help=visit.words("access.resources-help")),
        Field("decision", "column.decision", "select", "allow" if one["allow"] else "deny",
              _choices(visit, "allow", "deny")),
        Field("actions", "column.actions", value=", ".join(one["actions"]), help=", ".join(ACTIONS)),
        Field("sources", "column.sources", "lines", "\n".join(one["sources"]), needed=False,
              help=visit.words("access.sources-help")),
    ]  # fmt: skip


async def _held(visit: Visit) -> Sequence[Mapping[str, Any]]:
    return await access.list_policies(visit.caller, visit.named("user"))


def names_in(visit: Visit, text: str) -> list[str]:
    """Names given by line or comma. Raises `RefusedError` (422) if there are too many, or one is too long."""
    found = [one.strip() for one in text.replace(",", "\n").splitlines() if one.strip()]
    if len(found) > ENTRIES_MAX or any(len(one) > NAME_CHARS_MAX for one in found):
        text = visit.words("access.too-many", most=ENTRIES_MAX, chars=NAME_CHARS_MAX)
        raise RefusedError(text, status=422)
    return found


def _policy(visit: Visit, given: Mapping[str, str], reason: str = "") -> Policy:
    """The policy of a form. Raises `RefusedError` (422)."""
    resources = names_in(visit, given.get("resources", ""))
    if not resources:
        raise RefusedError(visit.words("access.resource-missing"), status=422)
    known = {one.casefold(): one for one in ACTIONS}
    actions = names_in(visit, given.get("actions", ""))
    strange = [one for one in actions if one.casefold() not in known]
    if strange or not actions:
        wrong = strange[0][:40] if strange else ""
        raise RefusedError(
            visit.words("access.no-action", wrong=repr(wrong), known=", ".join(ACTIONS)), status=422
        )
    return Policy(
        resources=resources,
        actions=[known[one.casefold()] for one in actions],
        sources=names_in(visit, given.get("sources", "")),
        allow=given.get("decision", "allow") != "deny",
        reason=reason,
    )


def _says(visit: Visit, one: Mapping[str, Any]) -> str:
    """A policy in words."""
    sources = ", ".join(one["sources"]) or visit.words("access.everywhere")
    decision = visit.words.named("state", "allow" if one["allow"] else "deny")
    return visit.words("access.policy", decision=decision, actions=", ".join(one["actions"]), sources=sources)


async def _preview_policy(visit: Visit, given: Mapping[str, str]) -> Preview:
    visit.caller.need(RoleRight.ADMINISTER)
    one, policy = await _one(visit), _policy(visit, given)
    held = {each["resource"]: each for each in await _held(visit)}
    nothing = visit.words("access.no-policy")
    after = _says(visit, policy.model_dump())
    says = [
        f"{one['name']}, {name}: {_says(visit, held[name]) if name in held else nothing} → {after}"
        for name in policy.resources
    ]
    before = [held.get(name) for name in policy.resources]
    return Preview(says, stamp=repr((before, policy.model_dump())))


async def _set_policy(visit: Visit, given: Mapping[str, str], reason: str) -> str:
    await access.put_policy(visit.named("user"), _policy(visit, given, reason), visit.caller)
    return "saved"


async def _revoke_fields(visit: Visit) -> Sequence[Field]:
    visit.caller.need(RoleRight.ADMINISTER)
    names = [one["resource"] for one in await _held(visit)]
    asked = visit.query.get("resource", "")
    first = asked if asked in names else next(iter(names), ALL)
    choices = [*((name, name) for name in names), (ALL, visit.words("access.all-policies"))]
    return [Field("resource", "column.resource", "select", first, choices)]


async def _going(visit: Visit, given: Mapping[str, str]) -> Sequence[Mapping[str, Any]]:
    resource = given.get("resource", ALL)
    return [one for one in await _held(visit) if resource in (ALL, one["resource"])]


async def _preview_revoke(visit: Visit, given: Mapping[str, str]) -> Preview:
    visit.caller.need(RoleRight.ADMINISTER)
    name, going = visit.named("user"), await _going(visit, given)
    if not going:
        raise RefusedError(visit.words("access.nothing-held", name=name), status=404)
    gone = visit.words("access.no-policy")
    says = [f"{name}, {one['resource']}: {_says(visit, one)} → {gone}" for one in going]
    return Preview(says, stamp=repr(going))


async def _revoke(visit: Visit, given: Mapping[str, str], reason: str) -> str:
    resource = given.get("resource", ALL) or None
    await access.delete_policy(visit.named("user"), visit.caller, resource, reason)
    return "deleted"


async def _nothing(visit: Visit) -> Sequence[Field]:
    return ()


async def _preview_delete(visit: Visit, given: Mapping[str, str]) -> Preview:
    visit.caller.need(RoleRight.ADMINISTER)
    one, held = await _one(visit), await _held(visit)
    says = [visit.words("access.deletes", name=one["name"], count=len(held))]
    if _rules(one):
        says += _last_super(visit, await access.list_users(visit.caller), one["name"])
    return Preview(says, stamp=repr((one, held)))


async def _delete(visit: Visit, given: Mapping[str, str], reason: str) -> str:
    await access.delete_user(visit.named("user"), visit.caller, reason)
    return "deleted"


def _name(visit: Visit) -> str:
    return visit.named("user")


def _all(visit: Visit) -> str:
    return "/access"


def _back(visit: Visit) -> str:
    return at("access", "users", visit.named("user"))


def _form(name: str, steps: tuple[Any, Any, Any], **more: Any) -> Form:
    fields, preview, act = steps
    path = f"/access/users/{{user}}/{name}"
    return Form(path, f"access.do-{name}", "access", fields, preview, act, **({"back": _back} | more))


PAGES: Final[Sequence[Page]] = (
    Page(
        "/access/users/{user}",
        "page.access-user",
        "access",
        (PagePart("access-user", user, template="facts"), PagePart("policies", policies)),
        links=_links,
        is_live=False,
    ),
)
FORMS: Final[Sequence[Form]] = (
    Form("/new/access-user", "access.new-user", "access", _new_fields, _preview_new, _add, _all,
         looks_first=True),
    _form("change", (_change_fields, _preview_change, _change), looks_first=True),
    _form("policy", (_policy_fields, _preview_policy, _set_policy), looks_first=True),
    _form("revoke", (_revoke_fields, _preview_revoke, _revoke), typed=_name),
    _form("delete", (_nothing, _preview_delete, _delete), typed=_name, back=_all),
)  # fmt: skip
