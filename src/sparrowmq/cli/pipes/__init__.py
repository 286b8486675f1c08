"""`sparrow pipe …`: the pipelines on Spark, one module each. Spark is imported when one runs."""

from __future__ import annotations

import typer

from sparrowmq.cli.pipes import archive, audit, history, mirror, replay, report, store

app = typer.Typer(
    help="Pipelines on Spark: archive, mirror and replay topics, read archives and stores, audit, report.",
    no_args_is_help=True,
)
app.command("archive")(archive.archive)
app.command("audit")(audit.audit)
app.command("history")(history.history)
app.command("mirror")(mirror.mirror)
app.command("replay")(replay.replay)
app.command("report")(report.report)
app.command("store")(store.store)
