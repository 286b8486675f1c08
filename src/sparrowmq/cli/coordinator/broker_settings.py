"""`sparrow broker settings|set`: settings that can change while a broker runs, through the coordinator."""

from __future__ import annotations

from typing import Annotated

import typer

from sparrowmq.cli.base.common import AsJson, UsageError, print_json, print_table, tell
from sparrowmq.cli.base.remote import Url, Why, call, part

Broker = Annotated[str, typer.Argument(metavar="BROKER", help="Name of the broker, or its HOST:PORT.")]


def settings(broker: Broker, coordinator: Url = None, as_json: AsJson = False) -> None:
    """List the settings that can change while a broker runs, with their ranges."""
    found = call(coordinator, "GET", f"/cluster/servers/{part(broker)}/changeable")
    if as_json:
        print_json(*found)
        return
    rows = [(one["name"], one["value"], one["range"], one["default"]) for one in found]
    print_table(("setting", "value", "range", "default"), rows)


def set_settings(
    broker: Broker,
    changes: Annotated[list[str], typer.Argument(metavar="NAME=VALUE…", help="Settings and their values.")],
    reason: Why = "",
    coordinator: Url = None,
    as_json: AsJson = False,
) -> None:
    """Change settings of a running broker, until it stops. All of them change, or none.

    For example: `sparrow broker set broker-a fileReservedTime=48 --reason "disk is filling"`
    """
    wanted = {}
    for text in changes:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"{text!r} is not a setting; write NAME=VALUE")
        wanted[name] = value
    body = {"changes": wanted, "reason": reason}
    made = call(coordinator, "PATCH", f"/cluster/servers/{part(broker)}/settings", body)
    tell(made, f"{broker}: {', '.join(f'{name}={value}' for name, value in made.items())}", as_json)
