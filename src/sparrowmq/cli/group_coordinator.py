"""`sparrow group coordinate`: plans groups whose members ask for it, and hands their queues over."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from sparrowmq.cli.common import Namesrv, UsageError, namesrv_or_default, run

if TYPE_CHECKING:
    from sparrowmq.coordinator.plan import Rules


def coordinate(
    host: Annotated[str, typer.Option(help="Address to listen on, as members reach it.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free one.")] = 9879,
    maximum: Annotated[
        list[str] | None, typer.Option(metavar="GROUP=N", help="Members with queues; repeatable.")
    ] = None,
    allow: Annotated[
        list[str] | None, typer.Option(metavar="GROUP=NETWORK", help="Who may have queues; repeatable.")
    ] = None,
    deny: Annotated[
        list[str] | None, typer.Option(metavar="GROUP=NETWORK", help="Who may not; repeatable.")
    ] = None,
    namesrv: Namesrv = None,
) -> None:
    """Plan the groups whose members have `managed=True`, until Ctrl-C. Only one may run in a cluster.

    What is granted is kept by the brokers: when this stops, members go on until their leases end, and when it
    starts again in time nothing stops at all.
    """
    rules = _rules(maximum or (), allow or (), deny or ())
    run(_coordinate(host, port, rules, namesrv_or_default(namesrv)))


async def _coordinate(host: str, port: int, rules: dict[str, Rules], namesrv: str) -> None:
    from sparrowmq import aio
    from sparrowmq.coordinator.members import serve_members

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with (
        aio.Admin(namesrv=namesrv) as admin,
        serve_members(admin, host=host, port=port, rules=rules) as server,
    ):
        print(f"coordinator of managed groups at {server.address}; Ctrl-C stops it", flush=True)
        await stop.wait()


def _rules(maximum: Iterable[str], allow: Iterable[str], deny: Iterable[str]) -> dict[str, Rules]:
    from sparrowmq.coordinator.plan import Rules

    numbers: dict[str, int] = {}
    for text in maximum:
        group, value = _pair(text)
        if not value.isdecimal():
            raise UsageError(f"--maximum {text!r}: write GROUP=N, like billing=1")
        numbers[group] = int(value)
    allowed, denied = _lists(allow), _lists(deny)
    return {
        group: Rules.parse(
            allow=allowed.get(group, ()), deny=denied.get(group, ()), maximum=numbers.get(group, 0)
        )
        for group in numbers.keys() | allowed.keys() | denied.keys()
    }


def _lists(texts: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for text in texts:
        group, value = _pair(text)
        found.setdefault(group, []).append(value)
    return found


def _pair(text: str) -> tuple[str, str]:
    group, equals, value = text.partition("=")
    if not (group and equals and value):
        raise UsageError(f"{text!r} names no group; write GROUP=VALUE, like billing=10.1.0.0/16")
    return group, value
