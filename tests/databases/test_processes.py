"""Real coordinators on real databases: their leaders are killed, frozen and thawed, and cut off from the
database.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import select
from sqlalchemy.engine import make_url
from tests.databases.line import Line
from tests.databases.servers import Server
from tests.support import sqlite_url, until_sync

from sparrowmq.coordinator.database import migrate
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.database.tables import audit
from sparrowmq.coordinator.leases import table

CHILD = str(Path(__file__).with_name("lease_child.py"))
ROUNDS = 20 if os.environ.get("SPARROW_TEST_TIER") == "long" else 7
"""Leaders that are harmed on each of the databases."""
PROCESSES = 3
WAIT = 60.0


class Child:
    """A coordinator in a process of its own, which reaches a server over a line of its own."""

    def __init__(self, url: str, stack: ExitStack) -> None:
        parsed = make_url(url)
        self.line: Line | None = None
        if parsed.port is not None:
            assert parsed.host is not None
            self.line = stack.enter_context(Line(parsed.host, parsed.port))
            url = parsed.set(port=self.line.port).render_as_string(hide_password=False)
        self.process = stack.enter_context(child(url))
        self._refused = 0

    @property
    def refused(self) -> int:
        """How often a write of it came too late, so far."""
        assert self.process.stdout is not None
        self._refused += (self.process.stdout.read() or b"").count(b"refused")
        return self._refused

    def refused_more_than(self, times: int) -> bool:
        """Whether more of its writes came too late by now."""
        return self.refused > times

    def harm(self, fault: str) -> None:
        if fault == "isolate":
            assert self.line is not None
            self.line.cut()
        elif fault == "freeze":
            self.process.send_signal(signal.SIGSTOP)
            until_sync(self.is_stopped, WAIT)  # a system call that takes a lock ends before the process stops
        else:
            self.process.send_signal(signal.SIGKILL)

    def is_stopped(self) -> bool:
        """Whether every thread of it stopped."""
        return stopped(self.process.pid)

    def heal(self, fault: str, *, lost: bool) -> None:
        if fault == "isolate":
            assert self.line is not None
            self.line.mend(lost=lost)
        else:
            self.process.send_signal(signal.SIGCONT)


@contextmanager
def child(url: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, CHILD, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def stopped(pid: int) -> bool:
    """Whether every thread of a process is in the state that SIGSTOP brings about."""
    if not Path(f"/proc/{pid}").exists():  # a system without it: the parent is told when its child stops
        return os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
    threads = Path(f"/proc/{pid}/task").glob("*/stat")
    return all(one.read_text().rpartition(")")[2].split()[0] == "T" for one in threads)


class Watched:
    """What the database says of the children."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def writer(self) -> tuple[int, int] | None:
        """Process id and epoch of the leader, once it has written."""
        with self.database.read() as connection:
            found = table.row(connection, "service")
            if not found or not found.live:
                return None
            wrote = select(audit.c.id).where(audit.c.generation == found.epoch).limit(1)
            return (int(found.owner_label), found.epoch) if connection.execute(wrote).first() else None

    def writer_after(self, epoch: int, pid: int) -> tuple[int, int] | None:
        found = self.writer()
        return found if found and found[0] != pid and found[1] > epoch else None

    def writes(self) -> list[tuple[int, str]]:
        """Epoch and process of each write, in their order."""
        with self.database.read() as connection:
            rows = connection.execute(select(audit.c.generation, audit.c.actor).order_by(audit.c.id)).all()
        return [(row[0], row[1]) for row in rows]


def is_locked(url: str) -> bool:
    """Whether somebody holds the write lock of a SQLite file for longer than a transaction takes."""
    with closing(sqlite3.connect(make_url(url).database or "", timeout=1.0)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
    return False


def harm_leaders(url: str, faults: tuple[str, ...]) -> tuple[list[tuple[int, str]], int]:
    """Harm the leader `ROUNDS` times; all that was written, and how often a write came too late."""
    chance = random.Random(7)
    with ExitStack() as stack:
        database = Database(url)
        stack.callback(database.close)
        migrate.upgrade(database)
        table.ensure(database, "service")
        watched = Watched(database)
        children = [Child(url, stack) for _ in range(PROCESSES)]
        harmed = 0
        while harmed < ROUNDS:
            seen = until_sync(watched.writer, WAIT)
            assert seen is not None
            pid, epoch = seen
            leader = next(one for one in children if one.process.pid == pid)
            fault = faults[harmed % len(faults)]
            leader.harm(fault)
            if fault == "freeze" and "sqlite" in url and is_locked(url):
                leader.heal(fault, lost=False)  # in the middle of a transaction: nobody else can lead
                continue
            harmed += 1
            until_sync(partial(watched.writer_after, epoch, pid), WAIT)
            if fault == "kill":
                children.append(Child(url, stack))
            else:
                before = leader.refused
                leader.heal(fault, lost=chance.random() < 0.3)
                if harmed == ROUNDS or chance.random() < 0.5:  # let it find out before the next one
                    until_sync(partial(leader.refused_more_than, before), WAIT)
        return watched.writes(), sum(one.refused for one in children)


def assert_one_after_the_other(writes: list[tuple[int, str]]) -> None:
    epochs = [epoch for epoch, _ in writes]
    assert epochs == sorted(epochs), "a leader wrote after its successor"
    assert len(set(writes)) == len(set(epochs)), "an epoch has one leader"
    assert len(set(epochs)) > ROUNDS


@pytest.mark.proves("pmq:1.6", "pmq:L1", "pmq:L9", "MUST-71")
@pytest.mark.timeout(900)
def test_killed_frozen_and_isolated_leaders_never_write_after_their_successor(server: Server) -> None:
    writes, refused = harm_leaders(server.make(), ("isolate", "freeze", "kill"))
    assert_one_after_the_other(writes)
    assert refused > 0, "no late write was ever tried: this shows nothing"


@pytest.mark.proves("pmq:1.6", "pmq:L1")
@pytest.mark.timeout(900)
def test_killed_and_frozen_leaders_on_one_file_never_write_after_their_successor(tmp_path: Path) -> None:
    """A file cannot be cut off from those who have it."""
    writes, _ = harm_leaders(sqlite_url(tmp_path / "coordinator.db"), ("freeze", "kill"))
    assert_one_after_the_other(writes)
