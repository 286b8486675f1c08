"""Servers that are gone, refuse, lock and end what stands still: the errors say so, and it goes on
afterwards.
"""

from __future__ import annotations

import os
import socket

import pytest
from sqlalchemy import insert, select, text
from sqlalchemy.engine import make_url
from tests.databases.line import Line
from tests.databases.servers import Server
from tests.support import free_port, until_sync

from sparrowmq.coordinator.database import connect
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.database.tables import lease
from sparrowmq.coordinator.leases import table
from sparrowmq.coordinator.leases.rules import Owner
from sparrowmq.core.errors import DatabaseBusyError, DatabaseError, DatabaseGoneError

A, B = Owner("a" * 32, "one"), Owner("b" * 32, "two")


@pytest.mark.parametrize("kind", ["postgresql", "mysql"])
def test_nobody_there(kind: str) -> None:
    database = Database(f"{kind}://me:secret@127.0.0.1:{free_port()}/mq")
    try:
        with pytest.raises(DatabaseGoneError, match="cannot be reached") as caught, database.read():
            pass
        assert "secret" not in str(caught.value)
    finally:
        database.close()


def test_a_database_or_a_login_that_is_none(server: Server) -> None:
    for url in (
        server.url("nothing"),
        server.url().replace("//sparrow@", "//who@").replace("//root@", "//who:no@"),
    ):
        database = Database(url)
        try:
            with pytest.raises(DatabaseError), database.read():
                pass
        finally:
            database.close()


def test_a_row_somebody_locks_is_not_waited_for_without_end(
    server: Server, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "WAIT_SECONDS", 1)
    one, two = Database(url), Database(url)
    table.ensure(one, "s")
    try:
        with one.write() as holding:
            table.claim(holding, "s", A, 60_000)
            with pytest.raises(DatabaseBusyError), two.write() as waiting:
                table.claim(waiting, "s", B, 60_000)
    finally:
        one.close()
        two.close()


@pytest.mark.proves("pmq:L1")
def test_a_leader_frozen_in_a_transaction_does_not_block_its_successor(url: str) -> None:
    """As a frozen process does: the server ends its transaction, the lease runs out, a peer goes on."""
    frozen, peer = Database(url, idle_seconds=1), Database(url)
    table.ensure(peer, "s")
    try:
        with frozen.write() as connection:
            assert table.claim(connection, "s", A, 1) == 1

        def taken() -> int | None:
            try:
                with peer.write() as other:
                    return table.claim(other, "s", B, 60_000)
            except DatabaseBusyError:
                return None

        with pytest.raises(DatabaseGoneError), frozen.write() as connection:
            connection.execute(select(lease).with_for_update())
            connection.execute(insert(lease).values(service="too late"))
            assert until_sync(taken) == 2
            connection.execute(text("SELECT 1"))
        with frozen.read() as connection:  # the next one has a connection of its own
            assert [row.service for row in table.rows(connection)] == ["s"]
    finally:
        frozen.close()
        peer.close()


def test_a_server_that_is_cut_off_is_noticed_by_the_connection_itself(postgresql: Server) -> None:
    """MariaDB's driver gives up reading by itself; PostgreSQL's waits as long as the system lets it."""
    database = Database(postgresql.url())
    try:
        with database.read() as connection:
            raw = connection.connection.dbapi_connection
            assert raw is not None
            with socket.socket(fileno=os.dup(raw.fileno())) as copy:
                assert copy.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
                idle = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
                assert (idle, copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)) == (5, 10_000)
    finally:
        database.close()


def test_a_server_that_says_nothing_any_more_is_given_up_and_found_again(
    server: Server, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is frozen, or what is sent to it gets lost: the connection stands, and no answer comes."""
    monkeypatch.setattr(connect, "WAIT_SECONDS", 1)
    parsed = make_url(url)
    assert parsed.host is not None
    assert parsed.port is not None
    with Line(parsed.host, parsed.port) as line:
        database = Database(parsed.set(port=line.port).render_as_string(hide_password=False))
        try:
            with pytest.raises(DatabaseGoneError, match="cannot be reached"), database.read() as connection:
                connection.execute(text("SELECT 1"))
                line.cut()
                connection.execute(text("SELECT 1"))
            line.mend(lost=True)
            with database.read() as connection:
                assert connection.execute(text("SELECT 1")).scalar_one() == 1
        finally:
            database.close()


def test_names_are_compared_byte_by_byte(database: Database) -> None:
    for name in ("s", "S", "ß", "日本"):
        table.ensure(database, name)
    with database.read() as connection:
        found = table.row(connection, "S")
        assert found is not None
        assert found.service == "S"
        assert len(table.rows(connection)) == 4


def test_a_connection_the_server_ended_is_made_again(server: Server, url: str) -> None:
    database = Database(url)
    try:
        with database.read() as connection:
            sql = "SELECT pg_backend_pid()" if server.kind == "postgresql" else "SELECT CONNECTION_ID()"
            number = connection.execute(text(sql)).scalar_one()
        server.sql(
            f"SELECT pg_terminate_backend({number})" if server.kind == "postgresql" else f"KILL {number}"
        )
        with database.read() as connection:
            assert connection.execute(text(sql)).scalar_one() != number
    finally:
        database.close()
