"""`sparrow demo`: a year of flights through name server, broker, client and Spark.

May import: base.
Begin with `run`: the demo from beginning to end.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from sparrowmq.cli.base.common import Namesrv

ROWS: Final = 336_776


def demo(
    rows: Annotated[int, typer.Option(min=1, max=ROWS, help="How many flights to send.")] = ROWS,
    rate: Annotated[
        float | None, typer.Option(min=1.0, help="Flights per second. Default: as fast as possible.")
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the store, the checkpoint and the topics.")
    ] = False,
    namesrv: Namesrv = None,
    data: Annotated[Path, typer.Option(help="Directory for the results.")] = Path("sparrow-demo"),
    master: Annotated[
        str, typer.Option(help="Spark's master: local[2], or a cluster's, e.g. spark://host:7077.")
    ] = "local[2]",
) -> None:
    """Send the 336,776 flights of 2013 from New York through a cluster and Spark, and check every one.

    Starts its own cluster unless --namesrv names one, of SparrowMQ or of Apache. Results: a page with charts
    (report.html) and the flights as Parquet. On a Spark cluster (--master) the workers get this package from
    here; they must see the name server and the directory of the results.
    """
    from rich.console import Console

    from sparrowmq.cli.demo.run import DemoOptions, run_demo

    raise typer.Exit(run_demo(DemoOptions(rows, rate, keep, namesrv, data, master), Console(markup=False)))
