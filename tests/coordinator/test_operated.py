"""A coordinator's state and metrics for operators."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.coordinator.services.watched import MadeUp
from tests.httpd.test_operators import ask, state
from tests.support import run, sqlite_url, until

from sparrowmq.coordinator.database import migrate
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.database_watch import DatabaseWatch
from sparrowmq.coordinator.groups.group_metadata import GroupRow
from sparrowmq.coordinator.operated import OperatedCoordinator
from sparrowmq.coordinator.server import Coordinator
from sparrowmq.core.errors import DatabaseGoneError
from sparrowmq.core.figures.exposition import Exposition, Operated
from sparrowmq.core.settings.servers import CoordinatorSettings
from sparrowmq.core.stalls import StallBook
from sparrowmq.httpd.operators import OperatorPort
from sparrowmq.transport.places import Places

Samples = dict[str, dict[str, float]]


def figures(operated: Operated) -> Samples:
    """Values by name, and by the labels without those of the coordinator."""
    into = Exposition(1000)
    for _ in operated.collect(into):
        pass
    found: Samples = {}
    for family in text_string_to_metric_families(b"".join(into.rendering()).decode()):
        for one in family.samples:
            assert one.labels["node_type"] == "coordinator"
            own = [f"{name}={value}" for name, value in one.labels.items() if not name.startswith("node")]
            found.setdefault(one.name, {})[",".join(sorted(own))] = one.value
    return found


def test_a_coordinator_says_what_it_leads_and_that_it_is_ready(tmp_path: Path) -> None:
    async def main() -> None:
        settings = CoordinatorSettings(
            database_url=sqlite_url(tmp_path / "c.db"), listen_port=0, metrics_label="zone:a"
        )
        coordinator = Coordinator(settings, cluster=MadeUp())
        assert coordinator.operated.lacks() == ["it is starting or stopping"]
        started = await coordinator.start()
        try:
            operated = coordinator.operated
            assert operated.node == f"coordinator {started.url.removeprefix('http://')}"
            assert (operated.faults(), operated.lacks()) == ([], [])
            ran = "outcome=done,service=audit-cleanup,zone=a"
            await until(lambda: figures(operated).get("sparrow_coordinator_runs_total", {}).get(ran))
            found = figures(operated)
            failed = "outcome=failed,service=audit-cleanup,zone=a"
            assert found["sparrow_coordinator_runs_total"][failed] == 0, "else the first is no increase"
            assert found["sparrow_coordinator_service_leads"]["service=audit-cleanup,zone=a"] == 1
            assert found["sparrow_coordinator_run_seconds_total"]["service=audit-cleanup,zone=a"] >= 0
            assert found["sparrow_coordinator_database_answers"] == {"zone=a": 1}
            assert found["sparrow_bound_max"]["bound=connections,zone=a"] == settings.connections_max
        finally:
            await coordinator.close()
        assert coordinator.operated.lacks() == ["it is starting or stopping"]

    run(main())


def test_without_its_database_it_is_healthy_and_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Exception | None] = [DatabaseGoneError("connection refused"), None]
    checks = asyncio.Event()

    def check(database: Database) -> None:
        if (error := answers.pop(0)) is not None:
            raise error

    async def sleep(seconds: float) -> None:
        await checks.wait()
        checks.clear()

    monkeypatch.setattr(migrate, "check", check)

    async def main() -> None:
        database = Database(sqlite_url(tmp_path / "c.db"))
        watch = DatabaseWatch(database, sleep)
        operated = operating(watch)
        port = OperatorPort(lambda: [operated], host="127.0.0.1", port=0, series_max=1000)
        await port.start()
        task = asyncio.create_task(watch.run())
        checks.set()
        await until(operated.lacks)
        assert operated.lacks() == ["the database did not answer the last check: connection refused"]
        assert not operated.faults(), "a restart does not mend it"
        assert (await state(port, "/health"))[0] == 200
        status, told = await state(port, "/ready")
        assert (status, told["nodes"][0]["reasons"]) == (503, operated.lacks())
        assert b"\nsparrow_coordinator_database_answers{" in (await ask(port, "/metrics"))[2]
        assert figures(operated)["sparrow_coordinator_database_answers"] == {"": 0}
        checks.set()
        await until(lambda: not operated.lacks())
        assert (await state(port, "/ready"))[0] == 200
        await port.close()
        task.cancel()
        await asyncio.wait([task])
        database.close()

    run(main())


def test_hand_overs_of_managed_groups_are_counted_by_how_they_ended() -> None:
    numbers = GroupRow(released=3, lease_over=1, drained_too_long=2, late=4)
    leader = SimpleNamespace(group="g", members=["a", "b"], settled=False, numbers=numbers)
    watch: Any = SimpleNamespace(trouble="")
    found = figures(operating(watch, SimpleNamespace(leaders=[leader])))
    assert found["sparrow_group_hand_overs_total"] == {
        "consumer_group=g,end=released": 3,
        "consumer_group=g,end=lease_over": 1,
        "consumer_group=g,end=drained_too_long": 2,
    }
    assert found["sparrow_group_members"] == {"consumer_group=g": 2}
    assert found["sparrow_group_settled"] == {"consumer_group=g": 0}
    assert found["sparrow_group_late_results_total"] == {"consumer_group=g": 4}


def operating(watch: DatabaseWatch, groups: Any = None) -> OperatedCoordinator:
    server: Any = SimpleNamespace(places=Places[Any](10))
    return OperatedCoordinator(
        "127.0.0.1:9877",
        "",
        runners=[],
        groups=lambda: groups,
        database=watch,
        server=server,
        stalls=StallBook(),
    )
