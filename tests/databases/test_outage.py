"""A coordinator whose database goes away and comes back."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tests.coordinator.running import running
from tests.databases.servers import Server
from tests.support import until_sync


@pytest.mark.proves("pmq:L9", "pmq:L10")
def test_services_stop_without_database_and_go_on_with_it(
    postgresql: Server, caplog: pytest.LogCaptureFixture
) -> None:
    url = postgresql.make()
    name = url.rpartition("/")[2]
    fast: dict[str, Any] = {"lease_time": 1_500, "lease_renew_interval": 300, "lease_margin": 100}
    with caplog.at_level(logging.WARNING), running(database_url=url, **fast) as found:
        until_sync(lambda: found.get("/services/notices")["last_run"])
        epoch = found.get("/services/notices")["epoch"]
        postgresql.sql(
            f"ALTER DATABASE {name} ALLOW_CONNECTIONS false",
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'",
        )
        until_sync(lambda: found.call("GET", "/services")[0] == 503)
        status, answer = found.call("GET", "/health")
        assert status == 503
        assert answer["error"].startswith("the coordinator's database postgresql+psycopg://sparrow@")
        until_sync(lambda: "notices: the lease expired before it could be renewed" in caplog.text)
        postgresql.sql(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
        until_sync(lambda: found.call("GET", "/services")[0] == 200)
        until_sync(lambda: found.get("/services/notices")["epoch"] > epoch)
        assert found.get("/services/notices")["leader"] == found.coordinator.owner.label
        assert found.call("POST", "/services/notices/run", {})[0] == 200
        last = found.get("/services/notices")["last_run"]["id"]
        until_sync(lambda: found.get("/services/notices")["last_run"]["id"] > last)
