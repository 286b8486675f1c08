"""Accounts of 4.x brokers, and the addresses from which they want none.

Brokers do not list their accounts: the page shows those that were changed through the coordinator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sparrowmq.console.pages.access.users import names_in, unless_off
from sparrowmq.console.tables import Column
from sparrowmq.console.visits import Field, Form, Page, PagePart, Preview, Values, Visit, at
from sparrowmq.coordinator.api.told import access
from sparrowmq.coordinator.api.told.access import NAME_CHARS_MAX, Account, WhiteAddresses
from sparrowmq.coordinator.users.roles import RoleRight
from sparrowmq.core.errors import RefusedError

PERMS: Final = ("DENY", "PUB", "SUB", "PUB|SUB")
LISTS: Final = ("topic_perms", "group_perms")
DEFAULTS: Final = ("default_topic_perm", "default_group_perm")
ACCOUNTS: Final = (
    Column("account", link=lambda row: at("access", "accounts", row["account"])),
    Column("admin_word", "state", filtered=True),
    *(Column(name) for name in DEFAULTS),
    *(Column(name, "list") for name in LISTS),
    Column("white_address"),
    Column("changed_ms", "time"),
    Column("changed_by"),
)


async def accounts(visit: Visit) -> Values:
    """The accounts that are known here, and how often each broker's were changed by command."""
    found = await unless_off(access.list_accounts(visit.caller))
    if found is None:
        return {"table": await visit.table("accounts", ACCOUNTS, (), empty="access.off-4")}
    rows = [_row(one) for one in found["accounts"]]
    table = await visit.table("accounts", ACCOUNTS, rows, sort="account", empty="access.no-accounts")
    versions = [
        visit.words("access.version", broker=name, count=count)
        for name, count in sorted(found["versions"].items())
    ]
    return {"table": table, "notes": [visit.words("access.known-here"), *versions]}


def _row(one: Mapping[str, Any]) -> dict[str, Any]:
    values = one["values"]
    texts = {name: values.get(name) or "–" for name in (*DEFAULTS, "white_address")}
    lists = {name: values.get(name) or () for name in LISTS}
    word = "admin" if values.get("admin") else "normal"
    return dict(one) | texts | lists | {"admin_word": word}


async def account(visit: Visit) -> Values:
    """One account, as it was last set through the coordinator."""
    name = visit.named("account")
    for one in (await access.list_accounts(visit.caller))["accounts"]:
        if one["account"] == name:
            row = _row(one)
            kinds = {column.key: column.kind for column in ACCOUNTS}
            return {"facts": [(key, kind, row[key]) for key, kind in kinds.items()]}
    raise RefusedError(visit.words("access.not-known-here", name=name[:64]), status=404)


def _links(visit: Visit) -> Sequence[tuple[str, str]]:
    if not visit.may(RoleRight.ADMINISTER):
        return ()
    base = at("access", "accounts", visit.named("account"))
    return [("access.do-account", f"{base}/change"), ("access.do-delete-account", f"{base}/delete")]


async def _values(visit: Visit) -> Mapping[str, Any]:
    """What is known of the account of the path; nothing of a new one or one made elsewhere."""
    name = visit.request.path_params.get("account")
    if name is None:
        return {}
    found = (await access.list_accounts(visit.caller))["accounts"]
    return next((one["values"] for one in found if one["account"] == name), {})


async def _fields(visit: Visit) -> Sequence[Field]:
    visit.caller.need(RoleRight.ADMINISTER)
    values = await _values(visit)
    name = [] if "account" in visit.request.path_params else [Field("account", "column.account")]
    kinds = [(word, visit.words.named("state", word)) for word in ("normal", "admin")]
    perms = [(one, one) for one in PERMS]
    return [
        *name,
        Field("new", "access.secret", "password", help=visit.words("access.secret-help"), needed=False),
        Field("admin", "column.admin_word", "select", "admin" if values.get("admin") else "normal", kinds),
        *(Field(one, f"column.{one}", "select", values.get(one, "DENY"), perms) for one in DEFAULTS),
        *(
            Field(one, f"column.{one}", "lines", "\n".join(values.get(one, ())), needed=False,
                  help=visit.words("access.perms-help"))
            for one in LISTS
        ),
        Field("white_address", "column.white_address", value=values.get("white_address", ""), needed=False,
              help=visit.words("access.white-help")),
    ]  # fmt: skip


def _name_of(visit: Visit, given: Mapping[str, str]) -> str:
    """The account's name. Raises `RefusedError` (422)."""
    name = str(visit.request.path_params.get("account", given.get("account", "").strip()))
    if not 0 < len(name) <= NAME_CHARS_MAX:
        raise RefusedError(visit.words("access.name-missing", most=NAME_CHARS_MAX), status=422)
    return name


