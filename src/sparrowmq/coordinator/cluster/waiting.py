"""Messages that wait at brokers: delayed by a level, timed, and half messages with their checks.

Brokers keep them in system topics. The number of messages read is limited, and results say whether they are
complete. It also works with Apache's brokers, which store them in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from sparrowmq.aio import Admin, PullConsumer
from sparrowmq.coordinator.cluster.bodies.unpacking import cost_of
from sparrowmq.coordinator.cluster.lives import due_of
from sparrowmq.coordinator.cluster.reading import read
from sparrowmq.core.delay import DELAY_LEVELS, DelayLevels
from sparrowmq.core.errors import NoRouteError, SparrowError
from sparrowmq.core.message import MessageQueue, ReceivedMessage
from sparrowmq.core.names import (
    GIVEN_UP_TOPIC,
    HALF_TOPIC,
    OP_HALF_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    is_system_topic,
)

READ_MAX: Final = 2000
"""Maximum number of messages of one queue that are read to find waiting ones."""
SHOWN_MAX: Final = 500
BODY_BYTES: Final = 8192
"""Number of bytes kept of a body: op messages are smaller (`transactionOpMsgMaxSize`)."""
CHECK_GROUP: Final = "CID_RMQ_SYS_TRANS"
"""Group whose offsets show the progress of the checks of half messages."""
BYTES_MAX: Final = 32 * 1024 * 1024
"""Maximum number of bytes of all messages of one query, including properties."""
LEVEL_KEY: Final = "scheduleMessageOffset_"


@dataclass(slots=True)
class _Left:
    """The bytes that one query of all queues may still read."""

    size: int = BYTES_MAX
    is_over: bool = False


@dataclass(frozen=True, slots=True)
class WaitingMessage:
    """A delayed message: its topic, when it is due (epoch ms; None if missing), and `level`, 0 for a message
    with its own time.
    """

    message: ReceivedMessage
    topic: str
    due_ms: int | None
    level: int


@dataclass(frozen=True, slots=True)
class LevelCount:
    """Undelivered messages of one level at one broker; level 0 has messages with their own time, counted
    among those that were read.
    """

    broker: str
    level: int
    delay_ms: int | None
    messages: int


@dataclass(frozen=True, slots=True)
class AllWaiting:
    """Waiting messages: counts by level, and messages, the soonest first. Without `is_whole` there are
    more.
    """

    counts: Sequence[LevelCount]
    messages: Sequence[WaitingMessage]
    is_whole: bool
    failed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OpenHalf:
    """An open half message, or one that was given up: the checks and the group of its producer."""

    message: ReceivedMessage
    topic: str
    group: str
    checks: int
    is_given_up: bool


@dataclass(frozen=True, slots=True)
class AllHalves:
    """Half messages that are open or given up, the oldest first. Without `is_whole` there are more."""

    messages: Sequence[OpenHalf]
    is_whole: bool
    failed: Mapping[str, str] = field(default_factory=dict)


async def waiting(admin: Admin, reader: PullConsumer, brokers: Sequence[str], now_ms: int) -> AllWaiting:
    """Delayed messages at these brokers (names of masters) at a time."""
    counts: list[LevelCount] = []
    found: list[WaitingMessage] = []
    failed: dict[str, str] = {}
    is_whole, left = True, _Left()
    for broker in brokers:
        try:
            levels = await _levels(admin, broker)
            here = waiting_at(broker, await admin.brokers.info(broker), levels)
            counts += [count for count, _, _ in here]
            for count, first, end in here:
                queue = MessageQueue(SCHEDULE_TOPIC, broker, count.level - 1)
                listed = await _stretch(reader, queue, first, min(end, first + READ_MAX), left)
                found += [_by_level(one, levels) for one in listed]
                is_whole = is_whole and end - first <= READ_MAX
            every, whole = await _timed(reader, broker, now_ms, left)
            timed = [one for one in every if not is_system_topic(one.topic)]  # such as POP's check points
            counts.append(LevelCount(broker, 0, None, len(timed)))
            found += timed
            is_whole = is_whole and whole
        except SparrowError as error:
            failed[broker] = str(error)
    found.sort(key=lambda one: (one.due_ms is None, one.due_ms or 0))
    return AllWaiting(
        counts, found[:SHOWN_MAX], is_whole and not left.is_over and len(found) <= SHOWN_MAX, failed
    )


def waiting_at(
    broker: str, told: Mapping[str, str], levels: DelayLevels
) -> list[tuple[LevelCount, int, int]]:
    """Number of waiting messages in each level from a broker's report, and their first and last offsets.
    Empty levels are omitted. Pure.
    """
    found = []
    for name, value in told.items():
        level, (first, _, end) = name.removeprefix(LEVEL_KEY), value.partition(",")
        if not name.startswith(LEVEL_KEY) or not all(map(_is_number, (level, first, end))):
            continue
        number, begin, until = int(level), int(first), int(end)
        if until > begin and number:
            count = LevelCount(broker, number, levels.delay_ms(number), until - begin)
            found.append((count, begin, until))
    return sorted(found, key=lambda one: one[0].level)


def still_timed(messages: Iterable[ReceivedMessage], now_ms: int) -> list[WaitingMessage]:
    """Timed messages that are due later than now, without duplicates and cancelled ones.

    Pure. A message with a long delay is stored again in the meantime, and the mark that cancels one is stored
    like a message.
    """
    taken: set[tuple[str, str]] = set()
    latest: dict[tuple[str, str], ReceivedMessage] = {}
    for one in messages:
        own = one.properties
        topic = own.get("REAL_TOPIC", "")
        if (mark := own.get("TIMER_DEL_UNIQKEY")) is not None:
            taken.add((topic, mark.removeprefix(f"{topic}+")))
            continue
        latest[topic, one.message_id] = one
    found = []
    for key, one in latest.items():
        due = due_of(one)
        if key not in taken and (due is None or due > now_ms):
            found.append(WaitingMessage(one, key[0], due, 0))
    return found


async def halves(admin: Admin, reader: PullConsumer, brokers: Sequence[str]) -> AllHalves:
    """Half messages of these brokers (names of masters) that are open or were given up."""
    found: list[OpenHalf] = []
    failed: dict[str, str] = {}
    is_whole, left = True, _Left()
    for broker in brokers:
        half, op = MessageQueue(HALF_TOPIC, broker, 0), MessageQueue(OP_HALF_TOPIC, broker, 0)
        try:
            listed, whole = await _since_checks(admin, reader, half, left)
            ended, op_whole = await _since_checks(admin, reader, op, left)
            found += open_halves(listed, ended)
            given = await _last(reader, MessageQueue(GIVEN_UP_TOPIC, broker, 0), left)
            found += [_half(one, is_given_up=True) for one in given]
            is_whole = is_whole and whole and op_whole
        except SparrowError as error:
            failed[broker] = str(error)
    found.sort(key=lambda one: one.message.born_timestamp)
    return AllHalves(found[:SHOWN_MAX], is_whole and not left.is_over and len(found) <= SHOWN_MAX, failed)


def open_halves(halves: Iterable[ReceivedMessage], ops: Iterable[ReceivedMessage]) -> list[OpenHalf]:
    """Half messages that no op message ends. A half message that was checked is stored again, and names the
    first one of its transaction: the latest copy counts, and an op message that ends any copy ends all. Pure.
    """
    ended = {number for op in ops for number in op_numbers(op.body)}
    latest: dict[int, ReceivedMessage] = {}
    over: set[int] = set()
    for one in halves:
        first = _number(one.properties.get("TRAN_PREPARED_QUEUE_OFFSET"), one.queue_offset)
        origin = first if 0 <= first < one.queue_offset else one.queue_offset
        latest[origin] = one
        if one.queue_offset in ended or origin in ended:
            over.add(origin)
    return [_half(one) for origin, one in latest.items() if origin not in over]


def op_numbers(body: bytes) -> list[int]:
    """Offsets of the half messages that an op message ends; 5.x joins several with commas. Pure."""
    return [int(part) for part in body.split(b",") if part.isdigit() and len(part) <= 18]


async def _levels(admin: Admin, broker: str) -> DelayLevels:
    settings = await admin.brokers.settings(broker)
    try:
        return DelayLevels.parse(settings.get("messageDelayLevel") or DELAY_LEVELS)
    except ValueError:
        return DelayLevels.parse(DELAY_LEVELS)


def _by_level(one: ReceivedMessage, levels: DelayLevels) -> WaitingMessage:
    level = one.queue.queue_id + 1
    return WaitingMessage(
        one, one.properties.get("REAL_TOPIC", ""), one.store_timestamp + levels.delay_ms(level), level
    )


async def _timed(
    reader: PullConsumer, broker: str, now_ms: int, left: _Left
) -> tuple[list[WaitingMessage], bool]:
    """Timed messages among the last stored ones; whether all of them were read."""
    listed, is_whole = await _end_of(reader, MessageQueue(TIMER_TOPIC, broker, 0), left)
    return still_timed(listed, now_ms), is_whole


async def _last(reader: PullConsumer, queue: MessageQueue, left: _Left) -> list[ReceivedMessage]:
    return (await _end_of(reader, queue, left))[0]


async def _end_of(
    reader: PullConsumer, queue: MessageQueue, left: _Left
) -> tuple[list[ReceivedMessage], bool]:
    """The last `READ_MAX` messages of a queue, and whether these are all; none if it does not exist."""
    try:
        first, end = await reader.min_offset(queue), await reader.max_offset(queue)
    except NoRouteError:
        return [], True
    begin = max(first, end - READ_MAX)
    return await _stretch(reader, queue, begin, end, left), begin == first


async def _since_checks(
    admin: Admin, reader: PullConsumer, queue: MessageQueue, left: _Left
) -> tuple[list[ReceivedMessage], bool]:
    """Messages stored after the offset of the checks, and whether these are all."""
    first, end = await reader.min_offset(queue), await reader.max_offset(queue)
    begin = max(first, await admin.groups.committed(CHECK_GROUP, queue) or 0)
    found = await _stretch(reader, queue, begin, min(end, begin + READ_MAX), left)
    return found, end - begin <= READ_MAX


async def _stretch(
    reader: PullConsumer, queue: MessageQueue, offset: int, end: int, left: _Left
) -> list[ReceivedMessage]:
    """The messages from an offset up to another, within the limit of bytes. Bodies are as they are stored and
    truncated; messages of these topics are not compressed.
    """
    found: list[ReceivedMessage] = []
    while offset < end:
        if left.size <= 0:
            left.is_over = True
            break
        batch = await read(reader, queue, offset)
        for one in batch.messages:
            if one.queue_offset < end:
                one.body = one.body[:BODY_BYTES]
                left.size -= cost_of(one)
                found.append(one)
        if batch.next_offset <= offset:
            break
        offset = batch.next_offset
    return found


def _half(one: ReceivedMessage, *, is_given_up: bool = False) -> OpenHalf:
    own = one.properties
    checks = _number(own.get("TRANSACTION_CHECK_TIMES"), 0)
    return OpenHalf(one, own.get("REAL_TOPIC", ""), own.get("PGROUP", ""), checks, is_given_up)


def _number(text: str | None, default: int) -> int:
    return int(text) if text is not None and _is_number(text) else default


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 18
