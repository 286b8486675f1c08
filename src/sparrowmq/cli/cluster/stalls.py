"""`sparrow broker stalls`, `sparrow coordinator stalls`: when a server's loop was blocked, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import typer

from sparrowmq.cli.base.common import AsJson, Namesrv, print_json, print_table, say
from sparrowmq.cli.base.remote import Url, call
from sparrowmq.cli.base.times import when
from sparrowmq.cli.cluster.brokers import runtime_information
from sparrowmq.core.stalls import KEY_COUNT, KEY_TOTAL, Stall, told_stalls

CALLS_SHOWN: Final = 2

Longest = Annotated[bool, typer.Option("--longest", help="Show the longest instead of the last.")]


def broker_stalls(
    broker: Annotated[
        str, typer.Argument(help="Name of the broker, or a broker's or name server's HOST:PORT.")
    ],
    longest: Longest = False,
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Show when the event loop of a broker or name server was blocked for 50 ms or more, and by what."""
    found = runtime_information(broker, namesrv)
    _show(
        told_stalls(found, longest=longest), int(found[KEY_COUNT]), float(found[KEY_TOTAL]), as_json=as_json
    )


def coordinator_stalls(longest: Longest = False, coordinator: Url = None, as_json: AsJson = False) -> None:
    """Show when a coordinator's event loop was blocked for 50 ms or more, and by what."""
    found = call(coordinator, "GET", "/stalls")
    stalls = [Stall.from_dict(one) for one in found["longest" if longest else "last"]]
    _show(stalls, found["count"], found["total_ms"], as_json=as_json)


def _show(stalls: Sequence[Stall], count: int, total_ms: float, *, as_json: bool) -> None:
    if as_json:
        print_json(*(stall.to_dict() for stall in stalls))
        return
    noted = "1 stall" if count == 1 else f"{count} stalls"
    say(f"{noted} since the start, {total_ms / 1000:.1f} s in all")
    rows = [
        (
            when(stall.at_ms),
            f"{stall.own_ms:.0f}",
            f"{stall.cpu_ms:.0f}",
            f"{stall.waited_ms:.0f}",
            stall.what,
            stall.client or "-",
            " < ".join(stall.where[:CALLS_SHOWN]) or "-",
        )
        for stall in stalls
    ]
    print_table(
        ("until", "ms", "ran", "no processor", "what", "client", "where"),
        rows,
        right=("ms", "ran", "no processor"),
    )
