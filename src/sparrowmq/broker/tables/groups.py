"""Subscription groups: which consumer groups the broker knows and how they may consume (broker:1.4, 6.1).

Kept in `config/subscriptionGroup.json`; see `TableFile` for when it is saved.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from sparrowmq.broker.tables.table_file import TableFile
from sparrowmq.core.clock import Sleep
from sparrowmq.core.errors import InvalidNameError, NoRoomError, StoreCorruptError, StoreError
from sparrowmq.core.names import SYSTEM_GROUPS, check_group, check_topic, is_system_group
from sparrowmq.protocol.bodies import DataVersion, SubscriptionGroupConfig
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.refusals import Refused

if TYPE_CHECKING:
    from sparrowmq.core.clock import Clock
    from sparrowmq.store.tables.config_file import ConfigFile

FORBIDDEN_TO_READ: Final = 4
"""The bit of a forbidden table's entry that stops pulls."""

BANS_MAX: Final = 10_000
"""Maximum number of topics forbidden to groups, counted for each group."""


GROUPS_MAX: Final = 100_000
"""Maximum number of groups of a broker, unless its settings differ."""


class Groups(NamedTuple):
    """An immutable copy of the table at one moment."""

    configs: dict[str, SubscriptionGroupConfig]
    forbidden: dict[str, dict[str, int]]
    version: DataVersion


