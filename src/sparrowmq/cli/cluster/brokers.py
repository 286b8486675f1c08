"""`sparrow broker status`, `clients` and `replication`: what one broker reports about itself."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Final

import typer

from sparrowmq.cli.base.common import AsJson, Namesrv, print_json, print_table, say, with_admin

FIRST: Final = 0
RATES: Final = {
    "stored": "putTps",
    "delivered": "getTransferredTps",
    "pulls with messages": "getFoundTps",
    "pulls without": "getMissTps",
}
"""Keys of code 28 that hold three rates (broker:16.1)."""

STATE: Final = (
    "brokerVersionDesc",
    "runtime",
    "msgPutTotalTodayNow",
    "msgGetTotalTodayNow",
    "putMessageAverageSize",
    "putMessageFailedTimes",
    "commitLogMinOffset",
    "commitLogMaxOffset",
    "commitLogDiskRatio",
    "commitLogDirCapacity",
    "earliestMessageTimeStamp",
    "dispatchBehindBytes",
    "remainHowManyDataToFlush",
)


def rate(runtime: dict[str, str], name: str, window: int = FIRST) -> str:
    """One of the three rates of a key, with one decimal; a dash if the broker does not report it."""
    parts = runtime.get(name, "").split(" ")
    try:
        return f"{float(parts[window]):.1f}"
    except (IndexError, ValueError):
        return "-"


def runtime_information(broker: str, namesrv: str | None) -> dict[str, str]:
    """The runtime information of a broker or name server, given by name or `HOST:PORT` (code 28)."""
    return with_admin(namesrv, lambda admin: admin.brokers.info(broker))


def clients(
    broker: Annotated[str, typer.Argument(help="Name of the broker, or its HOST:PORT.")],
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """List the clients that are connected to a broker, with their groups."""
    found = with_admin(namesrv, lambda admin: admin.brokers.clients(broker))
    if as_json:
        print_json(*map(asdict, found.clients))
        return
    columns = ("address", "client", "language", "version", "consumes for", "produces for")
    rows = [
        (
            one.address,
            one.client_id,
            one.language,
            one.version,
            ",".join(one.consumes),
            ",".join(one.produces),
        )
        for one in found.clients
    ]
    print_table(columns, rows, right=("version",))
    if not found.producers_known:
        say("this broker does not report its producers")
    if found.groups_left:
        say(f"{found.groups_left} groups were not requested, because there are too many")


def replication(
    broker: Annotated[
        str, typer.Argument(help="Name of the broker, which stands for its master, or HOST:PORT.")
    ],
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Show the slaves of a master and how far they are, or the master of a slave."""
    found = with_admin(namesrv, lambda admin: admin.brokers.replication(broker))
    if as_json:
        print_json(None if found is None else asdict(found))
        return
    if found is None:
        say("this broker does not report its replication; brokers before 5.0 do not")
        return
    if not found.is_master:
        what = f"copies from {found.master}" if found.master else "is not connected to a master"
        say(f"{broker} is a slave; it {what}; its log ends at {found.end}")
        return
    say(f"{broker} is a master; its log ends at {found.end}")
    columns = ("slave", "position", "bytes behind", "in sync")
    rows = [
        (
            one.address,
            "-" if one.position is None else one.position,
            one.behind_bytes,
            "yes" if one.in_sync else "no",
        )
        for one in found.slaves
    ]
    print_table(columns, rows, right=("position", "bytes behind"))


def status(
    broker: Annotated[str, typer.Argument(help="Name of the broker, or its HOST:PORT.")],
    every: Annotated[bool, typer.Option("--all", help="Show all fields, not only the main ones.")] = False,
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Show the status of a broker."""
    found = runtime_information(broker, namesrv)
    if as_json:
        print_json(dict(sorted(found.items())))
        return
    rows: list[tuple[Any, ...]] = [
        (title, *(rate(found, name, window) for window in range(3))) for title, name in RATES.items()
    ]
    columns = ("a second, over the last", "10 s", "60 s", "600 s")
    print_table(columns, rows, right=columns[1:])
    names = sorted(found) if every else [name for name in STATE if name in found]
    say()
    print_table(("what it tells", "value"), [(name, found[name]) for name in names])
