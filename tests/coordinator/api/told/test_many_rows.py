"""Answers with thousands of rows: other requests take turns with them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support import run

from sparrowmq.aio import QueueProgress
from sparrowmq.coordinator.api import cluster
from sparrowmq.coordinator.api.told import answering, finding
from sparrowmq.coordinator.cluster.explorer import Lagging, Lags
from sparrowmq.core.errors import RefusedError
from sparrowmq.core.message import MessageQueue
from sparrowmq.transport.slices import Slices

ROWS = 10 * answering.STEP_ROWS


async def always(value: Any) -> Any:
    return value


async def unknown() -> Any:
    raise RefusedError("not known yet", status=503)


def caller() -> Any:
    """A caller before a cluster with many groups and queues."""
    lags = Lags([Lagging(f"g{number}", 1, 1) for number in range(ROWS)], 0)
    queues = [QueueProgress(MessageQueue("T", "b", number), 10, 4, 0, 7) for number in range(ROWS)]
    admin = SimpleNamespace(groups=SimpleNamespace(progress=lambda group: always(queues)))
    explorer = SimpleNamespace(
        admin=lambda: always(admin),
        firsts=SimpleNamespace(of=lambda admin, rows: always({})),
        lags=lambda: always(lags),
        servers=unknown,
        tables=unknown,
    )
    database = SimpleNamespace(run=lambda work: always([]))
    context = SimpleNamespace(explorer=explorer, database=database, kinds={})
    return SimpleNamespace(need=lambda right: None, context=context)


ANSWERS: dict[str, Callable[[Any], Awaitable[Any]]] = {
    "lag": cluster.list_lag,
    "progress": lambda who: cluster.group_progress("g", who),
    "find": lambda who: finding.find("g", who),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_others_are_served_while_many_rows_are_made(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    slices = Slices(turn_seconds=0)  # each step takes a whole turn
    monkeypatch.setattr(answering, "shared", lambda: slices)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:  # until cancelled
            turns += 1
            await asyncio.sleep(0)

    async def main() -> None:
        other = asyncio.create_task(others())
        assert await ANSWERS[name](caller())
        other.cancel()

    run(main())
    assert turns >= ROWS // answering.STEP_ROWS


def test_names_are_ranked_by_how_well_they_match() -> None:
    names = ["payorders", "Orders", "orders-b", "orders", "other"]
    ranks = [finding.rank(" orders ", ("topic", name)) for name in names]
    found = sorted(one for one in ranks if one is not None)
    assert [one[3] for one in found] == ["Orders", "orders", "orders-b", "payorders"]
    assert finding.rank("  ", ("topic", "orders")) is None


def test_rows_are_in_their_order() -> None:
    assert run(answering.shown(range(ROWS), str)) == [str(number) for number in range(ROWS)]


def test_requests_with_many_rows_end_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is turned into JSON in the turn in which its rows end."""
    slices = Slices(turn_seconds=0)
    monkeypatch.setattr(answering, "shared", lambda: slices)
    made: list[int] = []

    async def one(number: int) -> None:
        assert len(await answering.shown(range(ROWS), lambda row: made.append(number))) == ROWS

    async def main() -> None:
        await asyncio.gather(*map(one, range(3)))

    run(main())
    assert made == [number for number in range(3) for _ in range(ROWS)]
