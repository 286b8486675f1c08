from __future__ import annotations

import asyncio
import logging

import pytest
from tests.support import run, until

from sparrowmq.broker.base.periodic import repeat
from sparrowmq.core.errors import StoreError
from sparrowmq.transport.occasional import OccasionalLog


@pytest.mark.parametrize(("error", "with_trace"), [(StoreError("full"), False), (KeyError("x"), True)])
def test_periodic_work_continues_after_any_error(
    error: Exception, with_trace: bool, caplog: pytest.LogCaptureFixture
) -> None:
    plain = coroutines = 0

    def work() -> None:
        nonlocal plain
        plain += 1
        raise error

    async def async_work() -> None:
        nonlocal coroutines
        coroutines += 1
        raise error

    async def main() -> None:
        occasional = OccasionalLog(logging.getLogger("sparrowmq.broker"))
        tasks = [
            asyncio.create_task(repeat(0.001, each, name, occasional))
            for each, name in ((work, "plain work"), (async_work, "async work"))
        ]
        await until(lambda: plain > 2 and coroutines > 2)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=20)
        assert all(task.cancelled() for task in tasks)

    with caplog.at_level(logging.ERROR, "sparrowmq.broker"):
        run(main())
    assert [record.message.split(" failed")[0] for record in caplog.records] == ["plain work", "async work"]
    assert all(bool(record.exc_info) is with_trace for record in caplog.records)
