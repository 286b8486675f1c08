"""What operators ask of a broker: settings, cleaning, statistics (25, 26, 28, 43, 306, 315, 316, 329)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from sparrowmq.broker.progress import answer, refusal
from sparrowmq.core.errors import SettingsError
from sparrowmq.core.settings import BrokerSettings, Layer, load, table, without_effect
from sparrowmq.core.settings_text import parse_properties
from sparrowmq.protocol.bodies import DataVersion, KVTable
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers import GetBrokerConfigResponse, ViewBrokerStatsDataRequest, from_ext
from sparrowmq.protocol.java_json import dumps

if TYPE_CHECKING:
    from sparrowmq.broker.cleaning import Cleaner
    from sparrowmq.broker.pulling import PullPath
    from sparrowmq.broker.runtime_info import RuntimeInfo
    from sparrowmq.broker.stats import BrokerStats
    from sparrowmq.broker.topics import TopicTable
    from sparrowmq.core.clock import Clock
    from sparrowmq.protocol.frame import Command
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.store.offsets import ConsumerOffsets
    from sparrowmq.transport.connection import Connection

log = logging.getLogger("sparrowmq.broker")
LIVE: Final = frozenset(
    {
        "brokerPermission",
        "cleanFileForciblyEnable",
        "defaultQueryMaxNum",
        "deleteCommitLogFilesInterval",
        "deleteFileBatchMax",
        "deleteWhen",
        "diskMaxUsedSpaceRatio",
        "diskSpaceCleanForciblyRatio",
        "fileReservedTime",
        "longPollingEnable",
        "maxMsgsNumBatch",
        "messageIndexEnable",
        "shortPollingTimeMills",
    }
)
"""Settings that can change while the broker runs."""

Apply = Callable[[BrokerSettings], None]


class Settings:
    """The settings a running broker was told, and the request codes about them."""

    def __init__(self, settings: BrokerSettings, apply: Apply, clock: Clock) -> None:
        self._settings = settings
        self._apply = apply
        self._clock = clock
        self._version = DataVersion(timestamp=clock.now_ms())

    def text(self) -> str:
        """All settings in force as `name=value` lines; secrets are left out."""
        rows = table(BrokerSettings).values()
        kept = [row for row in rows if not row.secret]
        return "".join(f"{row.name}={_text(getattr(self._settings, row.attribute))}\n" for row in kept)

    def get(self, connection: Connection, command: Command) -> Command:
        """26: the settings, as Java properties."""
        version = dumps(
            {
                "counter": self._version.counter,
                "stateVersion": self._version.state_version,
                "timestamp": self._version.timestamp,
            }
        )
        header = GetBrokerConfigResponse(version=version.decode())
        return answer(command, header, self.text().encode())

    def update(self, connection: Connection, command: Command) -> Command:
        """25: change settings while the broker runs; all that are named, or none.

        They hold until it is stopped. Those that need a new start are refused, with a remark that names them.
        """
        try:
            wanted = parse_properties(command.body.decode("utf-8", "replace"))
            changed = self._changed(wanted)
        except SettingsError as error:
            return refusal(command, ResponseCode.INVALID_PARAMETER, str(error))
        if changed != self._settings:
            self._settings = changed
            self._version = self._version.bumped(self._clock.now_ms())
            self._apply(changed)
            told = ", ".join(f"{name}={value}" for name, value in wanted.items() if name in LIVE)
            log.warning("settings changed by an operator: %s", told)
        return answer(command)

    def _changed(self, wanted: dict[str, str]) -> BrokerSettings:
        rows = table(BrokerSettings)
        idle = without_effect(BrokerSettings)
        named = {name: value for name, value in wanted.items() if name not in idle}
        parsed = load(BrokerSettings, [Layer("the request", named)])[0]
        values: dict[str, Any] = {}
        fixed = []
        for name in named:
            row = rows.get(name)
            if row is None:
                continue
            value = getattr(parsed, row.attribute)
            if value == getattr(self._settings, row.attribute):
                continue
            if name in LIVE:
                values[row.attribute] = value
            else:
                fixed.append(name)
        if fixed:
            raise SettingsError(
                f"{', '.join(sorted(fixed))}: cannot change while the broker runs; change broker.conf and "
                "start it again"
            )
        return replace(self._settings, **values)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


class Maintenance:
    """Handlers of cleaning, statistics and tables."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        offsets: ConsumerOffsets,
        pulling: PullPath,
        *,
        cleaner: Cleaner,
        stats: BrokerStats,
        info: RuntimeInfo,
    ) -> None:
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._pulling = pulling
        self._cleaner = cleaner
        self._stats = stats
        self._info = info

    def runtime_info(self, connection: Connection, command: Command) -> Command:
        """28: what the broker tells about itself."""
        return answer(command, body=KVTable(table=self._info.table()).encode())

    def stats_data(self, connection: Connection, command: Command) -> Command:
        """315: rates of one thing over the last minute, hour and day."""
        request = from_ext(ViewBrokerStatsDataRequest, command.ext)
        found = self._stats.view(request.stats_name, request.stats_key)
        if found is None:
            remark = f"The stats <{request.stats_name}> <{request.stats_key}> not exist"
            return refusal(command, ResponseCode.SYSTEM_ERROR, remark)
        return answer(command, body=found.encode())

    def all_offsets(self, connection: Connection, command: Command) -> Command:
        """43: every group's offsets."""
        return answer(command, body=dumps(self._offsets.content(), bare_keys=True))

    def delete_expired_log(self, connection: Connection, command: Command) -> Command:
        """329: delete expired files of the log at once, whatever the hour."""
        self._cleaner.ask()
        return answer(command)

    def clean_expired_queues(self, connection: Connection, command: Command) -> Command:
        """306: delete queues whose messages are all gone; they begin anew at offset 0."""
        for name in self._store.topics():
            if self._topics.is_reserved(name):
                continue
            expired = [queue for queue in self._store.queues(name) if self._store.is_expired(queue)]
            if expired:
                self._topics.close(name)
                self._pulling.release(name)
            for queue in expired:
                self._store.delete_queue(queue)
                self._offsets.forget_queue(name, queue.queue_id)
        return answer(command)

    def clean_unused_topics(self, connection: Connection, command: Command) -> Command:
        """316: delete queues of topics that no longer exist."""
        for name in self._store.topics():
            if name not in self._topics.configs and not self._topics.is_reserved(name):
                self._store.delete_topic(name)
        return answer(command)
