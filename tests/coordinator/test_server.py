from __future__ import annotations

import asyncio
import gc
import logging
import socket
from pathlib import Path

import pytest
from fastapi import FastAPI, Request, Response
from sqlalchemy import text
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from tests.coordinator.running import running
from tests.coordinator.services.watched import MadeUp
from tests.support import about, run, sqlite_url, until, until_sync

from sparrowmq.coordinator import server
from sparrowmq.coordinator.api import app as api
from sparrowmq.coordinator.api.shared import Context
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.database.tables import VERSION_TABLE
from sparrowmq.coordinator.database_watch import CHECK_SECONDS
from sparrowmq.coordinator.server import Coordinator
from sparrowmq.coordinator.services.base import board
from sparrowmq.core.errors import (
    DatabaseFullError,
    DatabaseGoneError,
    DatabaseVersionError,
    ListenError,
    SettingsError,
)
from sparrowmq.core.settings.servers import CoordinatorSettings


def settings(path: Path, **more: object) -> CoordinatorSettings:
    return CoordinatorSettings(database_url=sqlite_url(path), listen_port=0, **more)  # type: ignore[arg-type]


def test_settings_survive_a_restart_and_the_password_is_shown_once(tmp_path: Path) -> None:
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
def test_second_coordinator_shares_the_work_and_takes_over_at_once(tmp_path: Path) -> None:
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


def test_partly_failed_start_leaves_no_open_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: object) -> None:
        raise DatabaseFullError("it is full")

    monkeypatch.setattr(board, "ensure", full)

    async def main() -> None:
        with pytest.raises(DatabaseFullError):
            await Coordinator(settings(tmp_path / "c.db")).start()

    run(main())
    gc.collect()  # a socket that is left is a warning now, and warnings are errors


def test_routes_are_built_before_clients_are_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FastAPI builds them in the first request, which blocks the loop."""
    asked: list[object] = []

    class Watched(BaseHTTPMiddleware):
        async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
            asked.append(request.client)
            return await call_next(request)

    def make_app(context: Context) -> FastAPI:
        app = api.make_app(context)
        app.add_middleware(Watched)
        return app

    monkeypatch.setattr(server, "make_app", make_app)
    with running(database_url=sqlite_url(tmp_path / "c.db")):
        assert asked[:1] == [None], "a request that no client sent"


def test_used_port_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            given = CoordinatorSettings(database_url=sqlite_url(tmp_path / "c.db"), listen_port=port)
            with pytest.raises(ListenError, check=about(address=f"127.0.0.1:{port}")):
                await Coordinator(given, cluster=MadeUp()).start()

    run(main())


def test_missing_or_newer_database_prevents_the_start(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(DatabaseGoneError):
            await Coordinator(settings(tmp_path / "no" / "c.db"), cluster=MadeUp()).start()
        coordinator = Coordinator(settings(tmp_path / "c.db"), cluster=MadeUp())
        await coordinator.start()
        await coordinator.close()
        await coordinator.close()
        database = Database(sqlite_url(tmp_path / "c.db"))
        with database.write() as connection:
            connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
        database.close()
        with pytest.raises(DatabaseVersionError, check=about(value="9999")):
            await Coordinator(settings(tmp_path / "c.db"), cluster=MadeUp()).start()

    run(main())


def test_coordinator_stops_when_another_release_migrates_its_database(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checks = asyncio.Event()

    async def sleep(seconds: float) -> None:
        assert seconds == CHECK_SECONDS
        await checks.wait()

    async def main() -> None:
        coordinator = Coordinator(settings(tmp_path / "c.db"), cluster=MadeUp(), sleep=sleep)
        await coordinator.start()
        try:
            database = Database(sqlite_url(tmp_path / "c.db"))
            with database.write() as connection:
                connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
            database.close()
            failed = coordinator.failed
            assert failed is not None and not failed.done()
            checks.set()
            await until(failed.done)
            with pytest.raises(DatabaseVersionError, check=about(value="9999")):
                failed.result()
        finally:
            await coordinator.close()

    with caplog.at_level(logging.ERROR):
        run(main())


@pytest.mark.parametrize(
    ("given", "facts"),
    [
        ({"lease_time": 1_000}, {"setting": "leaseTime", "value": 1_000}),
        ({"alarm_email_to": "nonsense"}, {"value": "nonsense"}),
        ({"smtp_host": "h", "smtp_from": "no"}, {"value": "no"}),
        ({"namesrv_addr": "nowhere"}, {"value": "nowhere"}),
        ({"smtp_port": 0}, {"setting": "smtpPort", "value": 0}),
    ],
)
def test_invalid_settings_are_refused(
    tmp_path: Path, given: dict[str, object], facts: dict[str, object]
) -> None:
    with pytest.raises(SettingsError, check=about(**facts)):
        Coordinator(settings(tmp_path / "c.db", **given), cluster=MadeUp())


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    given = CoordinatorSettings(
        database_url="postgresql://me:secret@h/x", smtp_password="secret", alarm_webhook="http://h/secret"
    )
    assert "secret" not in repr(given)
