"""The commands of `sparrow` and where they are. A module is imported when its command is used or shown.

A place is `module:name` below `sparrowmq.cli`; the name is a function, or a group of commands.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import typer

if TYPE_CHECKING:
    from click import Command

SUBJECTS: Final = {
    "Servers": {
        "up": "servers.servers:up",
        "nameserver": "servers.servers:nameserver",
        "broker": "servers.servers:broker_app",
        "proxy": "servers.proxy:proxy",
        "coordinator": "servers.coordinator:app",
        "torture": "servers.torture:torture",
    },
    "Store directories": {
        "store": "stores.store:app",
        "backup": "stores.backups:backup",
        "restore": "stores.backups:restore",
    },
    "Messages": {
        "send": "messages.sends:send",
        "consume": "messages.consume:consume",
        "request": "messages.sends:request",
        "serve": "messages.sends:serve",
        "bench": "messages.bench:bench",
        "message": "messages.message_query:app",
        "trace": "messages.tracing:trace",
        "dlq": "messages.dlq:app",
    },
    "Topics and groups": {
        "top": "cluster.top:top",
        "topic": "cluster.topics:app",
        "group": "cluster.groups:app",
        "cluster": "cluster.clusters:app",
        "kv": "cluster.values:app",
        "hold": "cluster.holds:app",
    },
    "Access control of brokers": {
        "user": "cluster.access:user_app",
        "acl": "cluster.access:acl_app",
    },
    "Coordinator": {
        "login": "coordinator.people:login",
        "logout": "coordinator.people:logout",
        "token": "coordinator.people:token_app",
        "find": "coordinator.finding:find",
        "setting": "coordinator.dynamic_settings:app",
        "service": "coordinator.watching:service_app",
        "replicas": "coordinator.replicas:app",
        "alarm": "coordinator.watching:alarm_app",
        "repair": "coordinator.upkeep:app",
        "history": "coordinator.history:history",
        "audit": "coordinator.watching:audit",
        "mcp": "coordinator.mcp:mcp",
    },
    "Spark": {
        "demo": "demo:demo",
        "sql": "pipes.sql:sql",
        "pipe": "pipes:app",
        "spark": "pipes.spark:app",
    },
}
"""The commands as `--help` and the page of commands show them, by subject."""
OLD_NAMES: Final = {"knob": "coordinator.dynamic_settings:knob_app"}
"""Hidden commands that were renamed and still work for one release."""
MORE: Final = {
    "broker": {
        "status": "cluster.brokers:status",
        "promote": "cluster.promoting:promote",
        "clients": "cluster.brokers:clients",
        "replication": "cluster.brokers:replication",
        "config": "cluster.broker_upkeep:config_app",
        "clean": "cluster.broker_upkeep:clean",
        "progress": "cluster.broker_upkeep:progress",
        "read-only": "cluster.broker_upkeep:read_only",
        "writable": "cluster.broker_upkeep:writable",
        "ping": "cluster.broker_upkeep:ping",
        "stalls": "cluster.stalls:broker_stalls",
        "log-level": "cluster.log_levels:log_level",
        "checks": "coordinator.drains:checks",
        "drain": "coordinator.drains:drain",
        "undrain": "coordinator.drains:undrain",
        "remove": "coordinator.drains:remove",
        "forget": "coordinator.drains:forget",
        "settings": "coordinator.broker_settings:settings",
        "set": "coordinator.broker_settings:set_settings",
    },
    "coordinator": {
        "user": "coordinator.people:user_app",
        "stalls": "cluster.stalls:coordinator_stalls",
    },
    "message": {
        "entries": "messages.entries:entries",
        "search": "messages.message_search:search",
        "export": "messages.message_search:export",
        "resend": "messages.message_search:resend",
        "life": "messages.message_states:life",
        "delayed": "messages.message_states:delayed",
        "halves": "messages.message_states:halves",
        "trace": "messages.tracing:trace",
    },
    "topic": {
        "update": "cluster.topic_rules:update",
        "perm": "cluster.topic_rules:perm",
        "order": "cluster.topic_rules:order",
        "producers": "cluster.topic_rules:producers",
    },
    "group": {
        "lag": "cluster.top:lag",
        "show": "coordinator.managed_groups:show",
        "members": "coordinator.managed_groups:members",
        "plans": "coordinator.managed_groups:plans",
        "plan": "coordinator.group_plans:plan",
        "policy": "cluster.group_policies:policy",
        "roster": "coordinator.rosters:roster",
        "pause": "coordinator.dynamic_settings:pause",
        "resume": "coordinator.dynamic_settings:resume",
    },
    "cluster": {"export": "cluster.exports:export"},
    "acl": {"import": "servers.acl_import:import_accounts"},
    "service": {"findings": "coordinator.upkeep:findings"},
    "pipe": {
        "status": "coordinator.pipelines:status",
        "forget": "coordinator.pipelines:forget",
    },
}
"""Commands of groups that are in other modules than the group."""
_PLACES: Final = {name: place for places in SUBJECTS.values() for name, place in places.items()} | OLD_NAMES
_SUBJECT: Final = {name: subject for subject, places in SUBJECTS.items() for name in places}


class CommandTable(MutableMapping[str, "Command"]):
    """Commands by their names, each made when it is first asked for."""

    def __init__(self) -> None:
        self._made: dict[str, Command] = {}

    def __getitem__(self, name: str) -> Command:
        found = self._made.get(name)
        if found is None:
            found = self._made[name] = _made(name, _target(name))
        return found

    def __setitem__(self, name: str, command: Command) -> None:
        self._made[name] = command

    def __delitem__(self, name: str) -> None:
        del self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_PLACES)

    def __len__(self) -> int:
        return len(_PLACES)

    def __contains__(self, name: object) -> bool:
        return name in _PLACES


@cache
def _target(name: str) -> Any:
    """The function or group of a command. Raises `KeyError` for an unknown name."""
    found = _at(_PLACES[name])
    for inner, place in MORE.get(name, {}).items():
        _add(found, inner, _at(place))
    return found


def _at(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(f"sparrowmq.cli.{module}"), name)


def _add(group: typer.Typer, name: str, target: Any, panel: str | None = None) -> None:
    if isinstance(target, typer.Typer):
        group.add_typer(target, name=name, rich_help_panel=panel)
    else:
        group.command(name, rich_help_panel=panel)(target)


def _made(name: str, target: Any) -> Command:
    holder = typer.Typer(add_completion=False)
    holder.callback()(_nothing)  # a group, although it has one command
    _add(holder, name, target, _SUBJECT.get(name))
    made: Any = typer.main.get_command(holder)
    found: Command = made.commands[name]
    return found


def _nothing() -> None:
    """The holder has no options."""
