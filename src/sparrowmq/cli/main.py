"""The entry point: the tree of commands, `--version`, and one-line errors with an exit status."""

from __future__ import annotations

import os
import warnings
from getpass import GetPassWarning
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from sparrowmq.cli import demo, pipes, start
from sparrowmq.cli.base import identity
from sparrowmq.cli.base.common import complain, say
from sparrowmq.cli.cluster import (
    access,
    broker_upkeep,
    brokers,
    clusters,
    exports,
    group_policies,
    groups,
    holds,
    log_levels,
    promoting,
    stalls,
    top,
    topic_rules,
    topics,
    values,
)
from sparrowmq.cli.coordinator import (
    broker_settings,
    drains,
    dynamic_settings,
    finding,
    group_plans,
    history,
    managed_groups,
    people,
    pipelines,
    replicas,
    rosters,
    upkeep,
    watching,
)
from sparrowmq.cli.messages import (
    consume,
    dlq,
    entries,
    message_query,
    message_search,
    message_states,
    sends,
    tracing,
)
from sparrowmq.cli.pipes import spark, sql
from sparrowmq.cli.servers import acl_import, coordinator, proxy, servers, torture
from sparrowmq.cli.stores import backups, store
from sparrowmq.core.errors import SparrowError

SUBJECTS: Final = {
    "Servers": ("up", "nameserver", "broker", "proxy", "coordinator", "torture"),
    "Store directories": ("store", "backup", "restore"),
    "Messages": ("send", "consume", "request", "serve", "message", "trace", "dlq"),
    "Topics and groups": ("top", "topic", "group", "cluster", "kv", "hold"),
    "Access control of brokers": ("user", "acl"),
    "Coordinator": (
        "login",
        "logout",
        "token",
        "find",
        "setting",
        "service",
        "replicas",
        "alarm",
        "repair",
        "history",
        "audit",
    ),
    "Spark": ("demo", "sql", "pipe", "spark"),
}
"""Where `--help` and the page of commands show each command, in this order."""
OLD_NAMES: Final = ("knob",)
"""Hidden commands that were renamed and still work for one release."""


NO_TERMINAL: Final = (
    "there is no terminal to ask for a password; type the command at a terminal, or give the password as its "
    "--help says"
)


