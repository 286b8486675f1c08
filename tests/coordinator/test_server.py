from __future__ import annotations

import gc
import logging
import socket
from pathlib import Path

import pytest
from sqlalchemy import text
from tests.coordinator.running import running
from tests.coordinator.services.watched import MadeUp
from tests.support import run, until, until_sync

from sparrowmq.coordinator import server
from sparrowmq.coordinator.database.connect import Database, sqlite_url
from sparrowmq.coordinator.database.tables import VERSION_TABLE
from sparrowmq.coordinator.server import Coordinator
from sparrowmq.core.errors import (
    DatabaseFullError,
    DatabaseGoneError,
    DatabaseVersionError,
    ListenError,
    SettingsError,
)
from sparrowmq.core.settings import CoordinatorSettings


def settings(path: Path, **more: object) -> CoordinatorSettings:
    return CoordinatorSettings(database_url=sqlite_url(path), listen_port=0, **more)  # type: ignore[arg-type]


def test_what_is_set_outlives_a_restart_and_the_password_is_shown_once(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path / "c.db")
    with running(database_url=url) as first:
        assert first.started.first_password
        assert first.call("PATCH", "/services/notices", {"interval_ms": 7_000})[0] == 200
        token = first.token
    with running(database_url=url) as second:
        assert second.started.first_password is None
        second.token = token
        assert second.get("/services/notices")["interval_ms"] == 7_000


@pytest.mark.proves("pmq:L5")
def test_a_second_one_shares_the_work_and_takes_over_at_once(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path / "c.db")
    fast = {"lease_time": 2_000, "lease_renew_interval": 300, "lease_margin": 100}
    with running(database_url=url, **fast) as second:
        with running(database_url=url, **fast) as first:
            assert first.started.first_password is None
            for name in ("lag-alarm", "notices"):
                second.call("POST", f"/services/{name}/hand-over", {})
            until_sync(
                lambda: (
                    second.get("/services/notices")["leader"] == first.coordinator.owner.label
                    or second.get("/services/lag-alarm")["leader"]
                )
            )
        until_sync(
            lambda: all(one["leader"] == second.coordinator.owner.label for one in second.get("/services"))
        )


def test_a_start_that_fails_half_way_leaves_no_port_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: object) -> None:
        raise DatabaseFullError("it is full")

    monkeypatch.setattr(server.board, "ensure", full)

    async def main() -> None:
        with pytest.raises(DatabaseFullError):
            await Coordinator(settings(tmp_path / "c.db")).start()

    run(main())
    gc.collect()  # a socket that is left is a warning now, and warnings are errors


def test_a_port_in_use_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            given = CoordinatorSettings(database_url=sqlite_url(tmp_path / "c.db"), listen_port=port)
            with pytest.raises(ListenError, match=f"cannot listen on 127.0.0.1:{port}.*give another port"):
                await Coordinator(given, cluster=MadeUp()).start()

    run(main())


def test_a_database_that_is_gone_or_newer_stops_the_start(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(DatabaseGoneError, match="cannot be reached"):
            await Coordinator(settings(tmp_path / "no" / "c.db"), cluster=MadeUp()).start()
        coordinator = Coordinator(settings(tmp_path / "c.db"), cluster=MadeUp())
        await coordinator.start()
        await coordinator.close()
        await coordinator.close()
        database = Database(sqlite_url(tmp_path / "c.db"))
        with database.write() as connection:
            connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
        database.close()
        with pytest.raises(DatabaseVersionError, match="of a newer SparrowMQ"):
            await Coordinator(settings(tmp_path / "c.db"), cluster=MadeUp()).start()

    run(main())


def test_it_ends_when_another_release_migrates_the_database_under_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "VERSION_SECONDS", 0.05)

    async def main() -> None:
        coordinator = Coordinator(settings(tmp_path / "c.db"), cluster=MadeUp())
        await coordinator.start()
        try:
            database = Database(sqlite_url(tmp_path / "c.db"))
            with database.write() as connection:
                connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
            database.close()
            failed = coordinator.failed
            assert failed is not None
            await until(failed.done)
            with pytest.raises(DatabaseVersionError, match="9999"):
                failed.result()
        finally:
            await coordinator.close()

    with caplog.at_level(logging.ERROR):
        run(main())


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"lease_time": 1_000}, "make leaseTime longer"),
        ({"alarm_email_to": "nonsense"}, "is no mail address"),
        ({"smtp_host": "h", "smtp_from": "no"}, "is no mail address"),
        ({"namesrv_addr": "nowhere"}, "is not an address"),
        ({"smtp_port": 0}, "smtpPort=0"),
    ],
)
def test_settings_that_cannot_be_are_refused(tmp_path: Path, given: dict[str, object], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        Coordinator(settings(tmp_path / "c.db", **given), cluster=MadeUp())


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    given = CoordinatorSettings(
        database_url="postgresql://me:secret@h/x", smtp_password="secret", alarm_webhook="http://h/secret"
    )
    assert "secret" not in repr(given)
