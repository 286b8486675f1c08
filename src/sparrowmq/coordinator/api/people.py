"""Routes of logins, people, their roles for single objects, and tokens."""

from __future__ import annotations

from fastapi import APIRouter, Request
from pydantic import Field

from sparrowmq.coordinator.api.shared import Answer, Body, Context, Reason, Where, Who
from sparrowmq.coordinator.audit import Actor, record
from sparrowmq.coordinator.users import passwords, people, tokens
from sparrowmq.coordinator.users.people import Change, Person
from sparrowmq.coordinator.users.roles import Right
from sparrowmq.coordinator.users.tokens import Token
from sparrowmq.core.errors import RefusedError

router = APIRouter(tags=["people"])


class Login(Body):
    """A name and its password."""

    name: str = Field(max_length=64)
    password: str = Field(max_length=1000)


class NewPerson(Reason):
    """A person to make. Without a password one is made and shown once."""

    name: str = Field(max_length=64)
    password: str | None = Field(default=None, max_length=1000)
    role: str = "viewer"
    email: str = Field(default="", max_length=254)


class PersonChange(Reason):
    """What to change; what is left out stays."""

    role: str | None = None
    email: str | None = Field(default=None, max_length=254)
    enabled: bool | None = None
    password: str | None = Field(default=None, max_length=1000)


class PasswordChange(Body):
    """The own password."""

    old: str = Field(max_length=1000)
    new: str = Field(max_length=1000)


class Grant(Reason):
    """A role for one topic or group; without one it is taken away."""

    name: str = Field(max_length=64)
    kind: str
    object: str
    role: str | None = None


class NewToken(Reason):
    """A token to make; `person` is the caller when left out."""

    label: str = Field(default="", max_length=100)
    days: int = 30
    person: str | None = Field(default=None, max_length=64)


@router.post("/login")
def login(body: Login, request: Request, context: Where) -> Answer:
    """A token for twelve hours. Five failures a minute lock a name, from one address, for the rest of it."""
    address = request.client.host if request.client else ""
    stored = _tried(context, body.name, body.password, address)
    wrong = RefusedError("the name or the password is wrong", status=401)
    if stored is None:
        raise wrong
    with context.database.write() as connection:
        if people.password_hash(connection, body.name) != stored:
            raise wrong  # changed, or its person disabled, meanwhile: that ended all tokens, this one too
        actor = Actor(body.name, f"login from {address}")
        made, text = tokens.make(connection, body.name, "login", tokens.LOGIN_HOURS * 3_600_000, actor)
    return {"token": text, **token_view(made)}


@router.post("/logout")
def logout(who: Who) -> Answer:
    """End the token this is called with."""
    who.change("logout", lambda connection, actor: tokens.revoke(connection, who.token.id, actor))
    return {}


@router.get("/me")
def me(who: Who) -> Answer:
    """Who the token is."""
    return person_view(who.person)


@router.post("/me/password")
def change_password(body: PasswordChange, request: Request, who: Who) -> Answer:
    """Change the own password; all the own tokens end."""
    passwords.check_password(body.new)
    address = request.client.host if request.client else ""
    if _tried(who.context, who.person.name, body.old, address) is None:
        raise RefusedError("the old password is wrong", status=401)
    change = Change(password_hash=_hashed(who.context, body.new))
    who.change(
        "own password", lambda connection, actor: people.edit(connection, who.person.name, change, actor)
    )
    return {}


@router.get("/people")
def list_people(who: Who) -> list[Answer]:
    """All people."""
    who.need(Right.READ)
    return [person_view(person) for person in who.read(people.everyone)]


@router.post("/people", status_code=201)
def add_person(body: NewPerson, who: Who) -> Answer:
    """Make a person."""
    who.need(Right.ADMINISTER)
    password = body.password or passwords.new_password()
    passwords.check_password(password)
    hash_, change = _hashed(who.context, password), Change(role=body.role, email=body.email)
    who.change(body.reason, lambda connection, actor: people.add(connection, body.name, hash_, change, actor))
    made = person_view(who.read(lambda connection: people.get(connection, body.name)))
    return made if body.password else {**made, "password": password}


@router.patch("/people/{name}")
def edit_person(name: str, body: PersonChange, who: Who) -> Answer:
    """Change a person."""
    who.need(Right.ADMINISTER)
    hash_ = None
    if body.password is not None:
        passwords.check_password(body.password)
        hash_ = _hashed(who.context, body.password)
    change = Change(body.role, body.email, body.enabled, hash_)
    who.change(body.reason, lambda connection, actor: people.edit(connection, name, change, actor))
    return person_view(who.read(lambda connection: people.get(connection, name)))


@router.delete("/people/{name}")
def delete_person(name: str, who: Who, reason: str = "") -> Answer:
    """Delete a person."""
    who.need(Right.ADMINISTER)
    who.change(reason, lambda connection, actor: people.remove(connection, name, actor))
    return {}


@router.get("/grants")
def list_grants(kind: str, object: str, who: Who) -> list[Answer]:
    """Who has a role for one topic or group: its owners, and those who may look after it or see it."""
    who.need(Right.READ)
    found = who.read(lambda connection: people.having(connection, (kind, object)))
    return [{"name": one.name, "role": str(role), "enabled": one.enabled} for one, role in found]


@router.post("/grants")
def grant(body: Grant, who: Who) -> Answer:
    """Give a person a role for one topic or group, or take it away."""
    who.need(Right.ADMINISTER)
    thing = (body.kind, body.object)
    who.change(
        body.reason, lambda connection, actor: people.grant(connection, body.name, thing, body.role, actor)
    )
    return person_view(who.read(lambda connection: people.get(connection, body.name)))


@router.get("/tokens")
def list_tokens(who: Who, person: str | None = None) -> list[Answer]:
    """The own tokens; an admin sees those of others."""
    name = person or who.person.name
    if name != who.person.name:
        who.need(Right.ADMINISTER)
    return [token_view(token) for token in who.read(lambda connection: tokens.of(connection, name))]


@router.post("/tokens", status_code=201)
def add_token(body: NewToken, who: Who) -> Answer:
    """Make a token for oneself; an admin makes them for others. Its text is shown this once."""
    name = body.person or who.person.name
    if name != who.person.name:
        who.need(Right.ADMINISTER)
    lifetime = body.days * 86_400_000
    made, text = who.change(
        body.reason, lambda connection, actor: tokens.make(connection, name, body.label, lifetime, actor)
    )
    return {"token": text, **token_view(made)}


@router.delete("/tokens/{number}")
def delete_token(number: int, who: Who, reason: str = "") -> Answer:
    """Take a token back: an own one, or as an admin anybody's."""
    found = who.read(lambda connection: tokens.find(connection, number))
    if found.person != who.person.name:
        who.need(Right.ADMINISTER)
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


def token_view(token: Token) -> Answer:
    """A token as the API shows it."""
    return {
        "id": token.id,
        "person": token.person,
        "label": token.label,
        "created_ms": token.created_at,
        "expires_ms": token.expires_at,
    }


def _tried(context: Context, name: str, password: str, address: str) -> str | None:
    """What is stored of the person's password, if it is this one. Raises `RefusedError` (429) after too many
    tries.

    Whoever tries too often is in the audit log, once a window.
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
    """An entry about tries that are refused from now on. What is no person's name is not kept: people type
    passwords into the wrong field.
    """
    actor = Actor("coordinator", f"tries from {address}")
    with context.database.write() as connection:
        record(connection, actor, action, ("person", name))


def _hashed(context: Context, password: str) -> str:
    with context.hashing:
        return passwords.hashed(password)
