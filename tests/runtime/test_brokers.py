"""Several brokers as processes of one cluster: spread topics, one that dies, one that cannot start."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from tests.client.churn import VirtualLoop
from tests.support import about, run, until

from sparrowmq import aio
from sparrowmq.core.errors import SparrowError
from sparrowmq.core.message import Message
from sparrowmq.core.results import SendStatus
from sparrowmq.core.settings.servers import BrokerSettings, Layer, NameServerSettings, load
from sparrowmq.runtime.broker_plan import PlannedBroker, plan_brokers
from sparrowmq.runtime.brokers import SILENT_SECONDS, STOP_SECONDS, BrokerCluster, BrokerProcess, keep

pytestmark = pytest.mark.stalls(seconds=10, why="a loop that starts a process waits until its program begins")

SMALL = {"mappedFileSizeCommitLog": "1048576", "maxHashSlotNum": "1000", "maxIndexNum": "4000"}


def planned(root: Path, count: int = 2, *, replicas: int = 1, **more: str) -> list[PlannedBroker]:
    given = {**SMALL, "listenPort": "0", "storePathRootDir": str(root / "store"), **more}
    settings, _ = load(BrokerSettings, [Layer("test", given)])
    return plan_brokers(given, settings, count, replicas)


@asynccontextmanager
async def running(root: Path, told: list[str]) -> AsyncIterator[tuple[str, list[BrokerProcess]]]:
    cluster = BrokerCluster(NameServerSettings(listen_port=0), planned(root), told.append)
    listening = await cluster.start()
    try:
        assert listening.nameserver is not None
        yield listening.nameserver, cluster.brokers
    finally:
        await cluster.close()
        assert [broker.pid for broker in cluster.brokers] == [0, 0]


def test_topics_are_spread_over_brokers_with_a_store_each_and_all_stop_cleanly(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, []) as (namesrv, brokers):
            async with aio.Admin(namesrv=namesrv) as admin, aio.Producer("p", namesrv=namesrv) as producer:
                await admin.topics.create("made", 2)
                for topic in ("made", "automatic"):
                    results = [await producer.send(Message(topic, b"%d" % n)) for n in range(16)]
                    used = {result.queue.broker_name for result in results}
                    assert used == {"broker-a", "broker-b"}, topic
                status = await admin.topics.status("made")
            assert {row.queue.broker_name: 0 for row in status} == {"broker-a": 0, "broker-b": 0}
            assert sum(row.messages for row in status) == 16
            assert all((broker.store / "abort").exists() for broker in brokers)

    run(main())
    assert sorted(one.name for one in tmp_path.iterdir()) == ["store", "store-b"]
    assert not list(tmp_path.glob("*/abort"))


def test_one_that_is_killed_is_reported_and_runs_again_with_its_messages(tmp_path: Path) -> None:
    told: list[str] = []

    async def main() -> None:
        async with running(tmp_path, told) as (namesrv, brokers):
            async with aio.Producer("p", namesrv=namesrv) as producer:
                for number in range(8):
                    await producer.send(Message("made", b"%d" % number))
            async with aio.Admin(namesrv=namesrv) as admin:
                other, killed = brokers
                before, address = (other.pid, killed.pid), killed.address
                ports = {name: killed.texts[name] for name in ("listenPort", "haListenPort")}
                assert ports["listenPort"] == address.rpartition(":")[2]
                assert "0" not in ports.values()
                os.kill(killed.pid, signal.SIGKILL)
                await until(lambda: len(told) == 2)
                assert (other.pid, killed.address) == (before[0], address)
                assert killed.pid not in (0, before[1])
                assert {name: killed.texts[name] for name in ports} == ports

                async def all_there() -> bool:
                    with suppress(SparrowError):
                        return sum(row.messages for row in await admin.topics.status("made")) == 8
                    return False

                await until(all_there)

    run(main())
    assert told[0].startswith("broker-b was ended by SIGKILL; the other brokers keep running, next start in ")
    assert told[1].startswith("broker-b runs again at 127.0.0.1:")


def test_one_that_cannot_start_stops_all_and_is_named(tmp_path: Path) -> None:
    async def main() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            first, second = planned(tmp_path)
            port = str(taken.getsockname()[1])
            second = PlannedBroker(second.name, second.store, {**second.texts, "listenPort": port})
            cluster = BrokerCluster(NameServerSettings(listen_port=0), [first, second], lambda text: None)
            with pytest.raises(SparrowError, check=about(what="broker", value="broker-b")):
                await cluster.start()
            assert [broker.pid for broker in cluster.brokers] == [0, 0]

    run(main())
    assert not list(tmp_path.glob("*/abort"))


def test_a_start_that_fails_again_is_told_and_tried_again_later(tmp_path: Path) -> None:
    told: list[str] = []
    waits: list[float] = []

    class Failing(BrokerProcess):
        starts = 0

        async def start(self) -> None:
            self.starts += 1
            if self.starts < 3:
                raise SparrowError(f"try {self.starts} of {self.name} fails")
            self.address = "127.0.0.1:1"

        async def ended(self) -> str:
            if self.starts == 0:
                return "ended with status 3"
            await asyncio.Event().wait()
            raise AssertionError

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async def main() -> None:
        broker = Failing(planned(tmp_path)[1], "127.0.0.1:2")
        keeper = asyncio.create_task(keep(broker, told.append, sleep=sleep))
        await until(lambda: len(told) == 4)
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)

    run(main())
    rest = "the other brokers keep running, next start in"
    assert told[0].startswith(f"broker-b ended with status 3; {rest} ")
    assert told[1].startswith(f"try 1 of broker-b fails; {rest} ")
    assert told[2].startswith(f"try 2 of broker-b fails; {rest} ")
    assert told[3] == "broker-b runs again at 127.0.0.1:1"
    assert waits == sorted(waits)
    assert len(waits) == 3


class Starting:
    """A child process that says these lines, with so many seconds before each, and is silent then."""

    def __init__(self, *says: tuple[float, str]) -> None:
        self.pid = 1
        self.killed = False
        self.stdin = io.BytesIO()
        self.stdout = asyncio.StreamReader()
        self._ended = asyncio.Event()
        self._saying = asyncio.create_task(self._say(says))

    async def _say(self, says: tuple[tuple[float, str], ...]) -> None:
        for seconds, text in says:
            await asyncio.sleep(seconds)
            self.stdout.feed_data(text.encode() + b"\n")

    def kill(self) -> None:
        self.killed = True
        self._ended.set()

    async def wait(self) -> int:
        await self._ended.wait()
        return -9


def start_of(
    monkeypatch: pytest.MonkeyPatch, root: Path, *says: tuple[float, str]
) -> tuple[str, bool, float]:
    """The address or the error of a broker whose child says that, whether it was killed, and the seconds."""
    children: list[Starting] = []

    async def spawned(*_: object, **__: object) -> Starting:
        children.append(Starting(*says))
        return children[0]

    async def main() -> tuple[str, bool, float]:
        monkeypatch.setattr(asyncio, "create_subprocess_exec", spawned)
        broker = BrokerProcess(planned(root)[1], "127.0.0.1:1")
        try:
            await broker.start()
            found = broker.address
        except SparrowError as error:
            found = str(error)
        return found, children[0].killed, asyncio.get_running_loop().time()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())


def recovering(number: int) -> str:
    return json.dumps({"progress": f"recovering: {number} of 40 log files"})


LISTENS = json.dumps({"broker": "127.0.0.1:5", "metrics": None, "ports": {}})


def test_one_that_recovers_for_hours_is_not_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    says = [(500.0, recovering(number)) for number in range(40)]
    found, killed, seconds = start_of(monkeypatch, tmp_path, *says, (500.0, LISTENS))
    assert (found, killed, seconds) == ("127.0.0.1:5", False, 41 * 500.0)


def test_one_that_makes_no_progress_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, killed, seconds = start_of(monkeypatch, tmp_path, (500.0, recovering(3)), (1e6, LISTENS))
    assert found == (
        "broker-b did not start: it made no progress for 600 s (last: recovering: 3 of 40 log files); "
        "see its log"
    )
    assert killed
    assert seconds == 500.0 + SILENT_SECONDS + STOP_SECONDS


def test_a_master_and_its_slave_as_processes(tmp_path: Path) -> None:
    async def main() -> None:
        plan = planned(tmp_path, 1, replicas=2, brokerRole="SYNC_MASTER")
        cluster = BrokerCluster(NameServerSettings(listen_port=0), plan, lambda text: None)
        listening = await cluster.start()
        try:
            namesrv = listening.nameserver
            assert namesrv is not None
            async with aio.Producer("p", namesrv=namesrv) as producer:

                async def is_copied() -> bool:
                    return (await producer.send(Message("T", b"x"))).status is SendStatus.SEND_OK

                await until(is_copied)
        finally:
            await cluster.close()

    run(main())
    logs = [next((tmp_path / name / "commitlog").iterdir()) for name in ("store", "store-slave1")]
    assert logs[0].read_bytes() == logs[1].read_bytes()
