"""Servers on one loop: order, restart, and nothing left behind by a failed start."""

from __future__ import annotations

import asyncio
import contextlib
import re
from pathlib import Path
from typing import Any

import pytest
from tests.broker.test_opening import held, unread
from tests.httpd.test_operators import state
from tests.support import about, collect_here, run, until

from sparrowmq.core.errors import InvalidStateError, ListenError, StoreLockedError
from sparrowmq.core.figures.exposition import Exposition
from sparrowmq.core.settings.servers import BrokerSettings, NameServerSettings
from sparrowmq.runtime.servers import Listening, LocalServers


def broker(path: Path, **settings: Any) -> BrokerSettings:
    values = {
        "listen_port": 0,
        "store_path_root_dir": path,
        "mapped_file_size_commit_log": 1 << 20,
        **settings,
    }
    return BrokerSettings(**values)


async def connects(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError):
        _, writer = await asyncio.open_connection(host, int(port))
        writer.close()
        return True
    return False


def test_both_start_and_stop(tmp_path: Path) -> None:
    async def main() -> None:
        servers = LocalServers(NameServerSettings(listen_port=0), broker(tmp_path))
        where = await servers.start()
        assert where.data == tmp_path
        assert where.nameserver and where.broker
        assert await connects(where.nameserver)
        assert await connects(where.broker)
        await servers.close()
        assert servers.listening == Listening(None, None, None)
        assert not await connects(where.nameserver)
        assert not await connects(where.broker)
        assert not (tmp_path / "abort").exists()

    run(main())


def test_the_broker_registers_at_the_name_server_beside_it(tmp_path: Path) -> None:
    from sparrowmq import aio

    async def main() -> None:
        servers = LocalServers(NameServerSettings(listen_port=0), broker(tmp_path, broker_name="beside"))
        where = await servers.start()
        async with aio.Admin(namesrv=where.nameserver) as admin:
            info = await admin.brokers.cluster_info()
        assert info.brokers["beside"].addresses == {0: where.broker}
        await servers.close()

    run(main())


def test_a_broker_restarts_on_its_port(tmp_path: Path) -> None:
    async def main() -> None:
        servers = LocalServers(NameServerSettings(listen_port=0), broker(tmp_path))
        before = await servers.start()
        await servers.stop_broker()
        assert servers.broker is None
        assert servers.listening.broker is None
        await servers.start_broker()
        assert servers.listening == before
        with pytest.raises(InvalidStateError, check=about(what="broker")):
            await servers.start_broker()
        await servers.close()

    run(main())


def test_each_alone(tmp_path: Path) -> None:
    async def main() -> None:
        alone = LocalServers(NameServerSettings(listen_port=0))
        where = await alone.start()
        assert (where.broker, where.data) == (None, None)
        with pytest.raises(InvalidStateError):
            await alone.start_broker()
        other = LocalServers(None, broker(tmp_path, namesrv_addr=where.nameserver or ""))
        assert (await other.start()).nameserver is None
        await other.close()
        await alone.close()

    run(main())


def test_probes_are_answered_during_recovery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = unread(tmp_path)

    async def main() -> None:
        exporter = {"metrics_exporter_type": "PROM", "metrics_prom_exporter_port": 0}
        servers = LocalServers(None, broker(tmp_path, **exporter, **sizes))
        with held(monkeypatch, 1) as recovery:
            starting = asyncio.create_task(servers.start())
            await until(lambda: recovery.is_reached)
            assert servers._port is not None
            assert (await state(servers._port, "/health"))[0] == 200
            status, told = await state(servers._port, "/ready")
            assert status == 503
            assert re.fullmatch(r"recovering: 0 of \d+ log files", told["nodes"][0]["reasons"][0])
            assert servers.progress == told["nodes"][0]["reasons"][0]
            recovery.go.set()
            await starting
        assert (await state(servers._port, "/ready"))[0] == 200
        await servers.close()

    run(main())


def test_limits_that_operators_watch_are_settings(tmp_path: Path) -> None:
    """What `sparrow_bound_max` shows for the tables of a name server and a broker can be raised."""

    async def main() -> None:
        names = NameServerSettings(listen_port=0, topics_max=111, routes_max=222)
        servers = LocalServers(
            names, broker(tmp_path, members_max=333, held_pulls_max=444, open_transactions_max=555)
        )
        await servers.start()
        into = Exposition(1000)
        for operated in servers._operated():
            collect_here(operated.collect(into))
        await servers.close()
        text = b"".join(into.rendering()).decode()
        found = set(re.findall(r"sparrow_bound_max{.*node_type=\"(\w+)\".*bound=\"(\w+)\"} (\d+)", text))
        assert found >= {
            ("nameserver", "topics", "111"),
            ("nameserver", "routes", "222"),
            ("broker", "members", "333"),
            ("broker", "held_pulls", "444"),
            ("broker", "open_transactions", "555"),
        }

    run(main())


def test_a_failed_broker_takes_the_name_server_with_it(tmp_path: Path) -> None:
    async def main() -> None:
        first = LocalServers(NameServerSettings(listen_port=0), broker(tmp_path / "a"))
        taken = await first.start()
        port = int((taken.broker or "").rpartition(":")[2])
        second = LocalServers(NameServerSettings(listen_port=0), broker(tmp_path / "b", listen_port=port))
        with pytest.raises(ListenError, check=about(address=taken.broker)):
            await second.start()
        assert second.listening == Listening(None, None, None)
        third = LocalServers(NameServerSettings(listen_port=0), broker(tmp_path / "a"))
        with pytest.raises(StoreLockedError):
            await third.start()
        await first.close()

    run(main())
