"""A gRPC proxy as a process: alone, and as a child."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from tests.proxy.rig import connected, message
from tests.support import about, run, until

from sparrowmq.core.clock import Sleep
from sparrowmq.core.errors import SettingsError
from sparrowmq.core.settings.servers import Layer, ProxySettings, load
from sparrowmq.proxy.definition.messages import Code
from sparrowmq.runtime import company, proxy
from sparrowmq.runtime.allocator import Allocator
from sparrowmq.runtime.configure import Sources, proxy_settings
from sparrowmq.testing import LocalCluster


def test_a_child_serves_until_it_is_no_longer_kept() -> None:
    async def main(namesrv: str) -> None:
        said: list[str] = []
        troubles: list[str] = []
        texts = {"namesrvAddr": namesrv, "listenPort": "0"}
        keeping = asyncio.create_task(proxy.keep_child(texts, said.append, troubles.append))
        (line,) = await until(lambda: said)
        assert line.startswith("gRPC proxy   127.0.0.1:")
        async with connected(line.split()[-1]) as client:
            assert (await client.send(message("made"))).status.code == Code.OK
        keeping.cancel()
        await asyncio.wait([keeping])
        assert troubles == []

    with LocalCluster() as cluster:
        cluster.create_topic("made")
        run(main(cluster.namesrv))


def test_a_child_has_a_port_for_operators_also_if_the_wanted_one_is_taken() -> None:
    async def main(namesrv: str, taken: int) -> None:
        said: list[str] = []
        own = {"metricsExporterType": "PROM", "metricsPromExporterPort": str(taken)}
        texts = {"namesrvAddr": namesrv, "listenPort": "0", **own}
        keeping = asyncio.create_task(proxy.keep_child(texts, said.append, print))
        _, line = await until(lambda: said if len(said) > 1 else [])
        assert line.startswith("metrics      http://127.0.0.1:") and f":{taken}/" not in line
        with await asyncio.to_thread(urlopen, line.split()[-1], timeout=20) as answer:
            assert b"rocketmq_proxy_up{" in answer.read()
        keeping.cancel()
        await asyncio.wait([keeping])

    with LocalCluster() as cluster, socket.create_server(("127.0.0.1", 0)) as listening:
        run(main(cluster.namesrv, listening.getsockname()[1]))


def test_a_child_that_cannot_start_says_why() -> None:
    async def main() -> None:
        said: list[Any] = []
        troubles: list[str] = []
        await proxy.keep_child({"bindAddress": "256.0.0.1", "listenPort": "0"}, said.append, troubles.append)
        assert said == []
        assert troubles[0].startswith("the gRPC proxy did not start: 256.0.0.1:0 is not an address")

    run(main())


def test_free_memory_is_returned_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    stop = asyncio.Event()

    class Noted(Allocator):
        def begin(self) -> None:
            done.append("begin")

        async def run(self, sleep: Sleep = asyncio.sleep) -> None:
            done.append("run")

    def ready(address: str, operators: str | None) -> None:
        done.append("ready")
        stop.set()

    monkeypatch.setattr(proxy, "Allocator", Noted)
    run(proxy.serve_proxy(ProxySettings(listen_port=0, namesrv_addr="127.0.0.1:1"), stop, ready))
    assert done == ["begin", "run", "ready"]


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert proxy.missing() == []
    monkeypatch.setattr(proxy, "PACKAGES", {"no_such": "first", "no_such.inner": "second"})
    with pytest.raises(SettingsError, match=r"needs first, second; type: \S*pip install 'sparrowmq\[pro"):
        proxy.need_packages()


def test_settings_and_their_warning() -> None:
    settings, warnings = proxy_settings(Sources(environment={"SPARROW_PROXY_LISTEN_PORT": "0"}))
    assert (settings, warnings) == (ProxySettings(listen_port=0), [])
    _, (warning,) = proxy_settings(Sources(options={"bindAddress": "0.0.0.0"}))
    assert "with the rights of the proxy's account" in warning
    with pytest.raises(SettingsError, match="listenPort=65536"):
        proxy_settings(Sources(options={"listenPort": "65536"}))


def test_processes_share_the_port() -> None:
    """New connections reach both; when one process dies, its clients come back to a running one."""

    async def main(namesrv: str) -> None:
        said: list[str] = []
        troubles: list[str] = []
        settings = ProxySettings(namesrv_addr=namesrv, listen_port=0, processes=2)
        keeping = asyncio.create_task(proxy.keep_children(settings, said.append, troubles.append))
        (address,) = await until(lambda: said)
        port = int(address.rpartition(":")[2])
        await until(lambda: len(listening_on(port)) == 2)
        answered = 0
        for number in range(20):
            async with connected(address, f"c{number}") as client:
                answered += (await client.send(message("made"))).status.code == Code.OK
        assert answered == 20
        keeping.cancel()
        await asyncio.wait([keeping])
        assert troubles == []
        assert listening_on(port) == []

    with LocalCluster() as cluster:
        cluster.create_topic("made")
        run(main(cluster.namesrv))


def test_a_collector_can_tell_the_processes_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Mapping[str, str]] = []

    async def keep_child(of: object, texts: Mapping[str, str], introduced: Any, complain: object) -> None:
        given.append(texts)
        introduced({"address": "127.0.0.1:81"})

    monkeypatch.setattr(company, "keep_child", keep_child)
    target = {"metrics_exporter_type": "OTLP_GRPC", "metrics_grpc_exporter_target": "http://c:4317"}
    settings = ProxySettings(processes=2, metrics_label="zone:a", **target)  # type: ignore[arg-type]
    run(proxy.keep_children(settings, print, print))
    assert [texts["metricsLabel"] for texts in given] == ["zone:a,process:0", "zone:a,process:1"]


@pytest.mark.parametrize(("processes", "beside"), [(1, True), (2, False)])
def test_only_a_single_companion_takes_another_port_for_operators(
    processes: int, beside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several, nobody is told the port: scrapers would ask whoever has the one that was wanted."""
    given: list[bool] = []

    async def serve(settings: object, stop: object, ready: object, *, beside: bool) -> None:
        given.append(beside)

    monkeypatch.setattr(proxy, "serve_proxy", serve)
    run(proxy._serve({"processes": str(processes)}, asyncio.Event(), print))
    assert given == [beside]


def test_ports_for_operators_must_exist() -> None:
    def settings(**given: Any) -> ProxySettings:
        return ProxySettings(metrics_exporter_type="PROM", metrics_prom_exporter_port=65_534, **given)

    settings(processes=2)
    with pytest.raises(SettingsError, check=about(setting="metricsPromExporterPort", limit=65_535)):
        settings(processes=3)


def listening_on(port: int) -> list[str]:
    """The sockets of this machine that listen on a port of the loopback address."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return [line for line in lines if line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A"]


def test_settings_as_texts() -> None:
    settings = ProxySettings(listen_port=1, authentication_enabled=True, tls_config_file=Path("/t"))
    texts = {"listenPort": "1", "authenticationEnabled": "true", "tls.config.file": "/t"}
    assert settings.texts() == texts
    assert load(ProxySettings, [Layer("test", texts)]) == (settings, [])
