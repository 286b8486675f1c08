"""The latency fault strategy: one of two brokers freezes, sends avoid it, and come back when it thaws."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.interop.apache import ApacheBroker
from tests.interop.driver import JavaDriver
from tests.support import until_sync

import sparrowmq as mq
from sparrowmq.runtime.child import ChildServers
from sparrowmq.testing import LocalCluster

pytestmark = pytest.mark.interop
TRY_MS, REST_MS = 500, 4000
SENDS = 20


class Frozen:
    """`broker-b` at the name server of `cluster`, in a process that can be stopped for a while."""

    def __init__(self, cluster: LocalCluster, pid: int) -> None:
        self.cluster = cluster
        self._pid = pid

    @contextmanager
    def asleep(self) -> Iterator[None]:
        os.kill(self._pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self._pid, signal.SIGCONT)


@pytest.fixture(scope="module", params=["apache", "ours"])
def frozen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Frozen]:
    """Our servers with `broker-a`, and beside it Apache's broker or one more of ours."""
    directory: Path = tmp_path_factory.mktemp("frozen")
    with ExitStack() as stack:
        cluster = stack.enter_context(LocalCluster())
        if request.param == "apache":
            broker = ApacheBroker(directory, cluster.namesrv, name="broker-b")
            stack.callback(broker.kill)
            broker.start()
            broker.ready()
            yield Frozen(cluster, broker.pid)
            return
        own = {
            "brokerName": "broker-b",
            "listenPort": "0",
            "namesrvAddr": cluster.namesrv,
            "storePathRootDir": str(directory / "store"),
        }
        child = stack.enter_context(ChildServers(own))
        yield Frozen(cluster, child.pid)


class Tried(mq.SendHook):
    """Notes the broker of each try."""

    def __init__(self) -> None:
        self.brokers: list[str] = []

    def before_send(self, context: mq.SendContext) -> None:
        self.brokers.append(context.queue.broker_name)


class OurProducer:
    """A `Producer` with the strategy on."""

    def __init__(self, namesrv: str, topic: str) -> None:
        self._topic = topic
        self._hook = Tried()
        settings = mq.ProducerSettings(
            namesrv=namesrv,
            send_timeout=15.0,
            try_timeout=TRY_MS / 1000,
            latency_fault=True,
            latency_max=(0, 9000),
            not_available=(0, REST_MS),
            hooks=(self._hook,),
        )
        self._producer = mq.Producer(f"{topic}_p", settings=settings)
        self._producer.start()

    def send(self, count: int) -> list[str]:
        results = [self._producer.send(mq.Message(self._topic, b"x")) for _ in range(count)]
        return [result.queue.broker_name for result in results]

    def tried(self) -> list[str]:
        found, self._hook.brokers = self._hook.brokers, []
        return found

    def stop(self) -> None:
        self._producer.close()


class JavaProducer:
    """A `DefaultMQProducer` with the strategy on."""

    def __init__(self, driver: JavaDriver, namesrv: str, topic: str) -> None:
        self._driver = driver
        self._topic = topic
        more = {"try_ms": TRY_MS, "rest_ms": REST_MS}
        self._handle = driver.call("Faults.start", namesrv=namesrv, group=f"{topic}_p", **more)

    def _call(self, op: str, **more: Any) -> Any:
        return self._driver.call(f"Faults.{op}", handle=self._handle, **more)

    def send(self, count: int) -> list[str]:
        found: list[str] = self._call("send", topic=self._topic, count=count)
        return found

    def tried(self) -> list[str]:
        found: list[str] = self._call("tried")
        return found

    def stop(self) -> None:
        self._call("stop")


@pytest.mark.proves("client:B-57", "client:B-61", "client:B-65", "client:B.13")
@pytest.mark.parametrize("client", ["java", "ours"])
def test_a_broker_that_freezes_is_avoided_and_used_again(
    frozen: Frozen, driver: JavaDriver, name: str, client: str
) -> None:
    namesrv = frozen.cluster.namesrv
    with mq.Admin(namesrv) as admin:
        admin.topics.create(name, queues=2)
    producer = OurProducer(namesrv, name) if client == "ours" else JavaProducer(driver, namesrv, name)
    try:
        until_sync(lambda: set(producer.send(4)) == {"broker-a", "broker-b"})
        producer.tried()
        with frozen.asleep():
            assert producer.send(SENDS) == ["broker-a"] * SENDS
            at_frozen = producer.tried().count("broker-b")
            assert 1 <= at_frozen <= SENDS // 4, "tried, then left alone while it rests"
        until_sync(lambda: "broker-b" in producer.send(2))
    finally:
        producer.stop()
