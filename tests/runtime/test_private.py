"""What other users of the machine can read: no file with a secret, no secret in the list of processes."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support import about, run, sqlite_url

from sparrowmq.broker.access.auth_store import AuthStore
from sparrowmq.cli.base.remote import keep_login
from sparrowmq.coordinator.database.connect import Database, keep_private
from sparrowmq.coordinator.server import Coordinator
from sparrowmq.core.errors import SettingsError
from sparrowmq.core.settings.servers import BrokerSettings, CoordinatorSettings, NameServerSettings
from sparrowmq.runtime.child import ChildServers
from sparrowmq.runtime.configure import Sources, broker_settings, coordinator_settings, nameserver_settings
from sparrowmq.runtime.places import prepare_data
from sparrowmq.runtime.servers import LocalServers

SECRET = "tRustNo1-and-nobody"
USER = json.dumps({"username": "root", "password": SECRET})


@contextmanager
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    try:
        yield
    finally:
        os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_no_file_with_a_secret_is_open_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever servers and tools write: what holds a secret is its owner's alone, whatever the umask."""
    root = tmp_path / "data"
    secrets = [SECRET.encode(), b"$argon2id$", b"smq_"]

    async def serve() -> None:
        broker = BrokerSettings(
            listen_port=0,
            store_path_root_dir=root / "store",
            mapped_file_size_commit_log=1 << 20,
            authentication_enabled=True,
            init_authentication_user=USER,
        )
        nameserver = NameServerSettings(listen_port=0, kv_config_path=root / "namesrv" / "kv.json")
        servers = LocalServers(nameserver, broker)
        where = await servers.start()
        url = sqlite_url(root / "coordinator.db")
        settings = CoordinatorSettings(listen_port=0, database_url=url, namesrv_addr=str(where.nameserver))
        coordinator = Coordinator(settings)
        try:
            await coordinator.start()
            keep_login("http://127.0.0.1:1", "smq_made-up")
            await asyncio.to_thread(look)
        finally:
            await coordinator.close()
            await servers.close()

    found = {}

    def look() -> None:
        for path in tmp_path.rglob("*"):
            if path.is_file() and any(one in path.read_bytes() for one in secrets):
                found[path.name] = mode(path)

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with open_umask():
        assert prepare_data(root) == []
        run(serve())
    assert {"users.json", "coordinator.db-wal", "coordinator.json"} <= set(found)
    assert {name: oct(bits) for name, bits in found.items() if bits & 0o077} == {}
    assert mode(root) == 0o700


def test_a_database_that_was_open_is_closed_and_it_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "coordinator.db"
    with open_umask():
        holder = sqlite3.connect(path)
        holder.execute("PRAGMA journal_mode=WAL")
        holder.execute("CREATE TABLE t (x)")
        holder.commit()
    assert mode(path) == mode(tmp_path / "coordinator.db-wal") == 0o666 & ~0o022
    for name in ("coordinator.db", "coordinator.db-wal", "coordinator.db-shm"):
        (tmp_path / name).chmod(0o666)
    database = Database(sqlite_url(path))
    with caplog.at_level(logging.WARNING), database.read():
        assert [mode(one) for one in sorted(tmp_path.iterdir())] == [0o600] * 3
    assert (
        "could access coordinator.db, coordinator.db-wal, coordinator.db-shm; access is now restricted"
        in caplog.text
    )
    caplog.clear()
    assert keep_private(path)
    assert not caplog.records, "once"
    holder.close()
    database.close()


def test_users_that_were_open_are_closed_and_it_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    AuthStore(tmp_path).make_first(USER, "x", ("username", "password"))
    (tmp_path / "users.json").chmod(0o644)
    with caplog.at_level(logging.WARNING):
        assert AuthStore(tmp_path).is_super("root")
    assert mode(tmp_path / "users.json") == 0o600
    assert "users.json was open to other users of this machine" in caplog.text


