"""Facts about a cluster as Apache's mqadmin prints them, as our API answers, and as the broker stores them.

Where mqadmin and the API differ, the files of the broker decide, read without our own store.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

Values: TypeAlias = Mapping[str, Any]
"""Values by the names of things; None is unknown."""
Lines: TypeAlias = Sequence[Sequence[str]]
"""Lines in words."""

ENTRY: Final = struct.Struct(">qiq")
"""An entry of a consume queue: position in the commit log, size, hash of the tag."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact: the command of mqadmin, the path of the API and the page that show it, and how to read both.

    `stored` reads it from the broker's files; without it, nobody decides. `shows` is on the page.
    """

    name: str
    command: Sequence[str]
    path: str
    page: str
    shows: str
    printed: Callable[[Lines], Values]
    answered: Callable[[Any], Values]
    stored: Callable[[ApacheStore], Values] | None = None


class ApacheStore:
    """The directory of a broker of Apache's, which may be running."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def __repr__(self) -> str:
        return f"<ApacheStore {self._root}>"

    @property
    def log_begin(self) -> int:
        """Where the commit log begins: its files are named by their first positions."""
        return min(_starts(self._root / "commitlog"))

    @property
    def log_end(self) -> int:
        """Where the last message of all queues ends."""
        queues = (self._root / "consumequeue").glob("*/*")
        return max((position + size for queue in queues for _, position, size in _entries(queue)), default=0)

    def queue(self, topic: str, number: int) -> tuple[int, int]:
        """The offsets of a queue's first message that is still in the commit log, and of its next one."""
        begin, first, end = self.log_begin, 0, 0
        for offset, position, _ in _entries(self._root / "consumequeue" / topic / str(number)):
            end = offset + 1
            if position < begin:
                first = end
        return first, end

    def topic(self, topic: str) -> dict[str, tuple[int, int]]:
        """The same of all queues that have messages."""
        found = (self._root / "consumequeue" / topic).iterdir()
        return {one.name: self.queue(topic, int(one.name)) for one in sorted(found)}

    def offsets(self) -> dict[str, dict[str, dict[str, int]]]:
        """The committed offsets: group, topic, queue."""
        text = (self._root / "config" / "consumerOffset.json").read_text()
        table = json.loads(re.sub(r"([{,]\s*)(\d+)\s*:", r'\1"\2":', text))["offsetTable"]
        found: dict[str, dict[str, dict[str, int]]] = {}
        for place, queues in table.items():
            topic, _, group = place.partition("@")
            found.setdefault(group, {})[topic] = queues
        return found

    def progress(self, group: str, topic: str) -> dict[str, tuple[int, int, int]]:
        """By queue: its next offset, the group's offset, and how many messages the group can still read."""
        found = {}
        for queue, offset in sorted(self.offsets().get(group, {}).get(topic, {}).items()):
            first, end = self.queue(topic, int(queue))
            found[queue] = end, offset, max(0, end - max(first, offset))
        return found

    def lags(self) -> dict[str, int]:
        """How many messages each group with offsets can still read."""
        return {
            group: sum(row[2] for topic in topics for row in self.progress(group, topic).values())
            for group, topics in self.offsets().items()
        }


def _starts(directory: Path) -> list[int]:
    return sorted(int(one.name) for one in directory.iterdir() if one.name.isdecimal())


