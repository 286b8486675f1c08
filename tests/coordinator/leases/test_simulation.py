"""A thousand kills, freezes and isolations of leaders, from a seed that a failure names."""

from __future__ import annotations

import os
import random

import pytest
from sqlalchemy import event, update
from tests.coordinator.leases.simulation import BOUND, Table, World

from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.database.tables import lease
from sparrowmq.coordinator.leases import table
from sparrowmq.coordinator.leases.rules import Owner
from sparrowmq.core.errors import LeaseLostError

FAULTS = 1000
SEEDS = range(20) if os.environ.get("SPARROW_TEST_TIER") == "long" else range(1)


@pytest.mark.parametrize("seed", [int(os.environ.get("SPARROW_SEED", seed)) for seed in SEEDS])
@pytest.mark.proves("pmq:1.2", "pmq:1.3", "pmq:1.6", "pmq:L1", "pmq:L9")
def test_writes_of_leaders_never_interleave(seed: int) -> None:
    world = World(seed)
    try:
        world.run(FAULTS)
    except AssertionError as error:
        raise AssertionError(f"SPARROW_SEED={seed}: {error}") from error
    epochs = [epoch for _, epoch, _ in world.writes]
    assert epochs == sorted(epochs), f"SPARROW_SEED={seed}"
    assert len({(epoch, owner) for _, epoch, owner in world.writes}) == len(set(epochs))
    assert len(world.waits) == FAULTS
    assert max(world.waits) <= BOUND
    assert world.refused > 0, "no late write was ever tried: the simulation shows nothing"
    assert world.table.epoch > FAULTS


class Simulated:
    """SQLite with a clock that tests control: `julianday` is theirs."""

    def __init__(self, database: Database) -> None:
        self.now_ms = 1_700_000_000_000
        event.listen(database.engine, "connect", self._connected)

    def _connected(self, connection: object, record: object) -> None:
        create = connection.create_function  # type: ignore[attr-defined]
        create("julianday", 1, lambda _: self.now_ms / 86_400_000 + 2440587.5)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.proves("pmq:1.2")
def test_simulated_table_equals_the_real_one(database: Database, seed: int) -> None:
    """The same calls at the same times give the same answers, so the simulation's result holds for SQL."""
    clock, model, chance = Simulated(database), Table(), random.Random(seed)
    owners = [Owner(name * 32, name) for name in "abc"]
    table.ensure(database, "s")
    for _ in range(150):
        clock.now_ms += chance.choice((0, 1, 400, 700, 1500))
        owner, now = chance.choice(owners), clock.now_ms
        epoch = max(1, model.epoch - chance.choice((0, 0, 0, 1)))
        call = chance.choice(("claim", "claim", "renew", "renew", "guard", "release", "hand_over"))
        with database.write() as connection:
            if call == "claim":
                answers = (table.claim(connection, "s", owner, 1000), model.claim(owner.id, 1000, now))
            elif call == "renew":
                renewed = table.renew(connection, "s", owner, epoch, 1000)
                answers = (renewed, model.renew(owner.id, epoch, 1000, now))
            elif call == "release":
                answers = (table.release(connection, "s", owner, epoch), model.release(owner.id, epoch, now))
            elif call == "hand_over":
                answers = (table.hand_over(connection, "s", 900) is not None, model.hand_over(900, now))
            else:
                try:
                    table.guard(connection, "s", owner, epoch)
                    answers = (True, model.guard(owner.id, epoch, now))
                except LeaseLostError:
                    answers = (False, model.guard(owner.id, epoch, now))
        assert answers[0] == answers[1], (call, owner, epoch, now, model)
    with database.write() as connection:
        found = connection.execute(update(lease).values(owner_label="")).rowcount, table.row(connection, "s")
    assert found[1] is not None
    assert (found[1].owner_id, found[1].epoch, found[1].expires_at) == (
        model.owner,
        model.epoch,
        model.expires_at,
    )
