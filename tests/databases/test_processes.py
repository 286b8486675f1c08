"""Real coordinators on a real PostgreSQL: their leaders are frozen, thawed later, and killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import select
from tests.databases.servers import Server
from tests.support import until_sync

from sparrowmq.coordinator.database import migrate
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.database.tables import audit
from sparrowmq.coordinator.leases import table

CHILD = str(Path(__file__).with_name("lease_child.py"))
ROUNDS = 20 if os.environ.get("SPARROW_TEST_TIER") == "long" else 3
PROCESSES = 3


@contextmanager
def child(url: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, CHILD, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"ready\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


class Watched:
    """The children, and what the database says of them."""

    def __init__(self, database: Database, url: str) -> None:
        self.database, self.url = database, url
        self._open: dict[int, object] = {}

    def leader(self) -> tuple[int, int] | None:
        """Process id and epoch."""
        with self.database.read() as connection:
            found = table.row(connection, "service")
        return (int(found.owner_label), found.epoch) if found and found.live else None

    def other_than(self, pid: int) -> tuple[int, int] | None:
        found = self.leader()
        return found if found and found[0] != pid else None

    def writes(self) -> list[tuple[int, str]]:
        with self.database.read() as connection:
            rows = connection.execute(select(audit.c.generation, audit.c.actor).order_by(audit.c.id)).all()
        return [(row[0], row[1]) for row in rows]

    def wrote(self, epoch: int) -> bool:
        return any(generation == epoch for generation, _ in self.writes())


@pytest.mark.proves("pmq:1.6", "pmq:L1", "pmq:L9")
@pytest.mark.timeout(600)
def test_frozen_and_killed_leaders_never_write_after_their_successor(postgresql: Server) -> None:
    url, chance = postgresql.make(), random.Random(7)
    database = Database(url)
    migrate.upgrade(database)
    table.ensure(database, "service")
    watched = Watched(database, url)
    contexts = [child(url) for _ in range(PROCESSES)]
    running = {(process := context.__enter__()).pid: (process, context) for context in contexts}
    try:
        for turn in range(ROUNDS):
            pid, epoch = until_sync(watched.leader)
            until_sync(lambda epoch=epoch: watched.wrote(epoch))
            kill = turn % 3 == 2
            os.kill(pid, signal.SIGKILL if kill else signal.SIGSTOP)
            _, after = until_sync(lambda pid=pid: watched.other_than(pid))
            assert after > epoch
            until_sync(lambda after=after: watched.wrote(after))
            if kill:
                running.pop(pid)[1].__exit__(None, None, None)
                context = child(url)
                process = context.__enter__()
                running[process.pid] = (process, context)
            else:
                os.kill(pid, signal.SIGCONT)
                if chance.random() < 0.5:  # let it find out before the next one
                    count = len(watched.writes())
                    until_sync(lambda count=count: len(watched.writes()) > count + 5)
    finally:
        for process, context in running.values():
            process.send_signal(signal.SIGCONT)
            context.__exit__(None, None, None)
        writes = watched.writes()
        database.close()
    epochs = [epoch for epoch, _ in writes]
    assert epochs == sorted(epochs)
    assert len(set(writes)) == len(set(epochs)), "an epoch has one leader"
    assert len(set(epochs)) > ROUNDS
