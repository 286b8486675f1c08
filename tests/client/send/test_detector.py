from __future__ import annotations

import asyncio

import pytest
from tests.client.fake import FakeCluster, answer
from tests.client.producing import flow
from tests.support import until

from sparrowmq.client.producer import producer as producer_module
from sparrowmq.client.producer.producer import Producer
from sparrowmq.client.send.detector import detect
from sparrowmq.core.errors import ConnectError
from sparrowmq.core.message import Message
from sparrowmq.protocol.codes import RequestCode

MAX = int(RequestCode.GET_MAX_OFFSET)


@pytest.mark.proves("client:B-64", "client:G-04")
def test_answering_brokers_become_reachable_and_those_without_a_route_are_forgotten() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        sender = producer._sender
        assert sender is not None and sender.faults is not None
        faults, instance = sender.faults, sender.instance
        now = asyncio.get_running_loop().time() * 1000
        faults.note("broker-a", 1, now, ConnectError("x"))
        await detect(faults, instance, sender.table, producer.settings)
        assert not faults.items, "nothing is known of it before a topic is used"
        await producer.send(Message("T", b"x"))
        for name in ("broker-a", "gone"):
            faults.note(name, 1, now, ConnectError("x"))
        cluster.broker.on[MAX] = lambda conn, c: answer(1)
        await detect(faults, instance, sender.table, producer.settings)
        assert "gone" not in faults.items and not faults.is_reachable("broker-a")
        assert cluster.broker.requests(MAX)[0].ext["queueId"] == "0"
        await detect(faults, instance, sender.table, producer.settings)
        assert len(cluster.broker.requests(MAX)) == 1, "not again within detect_interval"
        del cluster.broker.on[MAX]
        faults.items["broker-a"].check_ms = 0
        await detect(faults, instance, sender.table, producer.settings)
        assert faults.is_reachable("broker-a")
        await cluster.broker.server.close(timeout=0.1)
        faults.note("broker-a", 1, now, ConnectError("x"))
        faults.items["broker-a"].check_ms = 0
        await detect(faults, instance, sender.table, producer.settings)
        assert not faults.is_reachable("broker-a")

    flow(test, latency_fault=True, detector=True)


def test_producer_probes_brokers_when_enabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_module, "ROUND_SECONDS", 0.02)

    async def test(cluster: FakeCluster, producer: Producer) -> None:
        await producer.send(Message("T", b"x"))
        await until(lambda: cluster.broker.requests(MAX))

    flow(test, latency_fault=True, detector=True, detect_interval=0.01)
