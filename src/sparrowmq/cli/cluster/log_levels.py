"""`sparrow broker log-level`: the log level of a running broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sparrowmq.cli.base.common import AsJson, Namesrv, print_json, say, with_admin
from sparrowmq.core.errors import SparrowError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparrowmq import aio

SETTINGS = {"level": "logLevel", "slow_request_ms": "slowRequestTime"}
"""The broker's setting for each value of this command."""


def log_level(
    broker: Annotated[str, typer.Argument(help="Name of the broker, or its HOST:PORT.")],
    level: Annotated[
        str | None,
        typer.Argument(
            metavar="[LEVEL]",
            help="DEBUG, INFO, WARNING or ERROR; single loggers may differ: WARNING,store=DEBUG.",
        ),
    ] = None,
    slow: Annotated[
        int | None,
        typer.Option("--slow", min=0, metavar="MS", help="Log requests that take this long; 0: none."),
    ] = None,
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Show the log level of a running broker, or change it until the broker stops.

    For example: `sparrow broker log-level broker-a WARNING,store=DEBUG --slow 100`
    """
    changes = {}
    if level is not None:
        changes["logLevel"] = level
    if slow is not None:
        changes["slowRequestTime"] = str(slow)

    async def work(admin: aio.Admin) -> Mapping[str, str]:
        if changes:
            await admin.brokers.set_settings(broker, changes)
        return await admin.brokers.settings(broker)

    found = with_admin(namesrv, work)
    if SETTINGS["level"] not in found:
        raise SparrowError(f"{broker} has no logLevel: it is not one of SparrowMQ's brokers")
    told = {"level": found[SETTINGS["level"]], "slow_request_ms": int(found[SETTINGS["slow_request_ms"]])}
    if as_json:
        print_json(told)
        return
    never = "never" if not told["slow_request_ms"] else f"from {told['slow_request_ms']} ms on"
    say(f"{broker}: level {told['level']}; requests are logged as slow {never}")
