"""Which groups read which topics by POP when the broker assigns queues: set by operators (401), kept on disk.

Kept in `config/messageRequestMode.json` in RocketMQ's form.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, Final

import msgspec

from sparrowmq.broker.base.offsets import answer
from sparrowmq.broker.tables.table_file import TableFile
from sparrowmq.core.errors import ProtocolError, StoreCorruptError, StoreError
from sparrowmq.core.names import RETRY_PREFIX
from sparrowmq.protocol.bodies.clients import POP_MODE, PULL_MODE
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.java_json import dumps, loads
from sparrowmq.protocol.pop.records import RequestMode
from sparrowmq.protocol.refusals import Refused

if TYPE_CHECKING:
    from sparrowmq.broker.tables.groups import GroupTable
    from sparrowmq.broker.tables.topics import TopicTable
    from sparrowmq.core.settings.servers import BrokerSettings
    from sparrowmq.protocol.frame import Command
    from sparrowmq.store.tables.config_file import ConfigFile
    from sparrowmq.transport.connection import Connection

MODES_MAX: Final = 10_000
"""Maximum number of pairs of a topic and a group whose mode was set."""

Modes = Mapping[tuple[str, str], RequestMode]
"""By topic and group."""


class RequestModes:
    """The modes of one broker. Raises `StoreCorruptError` when its file cannot be read."""

    def __init__(
        self,
        settings: BrokerSettings,
        file: ConfigFile,
        topics: TopicTable,
        groups: GroupTable,
        pool: Executor,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self.changes = 0
        """How often the table was changed since the start."""
        try:
            self._table = _modes(file.load())
        except msgspec.ValidationError as error:
            raise StoreCorruptError(
                f"{file.path} is not a table of request modes ({error}); restore or remove it"
            ) from error
        self._file: TableFile[Modes] = TableFile(file, lambda: self._table, _content, pool=pool)

    def get(self, topic: str, group: str) -> RequestMode:
        """How a group reads a topic; a retry topic is always pulled unless the file says otherwise."""
        known = self._table.get((topic, group))
        if known is not None:
            return known
        settings = self._settings
        mode = PULL_MODE if topic.startswith(RETRY_PREFIX) else settings.default_message_request_mode
        share = settings.default_pop_share_queue_num if mode == POP_MODE else 0
        return RequestMode(consumer_group=group, mode=mode, pop_share_queue_num=share, topic=topic)

    async def set(self, connection: Connection, command: Command) -> Command:
        """401: set the mode of a group for a topic; answered when it is on disk. Raises `Refused`."""
        asked = RequestMode.decode_request(command.body)
        self._check(asked)
        key, before = (asked.topic, asked.consumer_group), self._table
        self._table = (before if key in before else self._with_room(before)) | {key: asked}
        self.changes += 1
        self._file.changed()
        try:
            await self._file.saved()
        except StoreError:
            kept = {name: mode for name, mode in self._table.items() if name != key or mode is not asked}
            self._table = kept | {key: before[key]} if key in before and key not in kept else kept
            self.changes += 1
            raise
        return answer(command)

    def all(self, connection: Connection, command: Command) -> Command:
        """402: the whole table, which slaves of 5.x ask for."""
        return answer(command, body=dumps(_content(self._table)))

    async def follow(self, body: bytes) -> None:
        """Take over a master's table: the answer to 402. Raises `ProtocolError`, or `StoreError` when it
        cannot be saved."""
        try:
            table = _modes(loads(body))
        except (AttributeError, msgspec.ValidationError) as error:
            raise ProtocolError(f"the master's request modes cannot be read: {error}") from error
        if table != self._table:
            self._table = table
            self.changes += 1
            self._file.changed()
        await self._file.saved()

    def _check(self, asked: RequestMode) -> None:
        if asked.topic.startswith(RETRY_PREFIX):
            raise Refused(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if self._topics.get(asked.topic) is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{asked.topic}] not exist")
        if self._groups.get(asked.consumer_group) is None:
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group does not exist")
        if asked.mode not in (PULL_MODE, POP_MODE):
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"mode {asked.mode[:80]!r} is unknown; give {PULL_MODE} or {POP_MODE}",
            )

    def _with_room(self, table: Modes) -> dict[tuple[str, str], RequestMode]:
        """The table with room for one more; modes of deleted topics and groups are dropped."""
        if len(table) < MODES_MAX:
            return dict(table)
        kept = {
            (topic, group): mode
            for (topic, group), mode in table.items()
            if topic in self._topics.configs and group in self._groups.configs
        }
        if len(kept) >= MODES_MAX:
            raise Refused(
                ResponseCode.SYSTEM_BUSY,
                f"the modes of {MODES_MAX} pairs of a topic and a group are set, which is the limit; delete "
                "groups or topics that are not used",
            )
        return kept


def _modes(content: Any) -> dict[tuple[str, str], RequestMode]:
    """The table of a file's content. Raises `msgspec.ValidationError`."""
    stored = content.get("messageRequestModeMap") or {}
    found = msgspec.convert(stored, dict[str, dict[str, RequestMode]], strict=False)
    return {(topic, group): mode for topic, modes in found.items() for group, mode in modes.items()}


def _content(table: Modes) -> dict[str, Any]:
    """The table as its file and slaves have it."""
    found: dict[str, dict[str, Any]] = {}
    for (topic, group), mode in sorted(table.items()):
        found.setdefault(topic, {})[group] = msgspec.to_builtins(mode)
    return {"messageRequestModeMap": found}