def _entries(directory: Path) -> list[tuple[int, int, int]]:
    """The entries of a consume queue: offset, position, size. Unused ones are zeros; a queue that never had a
    message has no directory.
    """
    found: list[tuple[int, int, int]] = []
    if not directory.is_dir():
        return found
    for start in _starts(directory):
        content = (directory / f"{start:020}").read_bytes()
        for number, (position, size, _) in enumerate(ENTRY.iter_unpack(content)):
            if size:
                found.append((start // ENTRY.size + number, position, size))
    return found


# What mqadmin prints


def words_of(text: str) -> Lines:
    """Lines that have words, in words."""
    return [line.split() for line in text.splitlines() if line.strip()]


def brokers_printed(lines: Lines) -> Values:
    """`clusterList`: name, id and version of each broker."""
    return {row[3]: (row[1], row[2], row[4]) for row in lines if len(row) > 6 and ":" in row[3]}


def log_printed(lines: Lines) -> Values:
    """`brokerStatus`: the bytes of the log."""
    told = {row[0]: row[2] for row in lines if len(row) > 2 and row[1] == ":"}
    return {"bytes": int(told["commitLogMaxOffset"]) - int(told["commitLogMinOffset"])}


def topic_printed(lines: Lines) -> Values:
    """`topicStatus`: the first and the next offset of each queue that has messages."""
    rows = [row for row in lines if len(row) > 3 and row[1].isdecimal() and row[3] != "0"]
    return {row[1]: (int(row[2]), int(row[3])) for row in rows}


def progress_printed(topic: str, lines: Lines) -> Values:
    """`consumerProgress -g`: the next offset, the group's offset and the lag of each queue of a topic."""
    rows = [row for row in lines if row[0] == topic]
    return {row[2]: (int(row[3]), int(row[4]), int(row[5])) for row in rows}


def lags_printed(lines: Lines) -> Values:
    """`consumerProgress`: the lag of each group."""
    return {row[0]: int(row[-1]) for row in lines if not row[0].startswith("#") and row[-1].isdecimal()}


def lag_printed(group: str, lines: Lines) -> Values:
    """`consumerProgress -g`: the lag of one group."""
    totals = [int(row[-1]) for row in lines if row[:3] == ["Consume", "Diff", "Total:"]]
    return {group: totals[0] if totals else None}


def found_printed(lines: Lines) -> Values:
    """`queryMsgByKey`: queue and offset of each message."""
    return {row[0]: (int(row[1]), int(row[2])) for row in lines if len(row) > 2 and row[1].isdecimal()}


def held_printed(topic: str, lines: Lines) -> Values:
    """`consumerStatus -i`: the queues of a topic that a member has."""
    begin = next(number for number, row in enumerate(lines) if row == ["#Consumer", "Offset#"])
    end = next(number for number, row in enumerate(lines) if row == ["#Consumer", "MQ", "Detail#"])
    return {row[2]: row[1] for row in lines[begin:end] if row[0] == topic}


# What the API answers


def brokers_answered(found: Any) -> Values:
    """The same of `/cluster/servers`."""
    rows = found["brokers"]
    return {one["address"]: (one["broker"], str(one["broker_id"]), one["version"]) for one in rows}


def log_answered(found: Any) -> Values:
    """The same of `/cluster/disks`, where there is one broker."""
    (disk,) = found["disks"]
    return {"bytes": disk["log_bytes"]}


def topic_answered(found: Any) -> Values:
    """The same of `/cluster/topics/TOPIC`."""
    return {str(one["queue"]): (one["first"], one["next"]) for one in found["queues"] if one["next"]}


def progress_answered(topic: str, found: Any) -> Values:
    """The same of `/cluster/groups/GROUP/progress`."""
    rows = [one for one in found if one["topic"] == topic]
    return {str(one["queue"]): (one["next"], one["offset"], one["lag"]) for one in rows}


def lags_answered(found: Any) -> Values:
    """The same of `/cluster/lag`, of groups that have offsets."""
    return {one["group"]: one["messages"] for one in found["groups"] if one["queues"]}


def lag_answered(group: str, found: Any) -> Values:
    """The same of one group."""
    return {group: next(one["messages"] for one in found["groups"] if one["group"] == group)}


def found_answered(found: Any) -> Values:
    """The same of `/cluster/messages/TOPIC/by-key`."""
    return {one["message_id"]: (one["queue"], one["offset"]) for one in found}


def held_answered(topic: str, found: Any) -> Values:
    """The same of a member of a group: `/cluster/groups/GROUP/members/CLIENT`."""
    return {str(one["queue"]): one["broker"] for one in found["queues"] if one["topic"] == topic}


# Who is right


def verdict(mqadmin: Values, console: Values, stored: Values | None) -> str:
    """Whether both have the same values, and who has those of the broker's files. Pure."""
    same = "equal" if mqadmin == console else "different"
    if stored is None:
        return same
    both = (("mqadmin", mqadmin), ("console", console))
    right = " and ".join(name for name, values in both if values == stored)
    return f"{same}; right: {right or 'neither'}"
