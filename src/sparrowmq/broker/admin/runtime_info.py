"""What a broker reports about itself (code 28, broker:16.1): the table that tools and dashboards read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from sparrowmq.protocol.codes import VERSION
from sparrowmq.store.base.stats import SLOTS

if TYPE_CHECKING:
    from sparrowmq.broker.admin.stats import BrokerStats
    from sparrowmq.core.clock import Clock
    from sparrowmq.core.settings.servers import BrokerSettings
    from sparrowmq.store.base.disk_space import DiskUsage
    from sparrowmq.store.message_store import MessageStore

VERSION_TEXT: Final = "V5_3_1"
"""The name of `VERSION`."""

POOLS: Final = {"send": 10_000, "pull": 100_000, "litePull": 100_000, "query": 20_000, "ack": 100_000}
"""Java's thread pools and their queue sizes: this broker has none, so they are always empty."""

PREFIXES: Final = "KMGTPE"
TIMER: Final = ("timerReadBehind", "timerOffsetBehind", "timerCongestNum")
TIMER_RATES: Final = ("timerEnqueueTps", "timerDequeueTps")


def readable(number: int) -> str:
    """Bytes as Java prints them: `512 B`, `1.5 KiB`."""
    if number < 1024:
        return f"{number} B"
    power = min((number.bit_length() - 1) // 10, len(PREFIXES))
    return f"{number / 1024**power:.1f} {PREFIXES[power - 1]}iB"


def runtime_text(milliseconds: int) -> str:
    """The broker's uptime, as Java prints it."""
    seconds = milliseconds // 1000
    return (
        f"[ {seconds // 86_400} days, {seconds // 3600 % 24} hours, {seconds // 60 % 60} minutes, "
        f"{seconds % 60} seconds ]"
    )


class RuntimeInfo:
    """Collects the table; `waiting` adds information about delayed messages and stalls of the loop."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        stats: BrokerStats,
        clock: Clock,
        waiting: Callable[[], dict[str, str]],
    ) -> None:
        self.settings = settings
        self._waiting = waiting
        self._store = store
        self._stats = stats
        self._clock = clock
        self._booted = clock.now_ms()

    def table(self) -> dict[str, str]:
        """Every key that tools know, as text; totals are those last collected by `BrokerStats.collecting`."""
        return {
            **self._identity(),
            **self._puts(),
            **self._rates(),
            **self._log(),
            **self._totals(),
            **self._pools(),
            **self._waiting(),
            "producerStates": str(len(self._store.producers)),
        }

    def _identity(self) -> dict[str, str]:
        return {
            "brokerVersionDesc": VERSION_TEXT,
            "brokerVersion": str(VERSION),
            "brokerActive": "true",
            "bootTimestamp": str(self._booted),
            "runtime": runtime_text(self._clock.now_ms() - self._booted),
            "startAcceptSendRequestTimeStamp": "0",
        }

    def _puts(self) -> dict[str, str]:
        stats = self._store.stats
        times = max(1, stats.puts)
        pairs = zip(SLOTS, stats.put_slots, strict=True)
        return {
            "putMessageTimesTotal": str(times),
            "putMessageFailedTimes": str(stats.put_failures),
            "putMessageSizeTotal": str(stats.put_bytes),
            "putMessageAverageSize": str(stats.put_bytes / times),
            "putMessageEntireTimeMax": str(int(stats.put_seconds_max * 1000)),
            "getMessageEntireTimeMax": "0",
            "putMessageDistributeTime": "".join(f"{label}:{count} " for label, count in pairs),
            "putLatency99": f"{stats.put_percentile(0.99) * 1000:.2f}",
            "putLatency999": f"{stats.put_percentile(0.999) * 1000:.2f}",
            "pageCacheLockTimeMills": "0",
        }

    def _rates(self) -> dict[str, str]:
        def text(name: str) -> str:
            return " ".join(str(rate) for rate in self._store.stats.rates(name))

        transferred = text("transferred")
        return {
            "putTps": text("puts"),
            "getFoundTps": text("found"),
            "getMissTps": text("missed"),
            "getTotalTps": text("total"),
            "getTransferredTps": transferred,
            "getTransferedTps": transferred,  # spelled as in 4.9
        }

    def _log(self) -> dict[str, str]:
        store = self._store
        log_path = store.settings.commit_log
        log_disk = store.disks.get(log_path)
        log_ratio, queue_ratio = _ratio(log_disk), _ratio(store.disks.get(store.settings.root))
        return {
            "commitLogMinOffset": str(store.min_position),
            "commitLogMaxOffset": str(store.position),
            "commitLogDiskRatio": log_ratio,
            f"commitLogDiskRatio_{log_path}": log_ratio,
            "consumeQueueDiskRatio": queue_ratio,
            "commitLogDirCapacity": _capacity(log_disk),
            "earliestMessageTimeStamp": str(store.earliest_time()),
            "dispatchBehindBytes": str(store.index.behind),
            "dispatchMaxBuffer": "0",
            "remainTransientStoreBufferNumbs": "0",
            "remainHowManyDataToCommit": "0 B",
            "remainHowManyDataToFlush": readable(store.position - store.flushed_position),
            **dict.fromkeys(TIMER, "0"),
            **dict.fromkeys(TIMER_RATES, "0.0"),
        }

    def _totals(self) -> dict[str, str]:
        stats = self._stats
        return {
            "msgPutTotalTodayNow": str(stats.put_total),
            "msgPutTotalTodayMorning": str(stats.put_today),
            "msgPutTotalYesterdayMorning": str(stats.put_yesterday),
            "msgGetTotalTodayNow": str(stats.get_total),
            "msgGetTotalTodayMorning": str(stats.get_today),
            "msgGetTotalYesterdayMorning": str(stats.get_yesterday),
        }

    def _pools(self) -> dict[str, str]:
        found = {}
        for name, capacity in POOLS.items():
            found[f"{name}ThreadPoolQueueSize"] = "0"
            found[f"{name}ThreadPoolQueueCapacity"] = str(capacity)
            found[f"{name}ThreadPoolQueueHeadWaitTimeMills"] = "0"
        found["EndTransactionQueueSize"] = "0"
        found["EndTransactionThreadPoolQueueCapacity"] = "100000"
        return found


def _ratio(disk: DiskUsage | None) -> str:
    """Disk usage from 0.0 to 1.0; -1 when it is unknown."""
    return "-1" if disk is None else str(disk.percent / 100)


def _capacity(disk: DiskUsage | None) -> str:
    if disk is None:
        return "Total : unknown, Free : unknown."
    return f"Total : {readable(disk.total)}, Free : {readable(disk.free)}."