class GroupTable:
    """All subscription groups of one broker; unknown ones are created on demand when `auto_create` is on."""

    def __init__(
        self,
        file: ConfigFile,
        clock: Clock,
        *,
        auto_create: bool,
        groups_max: int = GROUPS_MAX,
        pool: Executor | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._groups_max = groups_max
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
        self._file = TableFile(file, self._snapshot, _content, pool=pool, sleep=sleep)
        self.keep_saving = self._file.run

    def _snapshot(self) -> Groups:
        return Groups(dict(self.configs), dict(self._forbidden), self.version)

    def _load(self, data: dict[str, Any]) -> None:
        for name, raw in (data.get("subscriptionGroupTable") or {}).items():
            self.configs[name] = msgspec.convert(raw, SubscriptionGroupConfig, strict=False)
        self._forbidden = data.get("forbiddenTable") or {}
        if data.get("dataVersion"):
            self.version = msgspec.convert(data["dataVersion"], DataVersion, strict=False)

    def get(self, name: str) -> SubscriptionGroupConfig | None:
        """The group, created with defaults if that is allowed and the name is legal; otherwise None.

        No group is created beyond the limit, see `missing`. A created group is saved soon. If it cannot be
        saved it is still used, so that messages can be read when the disk is full: its consumers create it
        again after a restart.
        """
        found = self.configs.get(name)
        if found is not None or not (self._auto_create or is_system_group(name)):
            return found
        try:
            check_group(name)
        except InvalidNameError:
            return None
        if self.is_full:
            return None
        config = SubscriptionGroupConfig(group_name=name)
        self.configs[name] = config
        self._changed()
        return config

    def restore(self, name: str) -> bool:
        """Create a group with the default settings, also where groups are not created on demand; False if its
        name is illegal or the limit is reached. Saved soon."""
        try:
            check_group(name)
        except InvalidNameError:
            return False
        if name not in self.configs:
            if self.is_full:
                return False
            self.configs[name] = SubscriptionGroupConfig(group_name=name)
            self._changed()
        return True

    @property
    def is_full(self) -> bool:
        """Whether the limit of groups is reached."""
        return len(self.configs) >= self._groups_max

    def missing(self, name: str) -> str:
        """Why `get` returned no group."""
        if self._auto_create and self.is_full:
            return f"subscription group [{name}] does not exist, and {self._too_many()}"
        return f"subscription group [{name}] does not exist"

    def _too_many(self) -> str:
        return (
            f"this broker has {len(self.configs)} groups and the limit is {self._groups_max}: delete some, "
            "or raise groupsMax"
        )

    def is_forbidden(self, name: str, topic: str) -> bool:
        """Whether the group may not pull the topic."""
        return bool(self._bans(name, topic) & FORBIDDEN_TO_READ)

    async def forbid(self, name: str, topic: str, *, forbidden: bool) -> None:
        """Forbid or allow pulls of a topic, on disk when this returns; callers share a save.

        Raises `StoreError` if the change cannot be saved, and resets the topic's ban to its state on disk;
        `InvalidNameError` for an illegal name; `NoRoomError` when there are too many bans.
        """
        check_group(name)
        check_topic(topic)
        if forbidden and sum(map(len, self._forbidden.values())) >= BANS_MAX:
            raise NoRoomError(
                f"{BANS_MAX} bans of topics for groups exist, which is the limit; lift some first"
            )
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
        """Set the forbidden bits; a group without any ban is removed from the table."""
        topics = self._forbidden.get(name, {}) | {topic: bits}
        kept = {other: value for other, value in topics.items() if value}
        self._forbidden[name] = kept
        if not kept:
            del self._forbidden[name]
        self._changed()

    async def put(self, configs: Iterable[SubscriptionGroupConfig]) -> None:
        """Create or change groups, on disk when this returns; callers share a save.

        Attributes stay as they are. Raises `Refused` for a change of attributes, of which this broker serves
        none; `StoreError` if the groups cannot be saved, and resets these groups to their state on disk;
        `NoRoomError`, without any change, when there would be too many.
        """
        wanted = {config.group_name: self._with_attributes(config) for config in configs}
        new = len(wanted.keys() - self.configs.keys())
        if new and len(self.configs) + new > self._groups_max:
            raise NoRoomError(self._too_many())
        self.configs.update(wanted)
        self._changed()
        await self._kept(wanted)

    def _with_attributes(self, config: SubscriptionGroupConfig) -> SubscriptionGroupConfig:
        known = self.configs.get(config.group_name)
        kept = {} if known is None else known.attributes
        if changes := {name: text for name, text in config.attributes.items() if kept.get(name) != text}:
            listed = ", ".join(sorted(changes))[:200]
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"attributes of groups are not supported by this broker: {listed}; leave them out",
            )
        return replace(config, attributes=kept)

    async def delete(self, name: str) -> bool:
        """Delete a group and its bans, on disk when this returns; False when it is unknown.

        Raises `StoreError` if the change cannot be saved, and resets the group to its state on disk.
        """
        if self.configs.pop(name, None) is None:
            return False
        self._forbidden.pop(name, None)
        self._changed()
        await self._kept([name])
        return True

    async def _kept(self, names: Iterable[str]) -> None:
        """Wait until the table is on disk; if that fails, reset these groups to their state on disk."""
        try:
            await self._file.saved()
        except StoreError:
            stored = self._file.on_disk
            for name in names:
                self.configs.pop(name, None)
                if name in stored.configs:
                    self.configs[name] = stored.configs[name]
                    self._forbidden.update({name: stored.forbidden[name]} if name in stored.forbidden else {})
            self._changed()
            raise

    def follow(
        self,
        configs: Mapping[str, SubscriptionGroupConfig],
        forbidden: Mapping[str, dict[str, int]],
        version: DataVersion,
    ) -> bool:
        """Replace the table by that of this broker's master, with its version. Returns False if it is the
        same. Saved soon.
        """
        if version == self.version:
            return False
        self.configs, self._forbidden, self.version = dict(configs), dict(forbidden), version
        self._file.changed()
        return True

    @property
    def bans(self) -> dict[str, dict[str, int]]:
        """The topics that groups must not pull: bits by group and topic."""
        return dict(self._forbidden)

    def _changed(self) -> None:
        """Record that the table changed; it is saved later."""
        self.version = self.version.bumped(self._clock.now_ms())
        self._file.changed()

    def save(self) -> None:
        """Write unsaved changes; raises `StoreError`."""
        if not self._file.is_saved:
            self._file.save()


def _content(table: Groups) -> dict[str, Any]:
    return {
        "dataVersion": msgspec.to_builtins(table.version),
        "forbiddenTable": table.forbidden,
        "subscriptionGroupTable": table.configs,
    }
