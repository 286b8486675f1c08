"""`sparrow cluster …`."""

from __future__ import annotations

from typing import Any

import typer

from sparrowmq.cli.brokers import rate
from sparrowmq.cli.common import (
    AsJson,
    Namesrv,
    namesrv_or_default,
    print_json,
    print_table,
    run,
)

app = typer.Typer(help="Clusters: list.", no_args_is_help=True)


@app.command("list")
def list_clusters(namesrv: Namesrv = None, as_json: AsJson = False) -> None:
    """Print clusters and their brokers, with versions and rates (messages a second, last 10 s)."""

    async def work() -> list[dict[str, Any]]:
        from sparrowmq import aio

        async with aio.Admin(namesrv=namesrv_or_default(namesrv)) as admin:
            return [
                {
                    "cluster": found.cluster,
                    "broker": found.broker_name,
                    "id": found.broker_id,
                    "address": found.address,
                    "version": found.runtime.get("brokerVersionDesc", ""),
                    "in": rate(found.runtime, "putTps"),
                    "out": rate(found.runtime, "getTransferredTps"),
                    "error": found.error,
                }
                for found in await admin.broker_list()
            ]

    rows = run(work())
    if as_json:
        for row in rows:
            print_json(row)
        return
    print_table(
        ("cluster", "broker", "id", "address", "version", "in/s", "out/s"),
        [
            [row[name] or "-" if name == "version" else row[name] for name in row if name != "error"]
            for row in rows
        ],
        right=("id", "in/s", "out/s"),
    )
