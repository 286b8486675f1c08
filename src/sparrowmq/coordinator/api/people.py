"""Routes of logins, users, their roles for single objects, and tokens."""

from __future__ import annotations

from fastapi import APIRouter, Request
from pydantic import Field
from sqlalchemy import Connection

from sparrowmq.coordinator.api.shared import Answer, Context, Reason, RequestBody, Where, Who
from sparrowmq.coordinator.records.audit import Actor, record
from sparrowmq.coordinator.users import external, passwords, people, tokens
from sparrowmq.coordinator.users.external import External
from sparrowmq.coordinator.users.people import Person, PersonUpdate
from sparrowmq.coordinator.users.roles import RoleRight
from sparrowmq.coordinator.users.tokens import AccessToken
from sparrowmq.core.errors import RefusedError

router = APIRouter(tags=["people"])


class Login(RequestBody):
    """A user's name and password."""

    name: str = Field(max_length=64)
    password: str = Field(max_length=1000)


class NewPerson(Reason):
    """A user to create. Without a password, one is generated and shown once."""

    name: str = Field(max_length=64)
    password: str | None = Field(default=None, max_length=1000)
    role: str = "viewer"
    email: str = Field(default="", max_length=254)


class PersonChange(Reason):
    """The changes of a user; omitted values stay."""

    role: str | None = None
    email: str | None = Field(default=None, max_length=254)
    enabled: bool | None = None
    password: str | None = Field(default=None, max_length=1000)


class PasswordChange(Reason):
    """A change of the caller's own password."""

    old: str = Field(max_length=1000)
    new: str = Field(max_length=1000)


class Grant(Reason):
    """A role for one topic or group; null removes it."""

    name: str = Field(max_length=64)
    kind: str
    object: str
    role: str | None = None


class NewToken(Reason):
    """A token to create; `person` is the caller by default. Without the caller's `password`, it ends with the
    token that creates it: when that expires or is revoked. Without `days` it ends then, or after 30 days.
    """

    label: str = Field(default="", max_length=100)
    days: int | None = None
    password: str | None = Field(default=None, max_length=1000)
    person: str | None = Field(default=None, max_length=64)


@router.post("/login")
def login(body: Login, request: Request, context: Where) -> Answer:
    """Log in: a token for twelve hours. After five failures within a minute, the name is locked for that
    address until the minute ends.
    """
    address = request.client.host if request.client else ""
    stored = _tried(context, body.name, body.password, address)
    wrong = RefusedError("the name or the password is wrong", status=401)
    if stored is None:
        raise wrong
    with context.database.write() as connection:
        if people.password_hash(connection, body.name) != stored:
            # changed, or its person disabled, in the meantime: that ended all tokens, this one included
            raise wrong
        actor = Actor(body.name, f"login from {address}")
        made, text = tokens.log_in(connection, body.name, actor)
    return {"token": text, **token_view(made)}


def login_external(context: Context, person: External, address: str, provider: str) -> str:
    """A session's token for a person whom a login provider has just authenticated.

    Not a route: only code that has verified the provider's answer calls it. Raises `RefusedError` (403) if
    the name belongs to another person.
    """
    actor = Actor(person.name, f"login with {provider} from {address}")
    with context.database.write() as connection:
        _, text = external.enter(connection, person, actor)
    return text


@router.post("/logout")
def logout(who: Who) -> Answer:
    """Log out: end the token of this request."""
    who.change("logout", lambda connection, actor: tokens.revoke(connection, who.token.id, actor))
    return {}


@router.get("/me")
def me(who: Who) -> Answer:
    """The user of the token."""
    return person_view(who.person)


@router.post("/me/password")
def change_password(body: PasswordChange, request: Request, who: Who) -> Answer:
    """Change the caller's password; all of the caller's tokens end."""
    passwords.check_password(body.new)
    address = request.client.host if request.client else ""
    if _tried(who.context, who.person.name, body.old, address) is None:
        raise RefusedError("the old password is wrong", status=401)
    change = PersonUpdate(password_hash=_hashed(who.context, body.new))
    who.change(
        body.reason or "own password",
        lambda connection, actor: people.edit(connection, who.person.name, change, actor),
    )
    return {}


@router.get("/people")
def list_people(who: Who) -> list[Answer]:
    """All users."""
    who.need(RoleRight.READ)
    return [person_view(person) for person in who.read(people.everyone)]


@router.post("/people", status_code=201)
def add_person(body: NewPerson, who: Who) -> Answer:
    """Create a user."""
    who.need(RoleRight.ADMINISTER)
    password = body.password or passwords.new_password()
    passwords.check_password(password)
    hash_, change = _hashed(who.context, password), PersonUpdate(role=body.role, email=body.email)
    who.change(body.reason, lambda connection, actor: people.add(connection, body.name, hash_, change, actor))
    made = person_view(who.read(lambda connection: people.get(connection, body.name)))
    return made if body.password else {**made, "password": password}


