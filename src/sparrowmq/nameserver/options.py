"""The few settings of a name server, by RocketMQ's names (broker:15.4), and their properties text."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from sparrowmq.core.errors import SettingsError

BLACK_LIST: Final = frozenset({"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"})
"""Names that may not be changed from outside."""


@dataclass(slots=True)
class Options:
    """What may be switched while the name server runs; a restart brings the given values back."""

    order_message_enable: bool = False
    """Routes of ordered topics say so, with the queues of the key-value table."""
    return_order_topic_config_to_broker: bool = True
    """Brokers get that table when they register."""

    def update(self, text: str) -> list[str]:
        """Take `name=value` lines; gives the names that mean nothing here.

        Raises `SettingsError` on a line or value that is wrong, and has changed nothing then.
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
                raise SettingsError(f"{name} is {value!r}; it can be true or false")
            else:
                found[names[name]] = value.lower() == "true"
        for name, switch in found.items():
            setattr(self, name, switch)
        return ignored

    def properties(self, others: dict[str, object]) -> str:
        """All settings as properties text; `others` are those that cannot be switched."""
        own = {_java_name(item.name): str(getattr(self, item.name)).lower() for item in fields(self)}
        return "".join(f"{name}={value}\n" for name, value in sorted({**others, **own}.items()))


def names_in(text: str) -> set[str]:
    """The names that properties text sets."""
    return {line.partition("=")[0].strip() for line in text.splitlines()}


def _java_name(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
