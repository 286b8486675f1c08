"""`sparrow coordinator`: the coordinator alone, and the tables of its database."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sparrowmq.cli.base.common import complain, say
from sparrowmq.cli.servers.servers import (
    DATA,
    Assignments,
    Bind,
    Config,
    Data,
    MetricsPort,
    Port,
    metrics_options,
    options_given,
)

if TYPE_CHECKING:
    from sparrowmq.coordinator.server import Started
    from sparrowmq.core.settings.servers import CoordinatorSettings

Url = Annotated[
    str | None,
    typer.Option(
        "--database", metavar="URL", help="postgresql://user:password@host/name, mysql://…, sqlite:///…"
    ),
]
app = typer.Typer(
    invoke_without_command=True,
    help="Start a coordinator; or migrate its database, manage its users, reset a password, show stalls.",
)


@app.callback()
def coordinator(
    context: typer.Context,
    config: Config = None,
    namesrv: Annotated[
        str | None,
        typer.Option("--namesrv", "-n", metavar="HOST:PORT", help="Name servers, separated by ';'."),
    ] = None,
    port: Port = None,
    bind: Bind = None,
    database: Url = None,
    data: Data = None,
    metrics_port: MetricsPort = None,
    assignments: Assignments = None,
) -> None:
    """Run a coordinator until Ctrl-C. Coordinators with the same database share the work."""
    if context.invoked_subcommand is not None:
        return
    from sparrowmq.runtime.coordinator import introduce, need_packages, run_coordinator

    need_packages()
    settings = _settings(
        config,
        assignments,
        data,
        namesrvAddr=namesrv,
        listenPort=port,
        bindAddress=bind,
        databaseUrl=database,
        **metrics_options(metrics_port),
    )

    def ready(where: Started) -> None:
        introduce(where.url, where.first_password, say)
        say("Ctrl-C stops.", flush=True)

    run_coordinator(settings, ready)
    say("stopped cleanly")


@app.command("migrate")
def migrate(
    to: Annotated[
        str, typer.Option("--to", help="Revision; head is that of this release, base has no tables.")
    ] = "head",
    yes: Annotated[
        bool, typer.Option("--yes", help="Downgrade without confirmation; data in newer tables is lost.")
    ] = False,
    database: Url = None,
    data: Data = None,
    config: Config = None,
    assignments: Assignments = None,
) -> None:
    """Migrate the database to a revision, up or down. A coordinator migrates up when it starts."""
    from sparrowmq.runtime.coordinator import need_packages

    need_packages()
    from sparrowmq.coordinator.database import migrate as migrations
    from sparrowmq.coordinator.database.connect import Database

    settings = _settings(config, assignments, data, databaseUrl=database)
    found = Database(settings.database_url)
    try:
        if to == migrations.HEAD or (to != migrations.BASE and to >= migrations.newest()):
            revision = migrations.upgrade(found, to)
        else:
            if not yes:
                typer.confirm(f"Downgrade {found.where} to {to}? Data in newer tables is lost", abort=True)
            revision = migrations.downgrade(found, to)
    finally:
        found.close()
    say(f"{found.where} has tables of revision {revision}")


@app.command("password")
def password(
    name: Annotated[str, typer.Argument(help="Name of the user.")] = "admin",
    database: Url = None,
    data: Data = None,
    config: Config = None,
    assignments: Assignments = None,
) -> None:
    """Reset a user's password directly in the database, if nobody can log in any more.

    For those who may write to the database. Coordinators go by it at once, and it is in the audit log.
    The person's tokens end.
    """
    from sparrowmq.runtime.coordinator import need_packages

    need_packages()
    from sparrowmq.coordinator.database import migrate as migrations
    from sparrowmq.coordinator.database.connect import Database
    from sparrowmq.coordinator.records.audit import Actor
    from sparrowmq.coordinator.users import passwords, people

    settings = _settings(config, assignments, data, databaseUrl=database)
    made = passwords.new_password()
    change = people.PersonUpdate(password_hash=passwords.hashed(made))
    found = Database(settings.database_url)
    try:
        migrations.check(found)
        with found.write() as connection:
            people.edit(connection, name, change, Actor("coordinator", "new password, set in the database"))
    finally:
        found.close()
    say(f"person {name}, password {made} (shown only once)")


def _settings(
    config: Path | None,
    assignments: list[str] | None,
    data: Path | None,
    **given: object,
) -> CoordinatorSettings:
    from sparrowmq.runtime.configure import Sources, coordinator_settings
    from sparrowmq.runtime.places import prepare_data

    root = data or DATA
    root_url = f"sqlite:///{(root / 'coordinator.db').absolute()}"
    found = os.environ.get("SPARROW_NAMESRV") or os.environ.get("NAMESRV_ADDR") or "127.0.0.1:9876"
    sources = Sources(
        defaults={"databaseUrl": root_url, "namesrvAddr": found},
        file=config,
        environment=os.environ,
        assignments=assignments or (),
        options=options_given(**given),
    )
    settings, warnings = coordinator_settings(sources)
    for warning in warnings:
        complain(f"warning: {warning}")
    if settings.database_url == root_url:
        for warning in prepare_data(root):
            complain(f"warning: {warning}")
    return settings
