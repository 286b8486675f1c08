"""The frame of every pipeline's command: the plan, the dry run or the run, as requested."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console

from sparrowmq.cli.base.common import print_json, say
from sparrowmq.cli.pipes.common import (
    Bars,
    Show,
    check_new,
    served,
    session,
    show_plan,
    show_topics,
    topics_of,
    write_out,
)
from sparrowmq.cli.pipes.reporting import Reporter, reporting, to_coordinator
from sparrowmq.cli.pipes.shared import Shared

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparrowmq.spark.pipelines.common.steps import Plan
    from sparrowmq.spark.pipelines.common.watch import Progress, Report, Watch

T = TypeVar("T")
Read = Callable[["SparkSession"], "DataFrame"]


@contextmanager
def watching(name: str, shared: Shared, *more: Report, fleeting: bool = False) -> Iterator[Watch]:
    """A watch that shows the progress of the pipeline `name` as requested, and also calls `more`.

    `fleeting`: the bar is removed at the end, because the output that follows says it all.
    """
    from sparrowmq.spark.pipelines.common.watch import Watch, all_of, json_lines

    with ExitStack() as stack:
        reports: list[Report] = [*more, *stack.enter_context(served(shared.metrics))]
        if shared.show is Show.BAR:
            reports.append(stack.enter_context(Bars(Console(stderr=True, markup=False), fleeting=fleeting)))
        elif shared.show is Show.JSON:
            reports.append(json_lines(sys.stdout))
        reporter: Reporter | None = None
        if shared.report_to is not None:
            reporter = Reporter(to_coordinator(shared.report_to, shared.report_as or name))
            reports.append(reporter)
        watch = Watch(all_of(*reports))
        stack.enter_context(reporting(reporter, watch))
        yield watch


def run_pipeline(name: str, shared: Shared, work: Callable[[SparkSession, Watch], Progress]) -> None:
    """Run a pipeline to its end, then log the result in one line, unless progress is JSON.

    SIGINT and SIGTERM end it after the current batch.
    """
    from sparrowmq.spark.pipelines.common.queries import stopped_by_signals

    # Install the signal handlers after the session, which sets its own.
    with (
        watching(name, shared) as watch,
        session(name, shared.master, shared.spark_conf) as spark,
        stopped_by_signals(watch),
    ):
        done = work(spark, watch)
    if shared.as_json:
        print_json({**done.to_json(), "stopped": watch.stopping})
    elif shared.show is not Show.JSON:
        ended = "stopped: " if watch.stopping else ""
        batches = "1 batch" if done.batches == 1 else f"{done.batches:,} batches"
        say(f"{ended}{done.rows:,} messages in {batches}, {done.size:,} bytes")


def run_read(name: str, shared: Shared, most: int | None, work: Callable[[SparkSession], T]) -> T:
    """The result of `work`, which only reads `most` messages, if that is known. Shows progress as
    requested.
    """
    from sparrowmq.spark.pipelines.common.task_progress import followed

    with watching(name, shared) as watch, session(name, shared.master, shared.spark_conf) as spark:
        watch.begin(name, most)
        with followed(spark, watch, most):
            return work(spark)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A pipeline as its command carries it out: its plan, its dry run, or itself."""

    name: str
    shared: Shared
    clusters: Sequence[Mapping[str, str]] = ()
    """Options of a read or a write, for each cluster that it needs."""
    places: Sequence[object] = ()
    """Locations (or None) that it reads: a URI, and an archive that is a table, need a session."""
    plan: Callable[[], Plan]
    dry_run: Callable[[SparkSession], int | Mapping[str, int]]
    """Counts the messages, or several kinds of them."""
    would: str
    """What a run would do with them, for the result of a dry run."""

    def carry_out(
        self,
        work: Callable[[SparkSession, Watch], Progress],
        promised: Callable[[], Iterable[str]] | None = None,
    ) -> None:
        """Do what is requested. `promised` gives the guarantees, which are shown before Spark starts."""
        if self.describe():
            return
        if promised is not None:
            with self.reaching():
                lines = promised()
            for line in lines:
                say(line, err=True)
        run_pipeline(self.name, self.shared, work)

    def carry_out_read(self, to: str | None, *, counted: Read, written: Read) -> None:
        """Do what is requested: count the result by topic, or write it to `to`.

        `written` is the whole table, `counted` may have fewer columns.
        """
        check_new(to)
        if self.describe():
            return
        rows, as_json = self.planned().rows, self.shared.as_json
        if to is None:
            found = run_read(self.name, self.shared, rows, lambda spark: topics_of(counted(spark)))
            show_topics(found, as_json)
            return
        done = run_read(self.name, self.shared, rows, lambda spark: write_out(written(spark), to))
        print_json({"messages": done, "to": to}) if as_json else say(f"{done:,} messages are in {to}")

    def describe(self) -> bool:
        """Print the plan or the result of a dry run if one is requested; returns whether it is.

        Raises `TransportError` at once if a cluster cannot be reached.
        """
        from sparrowmq.spark.pipelines.common.reading import check_reachable

        check_reachable(*self.clusters)
        if self.shared.plan:
            show_plan(self.planned(), self.shared.as_json)
        elif self.shared.dry_run:
            plan = self.planned()
            self._show_dry_run(plan, run_read(self.name, self.shared, plan.rows, self.dry_run))
        return self.shared.plan or self.shared.dry_run

    def planned(self) -> Plan:
        """The plan."""
        with self.reaching():
            return self.plan()

    @contextmanager
    def reaching(self) -> Iterator[None]:
        """Run with a session if one of the `places` needs it."""
        from sparrowmq.spark.pipelines.archive.location import needs_session

        if not any(needs_session(str(place)) for place in self.places if place is not None):
            yield
            return
        with session(self.name, self.shared.master, self.shared.spark_conf):
            yield

    def _show_dry_run(self, plan: Plan, found: int | Mapping[str, int]) -> None:
        from sparrowmq.spark.pipelines.common.steps import AT_MOST

        counts = {"messages": found} if isinstance(found, int) else found
        if self.shared.as_json:
            print_json({"pipeline": plan.pipeline, **counts})
            return
        text = ", ".join(f"{count:,} {name}" for name, count in counts.items())
        say(f"{text}{' at most' if plan.rows_text == AT_MOST else ''} {self.would}")


def would(to: str | None) -> str:
    """What `Pipeline.carry_out_read` would do with the messages."""
    return "would be counted" if to is None else f"would be written to {to}; nothing is written"
