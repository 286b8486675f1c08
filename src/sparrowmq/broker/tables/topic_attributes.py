"""Attributes of topics: which ones RocketMQ 5 has, and which this broker supports (request 17, broker:1.4).

Pure. A request changes attributes by `+key=value` and `-key`, separated by commas. It is checked as in
RocketMQ's broker, with the same codes; attributes that RocketMQ stores but this broker does not support are
refused as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.refusals import Refused

MESSAGE_TYPE: Final = "message.type"
_LONG_MAX: Final = 2**63 - 1
_MONTH_MINUTES: Final = 30 * 24 * 60


def _refused(remark: str, code: ResponseCode = ResponseCode.SYSTEM_ERROR) -> Refused:
    """The refusal of a change of attributes."""
    return Refused(code, remark)


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute that RocketMQ knows: its values, or the range of its number, and the values that are
    `served` here. `changeable` ones may be added to or removed from an existing topic.
    """

    served: tuple[str, ...]
    values: tuple[str, ...] = ()
    range: tuple[int, int] = (0, 0)
    changeable: bool = False

    def check(self, key: str, value: str) -> None:
        """Raise `Refused` for a value that RocketMQ or this broker does not accept."""
        if self.values and value not in self.values:
            raise _refused(f"value is not in set: [{', '.join(self.values)}] (key: {key})")
        if not self.values and not self._is_in_range(value):
            low, high = self.range
            raise _refused(f"value is not in range({low}, {high}) (key: {key})")
        if value not in self.served:
            raise _refused(
                f"{key}={value} is not supported by this broker; it supports {', '.join(self.served)}"
            )

    def _is_in_range(self, value: str) -> bool:
        digits = value.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= len(str(_LONG_MAX))):
            return False
        return self.range[0] <= int(value) <= self.range[1]


KNOWN: Final = {
    "queue.type": Attribute(("SimpleCQ",), ("SimpleCQ", "BatchCQ")),
    "cleanup.policy": Attribute(("DELETE",), ("DELETE", "COMPACTION")),
    MESSAGE_TYPE: Attribute(
        ("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION"),
        ("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "PRIORITY", "LITE"),
        changeable=True,
    ),
    "reserve.time": Attribute(("-1",), range=(-1, _LONG_MAX), changeable=True),
    "lite.topic.expiration": Attribute(("-1",), range=(-1, _MONTH_MINUTES), changeable=True),
}
"""By key. Brokers do not check `message.type` of incoming messages: RocketMQ's proxy does."""


def parse(text: str) -> dict[str, str]:
    """The changes in a request by key with its sign; the value of `-key` is empty.

    Raises `Refused`.
    """
    changes: dict[str, str] = {}
    for part in text.rstrip(",").split(",") if text.rstrip(",") else ():
        key, equals, value = part.partition("=")
        if equals and ("+" not in key or not value or "=" in value):
            raise _refused(f"add/alter attribute format is wrong: {part} (write +key=value)")
        if not equals and "-" not in key:
            raise _refused(f"delete attribute format is wrong: {part} (write -key)")
        if key in changes:
            raise _refused(f"key duplication: {key}")
        changes[key] = value
    return changes


def altered(current: Mapping[str, str] | None, changes: Mapping[str, str]) -> dict[str, str]:
    """The attributes of a topic after `changes`, sorted by key; `current` is None for a new topic.

    Raises `Refused`: all changes are made, or none.
    """
    if changes.get(f"+{MESSAGE_TYPE}") == "MIXED":
        raise _refused("MIXED message type is not supported.", ResponseCode.INVALID_PARAMETER)
    result, seen = dict(current or {}), set()
    for signed, value in changes.items():
        sign, key = signed[:1], signed[1:]
        if not key or "+" in key or "-" in key:
            raise _refused(f"kv string format wrong. ({signed!r})")
        if key in seen:
            raise _refused(f"alter duplication key. key: {key}")
        seen.add(key)
        if sign == "+":
            result[key] = _checked(key, value, is_new=current is None)
        elif sign != "-":
            raise _refused(f"wrong format key: {signed} (write +key=value or -key)")
        elif current is None:
            raise _refused(f"only add attribute is supported while creating topic. key: {key}")
        elif key not in current:
            raise _refused(f"attempt to delete a nonexistent key: {key}")
        else:
            _known(key, is_new=False)
            del result[key]
    return dict(sorted(result.items()))


def _checked(key: str, value: str, *, is_new: bool) -> str:
    _known(key, is_new=is_new).check(key, value)
    return value


def _known(key: str, *, is_new: bool) -> Attribute:
    found = KNOWN.get(key)
    if found is None:
        raise _refused(f"unsupported key: {key} (known: {', '.join(KNOWN)})")
    if not is_new and not found.changeable:
        raise _refused(f"attempt to update an unchangeable attribute. key: {key}")
    return found


def not_served(attributes: Mapping[str, str]) -> list[str]:
    """The attributes of a topic, as stored by RocketMQ, that have no effect here."""
    found = []
    for key, value in attributes.items():
        known = KNOWN.get(key)
        if known is None or value not in known.served:
            found.append(f"{key}={value}")
    return found
