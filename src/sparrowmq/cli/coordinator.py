"""`sparrow coordinator`: the coordinator alone, and the tables of its database."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sparrowmq.cli.common import complain
from sparrowmq.cli.servers import DATA, Assignments, Bind, Config, Data, Port

if TYPE_CHECKING:
    from sparrowmq.coordinator.server import Started
    from sparrowmq.core.settings import CoordinatorSettings

Url = Annotated[
    str | None,
    typer.Option(
        "--database", metavar="URL", help="postgresql://user:password@host/name, mysql://…, sqlite:///…"
    ),
]
app = typer.Typer(
    invoke_without_command=True,
    help="Start a coordinator alone; or migrate its database, manage its people, give a new password.",
)


@app.callback()
def coordinator(
    context: typer.Context,
    config: Config = None,
    namesrv: Annotated[
        str | None,
        typer.Option("--namesrv", "-n", metavar="HOST:PORT", help="Name servers, several joined with ';'."),
    ] = None,
    port: Port = None,
    bind: Bind = None,
    database: Url = None,
    data: Data = None,
    assignments: Assignments = None,
) -> None:
    """Start a coordinator alone, until Ctrl-C. Several share the work when they share a database."""
    if context.invoked_subcommand is not None:
        return
    from sparrowmq.runtime.coordinator import need_packages, run_coordinator

    need_packages()
    settings = _settings(config, assignments, data, namesrv=namesrv, port=port, bind=bind, database=database)

    def ready(where: Started) -> None:
        print(f"coordinator  {where.url}")
        if where.first_password:
            print(f"             person admin, password {where.first_password} (shown this once)")
        print("Ctrl-C stops.", flush=True)

    run_coordinator(settings, ready)
    print("stopped cleanly")


@app.command("migrate")
def migrate(
    to: Annotated[
        str, typer.Option("--to", help="Revision; head is this release's, base has no tables.")
    ] = "head",
    yes: Annotated[
        bool, typer.Option("--yes", help="Go down without asking: what newer tables hold is lost.")
    ] = False,
    database: Url = None,
    data: Data = None,
    config: Config = None,
    assignments: Assignments = None,
) -> None:
    """Bring the database's tables to a revision, up or down. Starting does the same, upwards only."""
    from sparrowmq.runtime.coordinator import need_packages

    need_packages()
    from sparrowmq.coordinator.database import migrate as migrations
    from sparrowmq.coordinator.database.connect import Database

    settings = _settings(config, assignments, data, database=database)
    found = Database(settings.database_url)
    try:
        if to == migrations.HEAD or (to != migrations.BASE and to >= migrations.newest()):
            revision = migrations.upgrade(found, to)
        else:
            if not yes:
                typer.confirm(f"Go down to {to} in {found.where}? What newer tables hold is lost", abort=True)
            revision = migrations.downgrade(found, to)
    finally:
        found.close()
    print(f"{found.where} has the tables {revision}")


@app.command("password")
def password(
    name: Annotated[str, typer.Argument(help="Name of the person.")] = "admin",
    database: Url = None,
    data: Data = None,
    config: Config = None,
    assignments: Assignments = None,
) -> None:
    """Give a person a new password in the database itself, for when nobody can log in any more.

    For those who may write to the database. Coordinators go by it at once, and it is in the audit log.
    The person's tokens end.
    """
    from sparrowmq.runtime.coordinator import need_packages

    need_packages()
    from sparrowmq.coordinator.audit import Actor
    from sparrowmq.coordinator.database import migrate as migrations
    from sparrowmq.coordinator.database.connect import Database
    from sparrowmq.coordinator.users import passwords, people

    settings = _settings(config, assignments, data, database=database)
    made = passwords.new_password()
    change = people.Change(password_hash=passwords.hashed(made))
    found = Database(settings.database_url)
    try:
        migrations.check(found)
        with found.write() as connection:
            people.edit(connection, name, change, Actor("coordinator", "new password, given at the database"))
    finally:
        found.close()
    print(f"person {name}, password {made} (shown this once)")


def _settings(
    config: Path | None,
    assignments: list[str] | None,
    data: Path | None,
    *,
    namesrv: str | None = None,
    port: int | None = None,
    bind: str | None = None,
    database: str | None = None,
) -> CoordinatorSettings:
    from sparrowmq.runtime.configure import Sources, coordinator_settings

    root = data or DATA
    root_url = f"sqlite:///{(root / 'coordinator.db').absolute()}"
    found = os.environ.get("SPARROW_NAMESRV") or os.environ.get("NAMESRV_ADDR") or "127.0.0.1:9876"
    given = {"namesrvAddr": namesrv, "listenPort": port, "bindAddress": bind, "databaseUrl": database}
    sources = Sources(
        defaults={"databaseUrl": root_url, "namesrvAddr": found},
        file=config,
        environment=os.environ,
        assignments=assignments or (),
        options={name: str(value) for name, value in given.items() if value is not None},
    )
    settings, warnings = coordinator_settings(sources)
    for warning in warnings:
        complain(f"warning: {warning}")
    if settings.database_url == root_url:
        root.mkdir(parents=True, exist_ok=True)
    return settings
