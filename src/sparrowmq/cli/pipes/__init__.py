"""`sparrow pipe …`: the pipelines on Spark, one module each. Spark is imported when one runs."""

from __future__ import annotations

import typer

from sparrowmq.cli.pipes import archive, history, mirror, store

app = typer.Typer(
    help="Pipelines on Spark: archive and mirror topics, read archives and stores.", no_args_is_help=True
)
app.command("archive")(archive.archive)
app.command("history")(history.history)
app.command("mirror")(mirror.mirror)
app.command("store")(store.store)
