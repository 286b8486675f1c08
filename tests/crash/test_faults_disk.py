"""A full disk under whole servers: sends are refused with the reason, reads go on, nothing is lost."""

from __future__ import annotations

import logging
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.crash.faults import (
    PROGRAM,
    TOPIC,
    Entry,
    Limit,
    Mounted,
    Place,
    SmallDisk,
    create,
    mounted,
    refusals,
    send,
    sparrow,
    stored,
)
from tests.support import run, until

from sparrowmq import aio
from sparrowmq.core.errors import BrokerError, NoRouteError, SparrowError
from sparrowmq.files import disk as store_disk
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.testing import LocalCluster

pytestmark = pytest.mark.crash

with_own_disk = os.geteuid() == 0
"""Whether a file system can be tried to be mounted; where it cannot, the limit alone is used."""


@dataclass
class Rig:
    """A place on a disk that can be filled."""

    place: Place
    disk: SmallDisk
    reason: str


@pytest.fixture(params=["limit", "mounted"] if with_own_disk else ["limit"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    with mounted(tmp_path / "disk") if request.param == "mounted" else nullcontext(False) as done:
        place = Place(tmp_path / "disk" / "place" if done else tmp_path / "place", tmp_path / "log")
        if done:
            yield Rig(place, Mounted(tmp_path / "disk"), Mounted.reason)
        else:
            yield Rig(place, Limit(), Limit.reason)


def big(count: int, first: int = 0) -> list[bytes]:
    """Bodies that do not compress: 20 KB each."""
    return [b"%08d" % number + os.urandom(20_000) for number in range(first, first + count)]


def test_sends_are_refused_reads_go_on_and_it_recovers(rig: Rig) -> None:
    servers = rig.place.servers()
    servers.start()

    async def main() -> list[Entry]:
        namesrv = servers.nameserver_address
        await create(namesrv, queues=4)
        settings = aio.ProducerSettings(namesrv=namesrv, retries=0, compress_over=2**30)
        async with aio.Producer("p", settings=settings) as producer:
            entries = await send(producer, [b"%d" % number for number in range(20)])
            rig.disk.fill(servers)
            entries += await until_full(producer)
            for errors in (await refusals(producer, big(30)), await refusals(producer, big(30, 30))):
                assert {getattr(error, "code", None) for error in errors} == {
                    ResponseCode.SERVICE_NOT_AVAILABLE
                }
                for error in errors:
                    assert f"{rig.reason}; free space there or move the store to a larger disk" in str(error)
                    assert str(rig.place.store) in str(error)
            # reads go on, for groups the broker knows and for new ones
            assert sorted(await stored(namesrv)) == sorted(entries)
            assert await consumed(namesrv, "newcomers", len(entries)) == {entry[3] for entry in entries}
            assert servers.running
            rig.disk.free(servers)
            entries += await send(producer, big(5))
            entries += await send(producer, [b"new"], topic="Another")
            assert sorted(await stored(namesrv, TOPIC, "Another")) == sorted(entries)
        return entries

    try:
        entries = run(main())
        assert rig.place.log.count("messages are refused: ") == 1, "operators are told once"
    finally:
        servers.kill()
    with rig.place.servers() as again:
        found = run(stored(again.nameserver_address, TOPIC, "Another"))
        assert sorted(found) == sorted(entries), "acknowledged is there once, refused is not there"


async def until_full(producer: aio.Producer) -> list[Entry]:
    """Send until the disk takes no more: the first refusal says so with its code."""
    entries: list[Entry] = []
    with pytest.raises(BrokerError) as caught:
        for body in big(1000):
            entries += await send(producer, [body])
    assert caught.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert caught.value.remark.startswith("service not available now. ")
    return entries


async def consumed(namesrv: str, group: str, count: int) -> set[bytes]:
    """What a new group of push consumers gets."""
    got: set[bytes] = set()
    consumer = aio.PushConsumer(group, namesrv=namesrv, consume_from="first")
    consumer.subscribe(TOPIC, handler=lambda message: got.add(message.body))
    async with consumer:
        await until(lambda: len(got) >= count)
    return got


def test_topics_cannot_be_made_on_a_full_disk_and_are_not_half_made(tmp_path: Path) -> None:
    """Their table is saved before they are there: no message is taken for a topic that a restart forgets."""
    with LocalCluster(tmp_path / "store") as cluster, pytest.MonkeyPatch.context() as patch:
        cluster.create_topic(TOPIC, queues=1)

        def full(*_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

        patch.setattr(store_disk, "replace", full)

        async def main() -> None:
            async with (
                aio.Producer("p", namesrv=cluster.namesrv, retries=0) as producer,
                aio.Admin(namesrv=cluster.namesrv) as admin,
            ):
                for _ in range(2):
                    with pytest.raises(BrokerError, match=r"topics\.json: No space left on device; free"):
                        await producer.send(aio.Message("New", b"x"))
                    with pytest.raises(BrokerError, match=r"topics\.json: No space left on device; free"):
                        await admin.topics.create("Made", queues=1)
                with pytest.raises(BrokerError, match=r"topics\.json: No space left on device; free"):
                    await admin.topics.delete(TOPIC)
                for name in ("New", "Made"):
                    with pytest.raises(NoRouteError):
                        await admin.topics.route(name)
                assert (await producer.send(aio.Message(TOPIC, b"x"))).queue_offset == 0
                patch.undo()
                await admin.topics.create("Made", queues=1)
                assert (await producer.send(aio.Message("Made", b"x"))).queue_offset == 0

        run(main())
        cluster.restart_broker()
        assert len(run(stored(cluster.namesrv, TOPIC, "Made"))) == 2


def test_the_command_line_prints_the_reason_on_one_line(rig: Rig) -> None:
    with rig.place.servers() as servers:
        namesrv = servers.nameserver_address

        async def fill() -> None:
            await create(namesrv)
            settings = aio.ProducerSettings(namesrv=namesrv, retries=0, compress_over=2**30)
            async with aio.Producer("p", settings=settings) as producer:
                rig.disk.fill(servers)
                await until_full(producer)

        run(fill())
        done = sparrow("send", TOPIC, "x" * 4000, environment={"SPARROW_NAMESRV": namesrv})
        assert (done.returncode, done.stdout) == (1, "")
        (line,) = done.stderr.splitlines()
        assert line.startswith("sparrow: answer 14 to send to Ledger/")
        assert "service not available now. cannot " in line and f" in {rig.place.store}/" in line
        assert "free space there" in line
        rig.disk.free(servers)
        done = sparrow("send", TOPIC, "x", environment={"SPARROW_NAMESRV": namesrv})
        assert done.stdout.startswith("SEND_OK")


def test_stopping_on_a_disk_that_takes_nothing_says_so_and_loses_nothing(tmp_path: Path) -> None:
    with Place(tmp_path / "first").servers():
        pass  # what follows finds compiled modules in place
    data = tmp_path / "data"
    command = [
        *PROGRAM,
        "up",
        "--nameserver-port",
        "0",
        "--broker-port",
        "0",
        "--no-coordinator",
        "--no-proxy",
    ]
    command += ["--data", str(data)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        namesrv = process.stdout.readline().split()[-1]
        run(create(namesrv))
        entries = run(send_few(namesrv))
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    (line,) = [line for line in errors.splitlines() if line.startswith("sparrow: ")]
    assert line.startswith("sparrow: the store was not closed cleanly; the next start runs recovery: ")
    assert str(data / "store") in line and "File too large; free space there" in line
    assert "Traceback" not in errors
    for _ in range(2):  # nor can it start there, and trying does no harm
        done = sparrow(*command[len(PROGRAM) :], file_bytes_max=1)
        assert (done.returncode, done.stdout) == (1, "")
        (line,) = [line for line in done.stderr.splitlines() if "sparrowmq.store" not in line]
        assert line.startswith("sparrow: cannot ") and "File too large; free space there" in line
    again = Place(
        data, settings={"mappedFileSizeCommitLog": str(2**30), "mappedFileSizeConsumeQueue": "6000000"}
    )
    with again.servers() as servers:
        assert run(stored(servers.nameserver_address)) == entries


async def send_few(namesrv: str) -> list[Entry]:
    async with aio.Producer("p", namesrv=namesrv) as producer:
        return await send(producer, [b"%d" % number for number in range(10)])


def test_a_disk_above_the_limit_takes_no_messages_until_it_is_below(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = 50
    monkeypatch.setattr(store_disk, "used_percent", lambda path: used)

    async def main(namesrv: str) -> None:
        nonlocal used
        async with aio.Producer("p", namesrv=namesrv, retries=0) as producer:
            await send(producer, [b"x"])
            used = 91

            async def refused() -> str:
                try:
                    await send(producer, [b"x"])
                except BrokerError as error:
                    assert error.code == ResponseCode.SERVICE_NOT_AVAILABLE
                    return error.remark
                return ""

            remark = await until(refused)
            assert "is 91 % full and diskSpaceWarningLevelRatio is 90; free space there, or raise" in remark
            before = len(await stored(namesrv))
            used = 85

            async def taken() -> bool:
                return not await refused()

            await until(taken)
            assert len(await stored(namesrv)) == before + 1

    with caplog.at_level(logging.WARNING, logger="sparrowmq.store"), LocalCluster() as cluster:
        cluster.create_topic(TOPIC, queues=1)
        run(main(cluster.namesrv))
    assert sum("is 91 % full" in text for text in caplog.messages) == 1
    assert sum("has space again" in text for text in caplog.messages) == 1


def test_a_flush_that_fails_stops_taking_messages_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failed fsync nobody knows what is on the disk: only a restart may go on."""

    def broken(_: int) -> None:
        raise OSError(5, "Input/output error")

    async def main(namesrv: str) -> None:
        async with aio.Producer("p", namesrv=namesrv, retries=0) as producer:
            entries = await send(producer, [b"before"])
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(store_disk, "datasync", broken)

                async def refused() -> bool:
                    try:
                        entries.extend(await send(producer, [b"meanwhile"]))
                    except BrokerError as error:
                        assert "Input/output error" in error.remark
                        return True
                    return False

                await until(refused)
            assert await refused(), "not before a restart"
            assert await stored(namesrv) == entries

    with LocalCluster() as cluster:
        cluster.create_topic(TOPIC, queues=1)
        run(main(cluster.namesrv))
        with pytest.raises(SparrowError, match="Input/output error"):
            cluster.stop_broker()
        cluster.start_broker()
        found = run(stored(cluster.namesrv))
        assert found[0][3] == b"before"
        assert run(send_few(cluster.namesrv))[0][2] == len(found)


READ_EMPTY_SLOTS = """
import os, sys
from pathlib import Path
from sparrowmq.store.timers.timer_wheel import TimerWheel
wheel = TimerWheel(Path(sys.argv[1]) / "timerwheel")
wheel.load()
try:
    (Path(sys.argv[1]) / "filler").write_bytes(bytes(8 << 20))
except OSError as error:
    print(error)
print(wheel.next_slot(1_795_254_350_000, 1_795_255_350_000))
"""


def test_empty_slots_of_the_timer_wheel_are_read_on_a_full_disk(tmp_path: Path) -> None:
    """A mapping would kill the process here: a file system in memory needs room to read what is not there."""
    with mounted(tmp_path / "disk"):
        command = [sys.executable, "-c", READ_EMPTY_SLOTS, str(tmp_path / "disk")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["None"]), done
