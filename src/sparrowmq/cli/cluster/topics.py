"""`sparrow topic …`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparrowmq.cli.base.changes import changes_of, changes_text
from sparrowmq.cli.base.common import (
    AsJson,
    Namesrv,
    print_json,
    print_table,
    say,
    tell,
    with_admin,
)
from sparrowmq.cli.base.times import when

if TYPE_CHECKING:
    from sparrowmq import aio

app = typer.Typer(help="Topics: create, list, show, route, status, delete.", no_args_is_help=True)

Topic = Annotated[str, typer.Argument(help="Name of the topic.")]
PERMISSIONS = {2: "write", 4: "read", 6: "read and write"}


@app.command("create")
def create(
    topic: Topic,
    queues: Annotated[
        int | None,
        typer.Option(min=1, max=1024, help="Queues on each broker, no fewer than it has; 8 for a new topic."),
    ] = None,
    perm: Annotated[
        int | None, typer.Option(min=0, max=6, help="2 write, 4 read, 6 both; 6 for a new topic.")
    ] = None,
    cluster: Annotated[str | None, typer.Option(help="Only the brokers of this cluster.")] = None,
    attribute: Annotated[
        list[str] | None,
        typer.Option(help="KEY=VALUE sets an attribute, KEY alone removes it. Repeatable."),
    ] = None,
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Create a topic on every broker, or change an existing one; omitted settings stay as they are.

    `sparrow topic update` takes queues away.
    """
    attributes: dict[str, str | None] = {}
    for text in attribute or ():
        key, equals, value = text.partition("=")
        if not key or key[0] in "+-" or (equals and not value):
            raise typer.BadParameter(
                f"{text!r}: write KEY=VALUE, or KEY to remove it", param_hint="--attribute"
            )
        attributes[key] = value if equals else None

    async def work(admin: aio.Admin) -> tuple[dict[str, Any], dict[str, Any]]:
        from sparrowmq.core.errors import NoRouteError

        async def configs() -> dict[str, Any]:
            try:
                brokers = {data.broker_name for data in (await admin.topics.route(topic)).queues}
            except NoRouteError:
                return {}
            found = {name: await admin.topics.config(name, topic) for name in sorted(brokers)}
            return {name: config for name, config in found.items() if config is not None}

        before = await configs()
        await admin.topics.create(topic, queues, perm=perm, cluster=cluster, attributes=attributes)
        return before, await configs()

    before, after = with_admin(namesrv, work)
    config, changes = after[min(after)], changes_of(before, after)
    number = max(config.read_queue_nums, config.write_queue_nums)
    made = {"topic": topic, "queues": number, "perm": config.perm, "brokers": list(after), "changed": changes}
    text = changes_text(changes) if changes else f"{number} queues on {', '.join(after)}"
    tell(made, f"{topic}: {text}", as_json)


@app.command("list")
def list_topics(
    system: Annotated[
        bool, typer.Option("--all", help="Include RocketMQ's own, retry and dead-letter topics.")
    ] = False,
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """List all topics."""
    for name in with_admin(namesrv, lambda admin: admin.topics.list(system=system)):
        print_json(name) if as_json else say(name)


@app.command("route")
def route(topic: Topic, namesrv: Namesrv = None, as_json: AsJson = False) -> None:
    """Show which brokers serve a topic."""
    found = with_admin(namesrv, lambda admin: admin.topics.route(topic))
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
        print_json(*rows)
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


@app.command("show")
def show(topic: Topic, namesrv: Namesrv = None, as_json: AsJson = False) -> None:
    """Show a topic's configuration and attributes on each broker."""

    async def work(admin: aio.Admin) -> list[dict[str, Any]]:
        names = sorted(queues.broker_name for queues in (await admin.topics.route(topic)).queues)
        found = [(name, await admin.topics.config(name, topic)) for name in names]
        return [
            {
                "broker": name,
                "read_queues": config.read_queue_nums,
                "write_queues": config.write_queue_nums,
                "perm": config.perm,
                "filter": config.topic_filter_type,
                "order": config.order,
                "attributes": config.attributes,
            }
            for name, config in found
            if config is not None
        ]

    rows = with_admin(namesrv, work)
    if as_json:
        print_json(*rows)
        return
    print_table(
        ("broker", "read queues", "write queues", "permission", "filter", "order", "attributes"),
        [
            (
                row["broker"],
                row["read_queues"],
                row["write_queues"],
                PERMISSIONS.get(row["perm"], str(row["perm"])),
                row["filter"],
                "yes" if row["order"] else "no",
                ", ".join(f"{key}={value}" for key, value in sorted(row["attributes"].items())) or "–",
            )
            for row in rows
        ],
        right=("read queues", "write queues"),
    )


@app.command("status")
def status(topic: Topic, namesrv: Namesrv = None, as_json: AsJson = False) -> None:
    """Show the offsets of each queue of a topic."""

    async def work(admin: aio.Admin) -> list[dict[str, Any]]:
        return [
            {
                "broker": found.queue.broker_name,
                "queue": found.queue.queue_id,
                "min": found.min_offset,
                "max": found.max_offset,
                "messages": found.messages,
                "last_update_ms": found.last_update_ms,
            }
            for found in await admin.topics.status(topic)
        ]

    rows = with_admin(namesrv, work)
    if as_json:
        print_json(*rows)
        return
    print_table(
        ("broker", "queue", "min", "max", "messages", "last update"),
        [(*list(row.values())[:5], when(row["last_update_ms"])) for row in rows],
        right=("queue", "min", "max", "messages"),
    )


@app.command("delete")
def delete(topic: Topic, namesrv: Namesrv = None, as_json: AsJson = False) -> None:
    """Delete a topic with its messages, on every broker and name server."""
    with_admin(namesrv, lambda admin: admin.topics.delete(topic))
    tell({"deleted": topic}, f"{topic} deleted", as_json)
