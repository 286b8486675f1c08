"""A real coordinator elects masters of real brokers that are killed and frozen under load."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.crash.broker.elections import Ledger, elected, freeze_master, kill_master
from tests.support import run

pytestmark = pytest.mark.crash


def test_nothing_acknowledged_is_lost_when_masters_are_killed_and_frozen(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with elected(tmp_path) as cluster:
            async with Ledger(cluster) as ledger:
                await kill_master(cluster, ledger)
                await freeze_master(cluster, ledger)
                await cluster.recovered()
                assert (await cluster.group())["epoch"] >= 3
                await ledger.more(50)
            verdict = await ledger.verdict()
        assert verdict.is_kept, [str(one) for one in verdict.broken]
        assert verdict.figures["acknowledged"] >= 150

    run(scenario())
