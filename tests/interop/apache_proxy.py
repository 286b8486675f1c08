"""Apache's proxy in local mode: a gRPC proxy and a broker in one process, on free ports of 127.0.0.1."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Final, Self

from tests.interop.apache import ApacheBroker, JavaProcess, Release, free_port

PROXY: Final = Release("pom-proxy.xml", ("Peer.java",))


class ApacheProxy(ApacheBroker):
    """A proxy with its broker; `start` first, `ready` waits until both serve."""

    def __post_init__(self) -> None:
        self.release = PROXY
        super().__post_init__()
        self.grpc_port = free_port()
        self.remoting_port = free_port()

    @property
    def endpoints(self) -> str:
        """What clients of the gRPC API connect to."""
        return f"127.0.0.1:{self.grpc_port}"

    def _write(self, home: Path) -> tuple[Path, Path]:
        """The broker's settings and the proxy's."""
        conf = home / "conf"
        conf.mkdir(parents=True, exist_ok=True)
        broker, proxy = conf / "broker.conf", conf / "rmq-proxy.json"
        broker.write_text("".join(f"{name}={value}\n" for name, value in self._conf().items()))
        proxy.write_text(
            json.dumps(
                {
                    "rocketMQClusterName": "DefaultCluster",
                    "namesrvAddr": self.namesrv,
                    "grpcServerPort": self.grpc_port,
                    "remotingListenPort": self.remoting_port,
                }
            )
        )
        return broker, proxy

    def start(self) -> None:
        """Start the process without waiting for it."""
        home = self.directory / self.name
        broker, proxy = self._write(home)
        options = [f"-Drocketmq.home.dir={home}", f"-DRMQ_PROXY_HOME={home}", *self.heap.broker]
        arguments = ["-pm", "local", "-n", self.namesrv, "-bc", str(broker), "-pc", str(proxy)]
        main = ["org.apache.rocketmq.proxy.ProxyStartup", *arguments]
        name = f"proxy-{int(time.monotonic() * 1000)}"
        self._process = JavaProcess(name, home, options, main, PROXY)

    def ready(self) -> None:
        """Wait until it serves and the name server knows its broker."""
        self._ready("rocketmq-proxy startup successfully")

    def __enter__(self) -> Self:
        try:
            self.start()
            self.ready()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()
