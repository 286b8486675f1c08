"""`sparrow cluster …`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from sparrowmq.cli.base.common import AsJson, Namesrv, print_json, print_table, say, with_admin
from sparrowmq.cli.cluster.brokers import rate

if TYPE_CHECKING:
    from sparrowmq import aio

app = typer.Typer(help="Clusters: list, name-servers.", no_args_is_help=True)


@app.command("list")
def list_clusters(namesrv: Namesrv = None, as_json: AsJson = False) -> None:
    """List clusters and their brokers, with versions and rates (messages per second over the last 10 s).

    Two brokers that claim the same name and id are reported.
    """

    async def work(admin: aio.Admin) -> list[dict[str, Any]]:
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
                "rival": found.rival,
            }
            for found in await admin.brokers.list()
        ]

    rows = with_admin(namesrv, work)
    if as_json:
        print_json(*rows)
        return
    shown = ("cluster", "broker", "id", "address", "version", "in", "out")
    print_table(
        ("cluster", "broker", "id", "address", "version", "in/s", "out/s"),
        [["-" if row[name] == "" else row[name] for name in shown] for row in rows],
        right=("id", "in/s", "out/s"),
    )
    for row in rows:
        if row["rival"]:
            say(
                f"two brokers claim the name {row['broker']} and the id {row['id']}: {row['address']} and "
                f"{row['rival']}; clients see one of them at a time. Give one another brokerName or brokerId"
            )


@app.command("name-servers")
def name_servers(namesrv: Namesrv = None, as_json: AsJson = False) -> None:
    """List the name servers with the topics and brokers of each, and what it lacks of the others'."""

    async def work(admin: aio.Admin) -> list[aio.NameServerStatus]:
        return [await admin.name_servers.status(at) for at in sorted(await admin.name_servers.topics())]

    found = with_admin(namesrv, work)
    topics = frozenset[str]().union(*(one.topics for one in found))
    brokers = {at for one in found for addresses in one.brokers.values() for at in addresses.values()}
    rows = [
        {
            "address": one.address,
            "topics": len(one.topics),
            "lacks topics": sorted(topics - one.topics),
            "brokers": sum(map(len, one.brokers.values())),
            "lacks brokers": sorted(
                brokers.difference(*(addresses.values() for addresses in one.brokers.values()))
            ),
        }
        for one in found
    ]
    if as_json:
        print_json(*({name.replace(" ", "_"): value for name, value in row.items()} for row in rows))
        return
    print_table(
        tuple(rows[0]),
        [
            [",".join(value) or "-" if isinstance(value, list) else value for value in row.values()]
            for row in rows
        ],
        right=("topics", "brokers"),
    )
