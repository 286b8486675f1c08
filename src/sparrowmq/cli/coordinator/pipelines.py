"""`sparrow pipe status` and `sparrow pipe forget`: pipelines that report to a coordinator (`--report-to`)."""

from __future__ import annotations

from typing import Annotated

import typer

from sparrowmq.cli.base.common import AsJson, print_json, print_table, tell
from sparrowmq.cli.base.remote import Url, Why, call, part
from sparrowmq.cli.base.times import when

Name = Annotated[str, typer.Argument(help="Name of the pipeline.")]


def status(
    name: Annotated[str, typer.Argument(help="Name of a pipeline; default: all.")] = "",
    coordinator: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show the progress and lag of pipelines that report to a coordinator."""
    found = call(coordinator, "GET", f"/pipelines/{part(name)}" if name else "/pipelines")
    rows = [found] if name else found
    if as_json:
        print_json(*rows)
        return
    columns = ("pipeline", "kind", "state", "rows", "rows/s", "lag", "oldest, s", "reported", "by")
    table = [
        (
            one["name"],
            one["kind"],
            one["state"],
            one["rows"],
            "unknown" if one["rows_per_second"] is None else f"{one['rows_per_second']:.1f}",
            "unknown" if one["lag"] is None else one["lag"],
            "unknown" if one["lag_seconds"] is None else f"{one['lag_seconds']:.0f}",
            when(one["reported_ms"]),
            one["reported_by"],
        )
        for one in rows
    ]
    print_table(columns, table, right=("rows", "rows/s", "lag", "oldest, s"))


def forget(name: Name, reason: Why = "", coordinator: Url = None, as_json: AsJson = False) -> None:
    """Delete what a pipeline reported to a coordinator; the pipeline itself is not affected."""
    answer = call(coordinator, "DELETE", f"/pipelines/{part(name)}", query={"reason": reason})
    tell(answer, f"pipeline {name} forgotten", as_json)
