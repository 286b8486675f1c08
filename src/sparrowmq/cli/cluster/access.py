"""`sparrow user|acl …`: users and policies of access control."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sparrowmq.cli.base.common import AsJson, Namesrv, print_json, print_table, tell, with_admin

user_app = typer.Typer(
    help="Users of brokers (5.x): create, update, delete, list. Coordinator: sparrow coordinator user.",
    no_args_is_help=True,
)
acl_app = typer.Typer(help="Permissions of users (5.x): grant, revoke, list, import.", no_args_is_help=True)

User = Annotated[str, typer.Argument(help="Name of the user.")]
Part = Annotated[str, typer.Argument(help="Only users whose names contain this text.")]
Cluster = Annotated[str | None, typer.Option(help="Only the brokers of this cluster.")]
Asked = typer.Option(
    prompt=True, confirmation_prompt=True, hide_input=True, help="Default: ask on the terminal."
)


def _show(rows: list[dict[str, Any]], columns: tuple[str, ...], as_json: bool) -> None:
    if as_json:
        print_json(*rows)
    else:
        print_table(columns, [[_text(row[name]) for name in columns] for row in rows])


def _text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


@user_app.command("create")
def create_user(
    user: User,
    password: Annotated[str, Asked],
    super_user: Annotated[bool, typer.Option("--super", help="May do everything.")] = False,
    cluster: Cluster = None,
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Create a user on every broker."""
    with_admin(
        namesrv,
        lambda admin: admin.users.create(user, password, super_user=super_user, cluster=cluster),
    )
    tell({"created": user, "super": super_user}, f"user {user} created", as_json)


@user_app.command("update")
def update_user(
    user: User,
    password: Annotated[str | None, typer.Option(help="New password; - asks on the terminal.")] = None,
    super_user: Annotated[bool | None, typer.Option("--super/--normal", help="Kind of user.")] = None,
    enabled: Annotated[
        bool | None, typer.Option("--enable/--disable", help="Whether the user may log in.")
    ] = None,
    cluster: Cluster = None,
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Change the given properties of a user."""
    if password == "-":
        password = typer.prompt("Password", hide_input=True, confirmation_prompt=True)
    with_admin(
        namesrv,
        lambda admin: admin.users.update(
            user, password=password, super_user=super_user, enabled=enabled, cluster=cluster
        ),
    )
    tell({"updated": user}, f"user {user} updated", as_json)


@user_app.command("delete")
def delete_user(
    user: User, cluster: Cluster = None, namesrv: Namesrv = None, as_json: AsJson = False
) -> None:
    """Delete a user and its permissions."""
    with_admin(namesrv, lambda admin: admin.users.delete(user, cluster=cluster))
    tell({"deleted": user}, f"user {user} deleted", as_json)


@user_app.command("list")
def list_users(
    part: Part = "", cluster: Cluster = None, namesrv: Namesrv = None, as_json: AsJson = False
) -> None:
    """List users, without passwords."""
    rows = [
        {
            "user": user.name,
            "kind": "super" if user.super_user else "normal",
            "status": "enabled" if user.enabled else "disabled",
        }
        for user in with_admin(namesrv, lambda admin: admin.users.list(part, cluster=cluster))
    ]
    _show(rows, ("user", "kind", "status"), as_json)


@acl_app.command("grant")
def grant(
    user: User,
    resource: Annotated[list[str], typer.Option(help="Topic:Orders, Group:bill*, Cluster:*; repeatable.")],
    action: Annotated[
        list[str], typer.Option(help="Pub, Sub, Create, Update, Delete, Get, List or All; repeatable.")
    ],
    source: Annotated[list[str] | None, typer.Option(help="Only from this address or network.")] = None,
    deny: Annotated[bool, typer.Option("--deny", help="Deny instead of allow.")] = False,
    cluster: Cluster = None,
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Allow or deny a user actions on resources."""
    with_admin(
        namesrv,
        lambda admin: admin.users.grant(
            user, resource, action, sources=source or (), allow=not deny, cluster=cluster
        ),
    )
    decision = "denied" if deny else "allowed"
    made = {"user": user, "resources": resource, "actions": action, "decision": decision}
    tell(made, f"user {user}: {', '.join(action)} {decision} on {', '.join(resource)}", as_json)


@acl_app.command("revoke")
def revoke(
    user: User,
    resource: Annotated[str | None, typer.Option(help="Only the policy for this resource.")] = None,
    cluster: Cluster = None,
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Revoke all permissions of a user, or those for one resource."""
    with_admin(namesrv, lambda admin: admin.users.revoke(user, resource, cluster=cluster))
    gone = {"user": user, "removed": resource or "all"}
    tell(gone, f"user {user}: policy for {resource or 'all resources'} removed", as_json)


@acl_app.command("list")
def list_grants(
    part: Part = "", cluster: Cluster = None, namesrv: Namesrv = None, as_json: AsJson = False
) -> None:
    """List permissions of users."""
    rows = [
        {
            "user": found.user,
            "resource": found.resource,
            "actions": list(found.actions),
            "sources": list(found.sources),
            "decision": "allow" if found.allow else "deny",
            "default": found.default,
        }
        for found in with_admin(namesrv, lambda admin: admin.users.grants(part, cluster=cluster))
    ]
    _show(rows, ("user", "resource", "actions", "sources", "decision"), as_json)
