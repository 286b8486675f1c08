"""The settings of a name server with RocketMQ's names (broker:15.4), and their properties text."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from sparrowmq.core.errors import SettingsError

BLACK_LIST: Final = frozenset({"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"})
"""Names that may not be changed remotely."""


@dataclass(slots=True)
class Options:
    """Settings that can be changed while the name server runs; a restart restores the configured values."""

    order_message_enable: bool = False
    """Whether routes of ordered topics include the queues of the key-value table."""
    return_order_topic_config_to_broker: bool = True
    """Whether brokers receive that table when they register."""

    def update(self, text: str) -> list[str]:
        """Apply `name=value` lines; returns the names that have no meaning here.

        Raises `SettingsError` on an invalid line or value, and then changes nothing.
        """
        found, ignored = {}, []
        names = {_java_name(item.name): item.name for item in fields(self)}
        for line in text.splitlines():
            name, equals, value = (part.strip() for part in line.partition("="))
            if not name or name.startswith(("#", "!")):
                continue
            if not equals:
                raise SettingsError(f"{line!r} is not a line of the form name=value")
            if name not in names:
                ignored.append(name)
            elif value.lower() not in ("true", "false"):
                raise SettingsError(f"{name} is {value!r}; it must be true or false")
            else:
                found[names[name]] = value.lower() == "true"
        for name, switch in found.items():
            setattr(self, name, switch)
        return ignored

    def properties(self, others: dict[str, object]) -> str:
        """All settings as properties text; `others` are those that cannot be changed."""
        own = {_java_name(item.name): str(getattr(self, item.name)).lower() for item in fields(self)}
        return "".join(f"{name}={value}\n" for name, value in sorted({**others, **own}.items()))


def names_in(text: str) -> set[str]:
    """The names that a properties text sets."""
    return {line.partition("=")[0].strip() for line in text.splitlines()}


def _java_name(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
