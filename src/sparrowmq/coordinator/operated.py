"""What an operator sees of a coordinator: its figures, its faults, and whether it is ready."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from sparrowmq.coordinator.services.base.schedule import RunOutcome
from sparrowmq.core.figures.bounds import Bound, add_bounds
from sparrowmq.core.figures.exposition import Exposition, labels
from sparrowmq.core.settings.text import parse_labels
from sparrowmq.transport.figures import add_stalls

if TYPE_CHECKING:
    from sparrowmq.coordinator.database_watch import DatabaseWatch
    from sparrowmq.coordinator.groups.group_registry import GroupRegistry
    from sparrowmq.coordinator.services.base.runner import ServiceRunner
    from sparrowmq.core.stalls import StallBook
    from sparrowmq.httpd.serving import HttpServer

STEP_GROUPS: Final = 20
ENDS: Final = ("released", "lease_over", "drained_too_long")
"""How a member's hold of a queue ended: it let go, its lease ended, or it took too long to let go."""


class OperatedCoordinator:
    """A running coordinator, see `core.figures.exposition.Operated`. Nothing here asks the database.

    `groups` returns the managed groups that this process leads, None while it leads none. `metrics_label` is
    the setting of that name.
    """

    def __init__(
        self,
        address: str,
        metrics_label: str,
        *,
        runners: Sequence[ServiceRunner],
        groups: Callable[[], GroupRegistry | None],
        database: DatabaseWatch,
        server: HttpServer,
        stalls: StallBook,
    ) -> None:
        self._address = address
        self._node = labels(node_type="coordinator", node_id=address, **parse_labels(metrics_label))
        self._runners = runners
        self._groups = groups
        self._database = database
        self._server = server
        self._stalls = stalls

    @property
    def node(self) -> str:
        """Its kind and address."""
        return f"coordinator {self._address}"

    def collect(self, into: Exposition) -> Iterator[None]:
        """Add all figures."""
        about = "1 if the database answered the last check."
        database = into.gauge("sparrow_coordinator_database_answers", about)
        database.add(self._node, int(not self._database.trouble))
        self._add_services(into)
        yield
        yield from self._managed(into)
        places = self._server.places
        add_bounds(into, self._node, [Bound("connections", len(places), places.most)])
        add_stalls(into, self._node, self._stalls)

    def _add_services(self, into: Exposition) -> None:
        about = "1 if this process leads the service."
        leads = into.gauge("sparrow_coordinator_service_leads", about)
        runs = into.counter("sparrow_coordinator_runs_total", "Runs of a service in this process.")
        about = "Time of these runs."
        took = into.counter("sparrow_coordinator_run_seconds_total", about)
        for runner in self._runners:
            label = labels(self._node, service=runner.service.kind.name)
            leads.add(label, int(runner.holder.epoch is not None))
            took.add(label, round(runner.seconds, 3))
            for outcome in RunOutcome:  # from 0 on: Prometheus sees no increase in a series that begins
                runs.add(labels(label, outcome=outcome.value), runner.runs[outcome.value])

    def _managed(self, into: Exposition) -> Iterator[None]:
        """The managed groups that have members here."""
        registry = self._groups()
        if registry is None:
            return
        members = into.gauge("sparrow_group_members", "Members of a managed group.")
        settled = into.gauge("sparrow_group_settled", "1 if the plan of the group is in force.")
        handed = into.counter("sparrow_group_hand_overs_total", "Queues that a member of the group gave up.")
        about = "Results that came after the queue was handed to another member, and were refused."
        late = into.counter("sparrow_group_late_results_total", about)
        for at, leader in enumerate(registry.leaders, 1):
            label, numbers = labels(self._node, consumer_group=leader.group), leader.numbers
            members.add(label, len(leader.members))
            settled.add(label, int(leader.settled))
            late.add(label, numbers.late)
            for end in ENDS:
                handed.add(labels(label, end=end), getattr(numbers, end))
            if at % STEP_GROUPS == 0:
                yield

    def faults(self) -> list[str]:
        """None: what is wrong with the database is not mended by a restart."""
        return []

    def lacks(self) -> list[str]:
        """It does nothing without its database."""
        trouble = self._database.trouble
        return [f"the database did not answer the last check: {trouble}"] if trouble else []
