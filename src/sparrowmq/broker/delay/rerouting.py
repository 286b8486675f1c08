"""Where a message is actually stored: delayed and timed messages wait in internal topics (broker:8.1, 8.2).

One pure decision for every message that is not on the hot path: what its properties request, and with which
topic, queue and properties it is written to the log. Refusals carry the reference's codes and remarks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sparrowmq.core.delay import DEFAULT_LEVELS, DelayLevels
from sparrowmq.core.names import SCHEDULE_TOPIC, TIMER_TOPIC
from sparrowmq.protocol import properties as property_string
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.refusals import Refused
from sparrowmq.protocol.sysflag import TRANSACTION_COMMIT, TRANSACTION_MASK

if TYPE_CHECKING:
    from sparrowmq.core.settings.servers import BrokerSettings

PRECISION_MS: Final = 1000
"""One slot of the timer wheel (`timerPrecisionMs`)."""

DELAY: Final = "DELAY"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE_ID: Final = "REAL_QID"
TIMER_OUT: Final = "TIMER_OUT_MS"
TIMER_DELETE: Final = "TIMER_DEL_UNIQKEY"
DELETE_SEPARATOR: Final = "+"
"""Separator of topic and unique key in the value of `TIMER_DELETE`, for brokers configured to write both."""
TIMER_PROPERTIES: Final = ("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS")
"""Properties that request a time; the first one present takes precedence."""

_DELAY_MARK: Final = b"DELAY\x01"
_TIMER_MARK: Final = b"TIMER_D"
_INT64_MAX: Final = 2**63 - 1
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a message is stored, and with which properties.

    `delay_ms` is set for the delay topic: the tag code of the queue entry is the current time plus this
    value, even while store times do not advance because the clock was set back. `timer_out` is set for the
    timer topic: the slot, epoch ms.
    """

    topic: str
    queue_id: int
    properties: bytes
    delay_ms: int | None = None
    timer_out: int | None = None


@dataclass(frozen=True, slots=True)
class Rerouting:
    """The rules of one broker; `timer_max_ms` is how far ahead a message may be timed."""

    levels: DelayLevels = DEFAULT_LEVELS
    timer_enabled: bool = True
    timer_max_ms: int = 259_200_000

    @classmethod
    def of(cls, settings: BrokerSettings) -> Rerouting:
        """The rules from a broker's settings."""
        return cls(settings.delay_levels, settings.timer_wheel_enable, settings.timer_max_delay_sec * 1000)

    def place(self, topic: str, queue_id: int, properties: bytes, sys_flag: int, now_ms: int) -> Placement:
        """Where a message for `topic` and `queue_id` is stored at `now_ms`.

        Raises `Refused` for delays and times that are not numbers, times too far ahead, and timed messages
        while `timerWheelEnable` is off. Half messages of transactions are not rerouted.
        """
        plain = Placement(topic, queue_id, properties)
        if sys_flag & TRANSACTION_MASK & ~TRANSACTION_COMMIT:
            return plain
        if not asks_for_time(properties):
            return plain
        own = property_string.decode(properties)
        level = delay_level(own)
        if level > 0:
            return self._delayed(topic, queue_id, own, level)
        if topic == TIMER_TOPIC or TIMER_OUT in own or not any(name in own for name in TIMER_PROPERTIES):
            return plain
        return self._timed(plain, own, now_ms)

    def _delayed(self, topic: str, queue_id: int, own: dict[str, str], level: int) -> Placement:
        level = self.levels.cut(level)
        kept = {name: value for name, value in own.items() if name not in TIMER_PROPERTIES}
        kept |= {DELAY: str(level), REAL_TOPIC: topic, REAL_QUEUE_ID: str(queue_id)}
        text = property_string.encode(kept)
        return Placement(SCHEDULE_TOPIC, level - 1, text, delay_ms=self.levels.delay_ms(level))

    def _timed(self, plain: Placement, own: dict[str, str], now_ms: int) -> Placement:
        if not self.timer_enabled:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, "accurate timer message is not enabled, timerWheelEnable is false"
            )
        due = deliver_time(own, now_ms)
        if due is None or due - now_ms > self.timer_max_ms or (due <= now_ms and TIMER_DELETE in own):
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                "timer message illegal, the delay time should not be bigger than the max delay "
                f"{self.timer_max_ms}ms; or if set del msg, the delay time should be bigger than the "
                "current time",
            )
        if due <= now_ms:
            return plain
        slot = slot_of(due)
        added = {TIMER_OUT: str(slot), REAL_TOPIC: plain.topic, REAL_QUEUE_ID: str(plain.queue_id)}
        text = property_string.encode(own | added)
        return Placement(TIMER_TOPIC, 0, text, timer_out=slot)


def asks_for_time(properties: bytes) -> bool:
    """Whether a property string may request a delay or a time; other messages are not rerouted."""
    return _DELAY_MARK in properties or _TIMER_MARK in properties


def delay_level(own: dict[str, str]) -> int:
    """The delay level that a message requests, 0 if none; raises `Refused` when it is not a number."""
    text = own.get(DELAY)
    if text is None:
        return 0
    level = _number(text)
    if level is None or not -(2**31) <= level < 2**31:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f'java.lang.NumberFormatException: For input string: "{text[:40]}": the property DELAY takes '
            "the number of a delay level",
        )
    return level


def deliver_time(own: dict[str, str], now_ms: int) -> int | None:
    """When a timed message is due, epoch ms; None when the requested time is not a number."""
    name = next(name for name in TIMER_PROPERTIES if name in own)
    value = _number(own[name])
    if value is None or name == "TIMER_DELIVER_MS":
        return value
    return now_ms + (value * 1000 if name == "TIMER_DELAY_SEC" else value)


def slot_of(due: int) -> int:
    """The slot of the timer wheel, epoch ms: it fires a second later, so no message is early."""
    return (due - 1) // PRECISION_MS * PRECISION_MS


def _number(text: str) -> int | None:
    """A Java long, or None."""
    if not _NUMBER.fullmatch(text):
        return None
    value = int(text)
    return value if -_INT64_MAX - 1 <= value <= _INT64_MAX else None
