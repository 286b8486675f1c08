"""`sparrow login|logout|token` and `sparrow coordinator user`: who may do what at a coordinator."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from sparrowmq.cli.base.common import AsJson, print_json, print_table, tell
from sparrowmq.cli.base.remote import Url, Why, call, forget_login, keep_login, part, url_of
from sparrowmq.cli.base.times import when

user_app = typer.Typer(
    help="Users of the coordinator: create, update, delete, grant, list.", no_args_is_help=True
)
token_app = typer.Typer(help="Tokens for the coordinator's API: create, delete, list.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Name of the user.")]
Role = Annotated[str | None, typer.Option(help="viewer, operator or admin.")]
Email = Annotated[str | None, typer.Option(help="Mail address for notices about what the user owns.")]


def login(
    name: Annotated[str, typer.Argument(help="Name of the user.")] = "admin",
    password_stdin: Annotated[
        bool,
        typer.Option("--password-stdin", help="Read the password from standard input. Default: ask for it."),
    ] = False,
    coordinator: Url = None,
    as_json: AsJson = False,
) -> None:
    """Log in at a coordinator; the token is saved and valid for twelve hours."""
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
    """Log out and delete the saved login."""
    try:
        answer = call(coordinator, "POST", "/logout", {})
    finally:
        forget_login()
    tell(answer, "logged out", as_json)


@user_app.command("list")
def list_people(coordinator: Url = None, as_json: AsJson = False) -> None:
    """List users and their roles."""
    people = call(coordinator, "GET", "/people")
    if as_json:
        print_json(*people)
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
        typer.Option(
            "--password-stdin", help="Read the password from standard input. Default: generate one."
        ),
    ] = False,
    reason: Why = "",
    coordinator: Url = None,
    as_json: AsJson = False,
) -> None:
    """Create a user. A generated password is shown once.

    For example: `sparrow coordinator user create ann --role operator --email ann@example.org`
    """
    body: dict[str, Any] = {"name": name, "role": role, "email": email, "reason": reason}
    if password_stdin:
        body["password"] = sys.stdin.readline().rstrip("\n")
    answer = call(coordinator, "POST", "/people", body)
    made = f", password {answer['password']} (shown only once)" if "password" in answer else ""
    tell(answer, f"{name} created{made}", as_json)


@user_app.command("update")
def update_person(
    name: Name,
    role: Role = None,
    email: Email = None,
    enabled: Annotated[
        bool | None, typer.Option("--enable/--disable", help="Whether the user may log in.")
    ] = None,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read a new password from standard input.")
    ] = False,
    reason: Why = "",
    coordinator: Url = None,
    as_json: AsJson = False,
) -> None:
    """Change the given properties of a user."""
    given = {"role": role, "email": email, "enabled": enabled}
    body = {key: value for key, value in given.items() if value is not None} | {"reason": reason}
    if password_stdin:
        body["password"] = sys.stdin.readline().rstrip("\n")
    tell(call(coordinator, "PATCH", f"/people/{part(name)}", body), f"{name} updated", as_json)


@user_app.command("delete")
def delete_person(name: Name, reason: Why = "", coordinator: Url = None, as_json: AsJson = False) -> None:
    """Delete a user with tokens and roles."""
    answer = call(coordinator, "DELETE", f"/people/{part(name)}", query={"reason": reason})
    tell(answer, f"{name} deleted", as_json)


@user_app.command("grant")
def grant(
    name: Name,
    kind: Annotated[str, typer.Argument(help="topic or group.")],
    object_: Annotated[str, typer.Argument(metavar="OBJECT", help="Name of the topic or group.")],
    role: Annotated[str, typer.Option(help="viewer, owner or operator; none removes the role.")] = "owner",
    reason: Why = "",
    coordinator: Url = None,
    as_json: AsJson = False,
) -> None:
    """Give a user a role for one topic or group.

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
    """List users with a role for one topic or group: its owners and others."""
    found = call(coordinator, "GET", "/grants", query={"kind": kind, "object": object_})
    if as_json:
        print_json(*found)
        return
    rows = [(one["name"], one["role"], "yes" if one["enabled"] else "no") for one in found]
    print_table(("name", "role", "enabled"), rows)


@token_app.command("list")
def list_tokens(
    person: Annotated[str | None, typer.Option(help="Another user's tokens; only for admins.")] = None,
    coordinator: Url = None,
    as_json: AsJson = False,
) -> None:
    """List tokens, without their values."""
    tokens = call(coordinator, "GET", "/tokens", query={"person": person})
    if as_json:
        print_json(*tokens)
        return
    rows = [(one["id"], one["label"], when(one["created_ms"]), when(one["expires_ms"])) for one in tokens]
    print_table(("id", "label", "made", "ends"), rows, right=("id",))


@token_app.command("create")
def create_token(
    label: Annotated[str, typer.Argument(help="Purpose of the token.")],
    days: Annotated[
        int | None,
        typer.Option(
            help="Days until it expires, up to 366; asks for your password. Default: your login's end."
        ),
    ] = None,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read your password from standard input.")
    ] = False,
    person: Annotated[str | None, typer.Option(help="For another user; only for admins.")] = None,
    reason: Why = "",
    coordinator: Url = None,
    as_json: AsJson = False,
) -> None:
    """Create a token and print it; it is shown only once.

    Without your password it ends with your login: when that ends, and when you log out.
    """
    body: dict[str, Any] = {"label": label, "reason": reason}
    if days is not None:
        body["days"] = days
    if password_stdin:
        body["password"] = sys.stdin.readline().rstrip("\n")
    elif days is not None:
        body["password"] = typer.prompt("Password", hide_input=True, err=True)
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
    """Revoke a token."""
    answer = call(coordinator, "DELETE", f"/tokens/{number}", query={"reason": reason})
    tell(answer, f"token {number} deleted", as_json)


def _objects(person: dict[str, Any]) -> str:
    return ", ".join(f"{one['role']} of {one['kind']} {one['object']}" for one in person["objects"])