def test_the_directory_of_the_data(tmp_path: Path) -> None:
    root = tmp_path / "far" / "data"
    with open_umask():
        assert prepare_data(root) == []
    assert mode(root) == 0o700
    (root / "store").mkdir()
    root.chmod(0o755)
    assert prepare_data(root) == [
        f"{root} was open to other users of this machine; its permissions are now restricted"
    ]
    assert mode(root) == 0o700
    (root / "somebody's").touch()
    root.chmod(0o755)
    assert prepare_data(root) == []
    assert mode(root) == 0o755, "not ours alone"
    with pytest.raises(SettingsError, check=about(setting="--data", value=root / "somebody's" / "x")):
        prepare_data(root / "somebody's" / "x")


def test_a_child_has_no_settings_among_its_arguments(tmp_path: Path) -> None:
    settings = {"listenPort": "0", "storePathRootDir": str(tmp_path), "mappedFileSizeCommitLog": "1048576",
                "authenticationEnabled": "true", "initAuthenticationUser": USER}  # fmt: skip
    with ChildServers(settings) as child:
        seen = Path(f"/proc/{child.pid}/cmdline").read_bytes()
    assert b"sparrowmq.runtime.child" in seen
    assert SECRET.encode() not in seen


URL = f"postgresql://me:{SECRET}@127.0.0.1/mq"


@pytest.mark.parametrize(
    "sources",
    [
        Sources(options={"databaseUrl": URL}),
        Sources(assignments=[f"databaseUrl={URL}"]),
        Sources(assignments=[f"databaseUrl=mysql://h/d?password={SECRET}"]),
        Sources(assignments=[f"smtpPassword={SECRET}"]),
        Sources(assignments=[f"alarmWebhook=https://hook/{SECRET}"]),
    ],
)
def test_a_secret_on_the_command_line_is_warned_of(sources: Sources) -> None:
    _, (warning,) = coordinator_settings(sources)
    assert "in the list of processes; set SPARROW_COORDINATOR_" in warning
    assert SECRET not in warning


def test_an_address_without_password_is_not() -> None:
    assert coordinator_settings(Sources(options={"databaseUrl": "sqlite:////x/c.db"}))[1] == []
    environment = {"SPARROW_COORDINATOR_DATABASE_URL": URL}
    settings, warnings = coordinator_settings(Sources(environment=environment))
    assert (settings.database_url, warnings) == (URL, [])


def test_an_open_file_with_a_secret_is_warned_of(tmp_path: Path) -> None:
    path = tmp_path / "coordinator.conf"
    path.write_text(f"smtpPassword={SECRET}\n")
    path.chmod(0o644)
    _, (warning,) = coordinator_settings(Sources(file=path))
    assert (
        warning
        == f"{path} holds smtpPassword, and every user of this machine can read it; type: chmod o= {path}"
    )
    path.chmod(0o640)
    assert coordinator_settings(Sources(file=path))[1] == []


@pytest.mark.parametrize("read", [broker_settings, nameserver_settings, coordinator_settings])
@pytest.mark.parametrize(
    "name", ["smtpPasword", "databaseURL", "alarmWebHook", "initAuthenticationUsers", "secretKey", "zzz"]
)
def test_a_mistyped_name_does_not_tell_its_value(read: object, name: str) -> None:
    with pytest.raises(SettingsError, match=f"{name}: there is no such setting") as raised:
        read(Sources(assignments=[f"{name}={SECRET}"]))  # type: ignore[operator]
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.conf", f"smtpPassword={SECRET}\\u12"),
        ("a.toml", f'smtpPassword = ["{SECRET}"]'),
        ("a.toml", f"smtpPassword = {SECRET}"),
    ],
)
def test_a_file_that_cannot_be_understood_does_not_tell_its_values(
    tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(SettingsError) as raised:
        coordinator_settings(Sources(file=tmp_path / name))
    assert SECRET not in str(raised.value)


def test_what_was_no_assignment_is_not_told() -> None:
    with pytest.raises(SettingsError, check=about(setting="--set", value=None)):
        coordinator_settings(Sources(assignments=[f"={SECRET}"]))
