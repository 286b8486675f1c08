"""`sparrow login|logout|token` and `sparrow coordinator user`: who may do what at a coordinator."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from sparrowmq.cli.common import AsJson, print_json, print_table
from sparrowmq.cli.remote import Url, Why, call, forget_login, keep_login, part, tell, url_of
from sparrowmq.cli.times import when

user_app = typer.Typer(
    help="People at the coordinator: create, update, delete, grant, list.", no_args_is_help=True
)
token_app = typer.Typer(help="Tokens for the coordinator's API: create, delete, list.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Name of the person.")]
Role = Annotated[str | None, typer.Option(help="viewer, operator or admin.")]
Email = Annotated[str | None, typer.Option(help="Address for notices of what the person owns.")]


def login(
    name: Annotated[str, typer.Argument(help="Name of the person.")] = "admin",
    password_stdin: Annotated[
        bool,
        typer.Option("--password-stdin", help="Read the password from standard input; else it is asked for."),
    ] = False,
    coordinator: Url = None,
    as_json: AsJson = False,
) -> None:
    """Log in at a coordinator; the token is kept for twelve hours."""
    if password_stdin:
        password = sys.stdin.readline().rstrip("\n")
    else:
        password = typer.prompt("Password", hide_input=True)
    url = url_of(coordinator)
    answer = call(url, "POST", "/login", {"name": name, "password": password})
    keep_login(url, answer["token"])
    shown = {key: value for key, value in answer.items() if key != "token"}
    tell(shown, f"logged in at {url} as {name} until {when(answer['expires_ms'])}", as_json)


def logout(coordinator: Url = None, as_json: AsJson = False) -> None:
    """End the login that is kept."""
    try:
        answer = call(coordinator, "POST", "/logout", {})
    finally:
        forget_login()
    tell(answer, "logged out", as_json)


@user_app.command("list")
def list_people(coordinator: Url = None, as_json: AsJson = False) -> None:
    """Print people and what each may do."""
    people = call(coordinator, "GET", "/people")
    if as_json:
        for person in people:
            print_json(person)
        return
    rows = [
        (one["name"], one["role"], "yes" if one["enabled"] else "no", one["email"], _objects(one))
        for one in people
    ]
    print_table(("name", "role", "enabled", "e-mail", "for single objects"), rows)


@user_app.command("create")
def create_person(
    name: Name,
    role: Role = "viewer",
    email: Email = "",
    password_stdin: Annotated[
        bool,
        typer.Option("--password-stdin", help="Read the password from standard input; else one is made."),
    ] = False,
    reason: Why = "",
    coordinator: Url = None,
    as_json: AsJson = False,
) -> None:
    """Make a person; a password that is made is shown once.

    For example: `sparrow coordinator user create ann --role operator --email ann@example.org`
    """
    body: dict[str, Any] = {"name": name, "role": role, "email": email, "reason": reason}
    if password_stdin:
        body["password"] = sys.stdin.readline().rstrip("\n")
    answer = call(coordinator, "POST", "/people", body)
    made = f", password {answer['password']} (shown this once)" if "password" in answer else ""
    tell(answer, f"{name} created{made}", as_json)


@user_app.command("update")
def update_person(
    name: Name,
    role: Role = None,
    email: Email = None,
    enabled: Annotated[
        bool | None, typer.Option("--enable/--disable", help="Whether the person is let in.")
    ] = None,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read a new password from standard input.")
    ] = False,
    reason: Why = "",
    coordinator: Url = None,
    as_json: AsJson = False,
) -> None:
    """Change what is given of a person."""
    given = {"role": role, "email": email, "enabled": enabled}
    body = {key: value for key, value in given.items() if value is not None} | {"reason": reason}
    if password_stdin:
        body["password"] = sys.stdin.readline().rstrip("\n")
    tell(call(coordinator, "PATCH", f"/people/{part(name)}", body), f"{name} updated", as_json)


@user_app.command("delete")
def delete_person(name: Name, reason: Why = "", coordinator: Url = None, as_json: AsJson = False) -> None:
    """Delete a person with tokens and roles."""
    answer = call(coordinator, "DELETE", f"/people/{part(name)}", query={"reason": reason})
    tell(answer, f"{name} deleted", as_json)


@user_app.command("grant")
def grant(
    name: Name,
    kind: Annotated[str, typer.Argument(help="topic or group.")],
    object_: Annotated[str, typer.Argument(metavar="OBJECT", help="Name of the topic or group.")],
    role: Annotated[
        str, typer.Option(help="viewer, owner or operator of it; none takes the role away.")
    ] = "owner",
    reason: Why = "",
    coordinator: Url = None,
    as_json: AsJson = False,
) -> None:
    """Give a person a role for one topic or group.

    For example: `sparrow coordinator user grant ann group billing --role owner`
    """
    given = None if role == "none" else role
    body = {"name": name, "kind": kind, "object": object_, "role": given, "reason": reason}
    answer = call(coordinator, "POST", "/grants", body)
    tell(answer, f"{name} is {given or 'nothing more'} of the {kind} {object_}", as_json)


@user_app.command("of")
def people_of(
    kind: Annotated[str, typer.Argument(help="topic or group.")],
    object_: Annotated[str, typer.Argument(metavar="OBJECT", help="Name of the topic or group.")],
    coordinator: Url = None,
    as_json: AsJson = False,
) -> None:
    """Print who has a role for one topic or group: its owners and others."""
    found = call(coordinator, "GET", "/grants", query={"kind": kind, "object": object_})
    if as_json:
        for one in found:
            print_json(one)
        return
    rows = [(one["name"], one["role"], "yes" if one["enabled"] else "no") for one in found]
    print_table(("name", "role", "enabled"), rows)


@token_app.command("list")
def list_tokens(
    person: Annotated[str | None, typer.Option(help="Of somebody else; for admins.")] = None,
    coordinator: Url = None,
    as_json: AsJson = False,
) -> None:
    """Print tokens, without themselves."""
    tokens = call(coordinator, "GET", "/tokens", query={"person": person})
    if as_json:
        for token in tokens:
            print_json(token)
        return
    rows = [(one["id"], one["label"], when(one["created_ms"]), when(one["expires_ms"])) for one in tokens]
    print_table(("id", "label", "made", "ends"), rows, right=("id",))


@token_app.command("create")
def create_token(
    label: Annotated[str, typer.Argument(help="What it is for.")],
    days: Annotated[int, typer.Option(help="Days until it ends, 366 at most.")] = 30,
    person: Annotated[str | None, typer.Option(help="For somebody else; for admins.")] = None,
    reason: Why = "",
    coordinator: Url = None,
    as_json: AsJson = False,
) -> None:
    """Make a token and print it; it is shown this once."""
    body: dict[str, Any] = {"label": label, "days": days, "reason": reason}
    if person:
        body["person"] = person
    answer = call(coordinator, "POST", "/tokens", body)
    tell(answer, answer["token"], as_json)


@token_app.command("delete")
def delete_token(
    number: Annotated[int, typer.Argument(metavar="ID", help="Id of the token.")],
    reason: Why = "",
    coordinator: Url = None,
    as_json: AsJson = False,
) -> None:
    """Take a token back."""
    answer = call(coordinator, "DELETE", f"/tokens/{number}", query={"reason": reason})
    tell(answer, f"token {number} deleted", as_json)


def _objects(person: dict[str, Any]) -> str:
    return ", ".join(f"{one['role']} of {one['kind']} {one['object']}" for one in person["objects"])
