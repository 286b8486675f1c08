"""Stalls: turns of a server's loop that took too long, their details, and the list of recent ones. Pure."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from sparrowmq.core.errors import SparrowError

LAST_MAX: Final = 16
LONGEST_MAX: Final = 16
KEY_COUNT: Final = "loopStalls"
KEY_TOTAL: Final = "loopStallMillisTotal"
KEY_LONGEST_MILLIS: Final = "loopStallMillisMax"
KEY_LAST: Final = "loopStallsLast"
KEY_LONGEST: Final = "loopStallsLongest"
"""Keys in a server's runtime information (code 28); the last two are JSON lists."""


@dataclass(frozen=True, slots=True)
class Stall:
    """One turn of a loop that kept others waiting for too long. Times are milliseconds.

    `wall_ms` is the elapsed time. For `waited_ms` of it the loop's thread was runnable but had no processor;
    for `cpu_ms` it ran. Meanwhile other threads of the process ran for `others_ms`. For `paused_ms` neither
    the loop nor the watching thread could run: the process was stopped, or another thread held the
    interpreter.
    """

    at_ms: int
    """When it was recorded, at its end, in epoch milliseconds."""
    what: str
    """The requests, or the task, that ran; `?` when unknown."""
    client: str = ""
    """`host:port` of the client whose requests ran; empty when there were none."""
    wall_ms: float = 0.0
    cpu_ms: float = 0.0
    waited_ms: float = 0.0
    others_ms: float = 0.0
    paused_ms: float = 0.0
    where: tuple[str, ...] = field(default=())
    """The calls observed on the stack, innermost first, as `file:line function`."""
    ids: str = ""
    """By what the requests are found at the client and in traces, such as `number 7, message A, trace B`."""

    @property
    def own_ms(self) -> float:
        """The reported duration: the elapsed time without the wait for a processor."""
        return max(0.0, self.wall_ms - self.waited_ms)

    def sentence(self) -> str:
        """A sentence for the log."""
        source = f" from {self.client}" if self.client else ""
        place = f"; it was at {' < '.join(self.where[:4])}" if self.where else ""
        ids = f"; {self.ids}" if self.ids else ""
        return (
            f"nobody else was served for {self.own_ms:.0f} ms (of {self.wall_ms:.0f} ms on the clock it ran "
            f"{self.cpu_ms:.0f} and waited {self.waited_ms:.0f} for a processor): {self.what}{source}"
            f"{place}{ids}"
        )

    def to_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return {**asdict(self), "where": list(self.where), "own_ms": round(self.own_ms, 1)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Stall:
        """The inverse of `to_dict`. Raises `SparrowError` for anything else."""
        try:
            return cls(
                at_ms=int(values["at_ms"]),
                what=str(values["what"]),
                client=str(values["client"]),
                where=tuple(map(str, values["where"])),
                ids=str(values.get("ids", "")),
                **{name: float(values[name]) for name in _NUMBERS},
            )
        except (KeyError, TypeError, ValueError) as error:
            raise SparrowError(f"this is not a stall: {str(values)[:200]!r} ({error})") from None


_NUMBERS: Final = ("wall_ms", "cpu_ms", "waited_ms", "others_ms", "paused_ms")


class StallBook:
    """The stalls of one loop: how many, the last and the longest `LAST_MAX` and `LONGEST_MAX`."""

    def __init__(self) -> None:
        self.count = 0
        self.total_ms = 0.0
        self.last: deque[Stall] = deque(maxlen=LAST_MAX)
        self.longest: list[Stall] = []

    def __repr__(self) -> str:
        return f"<StallBook {self.count} stalls>"

    def add(self, stall: Stall) -> None:
        """Add a stall."""
        self.count += 1
        self.total_ms += stall.own_ms
        self.last.append(stall)
        self.longest = sorted([*self.longest, stall], key=lambda one: -one.own_ms)[:LONGEST_MAX]

    def table(self) -> dict[str, str]:
        """The entries for a server's runtime information."""
        return {
            KEY_COUNT: str(self.count),
            KEY_TOTAL: f"{self.total_ms:.0f}",
            KEY_LONGEST_MILLIS: f"{self.longest[0].own_ms if self.longest else 0:.0f}",
            KEY_LAST: _listed(reversed(self.last)),
            KEY_LONGEST: _listed(self.longest),
        }


def _listed(stalls: Any) -> str:
    return json.dumps([stall.to_dict() for stall in stalls], separators=(",", ":"))


def told_stalls(runtime: Mapping[str, str], *, longest: bool) -> list[Stall]:
    """The stalls in a server's runtime information, longest first or latest first.

    Raises `SparrowError` when it has no such entries, as with other servers than SparrowMQ's.
    """
    text = runtime.get(KEY_LONGEST if longest else KEY_LAST)
    if text is None:
        raise SparrowError("this server does not report stalls; only SparrowMQ's servers do")
    try:
        listed = json.loads(text)
    except ValueError as error:
        raise SparrowError(f"the stalls that this server reports cannot be read: {error}") from None
    if not isinstance(listed, list):
        raise SparrowError(f"the stalls that this server reports are not a list: {text[:200]!r}")
    return [Stall.from_dict(one if isinstance(one, dict) else {}) for one in listed]
