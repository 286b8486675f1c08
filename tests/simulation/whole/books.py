"""The books of a walk: each acknowledged message has a place that somebody counts.

A message is *open* for a group until one of its handlers finished with it. It may stay open only where the
broker counts it, or after an act that is known to take messages from groups, which is entered by name.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field


@dataclass
class Sent:
    """A message that was sent. Each group's handler fails with it `failures` times."""

    number: int
    topic: str
    kind: str
    tag: str = ""
    failures: int = 0
    queue_id: int = 0
    offset: int = -1
    """Where it is in its queue; -1 if that is unknown, as of a message that is delivered later."""
    is_acknowledged: bool = False
    is_wanted: bool = True
    """False for one whose transaction is rolled back: nobody may get it."""

    @property
    def place(self) -> tuple[str, int]:
        """Topic and queue id."""
        return self.topic, self.queue_id

    @property
    def body(self) -> bytes:
        """What handlers know it by."""
        return str(self.number).encode()


@dataclass(frozen=True)
class Counted:
    """What a broker says about where messages are that nobody has handled."""

    lag: dict[tuple[str, str, int], int] = field(default_factory=dict)
    """By group, topic and queue."""
    delayed: int = 0
    timed: int = 0
    halves: int = 0
    dead: dict[str, set[int]] = field(default_factory=dict)
    """The numbers of the dead letters of each group."""
    lost: int = 0
    """Messages of which the broker says that it lost them, since it started."""

    def of_group(self, group: str) -> int:
        """Messages that a group may still get, or that are dead for it."""
        lag = sum(count for (name, _, _), count in self.lag.items() if name == group)
        return lag + self.delayed + self.timed + self.halves + len(self.dead.get(group, ()))

    @property
    def is_drained(self) -> bool:
        """Whether nothing is left to come."""
        return not (self.delayed or self.timed or self.halves or any(self.lag.values()))


class Books:
    """What was acknowledged, handled, and lost by a known act."""

    def __init__(self, groups: Iterable[str], once: Iterable[str] = ()) -> None:
        """Messages are not tried again for the groups `once`, so their handlers do not fail."""
        self.groups = tuple(groups)
        self._once = tuple(once)
        self.sent: dict[int, Sent] = {}
        self.handled: dict[str, Counter[int]] = {group: Counter() for group in self.groups}
        self.tries: dict[str, Counter[int]] = {group: Counter() for group in self.groups}
        self.lost: dict[str, dict[int, str]] = defaultdict(dict)
        self.found: list[str] = []
        """What did not balance on the way."""

    def new(self, topic: str, kind: str, *, tag: str = "", failures: int = 0) -> Sent:
        """A message that will be sent."""
        sent = Sent(len(self.sent), topic, kind, tag, failures)
        self.sent[sent.number] = sent
        return sent

    def fails(self, group: str, number: int) -> bool:
        """Whether the group's handler, which is called with a message now, fails."""
        self.tries[group][number] += 1
        if group not in self._once and self.tries[group][number] <= self.sent[number].failures:
            return True
        self.handled[group][number] += 1
        return False

    def lose(
        self,
        act: str,
        *,
        topic: str | None = None,
        groups: Iterable[str] | None = None,
        above: int = -1,
        which: Callable[[Sent], bool] = lambda sent: True,
    ) -> None:
        """An act took messages from groups: all that are not handled, or those of a topic, in its queues
        above one."""
        for group in self.groups if groups is None else groups:
            for sent in self.sent.values():
                is_meant = topic in (None, sent.topic) and sent.queue_id > above and which(sent)
                if is_meant and not self.handled[group][sent.number]:
                    self.lost[group].setdefault(sent.number, act)

    def open(self, group: str) -> list[int]:
        """Messages that the group wants, has not handled, and has not lost."""
        handled, lost = self.handled[group], self.lost[group]
        return [
            number
            for number, sent in self.sent.items()
            if sent.is_acknowledged and not handled[number] and number not in lost
        ]

    def problems(self, counted: Counted, but: Iterable[str] = ()) -> list[str]:
        """Why the books do not balance while nobody consumes. Brokers count nothing for the groups `but`."""
        found = self.found + [
            f"group {group} has a lag of {lag} in {topic}/{queue}"
            for (group, topic, queue), lag in counted.lag.items()
            if lag < 0
        ]
        for group in self.groups:
            left = self.open(group)
            if group not in but and len(left) > counted.of_group(group):
                found.append(f"group {group} has not handled {self.told(left)}, and {counted} counts fewer")
            wrong = [number for number in self.handled[group] if not self.sent[number].is_wanted]
            if wrong:
                found.append(f"group {group} got {self.told(wrong)}, which were rolled back")
        taken = sum(map(len, self.lost.values()))
        if counted.lost > taken:
            found.append(f"the broker says that it lost {counted.lost} messages, and the acts took {taken}")
        return found

    def told(self, numbers: list[int]) -> str:
        """Messages in words."""
        sent = [self.sent[number] for number in numbers[:8]]
        parts = [f"{one.number} ({one.kind} to {one.topic}/{one.queue_id})" for one in sent]
        return f"{len(numbers)} messages: {', '.join(parts)}"
