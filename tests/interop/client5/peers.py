"""What the clients talk to: our proxy before our broker, our proxy before Apache's, Apache's proxy."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.interop.apache import PATIENT, ApacheCluster, ApacheNameServer, free_port
from tests.interop.apache_proxy import ApacheProxy
from tests.proxy.rig import ThreadedProxy

from sparrowmq.testing import LocalCluster

PEERS: Final = {
    "ours": "our proxy, our broker",
    "mixed": "our proxy, Apache's broker",
    "apache": "Apache's proxy and broker",
}
SETTINGS: Final = {
    **PATIENT,
    "transactionTimeOut": 1000,
    "transactionCheckInterval": 1000,
    "recallMessageEnable": "true",
}
"""The brokers ask for transactions every second, and let recall."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A running one of `PEERS`: the proxy's address, the name server's, and a restart of proxy and broker."""

    name: str
    endpoints: str
    namesrv: str
    restart: Callable[[], None]


@contextmanager
def ours() -> Iterator[Peer]:
    """Our proxy before our broker."""
    with (
        LocalCluster(
            transaction_time_out=500,
            transaction_check_interval=500,
            recall_message_enable=True,
            enable_property_filter=True,
        ) as cluster,
        _our_proxy(cluster.namesrv) as proxy,
    ):

        def restart() -> None:
            proxy.stop()
            cluster.restart_broker()
            proxy.start()

        yield Peer("ours", proxy.address, cluster.namesrv, restart)


@contextmanager
def proxy_before_apache(cluster: ApacheCluster) -> Iterator[Peer]:
    """Our proxy before Apache's broker."""
    with _our_proxy(cluster.namesrv) as proxy:

        def restart() -> None:
            proxy.stop()
            cluster.broker.kill()
            cluster.broker.start()
            cluster.broker.ready()
            proxy.start()

        yield Peer("mixed", proxy.address, cluster.namesrv, restart)


@contextmanager
def apache_proxy() -> Iterator[Peer]:
    """Apache's proxy with its broker."""
    with tempfile.TemporaryDirectory(prefix="apache-proxy-") as directory:
        name_server = ApacheNameServer(Path(directory))
        name_server.start()
        try:
            name_server.ready()
            with ApacheProxy(Path(directory), name_server.address, settings=SETTINGS) as proxy:

                def restart() -> None:
                    proxy.kill()
                    proxy.start()
                    proxy.ready()

                yield Peer("apache", proxy.endpoints, name_server.address, restart)
        finally:
            name_server.kill()


class RestartedProxy:
    """Our proxy on one port, which can be stopped and started."""

    def __init__(self, namesrv: str) -> None:
        self._namesrv = namesrv
        self._port = free_port()
        self._running: ThreadedProxy | None = None
        self.address = f"127.0.0.1:{self._port}"

    def start(self) -> None:
        """Listen."""
        self._running = ThreadedProxy(self._namesrv, listen_port=self._port)
        self._running.__enter__()

    def stop(self) -> None:
        """Close all connections and end. Idempotent."""
        running, self._running = self._running, None
        if running is not None:
            running.__exit__(None, None, None)


@contextmanager
def _our_proxy(namesrv: str) -> Iterator[RestartedProxy]:
    proxy = RestartedProxy(namesrv)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()
