"""`sparrow broker status`: what one broker tells about itself."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from sparrowmq.cli.common import AsJson, Namesrv, namesrv_or_default, print_json, print_table, run

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
    """One of the three rates of a key, with one decimal; a dash when the broker does not tell it."""
    parts = runtime.get(name, "").split(" ")
    try:
        return f"{float(parts[window]):.1f}"
    except (IndexError, ValueError):
        return "-"


def status(
    broker: Annotated[str, typer.Argument(help="Name of the broker, or its HOST:PORT.")],
    every: Annotated[bool, typer.Option("--all", help="Everything it tells, not only the usual.")] = False,
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Print what a broker tells about itself."""

    async def work() -> dict[str, str]:
        from sparrowmq import aio

        async with aio.Admin(namesrv=namesrv_or_default(namesrv)) as admin:
            return await admin.broker_info(broker)

    found = run(work())
    if as_json:
        print_json(dict(sorted(found.items())))
        return
    rows: list[tuple[Any, ...]] = [
        (title, *(rate(found, name, window) for window in range(3))) for title, name in RATES.items()
    ]
    columns = ("a second, over the last", "10 s", "60 s", "600 s")
    print_table(columns, rows, right=columns[1:])
    names = sorted(found) if every else [name for name in STATE if name in found]
    print()
    print_table(("what it tells", "value"), [(name, found[name]) for name in names])
