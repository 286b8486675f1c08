"""The members' address at the name servers: published, kept there, deleted at the end."""

from __future__ import annotations

import asyncio

import pytest
from tests.coordinator.groups.serving import serve_members
from tests.coordinator.services.watched import MadeUpKeeper
from tests.support import run

from sparrowmq.coordinator.groups.members import PUBLISH_SECONDS
from sparrowmq.protocol.managed import COORDINATOR_KEY


class Turns:
    """A sleep that ends when the test wants it to."""

    def __init__(self) -> None:
        self._asleep, self._wake = asyncio.Event(), asyncio.Event()

    async def __call__(self, seconds: float) -> None:
        assert seconds == PUBLISH_SECONDS
        self._asleep.set()
        await self._wake.wait()
        self._wake.clear()

    async def next(self) -> None:
        """Run one check, until it sleeps again."""
        await self._asleep.wait()
        self._asleep.clear()
        self._wake.set()
        await self._asleep.wait()


def test_address_is_published_again_after_name_servers_lost_it() -> None:
    async def main() -> None:
        keeper, turns = MadeUpKeeper(), Turns()
        async with serve_members(keeper, host="127.0.0.1", port=0, sleep=turns) as server:
            assert keeper.values == {COORDINATOR_KEY: server.address}
            keeper.values.clear()
            await turns.next()
            assert keeper.values == {COORDINATOR_KEY: server.address}
        assert keeper.values == {}

    run(main())


def test_other_coordinators_address_stays_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        keeper, turns = MadeUpKeeper(), Turns()
        async with serve_members(keeper, host="127.0.0.1", port=0, sleep=turns):
            keeper.values[COORDINATOR_KEY] = "10.0.0.9:1"
            await turns.next()
        assert keeper.values == {COORDINATOR_KEY: "10.0.0.9:1"}

    run(main())
    assert "direct members to another coordinator, 10.0.0.9:1; stop one of the two" in caplog.text
