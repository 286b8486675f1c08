"""`sparrow spark …`: for your own queries that write to topics."""

from __future__ import annotations

from typing import Annotated

import typer

from sparrowmq.cli.base.common import AsJson, print_json, say
from sparrowmq.cli.pipes.common import need_spark, pairs

app = typer.Typer(help="Spark queries that write to topics.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Spark queries that write to topics."""


@app.command("lost-broker")
def lost_broker(
    broker: Annotated[str, typer.Argument(help="The name of the lost broker.")],
    checkpoint: Annotated[
        str | None, typer.Option(metavar="LOCATION", help="The query's checkpointLocation.")
    ] = None,
    plans: Annotated[
        str | None,
        typer.Option(
            metavar="LOCATION",
            help="Instead of --checkpoint, the query's planLocation; for a batch write, planLocation/jobId.",
        ),
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="fs.…=VALUE", help="A setting of the location's file system."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: AsJson = False,
) -> None:
    """Let a query that waits for a lost broker continue without it.

    A batch keeps the queues of its first attempt, so a permanently lost broker blocks its query. This
    command records the loss beside the checkpoint. At the next start, rows for the broker's queues go to
    other queues, and later batches do not use the broker. The cost: rows of this one batch that the broker
    had stored are stored again elsewhere, so consumers that had read them get them twice, and so does
    everybody if the broker returns. Rows of earlier batches are not sent again. The writer's option
    lostBrokers has the same effect.
    """
    need_spark()
    from sparrowmq.spark.write.queue_choice import FOLDER, SUFFIX, folder_at, note_lost

    if (checkpoint is None) == (plans is None):
        raise typer.BadParameter("give either --checkpoint or --plans")
    location = plans if plans is not None else f"{str(checkpoint).rstrip('/')}/{FOLDER}"
    folder = folder_at(location, pairs(options, "--option"))
    if not yes:
        typer.confirm(
            f"Is {broker} lost for good, and may the messages that it stored of the current batch be "
            f"duplicated?",
            abort=True,
        )
    choice = note_lost(folder, broker)
    left = sorted(str(queue) for queue in choice.queues if queue.broker_name not in choice.lost)
    if as_json:
        found = {
            "topic": choice.topic,
            "file": f"{location}/{choice.batch}{SUFFIX}",
            "lost": sorted(choice.lost),
            "left": left,
        }
        print_json(found)
        return
    others = ", ".join(left) or "the queues that the topic has then"
    say(
        f"saved in {location}/{choice.batch}{SUFFIX}: rows for {choice.topic} that were meant for {broker} "
        f"go to {others}; start the query again"
    )
