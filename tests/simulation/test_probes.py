"""Probes of every kind at the ports of our servers, for a simulated week: nothing of them stays."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any, Final, cast

import pytest
from tests.client.churn import SimClock
from tests.simulation.whole.network import NetworkLoop
from tests.simulation.whole.world import simulated
from tests.store.rig import opened

from sparrowmq.broker.replication import master as ha
from sparrowmq.broker.replication.replicas import Replicas
from sparrowmq.nameserver.server import NameServer
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.frame import Command, encode

WEEK: Final = 7 * 86_400
ROUND_SECONDS: Final = 1800
HA_PORT: Final = 10912


def probes(random_bytes: bytes) -> list[bytes | None]:
    """What each probe of a round sends before it is silent; None closes at once."""
    request = encode(Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, 1, ext={"topic": "T"}))
    return [
        None,  # a port scanner, or a load balancer's check
        b"",  # half-open: it is never heard of again
        b"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # the start of a TLS handshake
        random_bytes,
        request[:20],  # a frame without its end
        request,
        bytes(8),  # a slave's first report
    ]


class Prober(asyncio.Protocol):
    """A client that reads what comes, and never closes."""


async def probe(loop: NetworkLoop, port: int, rng: random.Random) -> None:
    for data in probes(rng.randbytes(40)):
        transport, _ = await loop.create_connection(Prober, "127.0.0.1", port)
        if data is None:
            transport.close()
        elif data:
            transport.write(data)


def test_a_week_of_probes_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ha, "TICK_SECONDS_MAX", 15.0)
    seen: list[tuple[int, int]] = []

    async def main() -> None:
        loop = cast("NetworkLoop", asyncio.get_running_loop())
        rng = random.Random(1)
        names = NameServer(port=9876, clock=SimClock())
        await names.start()
        with opened(tmp_path) as store:
            replicas = Replicas(needed=1, needed_before=1, gap_max=1 << 20, timeout=3.0)
            master = ha.Master(
                store.raw_log,
                replicas,
                SimClock(),
                may_connect=lambda _: True,
                batch=1 << 15,
                heartbeat=30.0,
                silence=60.0,
            )
            listener: Any = loop.port(HA_PORT)
            await master.start(listener)
            server: Any = names._server
            tasks = len(asyncio.all_tasks())
            for _ in range(WEEK // ROUND_SECONDS):
                await probe(loop, 9876, rng)
                await probe(loop, HA_PORT, rng)
                await asyncio.sleep(ROUND_SECONDS)
                seen.append((len(server.connections), len(master.links)))
            assert server.account.total == 0
            assert len(asyncio.all_tasks()) == tasks
            assert not loop.ends, "both ends of each connection are closed"
            await master.close()
        await names.close()

    with simulated(monkeypatch), asyncio.Runner(loop_factory=NetworkLoop) as runner:
        runner.run(main())
    assert set(seen) == {(0, 0)}, "each round is over before the next"
