"""`sparrow topic …`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sparrowmq.cli.common import AsJson, Namesrv, namesrv_or_default, print_json, print_table, run
from sparrowmq.cli.times import when
from sparrowmq.core.route import TopicRoute

app = typer.Typer(help="Topics: create, list, route, status, delete.", no_args_is_help=True)

Topic = Annotated[str, typer.Argument(help="Name of the topic.")]
PERMISSIONS = {2: "write", 4: "read", 6: "read and write"}


@app.command("create")
def create(
    topic: Topic,
    queues: Annotated[int, typer.Option(min=1, max=1024, help="Queues on each broker.")] = 8,
    perm: Annotated[int, typer.Option(min=0, max=6, help="2 write, 4 read, 6 both.")] = 6,
    cluster: Annotated[str | None, typer.Option(help="Only the brokers of this cluster.")] = None,
    namesrv: Namesrv = None,
) -> None:
    """Make a topic on every broker, or change the one that is there."""

    async def work() -> TopicRoute:
        from sparrowmq import aio

        async with aio.Admin(namesrv=namesrv_or_default(namesrv)) as admin:
            return await admin.create_topic(topic, queues, perm=perm, cluster=cluster)

    brokers = sorted(data.broker_name for data in run(work()).queues)
    print(f"{topic}: {queues} queues on {', '.join(brokers)}")


@app.command("list")
def list_topics(
    system: Annotated[
        bool, typer.Option("--all", help="RocketMQ's own, retry and dead letter topics as well.")
    ] = False,
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Print the names of all topics."""

    async def work() -> list[str]:
        from sparrowmq import aio

        async with aio.Admin(namesrv=namesrv_or_default(namesrv)) as admin:
            return await admin.topic_list(system=system)

    for name in run(work()):
        print_json(name) if as_json else print(name)


@app.command("route")
def route(topic: Topic, namesrv: Namesrv = None, as_json: AsJson = False) -> None:
    """Print which brokers serve a topic."""

    async def work() -> TopicRoute:
        from sparrowmq import aio

        async with aio.Admin(namesrv=namesrv_or_default(namesrv)) as admin:
            return await admin.topic_route(topic)

    found = run(work())
    rows: list[dict[str, Any]] = []
    for queues in found.queues:
        broker = found.broker(queues.broker_name)
        rows.append(
            {
                "cluster": broker.cluster if broker else "",
                "broker": queues.broker_name,
                "addresses": {str(key): value for key, value in sorted(broker.addresses.items())}
                if broker
                else {},
                "read_queues": queues.read_queue_nums,
                "write_queues": queues.write_queue_nums,
                "perm": queues.perm,
            }
        )
    if as_json:
        for row in rows:
            print_json(row)
        return
    print_table(
        ("cluster", "broker", "master", "read queues", "write queues", "permission"),
        [
            (
                row["cluster"],
                row["broker"],
                row["addresses"].get("0", "-"),
                row["read_queues"],
                row["write_queues"],
                PERMISSIONS.get(row["perm"], str(row["perm"])),
            )
            for row in rows
        ],
        right=("read queues", "write queues"),
    )


@app.command("status")
def status(topic: Topic, namesrv: Namesrv = None, as_json: AsJson = False) -> None:
    """Print the offsets of each queue of a topic."""

    async def work() -> list[dict[str, Any]]:
        from sparrowmq import aio

        async with aio.Admin(namesrv=namesrv_or_default(namesrv)) as admin:
            return [
                {
                    "broker": found.queue.broker_name,
                    "queue": found.queue.queue_id,
                    "min": found.min_offset,
                    "max": found.max_offset,
                    "messages": found.messages,
                    "last_update_ms": found.last_update_ms,
                }
                for found in await admin.topic_status(topic)
            ]

    rows = run(work())
    if as_json:
        for row in rows:
            print_json(row)
        return
    print_table(
        ("broker", "queue", "min", "max", "messages", "last update"),
        [(*list(row.values())[:5], when(row["last_update_ms"])) for row in rows],
        right=("queue", "min", "max", "messages"),
    )


@app.command("delete")
def delete(topic: Topic, namesrv: Namesrv = None) -> None:
    """Delete a topic with its messages, on every broker and name server."""

    async def work() -> None:
        from sparrowmq import aio

        async with aio.Admin(namesrv=namesrv_or_default(namesrv)) as admin:
            await admin.delete_topic(topic)

    run(work())
    print(f"{topic} deleted")
