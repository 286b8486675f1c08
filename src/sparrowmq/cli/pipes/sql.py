"""`sparrow sql`: queries over topics, one from the command line or many at a prompt."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from math import isfinite, isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from sparrowmq.cli.base.common import UsageError, complain, print_json, print_table, say
from sparrowmq.cli.base.times import zone_of
from sparrowmq.cli.pipes.common import need_spark, served, session, show_plan
from sparrowmq.cli.pipes.pipeline import watching
from sparrowmq.cli.pipes.shared import Shared, with_options
from sparrowmq.cli.pipes.zones import SETTING, in_zone
from sparrowmq.core.errors import SparrowError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparrowmq.spark.pipelines.common.watch import Report
    from sparrowmq.spark.pipelines.query.sql import SqlSettings

ROWS: Final = 1000
HISTORY: Final = ".sparrow_sql_history"
WORDS: Final = (
    "select from where group by order having limit join left right inner outer on as and or not in is null "
    "between like distinct count sum avg min max cast case when then else end with union all desc asc "
    "from_json get_json_object window date_trunc length"
).split()
COLUMNS: Final = (
    "topic broker queue_id queue_offset msg_id tags keys born_timestamp store_timestamp reconsume_times "
    "properties body text"
).split()
HELP: Final = "Queries end with ';'. \\t lists topics, \\q or Ctrl-D ends, Ctrl-C stops a query."
ZONE_HELP: Final = "Times without a zone are in {zone}; --time-zone or SET TIME ZONE gives another."


@with_options
def sql(
    query: Annotated[
        str | None, typer.Argument(help="A query; without one, a prompt, or queries from standard input.")
    ] = None,
    archive: Annotated[
        str | None,
        typer.Option(
            "--archive",
            metavar="PATH|URI",
            help="Archive: query its messages and the live ones, each once.",
        ),
    ] = None,
    archive_only: Annotated[
        bool, typer.Option("--archive-only", help="Skip the live log; contacts no cluster.")
    ] = False,
    rows: Annotated[int, typer.Option(help="Maximum rows to show.")] = ROWS,
    *,
    shared: Shared,
) -> None:
    """Query topics as tables, live, archived or both: sparrow sql "select count(*) from Orders"."""
    need_spark()
    from sparrowmq.spark.pipelines.query import sql as pipeline
    from sparrowmq.spark.pipelines.query.statements import statements_in

    if rows < 1:
        raise UsageError(f"--rows {rows}: must be 1 or more")
    source = shared.source
    settings = pipeline.SqlSettings(
        name_server="" if archive_only else source["name_server"],
        directory=archive,
        live=not archive_only,
        options=source["options"],
    )
    tables = pipeline.tables_of(settings)  # reports errors before Spark starts
    if shared.plan:
        if query is None:
            raise UsageError("--plan needs a query")
        for text in statements_in(query):
            show_plan(pipeline.plan_sql(text, settings, tables), shared.as_json)
        return
    with served(shared.metrics) as reports, session("sql", shared.master, shared.spark_conf) as spark:
        console = Console(spark, settings, rows, shared, reports)
        if query is not None:
            for text in statements_in(query):
                console.query(text, tables)
            return
        typed = sys.stdin.isatty()
        for text in prompted(tables, shared.time_zone) if typed else statements(sys.stdin.readline):
            if not console.run(text):
                break
        if console.failed and not typed:
            raise typer.Exit(1)


class Console:
    """Runs the entered queries; the error of a query is printed and the next one can follow."""

    def __init__(
        self,
        spark: SparkSession,
        settings: SqlSettings,
        rows: int,
        shared: Shared,
        reports: Sequence[Report] = (),
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._rows = rows
        self._shared = shared
        self._reports = reports
        self.failed = False
        """Whether any query or command failed."""

    def query(self, text: str, tables: Collection[str] | None = None) -> None:
        """Run one query: print its result, or with --dry-run its columns. `tables`: the existing topics, if
        known.
        """
        from sparrowmq.spark.pipelines.common.task_progress import followed
        from sparrowmq.spark.pipelines.query import sql as pipeline

        spark, settings, as_json = self._spark, self._settings, self._shared.as_json
        known = pipeline.tables_of(settings) if tables is None else tables
        if self._shared.dry_run:
            _show_columns(pipeline.dry_run_sql(spark, text, settings, known), as_json)
            return
        most = pipeline.plan_sql(text, settings, known).rows
        shared = replace(self._shared, metrics=None)  # they are served for the whole session
        with watching("sql", shared, *self._reports, fleeting=True) as watch:
            watch.begin(pipeline.NAME, most)
            with followed(spark, watch, most):
                frame = pipeline.sql(spark, text, settings, known)
                found = frame.limit(self._rows + 1).collect()
        zone = zone_of(spark.conf.get(SETTING) or self._shared.time_zone)
        kinds = [field.dataType for field in frame.schema]
        rows = [[in_zone(*pair, zone) for pair in zip(row, kinds, strict=True)] for row in found]
        _show(frame.columns, rows, self._rows, as_json)

    def run(self, text: str) -> bool:
        """Run one query or command. Returns whether to continue."""
        from sparrowmq.spark.pipelines.common.queries import plain_errors
        from sparrowmq.spark.pipelines.query import sql as pipeline

        if text == "\\q":
            return False
        try:
            with plain_errors():
                if text == "\\t":
                    print_table(("topic",), [(name,) for name in pipeline.tables_of(self._settings)])
                elif text.startswith("\\"):
                    raise UsageError(f"{text} is not a command. {HELP}")
                else:
                    self.query(text)
        except KeyboardInterrupt:
            self.failed = True
            complain("stopped")
        except SparrowError as error:
            self.failed = True
            complain(str(error))
        return True


def statements(read: Callable[[], str]) -> Iterator[str]:
    """Queries and commands from lines until `read` returns "". A query ends with ";" or the input."""
    from sparrowmq.spark.pipelines.query.statements import Script

    script = Script()
    while line := read():
        yield from script.add(line)
    yield from script.rest()


def prompted(tables: list[str], zone: str) -> Iterator[str]:
    """Input at a prompt, with history across sessions and completion of tables, columns and words."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import WordCompleter
    from prompt_toolkit.history import FileHistory

    from sparrowmq.spark.pipelines.query.statements import Script

    words = [*tables, *COLUMNS, *WORDS]
    asking: PromptSession[str] = PromptSession(
        history=FileHistory(str(Path.home() / HISTORY)),
        completer=WordCompleter(words, ignore_case=True),
        complete_while_typing=False,
    )
    say(HELP)
    say(ZONE_HELP.format(zone=zone))
    script = Script()
    while True:  # until Ctrl-D
        try:
            line = asking.prompt("   -> " if script.waiting else "sql> ")
        except KeyboardInterrupt:
            script = Script()
            continue
        except EOFError:
            break
        yield from script.add(line + "\n")
    yield from script.rest()


def _show(columns: Sequence[str], found: Sequence[Sequence[Any]], most: int, as_json: bool) -> None:
    """Print the first rows of a result."""
    for row in found[:most] if as_json else ():
        print_json({name: _value(value) for name, value in zip(columns, row, strict=True)})
    if not as_json:
        print_table(columns, [[_value(value) for value in row] for row in found[:most]])
    if len(found) > most:
        complain(f"only the first {most} rows are shown; --rows shows more")


def _show_columns(columns: Sequence[tuple[str, str]], as_json: bool) -> None:
    """Print the columns of a result."""
    if as_json:
        for name, kind in columns:
            print_json({"column": name, "type": kind})
    else:
        print_table(("column", "type"), columns)


def _value(value: Any) -> Any:
    """A value for output: bytes as text, times in ISO form, numbers that JSON lacks as Spark writes them."""
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace")
    if isinstance(value, dict):
        return {str(_value(key)): _value(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_value(one) for one in value]
    if isinstance(value, float) and not isfinite(value):
        return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