def _account(visit: Visit, given: Mapping[str, str], reason: str = "") -> Account:
    """All values of the form. Raises `RefusedError` (422)."""
    secret, white = given.get("new", ""), given.get("white_address", "").strip()
    if max(len(secret), len(white)) > NAME_CHARS_MAX:
        raise RefusedError(visit.words("access.password-long", most=NAME_CHARS_MAX), status=422)
    lists = {name: names_in(visit, given.get(name, "")) for name in LISTS}
    for one in (each for entries in lists.values() for each in entries):
        name, equals, perm = one.partition("=")
        if not name.strip() or not equals or perm.strip() not in PERMS:
            raise RefusedError(visit.words("access.no-perm", wrong=repr(one[:60])), status=422)
    return Account(
        secret=secret or None,
        admin=given.get("admin") == "admin",
        white_address=white,
        default_topic_perm=given.get("default_topic_perm", "DENY")[:NAME_CHARS_MAX],
        default_group_perm=given.get("default_group_perm", "DENY")[:NAME_CHARS_MAX],
        topic_perms=lists["topic_perms"],
        group_perms=lists["group_perms"],
        reason=reason,
    )


async def _preview(visit: Visit, given: Mapping[str, str]) -> Preview:
    visit.caller.need(RoleRight.ADMINISTER)
    name, known = _name_of(visit, given), await _values(visit)
    body = _account(visit, given).model_dump(exclude={"reason", "secret"})
    says = [visit.words("access.puts", name=name)]
    says += [
        f"{visit.words(f'column.{key}')}: {_text(known.get(key))} → {_text(value)}"
        for key, value in body.items()
        if key != "admin" and _text(known.get(key)) != _text(value)
    ]
    if body["admin"]:
        says.append(visit.words("access.account-admin", name=name))
    return Preview(says, stamp=repr((name, known, body)))


def _text(value: Any) -> str:
    return (", ".join(value) if isinstance(value, list | tuple) else value) or "–"


async def _put(visit: Visit, given: Mapping[str, str], reason: str) -> str:
    await access.put_account(_name_of(visit, given), _account(visit, given, reason), visit.caller)
    return "saved"


async def _nothing(visit: Visit) -> Sequence[Field]:
    return ()


async def _preview_delete(visit: Visit, given: Mapping[str, str]) -> Preview:
    visit.caller.need(RoleRight.ADMINISTER)
    return Preview([visit.words("access.account-deletes", name=visit.named("account"))])


async def _delete(visit: Visit, given: Mapping[str, str], reason: str) -> str:
    await access.delete_account(visit.named("account"), visit.caller, reason)
    return "deleted"


async def _white_fields(visit: Visit) -> Sequence[Field]:
    visit.caller.need(RoleRight.ADMINISTER)
    return [
        Field("addresses", "access.addresses", "lines", needed=False, help=visit.words("access.white-help"))
    ]


async def _preview_white(visit: Visit, given: Mapping[str, str]) -> Preview:
    visit.caller.need(RoleRight.ADMINISTER)
    addresses = names_in(visit, given.get("addresses", ""))
    key = "access.whitens" if addresses else "access.whitens-none"
    return Preview([visit.words(key, addresses=", ".join(addresses))], stamp=repr(addresses))


async def _set_white(visit: Visit, given: Mapping[str, str], reason: str) -> str:
    body = WhiteAddresses(addresses=names_in(visit, given.get("addresses", "")), reason=reason)
    await access.put_white_addresses(body, visit.caller)
    return "saved"


def _all(visit: Visit) -> str:
    return "/access"


def _back(visit: Visit) -> str:
    return at("access", "accounts", visit.named("account"))


PAGES: Final[Sequence[Page]] = (
    Page(
        "/access/accounts/{account}",
        "page.access-account",
        "access",
        (PagePart("access-account", account, template="facts"),),
        links=_links,
        is_live=False,
    ),
)
FORMS: Final[Sequence[Form]] = (
    Form("/new/access-account", "access.new-account", "access", _fields, _preview, _put, _all,
         looks_first=True),
    Form("/access/accounts/{account}/change", "access.do-account", "access", _fields, _preview, _put, _back,
         looks_first=True),
    Form("/access/accounts/{account}/delete", "access.do-delete-account", "access", _nothing,
         _preview_delete, _delete, _all, typed=lambda visit: visit.named("account")),
    Form("/access/white", "access.white", "access", _white_fields, _preview_white, _set_white, _all,
         looks_first=True),
)  # fmt: skip
