from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tests.broker.rig import pull_ext, send_command
from tests.broker.test_server import ask, serving
from tests.support import run, until

from sparrowmq.broker.admin.runtime_info import readable, runtime_text
from sparrowmq.core.clock import SystemClock
from sparrowmq.files import disk
from sparrowmq.protocol.bodies import KVTable
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.frame import Command

TOOLS_READ = """
bootTimestamp runtime putMessageEntireTimeMax getMessageEntireTimeMax putMessageTimesTotal
putMessageFailedTimes putMessageSizeTotal putMessageAverageSize putMessageDistributeTime
dispatchMaxBuffer putTps getFoundTps getMissTps getTotalTps getTransferredTps getTransferedTps
putLatency99 putLatency999 commitLogDiskRatio consumeQueueDiskRatio commitLogMinOffset commitLogMaxOffset
brokerActive brokerVersionDesc brokerVersion msgPutTotalYesterdayMorning msgPutTotalTodayMorning
msgPutTotalTodayNow msgGetTotalYesterdayMorning msgGetTotalTodayMorning msgGetTotalTodayNow
dispatchBehindBytes pageCacheLockTimeMills earliestMessageTimeStamp startAcceptSendRequestTimeStamp
timerReadBehind timerOffsetBehind timerCongestNum timerEnqueueTps timerDequeueTps
remainTransientStoreBufferNumbs remainHowManyDataToCommit remainHowManyDataToFlush commitLogDirCapacity
sendThreadPoolQueueSize sendThreadPoolQueueCapacity sendThreadPoolQueueHeadWaitTimeMills
pullThreadPoolQueueSize litePullThreadPoolQueueCapacity queryThreadPoolQueueHeadWaitTimeMills
ackThreadPoolQueueSize EndTransactionQueueSize EndTransactionThreadPoolQueueCapacity
"""
"""broker:16.1"""


@pytest.mark.proves("broker:16.1", "broker:17")
def test_table_has_every_key_that_tools_read(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as call:
            await call.create("TopicTest")
            fresh = KVTable.decode((await call(Command(RequestCode.GET_BROKER_RUNTIME_INFO))).body).table
            assert set(TOOLS_READ.split()) <= set(fresh)
            assert fresh["producerStates"] == "0"
            for name in ("putTps", "getFoundTps", "getMissTps", "getTotalTps", "getTransferredTps"):
                assert [float(part) >= 0 for part in fresh[name].split(" ")] == [True] * 3
            assert fresh["earliestMessageTimeStamp"] == "-1"
            assert fresh["putMessageTimesTotal"] == "1"
            before = SystemClock().now_ms()
            for number in range(5):
                await call(send_command(b"%d" % number))
            await call(Command(RequestCode.PULL_MESSAGE, ext=dict(pull_ext())))
            table = KVTable.decode((await call(Command(RequestCode.GET_BROKER_RUNTIME_INFO))).body).table
            assert table["msgPutTotalTodayNow"] == table["putMessageTimesTotal"] == "5"
            assert table["msgGetTotalTodayNow"] == "5"
            assert int(table["commitLogMaxOffset"]) == int(table["putMessageSizeTotal"]) > 500
            assert float(table["putMessageAverageSize"]) == int(table["putMessageSizeTotal"]) / 5
            assert before <= int(table["earliestMessageTimeStamp"]) <= SystemClock().now_ms()
            assert table["putMessageDistributeTime"].count("]:") == 13
            assert 0 <= float(table["commitLogDiskRatio"]) <= 1
            assert table["commitLogDirCapacity"].startswith("Total : ")
            await call(send_command(properties="UNIQ_KEY\x01AB\x02DELAY\x0118\x02"))
            table = KVTable.decode((await call(Command(RequestCode.GET_BROKER_RUNTIME_INFO))).body).table
            assert table["scheduleMessageOffset_18"] == "0,1"

    run(main())


def test_unknown_disk_usage_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with serving(tmp_path) as call:

            def broken(path: Path) -> int:
                raise OSError(5, "Input/output error")

            monkeypatch.setattr(disk, "used_percent", broken)
            monkeypatch.setattr(disk, "room", broken)

            async def is_unknown() -> bool:
                found = KVTable.decode((await call(ask(RequestCode.GET_BROKER_RUNTIME_INFO))).body).table
                capacity = "Total : unknown, Free : unknown."
                return (found["commitLogDiskRatio"], found["commitLogDirCapacity"]) == ("-1", capacity)

            await until(is_unknown)

    run(main())


def test_disk_that_hangs_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was last known is shown for a while."""
    asked, answered = threading.Event(), threading.Event()

    def hung(path: Path) -> int:
        asked.set()
        answered.wait(20)
        raise OSError(5, "Input/output error")

    async def main() -> None:
        async with serving(tmp_path) as call:
            await call.create("TopicTest")
            monkeypatch.setattr(disk, "used_percent", hung)
            try:
                await until(asked.is_set)
                found = KVTable.decode((await call(ask(RequestCode.GET_BROKER_RUNTIME_INFO))).body).table
                assert 0 <= float(found["commitLogDiskRatio"]) <= 1
                assert found["commitLogDirCapacity"].startswith("Total : ")
                assert (await call(send_command())).code == 0
            finally:
                answered.set()

    run(main())


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (5 << 20, "5.0 MiB"),
        (3 << 29, "1.5 GiB"),
        (1 << 40, "1.0 TiB"),
        (1 << 62, "4.0 EiB"),
    ],
)
def test_bytes_are_formatted_as_in_java(number: int, text: str) -> None:
    assert readable(number) == text


@pytest.mark.proves("broker:16.1")
def test_uptime_is_shown() -> None:
    assert runtime_text(0) == "[ 0 days, 0 hours, 0 minutes, 0 seconds ]"
    assert runtime_text(((26 * 60 + 3) * 60 + 4) * 1000 + 999) == "[ 1 days, 2 hours, 3 minutes, 4 seconds ]"