@router.patch("/people/{name}")
def edit_person(name: str, body: PersonChange, who: Who) -> Answer:
    """Change a user."""
    who.need(RoleRight.ADMINISTER)
    hash_ = None
    if body.password is not None:
        passwords.check_password(body.password)
        hash_ = _hashed(who.context, body.password)
    change = PersonUpdate(body.role, body.email, body.enabled, hash_)
    who.change(body.reason, lambda connection, actor: people.edit(connection, name, change, actor))
    return person_view(who.read(lambda connection: people.get(connection, name)))


@router.delete("/people/{name}")
def delete_person(name: str, who: Who, reason: str = "") -> Answer:
    """Delete a user."""
    who.need(RoleRight.ADMINISTER)
    who.change(reason, lambda connection, actor: people.remove(connection, name, actor))
    return {}


@router.get("/grants")
def list_grants(kind: str, object: str, who: Who) -> list[Answer]:
    """The users with a role for one topic or group: its owners, operators and viewers."""
    who.need(RoleRight.READ)
    found = who.read(lambda connection: people.having(connection, (kind, object)))
    return [{"name": one.name, "role": str(role), "enabled": one.enabled} for one, role in found]


@router.post("/grants")
def grant(body: Grant, who: Who) -> Answer:
    """Give a user a role for one topic or group, or remove it."""
    who.need(RoleRight.ADMINISTER)
    thing = (body.kind, body.object)
    who.change(
        body.reason, lambda connection, actor: people.grant(connection, body.name, thing, body.role, actor)
    )
    return person_view(who.read(lambda connection: people.get(connection, body.name)))


@router.get("/tokens")
def list_tokens(who: Who, person: str | None = None) -> list[Answer]:
    """The caller's tokens; an admin can list those of others."""
    name = person or who.person.name
    if name != who.person.name:
        who.need(RoleRight.ADMINISTER)
    return [token_view(token) for token in who.read(lambda connection: tokens.of(connection, name))]


@router.post("/tokens", status_code=201)
def add_token(body: NewToken, request: Request, who: Who) -> Answer:
    """Create a token for the caller, or, as an admin, for another user. Its text is shown only once."""
    name = body.person or who.person.name
    if name != who.person.name:
        who.need(RoleRight.ADMINISTER)
    lifetime = None if body.days is None else body.days * 86_400_000
    parent: AccessToken | None = who.token
    if body.password is not None:
        address = request.client.host if request.client else ""
        if _tried(who.context, who.person.name, body.password, address) is None:
            raise RefusedError("the password is wrong", status=401)
        parent = None

    def work(connection: Connection, actor: Actor) -> tuple[AccessToken, str]:
        return tokens.make(connection, name, body.label, lifetime, actor, parent=parent)

    made, text = who.change(body.reason, work)
    return {"token": text, **token_view(made)}


@router.delete("/tokens/{number}")
def delete_token(number: int, who: Who, reason: str = "") -> Answer:
    """Revoke one of the caller's tokens, or, as an admin, any token."""
    found = who.read(lambda connection: tokens.find(connection, number))
    if found.person != who.person.name:
        who.need(RoleRight.ADMINISTER)
    who.change(reason, lambda connection, actor: tokens.revoke(connection, number, actor))
    return {}


def person_view(person: Person) -> Answer:
    """A person as the API shows it."""
    return {
        "name": person.name,
        "role": str(person.role),
        "email": person.email,
        "enabled": person.enabled,
        "created_ms": person.created_at,
        "objects": [
            {"kind": kind, "object": name, "role": str(role)} for (kind, name), role in person.objects.items()
        ],
    }


def token_view(token: AccessToken) -> Answer:
    """A token as the API shows it."""
    return {
        "id": token.id,
        "person": token.person,
        "label": token.label,
        "created_ms": token.created_at,
        "expires_ms": token.expires_at,
        "maker": token.maker,
    }


def _tried(context: Context, name: str, password: str, address: str) -> str | None:
    """The stored password hash, if the password is correct.

    Raises `RefusedError` (429) after too many attempts. Excessive attempts are recorded in the audit log,
    once per window.
    """
    with context.tries_lock:
        storms = context.tries.storms
        try:
            context.tries.begin(name, address, context.clock.monotonic())
            refusal = None
        except RefusedError as error:
            refusal = error
        is_storm = context.tries.storms > storms
    if is_storm:
        _note_tries(context, "login.storm", "", address)
    if refusal is not None:
        raise refusal
    try:
        with context.database.read() as connection:
            stored = people.password_hash(connection, name)
        with context.hashing:
            right = passwords.matches(stored, password)
    except BaseException:
        with context.tries_lock:
            context.tries.broken(name, address)
        raise
    with context.tries_lock:
        if right:
            context.tries.succeeded(name, address)
        is_locked = not right and context.tries.failed(name, address, context.clock.monotonic())
    if is_locked:
        _note_tries(context, "login.locked", name if stored else "", address)
    return stored if right else None


def _note_tries(context: Context, action: str, name: str, address: str) -> None:
    """Record that further attempts are refused. A text that is not a person's name is not stored: people type
    passwords into the wrong field.
    """
    actor = Actor("coordinator", f"tries from {address}")
    with context.database.write() as connection:
        record(connection, actor, action, ("person", name))


def _hashed(context: Context, password: str) -> str:
    with context.hashing:
        return passwords.hashed(password)
