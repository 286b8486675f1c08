"""Subscription groups: which consumer groups the broker knows and how they may consume (broker:1.4, 6.1).

Kept in `config/subscriptionGroup.json`, saved on every change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from sparrowmq.core.errors import InvalidNameError
from sparrowmq.core.names import SYSTEM_GROUPS, check_group, is_system_group
from sparrowmq.protocol.bodies import DataVersion, SubscriptionGroupConfig

if TYPE_CHECKING:
    from sparrowmq.core.clock import Clock
    from sparrowmq.store.config_file import ConfigFile


class GroupTable:
    """All subscription groups of one broker; unknown ones are made on demand when `auto_create` is on."""

    def __init__(self, file: ConfigFile, clock: Clock, *, auto_create: bool) -> None:
        self._file = file
        self._clock = clock
        self._auto_create = auto_create
        self.configs = {name: SubscriptionGroupConfig(group_name=name) for name in SYSTEM_GROUPS}
        self._forbidden: dict[str, dict[str, int]] = {}
        self.version = DataVersion(timestamp=clock.now_ms())
        self._load(file.load())

    def _load(self, data: dict[str, Any]) -> None:
        for name, raw in (data.get("subscriptionGroupTable") or {}).items():
            self.configs[name] = msgspec.convert(raw, SubscriptionGroupConfig, strict=False)
        self._forbidden = data.get("forbiddenTable") or {}
        if data.get("dataVersion"):
            self.version = msgspec.convert(data["dataVersion"], DataVersion, strict=False)

    def get(self, name: str) -> SubscriptionGroupConfig | None:
        """The group, made with defaults if that is allowed and the name is legal; else None."""
        found = self.configs.get(name)
        if found is not None or not (self._auto_create or is_system_group(name)):
            return found
        try:
            check_group(name)
        except InvalidNameError:
            return None
        config = SubscriptionGroupConfig(group_name=name)
        self.put(config)
        return config

    def is_forbidden(self, name: str, topic: str) -> bool:
        """Whether the group may not pull the topic."""
        return bool(self._forbidden.get(name, {}).get(topic, 0))

    def put(self, config: SubscriptionGroupConfig) -> None:
        """Create or change a group."""
        self.configs[config.group_name] = config
        self._changed()

    def delete(self, name: str) -> bool:
        """Forget a group; False when it is unknown."""
        if self.configs.pop(name, None) is None:
            return False
        self._changed()
        return True

    def _changed(self) -> None:
        self.version = self.version.bumped(self._clock.now_ms())
        self._file.save(
            {
                "dataVersion": msgspec.to_builtins(self.version),
                "forbiddenTable": self._forbidden,
                "subscriptionGroupTable": msgspec.to_builtins(self.configs),
            }
        )