class Commands(TyperGroup):
    """The commands by subject. Errors of SparrowMQ are shown as one line; status 1, 130 after Ctrl-C."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        found = self.commands
        names = (*(name for names in SUBJECTS.values() for name in names), *OLD_NAMES)
        self.commands = {name: found[name] for name in names}
        assert self.commands.keys() == found.keys(), found.keys() - self.commands.keys()
        for subject, names in SUBJECTS.items():
            for name in names:
                found[name].rich_help_panel = subject  # type: ignore[attr-defined]

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        start.hand_over()
        warnings.simplefilter("error", GetPassWarning)  # else the password would be shown while it is typed
        try:
            return super().invoke(ctx)
        except GetPassWarning as warning:
            complain(NO_TERMINAL)
            raise typer.Exit(1) from warning
        except SparrowError as error:
            complain(str(error))
            raise typer.Exit(1) from error
        except KeyboardInterrupt:
            raise typer.Exit(start.INTERRUPTED) from None


app = typer.Typer(
    name="sparrow",
    cls=Commands,
    help="SparrowMQ: a message queue for Python and Spark, compatible with Apache RocketMQ.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        say(f"sparrow {version('sparrowmq')}")
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
    from sparrowmq.runtime.logs import set_up_logging

    set_up_logging()


app.command("up")(servers.up)
app.command("nameserver")(servers.nameserver)
broker_app = typer.Typer(invoke_without_command=True, callback=servers.broker)
broker_app.command("status")(brokers.status)
broker_app.command("promote")(promoting.promote)
broker_app.command("clients")(brokers.clients)
broker_app.command("replication")(brokers.replication)
broker_app.command("config")(broker_upkeep.config)
broker_app.command("clean")(broker_upkeep.clean)
broker_app.command("progress")(broker_upkeep.progress)
broker_app.command("read-only")(broker_upkeep.read_only)
broker_app.command("writable")(broker_upkeep.writable)
broker_app.command("ping")(broker_upkeep.ping)
broker_app.command("stalls")(stalls.broker_stalls)
broker_app.command("log-level")(log_levels.log_level)
broker_app.command("checks")(drains.checks)
broker_app.command("drain")(drains.drain)
broker_app.command("undrain")(drains.undrain)
broker_app.command("remove")(drains.remove)
broker_app.command("forget")(drains.forget)
broker_app.command("settings")(broker_settings.settings)
broker_app.command("set")(broker_settings.set_settings)
app.add_typer(broker_app, name="broker")
app.add_typer(replicas.app, name="replicas")
app.command("proxy")(proxy.proxy)
app.add_typer(coordinator.app, name="coordinator")
app.add_typer(store.app, name="store")
app.command("backup")(backups.backup)
app.command("restore")(backups.restore)
app.command("torture")(torture.torture)
app.command("top")(top.top)
app.command("send")(sends.send)
app.command("request")(sends.request)
app.command("serve")(sends.serve)
app.command("consume")(consume.consume)
app.add_typer(message_query.app, name="message")
app.add_typer(topics.app, name="topic")
topics.app.command("update")(topic_rules.update)
topics.app.command("perm")(topic_rules.perm)
topics.app.command("order")(topic_rules.order)
topics.app.command("producers")(topic_rules.producers)
app.add_typer(clusters.app, name="cluster")
clusters.app.command("export")(exports.export)
app.add_typer(values.app, name="kv")
app.add_typer(groups.app, name="group")
groups.app.command("lag")(top.lag)
groups.app.command("show")(managed_groups.show)
groups.app.command("members")(managed_groups.members)
groups.app.command("plans")(managed_groups.plans)
groups.app.command("plan")(group_plans.plan)
groups.app.command("policy")(group_policies.policy)
groups.app.command("roster")(rosters.roster)
groups.app.command("pause")(dynamic_settings.pause)
groups.app.command("resume")(dynamic_settings.resume)
app.add_typer(dynamic_settings.app, name="setting")
app.add_typer(dynamic_settings.app, name="knob", callback=dynamic_settings.warn_of_the_old_name, hidden=True)
app.add_typer(access.user_app, name="user")
app.add_typer(access.acl_app, name="acl")
access.acl_app.command("import")(acl_import.import_accounts)
app.command("trace")(tracing.trace)
app.add_typer(dlq.app, name="dlq")
message_query.app.command("entries")(entries.entries)
message_query.app.command("search")(message_search.search)
message_query.app.command("export")(message_search.export)
message_query.app.command("resend")(message_search.resend)
message_query.app.command("life")(message_states.life)
message_query.app.command("delayed")(message_states.delayed)
message_query.app.command("halves")(message_states.halves)
message_query.app.command("trace")(tracing.trace)
app.add_typer(holds.app, name="hold")
app.command("login")(people.login)
app.command("logout")(people.logout)
app.add_typer(people.token_app, name="token")
coordinator.app.add_typer(people.user_app, name="user")
coordinator.app.command("stalls")(stalls.coordinator_stalls)
app.command("history")(history.history)
app.command("find")(finding.find)
app.command("audit")(watching.audit)
app.add_typer(watching.alarm_app, name="alarm")
watching.service_app.command("findings")(upkeep.findings)
app.add_typer(watching.service_app, name="service")
app.add_typer(upkeep.app, name="repair")
pipes.app.command("status")(pipelines.status)
pipes.app.command("forget")(pipelines.forget)
app.add_typer(pipes.app, name="pipe")
app.add_typer(spark.app, name="spark")
app.command("sql")(sql.sql)
app.command("demo")(demo.demo)


def main() -> None:
    """Run the command line of this process."""
    app()


if __name__ == "__main__":
    main()
