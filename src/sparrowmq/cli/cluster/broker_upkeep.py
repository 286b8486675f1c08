"""`sparrow broker config|clean|progress|read-only|writable|ping`: one broker, without a coordinator."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from sparrowmq.cli.base.common import (
    AsJson,
    Namesrv,
    UsageError,
    namesrv_or_default,
    print_json,
    print_table,
    run,
    say,
    with_admin,
)
from sparrowmq.core.settings.text import without_secrets

if TYPE_CHECKING:
    from sparrowmq import aio

Broker = Annotated[str, typer.Argument(metavar="BROKER", help="Name of the broker, or its HOST:PORT.")]
BrokerName = Annotated[str, typer.Argument(metavar="BROKER", help="Name of the broker.")]
PING_BYTES_MAX: Final = 4 * 1024 * 1024


config_app = typer.Typer(help="Settings of a running broker: get, set.", no_args_is_help=True)


@config_app.command("get")
def get_config(
    broker: Broker,
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME…", help="Settings; none: all.")] = None,
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Show settings of a broker, without passwords."""
    found = run(_config(namesrv, broker, {}))
    if unknown := sorted(set(names or ()) - found.keys()):
        raise UsageError(f"{broker} has no setting {', '.join(unknown)}", what="setting", value=unknown)
    _show_config({name: found[name] for name in names or found}, as_json)


@config_app.command("set")
def set_config(
    broker: Broker,
    changes: Annotated[list[str], typer.Argument(metavar="NAME=VALUE…", help="Settings to change.")],
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Change settings of a broker until it stops. All of them change, or none.

    A broker of SparrowMQ refuses those that need a restart. A coordinator's `sparrow broker set` writes its
    audit log, too.
    """
    wanted = dict(_pair(text) for text in changes)
    found = run(_config(namesrv, broker, wanted))
    _show_config({name: found.get(name, "") for name in wanted}, as_json)


async def _config(namesrv: str | None, broker: str, changes: dict[str, str]) -> dict[str, str]:
    """Make the changes; all settings after them, without passwords."""
    from sparrowmq import aio

    async with aio.Admin(namesrv=namesrv_or_default(namesrv)) as admin:
        if changes:
            await admin.brokers.set_settings(broker, changes)
        return without_secrets(await admin.brokers.settings(broker))


def _show_config(found: dict[str, str], as_json: bool) -> None:
    if as_json:
        print_json(dict(sorted(found.items())))
    else:
        print_table(("setting", "value"), sorted(found.items()))


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise UsageError(f"{text!r} is not a setting; write NAME=VALUE")
    return name, value


def clean(
    broker: Broker,
    files: Annotated[bool, typer.Option("--files", help="Expired files of the log.")] = False,
    queues: Annotated[bool, typer.Option("--queues", help="Queues whose messages are all deleted.")] = False,
    topics: Annotated[bool, typer.Option("--topics", help="Queues of topics that do not exist.")] = False,
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Have a broker delete at once what it would delete later; without an option, all three."""
    everything = not (files or queues or topics)

    async def work(admin: aio.Admin) -> list[str]:
        done = []
        for wanted, name, ask in (
            (files, "files", admin.brokers.delete_expired_files),
            (queues, "queues", admin.brokers.clean_expired_queues),
            (topics, "topics", admin.brokers.clean_unused_topics),
        ):
            if wanted or everything:
                await ask(broker)
                done.append(name)
        return done

    done = with_admin(namesrv, work)
    if as_json:
        print_json({"broker": broker, "cleaned": done})
    else:
        say(f"{broker}: {', '.join(done)} cleaned")


def progress(
    broker: Broker,
    behind: Annotated[int, typer.Option(min=0, help="Only queues with at least this lag.")] = 0,
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Show the offset and lag of every group in the queues of one broker."""

    async def work(admin: aio.Admin) -> list[dict[str, Any]]:
        return [
            {
                "group": group,
                "topic": place.queue.topic,
                "queue": place.queue.queue_id,
                "broker_offset": place.broker_offset,
                "consumer_offset": place.consumer_offset,
                "lag": place.lag,
            }
            for group, places in sorted((await admin.brokers.progress(broker)).items())
            for place in places
            if place.lag >= behind
        ]

    rows = with_admin(namesrv, work)
    if as_json:
        print_json(*rows)
        return
    columns = ("group", "topic", "queue", "broker offset", "consumer offset", "lag")
    print_table(columns, [tuple(row.values()) for row in rows], right=columns[2:])


def read_only(broker: BrokerName, namesrv: Namesrv = None, as_json: AsJson = False) -> None:
    """Stop sends to a broker: its topics become read-only at the name servers.

    Lasts until `sparrow broker writable`, or until the topics of the broker change.
    """
    _set_writable(broker, namesrv, as_json, writable=False)


def writable(broker: BrokerName, namesrv: Namesrv = None, as_json: AsJson = False) -> None:
    """Undo `sparrow broker read-only`."""
    _set_writable(broker, namesrv, as_json, writable=True)


def _set_writable(broker: str, namesrv: str | None, as_json: bool, *, writable: bool) -> None:
    async def work(admin: aio.Admin) -> int:
        await admin.brokers.info(broker)  # name servers say nothing about a name that is unknown to them
        return await (admin.name_servers.add_write_perm if writable else admin.name_servers.wipe_write_perm)(
            broker
        )

    topics = with_admin(namesrv, work)
    if as_json:
        print_json({"broker": broker, "writable": writable, "topics": topics})
    else:
        say(f"{broker}: {topics} topics are {'writable' if writable else 'read-only'}")


def ping(
    broker: BrokerName,
    count: Annotated[int, typer.Option(min=1, max=10_000, help="Messages to send.")] = 10,
    size: Annotated[int, typer.Option(min=1, max=PING_BYTES_MAX, help="Bytes of each.")] = 128,
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Measure how long sends to a broker take, in milliseconds, one after the other.

    The messages go to the topic that has the broker's name, which is RocketMQ's place for that.
    """

    async def work() -> list[float]:
        from sparrowmq import ProducerSettings, aio
        from sparrowmq.core.message import Message, MessageQueue

        settings = ProducerSettings(namesrv=namesrv_or_default(namesrv), retries=0)
        spent = []
        async with aio.Producer("sparrow-ping", settings=settings) as producer:
            for _ in range(count + 1):
                began = time.perf_counter()
                await producer.send(Message(broker, b"a" * size), queue=MessageQueue(broker, broker, 0))
                spent.append((time.perf_counter() - began) * 1000)
        return sorted(spent[1:])  # the first one connects

    spent = run(work())
    found = {
        "broker": broker,
        "sent": count,
        "least_ms": round(spent[0], 3),
        "median_ms": round(spent[len(spent) // 2], 3),
        "most_ms": round(spent[-1], 3),
    }
    if as_json:
        print_json(found)
    else:
        print_table(("broker", "sent", "least", "median", "most"), [tuple(found.values())])
