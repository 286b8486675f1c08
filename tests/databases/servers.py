"""Real database servers for tests: PostgreSQL and MariaDB from the system's packages, in directories of
their own.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import text
from tests.support import free_port, until_sync

from sparrowmq.coordinator.database.connect import Database
from sparrowmq.core.errors import DatabaseError

START_SECONDS = 60.0
HOW = "type ./sparrow test, which installs it, or: apt-get install postgresql mariadb-server"
FOLDERS = ("/usr/sbin", *sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True))


def program(name: str) -> str:
    """Where the program is; a failure that says what to install when it is nowhere."""
    found = shutil.which(name) or shutil.which(name, path=os.pathsep.join(FOLDERS))
    if found is None:
        pytest.fail(f"{name} is not on this machine, and these tests need it: {HOW}", pytrace=False)
    return found


class Server:
    """A running server. `sql` runs a statement on its first database."""

    def __init__(
        self, kind: str, home: Path, base: str, first: str, process: subprocess.Popen[bytes]
    ) -> None:
        self.kind, self.home, self.process = kind, home, process
        self._base, self._first, self._made = base, first, 0

    def url(self, name: str | None = None) -> str:
        return f"{self._base}/{name or self._first}"

    def make(self) -> str:
        """The address of a new, empty database."""
        self._made += 1
        name = f"mq_{self._made}"
        self.sql(f"CREATE DATABASE {name}")
        return self.url(name)

    def sql(self, *statements: str) -> None:
        database = Database(self.url())
        try:
            with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                for statement in statements:
                    connection.execute(text(statement))
        finally:
            database.close()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)


def _someone(name: str) -> dict[str, object]:
    """Neither server runs as root: the user its package made, or this one."""
    if os.getuid() != 0:
        return {}
    found = pwd.getpwnam(name)
    return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}


@contextmanager
def _running(
    kind: str, home: Path, command: Sequence[str], base: str, first: str, someone: dict[str, object]
) -> Iterator[Server]:
    with (home / "log").open("ab") as log:
        process: subprocess.Popen[bytes] = subprocess.Popen(
            list(command),
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            **someone,  # type: ignore[call-overload]
        )
    server = Server(kind, home, base, first, process)

    def answers() -> bool:
        assert process.poll() is None, (home / "log").read_text()[-2000:]
        try:
            server.sql("SELECT 1")
        except Exception as error:
            assert isinstance(error, DatabaseError) or "sqlalchemy" in type(error).__module__, error
            return False
        return True

    try:
        until_sync(answers, START_SECONDS)
        yield server
    finally:
        process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGINT if kind == "postgresql" else signal.SIGTERM)
        try:
            process.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def postgresql() -> Iterator[Server]:
    someone = _someone("postgres")
    with _home(someone) as home, _postgresql(home, someone) as server:
        yield server


@contextmanager
def _postgresql(home: Path, someone: dict[str, object]) -> Iterator[Server]:
    data, port = home / "data", free_port()
    _run(
        [program("initdb"), "-D", str(data), "-U", "sparrow", "-A", "trust", "-E", "UTF8", "--no-sync"],
        home,
        someone,
    )
    options = (
        "listen_addresses=127.0.0.1",
        f"unix_socket_directories={home}",
        "fsync=off",
        "max_connections=60",
    )
    command = [program("postgres"), "-D", str(data), "-p", str(port)]
    for option in options:
        command += ["-c", option]
    with _running(
        "postgresql", home, command, f"postgresql://sparrow@127.0.0.1:{port}", "postgres", someone
    ) as server:
        yield server


@contextmanager
def mariadb() -> Iterator[Server]:
    someone = _someone("mysql")
    with _home(someone) as home, _mariadb(home, someone) as server:
        yield server


@contextmanager
def _mariadb(home: Path, someone: dict[str, object]) -> Iterator[Server]:
    data, port = home / "data", free_port()
    install = (f"--datadir={data}", "--auth-root-authentication-method=normal", "--skip-test-db")
    _run([program("mariadb-install-db"), "--no-defaults", *install], home, someone)
    command = [
        program("mariadbd"),
        "--no-defaults",
        f"--datadir={data}",
        f"--port={port}",
        "--bind-address=127.0.0.1",
        f"--socket={home / 's'}",
        f"--pid-file={home / 'pid'}",
        "--innodb-flush-log-at-trx-commit=0",
        "--innodb-buffer-pool-size=32M",
        "--skip-log-bin",
    ]
    with _running("mysql", home, command, f"mysql://root@127.0.0.1:{port}", "mysql", someone) as server:
        yield server


@contextmanager
def _home(someone: dict[str, object]) -> Iterator[Path]:
    """A directory the server's user may reach, which pytest's own are not."""
    with tempfile.TemporaryDirectory(prefix="sparrow-database-", ignore_cleanup_errors=True) as name:
        if someone:
            os.chown(name, int(str(someone["user"])), int(str(someone["group"])))
        yield Path(name)


def _run(command: list[str], home: Path, someone: dict[str, object]) -> None:
    done = subprocess.run(  # type: ignore[call-overload]
        command, cwd=home, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, **someone
    )
    assert done.returncode == 0, f"{command[0]}: {done.stdout[-1000:]} {done.stderr[-2000:]}"
