"""Names of POP's topics, receipts, and the texts in the headers of its answers (broker:13.1 to 13.3).

A receipt (`extraInfo`, the property `POP_CK`) names the check point of a message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from sparrowmq.core.errors import HeaderError
from sparrowmq.core.names import RETRY_PREFIX

REVIVE_PREFIX: Final = "rmq_sys_REVIVE_LOG_"
REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"
"""The group whose offset in a revive queue is that of the last check point that is settled."""
ORDER_QUEUE: Final = 999
"""Stands for the revive queue in receipts of ordered POP, which has no check points."""
FIRST_POP_TIME: Final = "1ST_POP_TIME"
"""The property with the time of a message's first POP, epoch ms."""

NORMAL, RETRY_V1, RETRY_V2 = "0", "1", "2"
"""In headers and receipts: which topic stored a message."""
_V1, _V2 = "_", "+"


def revive_topic(cluster: str) -> str:
    """The topic of a cluster's check points and acknowledgements."""
    return REVIVE_PREFIX + cluster


def pop_retry_topic(group: str, topic: str, *, v2: bool = False) -> str:
    """The topic for messages of `topic` that a group got by POP and did not acknowledge in time."""
    return f"{RETRY_PREFIX}{group}{_V2 if v2 else _V1}{topic}"


def normal_topic(topic: str, group: str) -> str:
    """The topic whose retries `topic` has for the group; `topic` itself if it is not such a retry topic."""
    for separator in (_V2, _V1):
        prefix = f"{RETRY_PREFIX}{group}{separator}"
        if topic.startswith(prefix):
            return topic[len(prefix) :]
    return topic


def retry_flag(topic: str) -> str:
    """How headers and receipts name the kind of a topic."""
    if not topic.startswith(RETRY_PREFIX):
        return NORMAL
    return RETRY_V2 if _V2 in topic else RETRY_V1


def real_topic(topic: str, group: str, flag: str) -> str:
    """The topic that stored a message of `topic`, by its flag. Raises `HeaderError` for an unknown flag."""
    if flag == NORMAL:
        return topic
    if flag not in (RETRY_V1, RETRY_V2):
        raise HeaderError(f"the retry flag is {flag[:20]!r}; it is 0, 1 or 2")
    return pop_retry_topic(group, topic, v2=flag == RETRY_V2)


class Receipt(NamedTuple):
    """Names the check point of one message, and the message: the eight parts of `extraInfo`.

    `start_offset` is the first offset of its check point, `offset` the message's own. Older texts end before
    `offset`; it is then -1.
    """

    start_offset: int
    pop_time: int
    invisible_time: int
    revive_queue: int
    flag: str
    broker_name: str
    queue_id: int
    offset: int = -1

    @classmethod
    def parse(cls, text: str) -> Receipt:
        """The receipt in `extraInfo` or `POP_CK`. Raises `HeaderError`."""
        parts = text.split(" ")
        if not 7 <= len(parts) <= 8:
            raise HeaderError(f"the receipt {text[:80]!r} has {len(parts)} parts, not 8 separated by spaces")
        try:
            start, pop_time, invisible, revive = map(int, parts[:4])
            queue_id, offset = int(parts[6]), int(parts[7]) if len(parts) == 8 else -1
        except ValueError:
            raise HeaderError(
                f"the receipt {text[:80]!r} has a part that is not a number; send it unchanged"
            ) from None
        return cls(start, pop_time, invisible, revive, parts[4], parts[5], queue_id, offset)

    def encode(self) -> str:
        """The text of all eight parts."""
        return " ".join(map(str, self))

    @property
    def is_ordered(self) -> bool:
        """Whether it is of an ordered POP."""
        return self.revive_queue == ORDER_QUEUE


# Texts in the headers of answers


def start_offset_info(flag: str, queue_id: int, start_offset: int) -> str:
    """One entry of `startOffsetInfo`; entries are joined with `;`."""
    return f"{flag} {queue_id} {start_offset}"


def message_offset_info(flag: str, queue_id: int, offsets: Sequence[int]) -> str:
    """One entry of `msgOffsetInfo`."""
    return f"{flag} {queue_id} {','.join(map(str, offsets))}"


def order_count_info(flag: str, queue_id: int, counts: Mapping[int, int], batch: int) -> str:
    """The entries of `orderCountInfo` for a queue: how often each message was handed out before, and the
    smallest of these numbers for clients that know only the queue. `batch` messages are handed out now.
    """
    parts = [f"{flag} qo{queue_id}%{offset} {count}" for offset, count in counts.items()]
    least = min(counts.values()) if counts and len(counts) == batch else 0
    return ";".join((*parts, f"{flag} {queue_id} {least}"))


def _entries(text: str | None, what: str) -> dict[tuple[str, str], str]:
    found: dict[tuple[str, str], str] = {}
    for one in text.split(";") if text else ():
        parts = one.split(" ")
        if len(parts) != 3 or (parts[0], parts[1]) in found:
            raise HeaderError(f"{what} has the entry {one[:80]!r}, which is not 'flag queue value', or twice")
        found[parts[0], parts[1]] = parts[2]
    return found


def parse_start_offsets(text: str | None) -> dict[tuple[str, int], int]:
    """`startOffsetInfo` by flag and queue id. Raises `HeaderError`."""
    try:
        return {
            (flag, int(queue)): int(value)
            for (flag, queue), value in _entries(text, "startOffsetInfo").items()
        }
    except ValueError as error:
        raise HeaderError(f"startOffsetInfo {text!r:.80}: {error}") from None


def parse_message_offsets(text: str | None) -> dict[tuple[str, int], list[int]]:
    """`msgOffsetInfo` by flag and queue id. Raises `HeaderError`."""
    try:
        return {
            (flag, int(queue)): list(map(int, value.split(",")))
            for (flag, queue), value in _entries(text, "msgOffsetInfo").items()
        }
    except ValueError as error:
        raise HeaderError(f"msgOffsetInfo {text!r:.80}: {error}") from None


def parse_order_counts(text: str | None) -> dict[tuple[str, str], int]:
    """`orderCountInfo` by flag and `qo<queue>%<offset>`, or the queue id as text. Raises `HeaderError`."""
    try:
        return {key: int(value) for key, value in _entries(text, "orderCountInfo").items()}
    except ValueError as error:
        raise HeaderError(f"orderCountInfo {text!r:.80}: {error}") from None
