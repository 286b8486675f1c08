"""Subscription groups: which consumer groups the broker knows and how they may consume (broker:1.4, 6.1).

Kept in `config/subscriptionGroup.json`, saved on every change.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import msgspec

from sparrowmq.core.errors import InvalidNameError, StoreCorruptError, StoreError
from sparrowmq.core.names import SYSTEM_GROUPS, check_group, is_system_group
from sparrowmq.protocol.bodies import DataVersion, SubscriptionGroupConfig
from sparrowmq.transport.occasional import OccasionalLog

if TYPE_CHECKING:
    from sparrowmq.core.clock import Clock
    from sparrowmq.store.config_file import ConfigFile

log = logging.getLogger("sparrowmq.broker")
FORBIDDEN_TO_READ: Final = 4
"""The bit of a forbidden table's entry that stops pulls."""


class GroupTable:
    """All subscription groups of one broker; unknown ones are made on demand when `auto_create` is on."""

    def __init__(self, file: ConfigFile, clock: Clock, *, auto_create: bool) -> None:
        self._file = file
        self._clock = clock
        self._auto_create = auto_create
        self.configs = {name: SubscriptionGroupConfig(group_name=name) for name in SYSTEM_GROUPS}
        self._forbidden: dict[str, dict[str, int]] = {}
        self._occasional = OccasionalLog(log)
        self.version = DataVersion(timestamp=clock.now_ms())
        stored = file.load()
        try:
            self._load(stored)
        except (msgspec.ValidationError, AttributeError) as error:
            raise StoreCorruptError(
                f"{file.path} is not a table of groups ({error}); restore or remove it"
            ) from error

    def _load(self, data: dict[str, Any]) -> None:
        for name, raw in (data.get("subscriptionGroupTable") or {}).items():
            self.configs[name] = msgspec.convert(raw, SubscriptionGroupConfig, strict=False)
        self._forbidden = data.get("forbiddenTable") or {}
        if data.get("dataVersion"):
            self.version = msgspec.convert(data["dataVersion"], DataVersion, strict=False)

    def get(self, name: str) -> SubscriptionGroupConfig | None:
        """The group, made with defaults if that is allowed and the name is legal; else None.

        One that was made here and cannot be saved is there all the same, so that a full disk can be read: its
        consumers make it again after a restart.
        """
        found = self.configs.get(name)
        if found is not None or not (self._auto_create or is_system_group(name)):
            return found
        try:
            check_group(name)
        except InvalidNameError:
            return None
        config = SubscriptionGroupConfig(group_name=name)
        try:
            self.put(config)
        except StoreError as error:
            self.configs = self.configs | {name: config}
            self._occasional.write(logging.ERROR, "unsaved", f"group {name} is not saved: {error}")
        return config

    def is_forbidden(self, name: str, topic: str) -> bool:
        """Whether the group may not pull the topic."""
        return bool(self._forbidden.get(name, {}).get(topic, 0) & FORBIDDEN_TO_READ)

    def forbid(self, name: str, topic: str, *, forbidden: bool) -> None:
        """Forbid or allow pulls of a topic. Raises `StoreError`, with all as it was, if not saved."""
        topics = dict(self._forbidden.get(name, {}))
        bits = topics.get(topic, 0) & ~FORBIDDEN_TO_READ | (FORBIDDEN_TO_READ if forbidden else 0)
        topics[topic] = bits
        kept = {other: value for other, value in topics.items() if value}
        before, self._forbidden = self._forbidden, self._forbidden | {name: kept}
        if not kept:
            del self._forbidden[name]
        try:
            self._save(self.configs)
        except StoreError:
            self._forbidden = before
            raise

    def put(self, config: SubscriptionGroupConfig) -> None:
        """Create or change a group. Raises `StoreError`, with the table as it was, if it cannot be saved."""
        self._save(self.configs | {config.group_name: config})

    def delete(self, name: str) -> bool:
        """Forget a group; False when it is unknown. Raises as `put`."""
        if name not in self.configs:
            return False
        self._save({other: config for other, config in self.configs.items() if other != name})
        return True

    def _save(self, configs: dict[str, SubscriptionGroupConfig]) -> None:
        """Write a changed table; only then it is the table."""
        version = self.version.bumped(self._clock.now_ms())
        self._file.save(
            {
                "dataVersion": msgspec.to_builtins(version),
                "forbiddenTable": self._forbidden,
                "subscriptionGroupTable": msgspec.to_builtins(configs),
            }
        )
        self.configs, self.version = configs, version
