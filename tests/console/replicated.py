"""A console in front of made up brokers with a second copy, which obey."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import insert
from tests.console.site import Site, site
from tests.coordinator.replicas.made_up_brokers import MadeUpBrokers
from tests.support import sqlite_url, until_sync

from sparrowmq.coordinator.database import migrate
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.database.tables import broker_seen
from sparrowmq.protocol.bodies.replicas import SlaveState

GROUP_PAGE = "/replicas/g"


def three_brokers() -> MadeUpBrokers:
    """A master and two copies, one of them behind."""
    made = MadeUpBrokers()
    made.add("a", "MASTER")
    made.add("b", "SLAVE")
    made.add("c", "SLAVE")
    made.change("c", max_offset=40)
    return made


@contextmanager
def replicated(path: Path, brokers: MadeUpBrokers) -> Iterator[Site]:
    """A console on a database at this path that knows the brokers; nobody elects their master yet."""
    database = Database(sqlite_url(path))
    migrate.upgrade(database)
    with database.write() as connection:
        for number, address in enumerate(brokers.states):
            values = {"broker": "g", "broker_id": number, "address": address, "last_seen": 1}
            connection.execute(insert(broker_seen).values(**values))
    database.close()
    with site(brokers=brokers, database_url=sqlite_url(path), namesrv_addr="127.0.0.1:1") as made:
        assert made.admin.login("admin", made.password).status == 303
        change = json.dumps({"interval_ms": 1000}).encode()
        assert made.call("PATCH", "/services/replica-election", change).status == 200
        yield made


def elect(found: Site, brokers: MadeUpBrokers) -> None:
    """Have the coordinator elect the master, until `a` is it and `b` is in sync."""
    assert found.admin.change(f"{GROUP_PAGE}/manage").status == 303
    in_sync(found, brokers)


def in_sync(found: Site, brokers: MadeUpBrokers) -> None:
    """Wait until the first master is elected, and have `b` follow it in sync."""
    until_sync(lambda: brokers.states["c"].epoch == 1)
    brokers.change("a", wanted=["a", "b"], slaves=[SlaveState("b", 100, 0, "store-b")], is_sync=True)

    def is_told() -> bool:
        words = found.admin.page(GROUP_PAGE).part("replica-group")
        return "and a copy in sync" in words and "a, b" in words

    until_sync(is_told)
