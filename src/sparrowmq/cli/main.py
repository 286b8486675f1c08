"""The entry point: the tree of commands, `--version`, and errors as one line with an exit status."""

from __future__ import annotations

import logging
import os
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from sparrowmq.cli import (
    access,
    brokers,
    checks,
    clusters,
    coordinator,
    demo,
    dlq,
    drains,
    group_plans,
    group_policies,
    groups,
    holds,
    identity,
    knobs,
    managed_groups,
    message_query,
    messages,
    people,
    pipes,
    rosters,
    sends,
    servers,
    sql,
    start,
    topics,
    tracing,
    upkeep,
    watching,
)
from sparrowmq.cli.common import complain
from sparrowmq.core.errors import SparrowError

SUBJECTS: Final = {
    "Servers": ("up", "nameserver", "broker", "coordinator"),
    "Messages": ("send", "consume", "request", "serve", "message", "trace", "dlq"),
    "Topics and groups": ("topic", "group", "cluster", "hold"),
    "Access to brokers": ("user", "acl", "account"),
    "At a coordinator": ("login", "logout", "token", "knob", "service", "alarm", "repair", "audit"),
    "With Spark": ("demo", "sql", "pipe"),
    "This repository": ("test",),
}
"""Where `--help` and the page of commands show each command, in this order."""


class Commands(TyperGroup):
    """The commands by subject. Errors of SparrowMQ are shown as one line; status 1, 130 after Ctrl-C."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        found = self.commands
        self.commands = {name: found[name] for names in SUBJECTS.values() for name in names}
        assert self.commands.keys() == found.keys(), found.keys() - self.commands.keys()
        for subject, names in SUBJECTS.items():
            for name in names:
                found[name].rich_help_panel = subject  # type: ignore[attr-defined]

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        start.hand_over()
        try:
            return super().invoke(ctx)
        except SparrowError as error:
            complain(str(error))
            raise typer.Exit(1) from error
        except KeyboardInterrupt:
            raise typer.Exit(start.INTERRUPTED) from None


app = typer.Typer(
    name="sparrow",
    cls=Commands,
    help="SparrowMQ: Apache RocketMQ for Python and Spark people.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"sparrow {version('sparrowmq')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    access_key: identity.AccessKey = None,
    secret_key: identity.SecretKey = None,
    tools: identity.Tools = None,
    tls: identity.Tls = False,
    tls_ca: identity.TlsCa = None,
    tls_cert: identity.TlsCert = None,
    tls_key: identity.TlsKey = None,
) -> None:
    identity.assume(os.environ, access_key, secret_key, tools, tls, tls_ca, tls_cert, tls_key)
    logging.basicConfig(
        level=logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )


app.command("up")(servers.up)
app.command("nameserver")(servers.nameserver)
broker_app = typer.Typer(invoke_without_command=True, callback=servers.broker)
broker_app.command("status")(brokers.status)
broker_app.command("checks")(drains.checks)
broker_app.command("drain")(drains.drain)
broker_app.command("undrain")(drains.undrain)
broker_app.command("remove")(drains.remove)
broker_app.command("forget")(drains.forget)
app.add_typer(broker_app, name="broker")
app.add_typer(coordinator.app, name="coordinator")
app.command("send")(sends.send)
app.command("request")(sends.request)
app.command("serve")(sends.serve)
app.command("consume")(messages.consume)
app.add_typer(message_query.app, name="message")
app.add_typer(topics.app, name="topic")
app.add_typer(clusters.app, name="cluster")
app.add_typer(groups.app, name="group")
groups.app.command("show")(managed_groups.show)
groups.app.command("members")(managed_groups.members)
groups.app.command("plans")(managed_groups.plans)
groups.app.command("plan")(group_plans.plan)
groups.app.command("policy")(group_policies.policy)
groups.app.command("roster")(rosters.roster)
groups.app.command("pause")(knobs.pause)
groups.app.command("resume")(knobs.resume)
app.add_typer(knobs.app, name="knob")
app.add_typer(access.user_app, name="user")
app.add_typer(access.acl_app, name="acl")
app.add_typer(access.account_app, name="account")
app.command("trace")(tracing.trace)
app.add_typer(dlq.app, name="dlq")
message_query.app.command("trace")(tracing.trace)
app.add_typer(holds.app, name="hold")
app.command("login")(people.login)
app.command("logout")(people.logout)
app.add_typer(people.token_app, name="token")
coordinator.app.add_typer(people.user_app, name="user")
app.command("audit")(watching.audit)
app.add_typer(watching.alarm_app, name="alarm")
watching.service_app.command("findings")(upkeep.findings)
app.add_typer(watching.service_app, name="service")
app.add_typer(upkeep.app, name="repair")
app.add_typer(pipes.app, name="pipe")
app.command("sql")(sql.sql)
app.command("demo")(demo.demo)
app.command("test")(checks.test)


def main() -> None:
    """Run the command line of this process."""
    app()


if __name__ == "__main__":
    main()
