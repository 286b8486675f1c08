"""Subscription groups: which consumer groups the broker knows and how they may consume (broker:1.4, 6.1).

Kept in `config/subscriptionGroup.json`; see `TableFile` for when it is saved.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from sparrowmq.broker.table_file import TableFile
from sparrowmq.core.errors import InvalidNameError, StoreCorruptError, StoreError
from sparrowmq.core.names import SYSTEM_GROUPS, check_group, is_system_group
from sparrowmq.protocol.bodies import DataVersion, SubscriptionGroupConfig

if TYPE_CHECKING:
    from sparrowmq.core.clock import Clock
    from sparrowmq.store.config_file import ConfigFile

FORBIDDEN_TO_READ: Final = 4
"""The bit of a forbidden table's entry that stops pulls."""


class Groups(NamedTuple):
    """The table at one moment."""

    configs: dict[str, SubscriptionGroupConfig]
    forbidden: dict[str, dict[str, int]]
    version: DataVersion


class GroupTable:
    """All subscription groups of one broker; unknown ones are made on demand when `auto_create` is on."""

    def __init__(
        self, file: ConfigFile, clock: Clock, *, auto_create: bool, pool: Executor | None = None
    ) -> None:
        self._clock = clock
        self._auto_create = auto_create
        self.configs = {name: SubscriptionGroupConfig(group_name=name) for name in SYSTEM_GROUPS}
        self._forbidden: dict[str, dict[str, int]] = {}
        self.version = DataVersion(timestamp=clock.now_ms())
        stored = file.load()
        try:
            self._load(stored)
        except (msgspec.ValidationError, AttributeError) as error:
            raise StoreCorruptError(
                f"{file.path} is not a table of groups ({error}); restore or remove it"
            ) from error
        self._file = TableFile(file, self._snapshot, _content, pool=pool)
        self.keep_saving = self._file.run

    def _snapshot(self) -> Groups:
        return Groups(self.configs, self._forbidden, self.version)

    def _load(self, data: dict[str, Any]) -> None:
        for name, raw in (data.get("subscriptionGroupTable") or {}).items():
            self.configs[name] = msgspec.convert(raw, SubscriptionGroupConfig, strict=False)
        self._forbidden = data.get("forbiddenTable") or {}
        if data.get("dataVersion"):
            self.version = msgspec.convert(data["dataVersion"], DataVersion, strict=False)

    def get(self, name: str) -> SubscriptionGroupConfig | None:
        """The group, made with defaults if that is allowed and the name is legal; else None.

        One that was made here is saved soon. If it cannot be saved it is there all the same, so that a full
        disk can be read: its consumers make it again after a restart.
        """
        found = self.configs.get(name)
        if found is not None or not (self._auto_create or is_system_group(name)):
            return found
        try:
            check_group(name)
        except InvalidNameError:
            return None
        config = SubscriptionGroupConfig(group_name=name)
        self._change(self.configs | {name: config})
        return config

    def is_forbidden(self, name: str, topic: str) -> bool:
        """Whether the group may not pull the topic."""
        return bool(self._bans(name, topic) & FORBIDDEN_TO_READ)

    async def forbid(self, name: str, topic: str, *, forbidden: bool) -> None:
        """Forbid or allow pulls of a topic, on disk when this returns; many callers share a save.

        Raises `StoreError`, with the topic's ban as the disk has it, if it cannot be saved.
        """
        bits = self._bans(name, topic) & ~FORBIDDEN_TO_READ | (FORBIDDEN_TO_READ if forbidden else 0)
        self._ban(name, topic, bits)
        try:
            await self._file.saved()
        except StoreError:
            self._ban(name, topic, self._file.on_disk.forbidden.get(name, {}).get(topic, 0))
            raise

    def _bans(self, name: str, topic: str) -> int:
        return self._forbidden.get(name, {}).get(topic, 0)

    def _ban(self, name: str, topic: str, bits: int) -> None:
        """Set what is forbidden; a group without any ban is not in the table."""
        topics = self._forbidden.get(name, {}) | {topic: bits}
        kept = {other: value for other, value in topics.items() if value}
        table = self._forbidden | {name: kept}
        if not kept:
            del table[name]
        self._forbidden = table
        self._change(self.configs)

    async def put(self, configs: Iterable[SubscriptionGroupConfig]) -> None:
        """Create or change groups, on disk when this returns; many callers share a save.

        Raises `StoreError`, with these groups as the disk has them, if it cannot be saved.
        """
        wanted = {config.group_name: config for config in configs}
        self._change(self.configs | wanted)
        await self._kept(wanted)

    async def delete(self, name: str) -> bool:
        """Forget a group, on disk when this returns; False when it is unknown.

        Raises `StoreError`, with the group as the disk has it, if it cannot be saved.
        """
        if name not in self.configs:
            return False
        self._change({other: config for other, config in self.configs.items() if other != name})
        await self._kept([name])
        return True

    async def _kept(self, names: Iterable[str]) -> None:
        """Wait until the table is on disk; when it cannot be, these groups are as the disk has them."""
        try:
            await self._file.saved()
        except StoreError:
            stored, configs = self._file.on_disk.configs, dict(self.configs)
            for name in names:
                configs.pop(name, None)
                if name in stored:
                    configs[name] = stored[name]
            self._change(configs)
            raise

    def _change(self, configs: dict[str, SubscriptionGroupConfig]) -> None:
        """Take over a table that is saved later."""
        self.configs, self.version = configs, self.version.bumped(self._clock.now_ms())
        self._file.changed()

    def save(self) -> None:
        """Write what is not on disk yet; raises `StoreError`."""
        if not self._file.is_saved:
            self._file.save()


def _content(table: Groups) -> dict[str, Any]:
    return {
        "dataVersion": msgspec.to_builtins(table.version),
        "forbiddenTable": table.forbidden,
        "subscriptionGroupTable": msgspec.to_builtins(table.configs),
    }
