"""Metrics of the proxy."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.proxy.rig import connected, message, publishing, running
from tests.support import run, until

from sparrowmq.core.figures.exposition import Exposition
from sparrowmq.proxy.server import Proxy
from sparrowmq.testing import LocalCluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as running_cluster:
        running_cluster.create_topic("t")
        yield running_cluster


def text_of(proxy: Proxy) -> str:
    into = Exposition(1000)
    for _ in proxy.operated.collect(into):
        pass
    return b"".join(into.rendering()).decode()


def test_metrics_show_calls_answers_and_limits(cluster: LocalCluster) -> None:
    async def main() -> None:
        async with (
            running(cluster.namesrv, metrics_label="site:x", calls_max=2000, clients_max=1) as proxy,
            connected(proxy.address) as client,
        ):
            await client.send(message("t"))
            await client.send(message("a b"))
            stream, _ = await client.introduce(publishing("t"))
            node = f'node_type="proxy",node_id="{proxy.address}",site="x"'
            found = text_of(proxy)
            for line in (
                f'rocketmq_proxy_up{{{node},proxy_mode="cluster"}} 1',
                f'sparrow_proxy_answers_total{{{node},method="SendMessage",code="OK"}} 1',
                f'sparrow_proxy_answers_total{{{node},method="SendMessage",code="ILLEGAL_TOPIC"}} 1',
                f'sparrow_proxy_calls_total{{{node},method="SendMessage"}} 2',
                f'sparrow_proxy_running_calls{{{node},method="Telemetry"}} 1',
                f'sparrow_bound_used{{{node},bound="clients"}} 1',
                f'sparrow_bound_used{{{node},bound="connections"}} 1',
                f'sparrow_bound_max{{{node},bound="calls"}} 2000',
                f'sparrow_bound_max{{{node},bound="clients"}} 1',
            ):
                assert line in found.splitlines()
            stream.cancel()
            gone = f'sparrow_proxy_running_calls{{{node},method="Telemetry"}} 0'
            await until(lambda: gone in text_of(proxy))
            assert (proxy.operated.faults(), proxy.operated.lacks()) == ([], [])

    run(main())
