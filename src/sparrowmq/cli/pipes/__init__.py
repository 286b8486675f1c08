"""Commands on Spark: `sparrow pipe …`, one module for each pipeline, `sparrow sql` and `sparrow spark`.

Spark is imported when one runs.

May import: base.
Begin with `pipeline` (the frame of all commands), `shared` (their options) and `archive`.
"""

from __future__ import annotations

import typer

from sparrowmq.cli.pipes import archive, audit, backfill, history, mirror, replay, report, store

app = typer.Typer(
    help="Pipelines on Spark: archive, mirror, replay and backfill topics, audit, report.",
    no_args_is_help=True,
)
app.command("archive")(archive.archive)
app.command("audit")(audit.audit)
app.command("backfill")(backfill.backfill)
app.command("history")(history.history)
app.command("mirror")(mirror.mirror)
app.command("replay")(replay.replay)
app.command("report")(report.report)
app.command("store")(store.store)
