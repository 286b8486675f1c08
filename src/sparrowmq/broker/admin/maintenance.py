"""Requests of operators: settings, cleaning, statistics (25, 26, 28, 43, 306, 315, 316, 329)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sparrowmq.broker.base.long_answers import LongAnswers
from sparrowmq.broker.base.offsets import answer, refusal
from sparrowmq.core.errors import SettingsError
from sparrowmq.core.settings.live import LIVE
from sparrowmq.core.settings.servers import BrokerSettings, Layer, load, table, without_effect
from sparrowmq.core.settings.text import parse_properties, request_text
from sparrowmq.protocol.bodies import DataVersion, KVTable
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers import GetBrokerConfigResponse, ViewBrokerStatsDataRequest, from_ext
from sparrowmq.protocol.java_json import dumps
from sparrowmq.transport.slices import shared

if TYPE_CHECKING:
    from sparrowmq.broker.admin.deletions import Deletions
    from sparrowmq.broker.admin.runtime_info import RuntimeInfo
    from sparrowmq.broker.admin.stats import BrokerStats
    from sparrowmq.broker.housekeeping.cleaning import Cleaner
    from sparrowmq.broker.tables.topics import TopicTable
    from sparrowmq.core.clock import Clock
    from sparrowmq.protocol.frame import Command
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.store.queues.consume_queue import ConsumeQueue
    from sparrowmq.store.tables.consumer_offsets import ConsumerOffsets
    from sparrowmq.transport.connection import Connection

log = logging.getLogger("sparrowmq.broker")
Apply = Callable[[BrokerSettings], None]


class SettingsRequests:
    """Settings changed while the broker runs, and the request codes about them."""

    def __init__(self, settings: BrokerSettings, apply: Apply, clock: Clock) -> None:
        self._settings = settings
        self._apply = apply
        self._clock = clock
        self._version = DataVersion(timestamp=clock.now_ms())

    def text(self) -> str:
        """All current settings as `name=value` lines, without secrets."""
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
        """25: change settings while the broker runs; either all named settings change, or none.

        They stay in effect until the broker stops. Settings that need a restart are refused, with a remark
        that names them.
        """
        try:
            wanted = parse_properties(request_text(command.body))
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
        deletions: Deletions,
        *,
        cleaner: Cleaner,
        stats: BrokerStats,
        info: RuntimeInfo,
    ) -> None:
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._deletions = deletions
        self._cleaner = cleaner
        self._stats = stats
        self._info = info
        self._long = LongAnswers()

    def runtime_info(self, connection: Connection, command: Command) -> Command | Awaitable[Command]:
        """28: the broker's runtime information."""
        return self._long.begin(connection, self._runtime_info(command))

    def _runtime_info(self, command: Command) -> Generator[None, None, Command]:
        yield from self._stats.collecting()
        return answer(command, body=KVTable(table=self._info.table()).encode())

    def stats_data(self, connection: Connection, command: Command) -> Command | Awaitable[Command]:
        """315: rates of one item over the last minute, hour and day."""
        return self._long.begin(connection, self._stats_data(command))

    def _stats_data(self, command: Command) -> Generator[None, None, Command]:
        request = from_ext(ViewBrokerStatsDataRequest, command.ext)
        yield from self._stats.collecting()
        found = self._stats.view(request.stats_name, request.stats_key)
        if found is None:
            remark = f"The stats <{request.stats_name}> <{request.stats_key}> not exist"
            return refusal(command, ResponseCode.SYSTEM_ERROR, remark)
        return answer(command, body=found.encode())

    def all_offsets(self, connection: Connection, command: Command) -> Command | Awaitable[Command]:
        """43: every group's offsets at the time this request is processed."""
        return self._long.begin(connection, self._all_offsets(command))

    def _all_offsets(self, command: Command) -> Generator[None, None, Command]:
        body = yield from self._offsets.snapshot().encoding()
        return answer(command, body=body)

    def delete_expired_log(self, connection: Connection, command: Command) -> Command:
        """329: delete expired log files at once, at any hour."""
        self._cleaner.ask()
        return answer(command)

    async def clean_expired_queues(self, connection: Connection, command: Command) -> Command:
        """306: delete queues whose messages have all been deleted; they restart at offset 0."""
        for name in self._store.topics():
            if self._topics.is_reserved(name):
                continue
            expired = await shared().result(self._expired(name))
            if expired:
                await self._deletions.queues(name, expired)
        return answer(command)

    def _expired(self, name: str) -> Generator[None, None, list[ConsumeQueue]]:
        """The expired queues of a topic; each check may map a file."""
        found = []
        for queue in self._store.queues(name):
            if self._store.is_expired(queue):
                found.append(queue)
            yield
        return found

    async def clean_unused_topics(self, connection: Connection, command: Command) -> Command:
        """316: delete queues of topics that no longer exist."""
        for name in self._store.topics():
            if name not in self._topics.configs and not self._topics.is_reserved(name):
                await self._deletions.topic(name, left_over=True)
        return answer(command)
