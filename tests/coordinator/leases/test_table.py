"""The lease table. `tests/databases` runs the same tests on PostgreSQL and MariaDB."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait

import pytest
from sqlalchemy import update
from tests.support import about, until_sync

from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.database.tables import lease
from sparrowmq.coordinator.leases import table
from sparrowmq.coordinator.leases.rules import Owner
from sparrowmq.core.errors import LeaseLostError

A, B, C = Owner("a" * 32, "one"), Owner("b" * 32, "two"), Owner("c" * 32, "three")
LONG = 60_000


@pytest.fixture(autouse=True)
def row(database: Database) -> None:
    table.ensure(database, "s")


def claim(database: Database, owner: Owner, ttl_ms: int = LONG) -> int | None:
    with database.write() as connection:
        return table.claim(connection, "s", owner, ttl_ms)


def end(database: Database) -> None:
    """Let the lease expire now."""
    with database.write() as connection:
        connection.execute(update(lease).values(expires_at=1))


@pytest.mark.proves("pmq:1.2", "pmq:L8")
def test_first_claim_leads_at_once_and_the_others_wait(database: Database) -> None:
    assert claim(database, A) == 1
    assert claim(database, B) is None
    end(database)
    assert claim(database, B) == 2


def test_claim_with_a_lost_answer_is_repeated_in_a_new_epoch(database: Database) -> None:
    claim(database, A)
    assert claim(database, A) == 2
    with database.write() as connection:
        assert not table.renew(connection, "s", A, 1, LONG)
        assert table.renew(connection, "s", A, 2, LONG)


def test_creating_the_row_again_changes_nothing(database: Database) -> None:
    claim(database, A)
    table.ensure(database, "s")
    with database.read() as connection:
        found = table.row(connection, "s")
        assert table.rows(connection) == [found]
        assert table.row(connection, "other") is None
    assert found is not None
    assert (found.owner_id, found.owner_label, found.epoch, found.live) == (A.id, "one", 1, True)


@pytest.mark.proves("pmq:1.5", "pmq:L7")
def test_holder_returns_the_end_by_the_databases_clock(database: Database) -> None:
    with database.write() as connection:
        before = database.now(connection)
        table.claim(connection, "s", A, 5_000)
        found = table.row(connection, "s")
        after = database.now(connection)
    assert found is not None
    assert before <= found.acquired_at <= found.renewed_at <= after
    assert before + 5_000 <= found.expires_at <= after + 5_000


def test_only_the_owner_in_its_epoch_renews_and_only_in_time(database: Database) -> None:
    claim(database, A)
    with database.write() as connection:
        assert table.renew(connection, "s", A, 1, LONG)
        assert not table.renew(connection, "s", A, 2, LONG)
        assert not table.renew(connection, "s", B, 1, LONG)
    end(database)
    with database.write() as connection:
        assert not table.renew(connection, "s", A, 1, LONG)


@pytest.mark.proves("pmq:L5")
def test_released_lease_is_free_at_once(database: Database) -> None:
    claim(database, A)
    with database.write() as connection:
        assert not table.release(connection, "s", B, 1)
        assert table.release(connection, "s", A, 1)
        assert not table.release(connection, "s", A, 1)
    assert claim(database, B) == 2


@pytest.mark.proves("pmq:1.4", "pmq:1.6")
def test_handover_ends_the_epoch_and_blocks_the_old_owner(database: Database) -> None:
    claim(database, A)
    with database.write() as connection:
        before = table.hand_over(connection, "s", LONG)
    assert before is not None
    assert (before.owner_id, before.epoch) == (A.id, 1)
    with database.write() as connection:
        assert not table.renew(connection, "s", A, 1, LONG)
        assert table.hand_over(connection, "s", LONG) is None
        with pytest.raises(LeaseLostError, check=about(what="s", value=None)):
            table.guard(connection, "s", A, 1)
    assert claim(database, A) is None
    assert claim(database, B) == 3


def test_block_expires(database: Database) -> None:
    claim(database, A)
    with database.write() as connection:
        table.hand_over(connection, "s", 1)
    assert until_sync(lambda: claim(database, A)) == 3


@pytest.mark.proves("pmq:L1")
def test_replaced_leader_cannot_write(database: Database) -> None:
    claim(database, A)
    with database.write() as connection:
        table.guard(connection, "s", A, 1)
    end(database)
    claim(database, B)

    def write(owner: Owner, epoch: int) -> None:
        with database.write() as connection:
            connection.execute(update(lease).values(owner_label="written"))
            table.guard(connection, "s", owner, epoch)

    for owner, epoch in ((A, 1), (A, 2), (B, 1)):
        with pytest.raises(LeaseLostError, check=about(what="s", value=2)):
            write(owner, epoch)
    with database.read() as connection:
        assert [found.owner_label for found in table.rows(connection)] == ["two"]


@pytest.mark.proves("pmq:L1")
def test_expired_lease_counts_as_lost_even_without_a_successor(database: Database) -> None:
    claim(database, A)
    end(database)
    with database.write() as connection, pytest.raises(LeaseLostError, check=about(what="s", value=None)):
        table.guard(connection, "s", A, 1)


@pytest.mark.proves("pmq:1.2", "pmq:L11")
def test_one_of_many_simultaneous_claims_wins(database: Database) -> None:
    owners = [Owner(f"{number:032x}", "same label") for number in range(8)]
    with ThreadPoolExecutor(4) as threads:
        for epoch in range(1, 6):
            won = list(threads.map(lambda owner: claim(database, owner), owners))
            assert [one for one in won if one] == [epoch]
            end(database)


@pytest.mark.proves("pmq:L1")
def test_claim_waits_for_a_running_write_of_the_leader(database: Database) -> None:
    """Nobody becomes leader between the leader's check and its commit, even if the lease expires
    meanwhile."""
    claim(database, A, 1_000)
    with ThreadPoolExecutor(1) as threads:
        with database.write() as connection:
            table.guard(connection, "s", A, 1)
            found = table.row(connection, "s")
            assert found is not None
            until_sync(lambda: database.now(connection) > found.expires_at)
            other = threads.submit(claim, database, B)
            assert wait([other], 0.1).not_done
            connection.execute(update(lease).values(owner_label="the leader's write"))
        assert other.result() == 2
    with database.read() as connection:
        assert [found.owner_label for found in table.rows(connection)] == ["two"]


def test_claim_does_not_wait_while_the_lease_is_valid(database: Database) -> None:
    """On SQLite every writer waits; the answer is the same."""
    claim(database, A)
    with ThreadPoolExecutor(1) as threads:
        with database.write() as connection:
            table.guard(connection, "s", A, 1)
            other = threads.submit(claim, database, B)
        assert other.result() is None
