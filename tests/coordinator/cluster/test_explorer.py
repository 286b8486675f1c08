from __future__ import annotations

import asyncio

import pytest
from tests.coordinator.cluster.explored import QUEUE, MadeUpAdmin, explorer
from tests.coordinator.services.surveyed import MadeUpSurvey
from tests.support import about, run

from sparrowmq.client.admin.types import BrokerStatus
from sparrowmq.coordinator.cluster import explorer as explorers
from sparrowmq.coordinator.cluster.explorer import Lagging, asked, broker_now, lagging, rate_of
from sparrowmq.coordinator.cluster.view import GroupPosition
from sparrowmq.coordinator.upkeep.landscape import Landscape
from sparrowmq.core.errors import (
    BrokerError,
    ClientError,
    ConnectError,
    NoRouteError,
    RefusedError,
    RequestTimeoutError,
)


def test_lag_of_a_group_and_its_age_are_returned() -> None:
    places = [GroupPosition(QUEUE, 5, 3000), GroupPosition(QUEUE, 0), GroupPosition(QUEUE, 2, 1000)]
    assert lagging("g", places) == Lagging("g", 7, 1000, 3, ("T",))
    assert lagging("g", [GroupPosition(QUEUE, 0, 0)]) == Lagging("g", 0, 0, 1, ("T",))


def test_lag_of_a_group_without_offsets_is_unknown() -> None:
    """Its first member decides where it begins: it may get every message, or none of those there are."""
    assert lagging("g", []) == Lagging("g", None, None, 0, ())


def test_age_of_lag_is_unknown_when_one_queue_does_not_report_it() -> None:
    """The queue that does not report may have the oldest message."""
    assert lagging("g", [GroupPosition(QUEUE, 5, 3000), GroupPosition(QUEUE, 2, 0)]).oldest_ms is None


def test_broker_is_described_by_its_runtime_info() -> None:
    told = {
        "brokerVersionDesc": "V5_3_1",
        "putTps": "1.5 2 3",
        "getTransferredTps": "x",
        "commitLogDirCapacity": "Total : 100.0 GiB, Free : 25.0 GiB.",
        "commitLogMinOffset": "100",
        "commitLogMaxOffset": "350",
    }
    found = broker_now(BrokerStatus("c", "a", 0, "a:1", told))
    assert (found.stored_per_second, found.delivered_per_second, found.log_bytes) == (1.5, None, 250)
    assert (found.disk_total, found.disk_free) == (100 << 30, 25 << 30)
    silent = broker_now(BrokerStatus("c", "a", 0, "a:1", {}, "it is down"))
    assert (silent.error, silent.version, silent.disk_total, silent.log_bytes) == (
        "it is down",
        None,
        None,
        None,
    )


@pytest.mark.parametrize("text", ["", "nan 1 1", "-1", "inf", "1e300", "garbage", "\ud800"])
def test_invalid_rates_are_unknown(text: str) -> None:
    assert rate_of({"putTps": text}, "putTps") is None


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (NoRouteError("none"), 404),
        (BrokerError(1, "no"), 502),
        (ConnectError("down"), 503),
        (RequestTimeoutError("late"), 503),
        (ClientError("wrong"), 422),
        (RefusedError("no", status=409), 409),
    ],
)
def test_server_errors_have_their_status(error: Exception, status: int) -> None:
    async def fail() -> None:
        raise error

    with pytest.raises(RefusedError) as found:
        run(asked(fail()))
    assert (found.value.status, str(found.value)) == (status, str(error))


def test_silent_brokers_time_out() -> None:
    with pytest.raises(RefusedError, check=about(status=503, limit=0.01)):
        run(asked(asyncio.sleep(60), 0.01))


def test_topic_is_unknown_and_not_missing_while_a_broker_does_not_answer() -> None:
    async def work() -> None:
        survey = MadeUpSurvey()
        for failed, status, says in (
            ({}, 404, "no broker has the topic 'T'"),
            ({"b": "no answer"}, 503, "did not answer: b"),
        ):
            survey.land = Landscape(failed=failed)
            found = explorer(survey, MadeUpAdmin())
            with pytest.raises(RefusedError, match=says, check=about(status=status)):
                await found.known_topic("T")
            await found.close()

    run(work())


def test_slow_query_returns_the_previous_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explorers, "WAIT_SECONDS", 0.02)
    monkeypatch.setattr(explorers, "FRESH_SECONDS", 0.0)
    admin, hang = MadeUpAdmin(), asyncio.Event()

    async def slow() -> list[BrokerStatus]:
        await hang.wait()
        return []

    async def work() -> None:
        found = explorer(MadeUpSurvey(), admin)
        first = await found.servers()
        monkeypatch.setattr(admin, "brokers_list", slow)
        assert await found.servers() is first
        fresh = explorer(MadeUpSurvey(), admin)
        with pytest.raises(RefusedError, check=about(status=503, limit=None)):
            await fresh.servers()
        hang.set()
        await found.close()
        await fresh.close()

    run(work())
