"""Decisions about transactions: what is stored, which half messages are open, and what a check does
(broker:9).

A half message waits in queue 0 of the half topic until its producer ends it. Ending it writes an op record
that names its queue offset. A half message that is checked is copied to the queue's end first, so that the
queue can move on; every copy names the first half message of its transaction (`TRAN_PREPARED_QUEUE_OFFSET`),
and only the latest copy is open. The commit log contains all of this: `OpenHalves` is built from it at the
start.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec

from sparrowmq.broker.base.internal_store import InnerMessage
from sparrowmq.core.errors import InvalidMessageError
from sparrowmq.core.hashing import tags_code
from sparrowmq.core.message import COPY_BYTES_MAX, PROPERTIES_BYTES_MAX
from sparrowmq.core.names import HALF_TOPIC, OP_HALF_TOPIC
from sparrowmq.core.offset_set import OffsetSet
from sparrowmq.protocol import properties as property_string
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.record import encode_record
from sparrowmq.protocol.sysflag import TRANSACTION_COMMIT, TRANSACTION_MASK, TRANSACTION_ROLLBACK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparrowmq.protocol.call_headers import EndTransactionRequest
    from sparrowmq.protocol.hot import EndFields
    from sparrowmq.protocol.record import StoredRecord

CHECK_GROUP: Final = "CID_RMQ_SYS_TRANS"
"""The group whose consumer offsets of the half and op topics are the progress of the checks."""
DISCARD_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
COMMIT: Final = TRANSACTION_COMMIT
ROLLBACK: Final = TRANSACTION_ROLLBACK
UNKNOWN: Final = 0

TRAN_MSG: Final = "TRAN_MSG"
PRODUCER_GROUP: Final = "PGROUP"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE: Final = "REAL_QID"
TRANSACTION_ID: Final = "__transactionId__"
CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
FIRST_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
REOPENED: Final = "REAL_HALF_OFFSET"
"""SparrowMQ's property of a half message that was stored again because its commit may have been lost: the
queue offset of the one before. Properties with `REAL_` are known not to be plain ones.
"""
FIRST_STORED: Final = "REAL_HALF_STORED"
"""SparrowMQ's property of a copy: the broker's time at which the first half message was stored, epoch ms. A
transaction's age counts from it, because every copy has a new store time, and producers' clocks differ.
"""
_NOTED: Final = (CHECK_TIMES, FIRST_OFFSET, REOPENED, FIRST_STORED)
IMMUNITY: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
QUEUE_ID_MAX: Final = 2**31 - 1
OP_NUMBERS_MAX: Final = 100
"""Maximum number of ends in one op record: stays below `transactionOpMsgMaxSize`, and fits any log file."""
LEFT_BEHIND: Final = 10_000
"""A waiting half message is copied, unless only about this many others came after it."""
OPS_NOTED_MAX: Final = 10_000
"""Number of op records tracked individually: a start may have to read a few more than necessary."""
_OP_PROPERTIES: Final = property_string.encode({"TAGS": "d", "WAIT": "true"})
_OP_TAGS_CODE: Final = tags_code("d")
_LONG_DIGITS_MAX: Final = 18
_CHECK_TIMES: Final = CHECK_TIMES.encode()
_FIRST_OFFSET: Final = FIRST_OFFSET.encode()
_IMMUNITY: Final = IMMUNITY.encode()
_PLACE: Final = re.compile(rb"REAL_TOPIC\x01([^\x01\x02]+)\x02REAL_QID\x01([0-9]{1,9})\x02")


def is_half(properties: Mapping[str, str], *, reconsume_times: int, delay_level: int) -> bool:
    """Whether a send is a half message: `TRAN_MSG` is true and it is not a delayed retry (broker:9.1)."""
    if properties.get(TRAN_MSG, "").lower() != "true":
        return False
    return not (reconsume_times > 0 and delay_level > 0)


def may_be_half(properties: str | None) -> bool:
    """Whether a send's property string may belong to a half message."""
    return properties is not None and TRAN_MSG in properties


def half_properties(properties: Mapping[str, str], topic: str, queue_id: int) -> dict[str, str]:
    """The properties of the stored half message of a send to `topic`.

    Senders may not set the properties that checks and starts write: a half message that named the first one
    of another transaction would end that transaction.
    """
    half = {**properties, REAL_TOPIC: topic, REAL_QUEUE: str(queue_id)}
    for name in _NOTED:
        half.pop(name, None)
    if "UNIQ_KEY" in half:
        half[TRANSACTION_ID] = half["UNIQ_KEY"]
    return half


def encode_half(properties: Mapping[str, str], topic: str, queue_id: int, added_bytes: int) -> bytes:
    """Like `half_properties`, but as a property string; the broker later adds `added_bytes`.

    Raises `InvalidMessageError` when it leaves no room for the additions of later copies.
    """
    data = property_string.encode(half_properties(properties, topic, queue_id))
    limit = PROPERTIES_BYTES_MAX - COPY_BYTES_MAX - added_bytes
    if len(data) > limit:
        raise InvalidMessageError(
            f"the properties of a half message take {len(data)} bytes, the limit is {limit}: its copies need "
            f"{COPY_BYTES_MAX} more; send less of them",
            limit=limit,
            part="properties",
        )
    return data


def is_plain_half(shape: bytes) -> bool:
    """Whether a half message with properties of this shape (see `Shapes`) is plain: without a delay, a time,
    the broker's own names, or other spellings of true.
    """
    if (
        shape[-1] != 2
        or b"DELAY\x01" in shape
        or b"TIMER_D" in shape
        or b"POP_CK" in shape
        or b"REAL_" in shape
        or b"__transactionId__" in shape
        or _CHECK_TIMES in shape
        or _FIRST_OFFSET in shape
    ):
        return False
    is_half = b"\x02TRAN_MSG\x01true\x02" in shape or shape.startswith(b"TRAN_MSG\x01true\x02")
    return is_half and shape.count(b"TRAN_MSG\x01") == 1


def plain_half(text: bytes, key: bytes, topic: str, queue_id: int, added: bytes) -> bytes | None:
    """The result of `encode_half` for the property string of a plain half message, with the broker's `added`
    appended; None when it is too long.
    """
    half = b"%bREAL_TOPIC\x01%b\x02REAL_QID\x01%d\x02__transactionId__\x01%b\x02%b" % (
        text,
        topic.encode(),
        queue_id,
        key,
        added,
    )
    return None if len(half) > PROPERTIES_BYTES_MAX - COPY_BYTES_MAX else half


class Half(msgspec.Struct, frozen=True, gc=False):
    """The properties of a half message that matter for its end; `rest` are those its committed message keeps.

    `first` is where a copy's first half message is, -1 in the first one itself.
    """

    group: str | None
    topic: str | None
    queue_id: int
    immunity: str | None
    first: int
    rest: bytes

    def origin(self, queue_offset: int) -> int:
        """The queue offset of the first half message; its own offset unless it names an earlier one."""
        return self.first if 0 <= self.first < queue_offset else queue_offset


def read_half(data: bytes) -> Half:
    """Parse a property string once for everything needed to end its half message."""
    at = data.find(b"\x02REAL_TOPIC\x01") + 1
    found = _PLACE.match(data, at) if at else None
    if found is None or data.count(b"REAL_") != 2 or _FIRST_OFFSET in data or _IMMUNITY in data:
        return _read_any_half(data)
    topic, queue_id = found.groups()
    group = property_string.find(data, b"PGROUP")
    return Half(
        None if group is None else group.decode("utf-8", "replace"),
        topic.decode("utf-8", "replace"),
        int(queue_id),
        None,
        -1,
        data[:at] + data[found.end() :],
    )


def _read_any_half(data: bytes) -> Half:
    """Like `read_half`, for properties in any order, including copies and messages with an own check time."""
    own = property_string.decode(data)
    topic, queue_id = own.pop(REAL_TOPIC, None), _queue_id(own.pop(REAL_QUEUE, None))
    first = _number(own.pop(FIRST_OFFSET, None), -1)
    own.pop(REOPENED, None)
    own.pop(FIRST_STORED, None)
    rest = "".join([f"{name}\x01{value}\x02" for name, value in own.items()]).encode()  # as they were stored
    return Half(own.get(PRODUCER_GROUP), topic, queue_id, own.get(IMMUNITY), first, rest)


def _queue_id(text: str | None) -> int:
    return min(max(0, _number(text, 0)), QUEUE_ID_MAX)


def _number(text: str | None, default: int) -> int:
    if text is None:
        return default
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdecimal() or len(digits) > _LONG_DIGITS_MAX:
        return default
    return int(text)


def immunity_ms(text: str, timeout_ms: int) -> int:
    """The time before a half message's first check; -1 and invalid numbers mean `timeout_ms`."""
    seconds = _number(text, -1)
    return timeout_ms if seconds == -1 else seconds * 1000


def end_refusal(
    request: EndTransactionRequest | EndFields,
    record: StoredRecord,
    half: Half,
    *,
    now_ms: int,
    timeout_ms: int,
) -> tuple[ResponseCode, str] | None:
    """Why a transaction cannot be ended this way, or None (broker:9.2). `half` is parsed from the record."""
    if record.topic != HALF_TOPIC:
        return no_half(request.commit_log_offset)
    if half.immunity and not request.from_transaction_check:
        limit = max(immunity_ms(half.immunity, timeout_ms), timeout_ms)
        age = age_ms(record, now_ms)
        if age > limit:
            return (
                ResponseCode.ILLEGAL_OPERATION,
                f"the half message is {age} ms old and its first check came after {limit} ms; the check "
                "decides",
            )
    if half.group != request.producer_group:
        return ResponseCode.SYSTEM_ERROR, f"The producer group wrong: {request.producer_group}"
    if record.queue_offset != request.tran_state_table_offset:
        return (
            ResponseCode.SYSTEM_ERROR,
            f"The transaction state table offset wrong: {request.tran_state_table_offset}",
        )
    if half.topic is None:
        return ResponseCode.SYSTEM_ERROR, "the half message does not name its target topic"
    return None


def too_many_open(limit: int) -> str:
    """The refusal of a further transaction when too many are open."""
    return (
        f"{limit} transactions of this broker are open and the limit is {limit} (openTransactionsMax): a new "
        f"one can begin when others are committed, rolled back or given up; find out why their producers do "
        f"not end them"
    )


def no_half(physical_offset: int) -> tuple[ResponseCode, str]:
    """The refusal for a position without a half message."""
    remark = f"Find prepared transaction message failed: no half message at {physical_offset}"
    return ResponseCode.SYSTEM_ERROR, remark


def committed(record: StoredRecord, half: Half) -> InnerMessage:
    """The message that consumers of the real topic see once a half message is committed."""
    assert half.topic is not None, "end_refusal lets no such half message through"
    return InnerMessage(
        half.topic,
        half.queue_id,
        record.body,
        half.rest,
        record.flag,
        record.sys_flag & ~TRANSACTION_MASK | COMMIT,
        record.born_timestamp,
        record.born_host,
        record.reconsume_times,
        prepared_offset=record.physical_offset,
    )


def op_message(half_offsets: Sequence[int], *, now_ms: int, host: bytes) -> InnerMessage:
    """The op record that ends up to `OP_NUMBERS_MAX` half messages (broker:9.3).

    A single one is written in the form that RocketMQ 4.9 and 5 read, several in the form of RocketMQ 5.
    """
    assert 0 < len(half_offsets) <= OP_NUMBERS_MAX, half_offsets
    one = len(half_offsets) == 1
    body = b"%d" % half_offsets[0] if one else b"".join([b"%d," % offset for offset in half_offsets])
    return InnerMessage(OP_HALF_TOPIC, 0, body, _OP_PROPERTIES, 0, 0, now_ms, host, tags_code=_OP_TAGS_CODE)


def op_numbers(body: bytes) -> list[int]:
    """The half offsets in an op record; 5.x separates several with commas."""
    return [int(part) for part in body.split(b",") if part.isdigit() and len(part) <= _LONG_DIGITS_MAX]


def first_offset(record: StoredRecord) -> int:
    """The queue offset of the first half message of a transaction; its own unless it is a copy."""
    text = property_string.find(record.properties, _FIRST_OFFSET)
    first = -1 if text is None else _number(text.decode("ascii", "replace"), -1)
    return first if 0 <= first < record.queue_offset else record.queue_offset


def check_times(record: StoredRecord) -> int:
    """How often a producer was asked about a half message."""
    text = property_string.find(record.properties, CHECK_TIMES.encode())
    return 0 if text is None else max(0, _number(text.decode("ascii", "replace"), 0))


def _first_stored(record: StoredRecord) -> int:
    """When the first half message of a transaction was stored, by the broker's clock."""
    text = property_string.find(record.properties, FIRST_STORED.encode())
    own = record.store_timestamp
    return own if text is None else _number(text.decode("ascii", "replace"), own)


def age_ms(record: StoredRecord, now_ms: int) -> int:
    """The age of a transaction by the broker's clock; negative if that was set back behind its beginning."""
    return now_ms - _first_stored(record)


def renewed(record: StoredRecord, *, now_ms: int, asked: bool) -> InnerMessage:
    """The next copy of a half message; one more check is counted if its producer is asked.

    If the clock was set back behind the transaction's beginning, its age counts from now on.
    """
    found = property_string.decode(record.properties)
    if asked:
        found[CHECK_TIMES] = str(check_times(record) + 1)
    found[FIRST_OFFSET] = str(first_offset(record))
    found[FIRST_STORED] = str(min(_first_stored(record), now_ms))
    message = InnerMessage.copy_of(record, HALF_TOPIC, 0)
    message.properties = property_string.encode(found)
    return message


def resumed(record: StoredRecord) -> InnerMessage | None:
    """A half message that was given up, as a new one that is checked again; None for other messages."""
    found = property_string.decode(record.properties)
    if (
        REAL_TOPIC not in found
        or PRODUCER_GROUP not in found
        or not is_half(found, reconsume_times=0, delay_level=0)
    ):
        return None
    found[CHECK_TIMES] = "0"
    found.pop(FIRST_OFFSET, None)
    found.pop(FIRST_STORED, None)
    message = InnerMessage.copy_of(record, HALF_TOPIC, 0)
    message.properties = property_string.encode(found)
    return message


def reopened(record: StoredRecord) -> InnerMessage | None:
    """An ended half message, as a new one that is checked again; None for other messages."""
    message = resumed(record)
    if message is not None:
        found = property_string.decode(message.properties)
        found[REOPENED] = str(record.queue_offset)
        message.properties = property_string.encode(found)
    return message


def reopened_offset(record: StoredRecord) -> int | None:
    """The queue offset of the ended half message that this one takes the place of; None for others."""
    text = property_string.find(record.properties, REOPENED.encode())
    return None if text is None else _number(text.decode("ascii", "replace"), -1)


def check_body(record: StoredRecord) -> bytes:
    """A half message as sent to its producer in a check: a stored record with the real topic and queue."""
    found = property_string.decode(record.properties)
    return encode_record(
        topic=found.get(REAL_TOPIC, record.topic).encode(),
        queue_id=_queue_id(found.get(REAL_QUEUE)),
        queue_offset=record.queue_offset,
        physical_offset=record.physical_offset,
        body=record.body,
        properties=record.properties,
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_timestamp=record.born_timestamp,
        born_host=record.born_host,
        store_timestamp=record.store_timestamp,
        store_host=record.store_host,
        reconsume_times=record.reconsume_times,
        prepared_offset=record.prepared_offset,
    )


class CheckVerdict(Enum):
    """What a check does with an open half message."""

    DISCARD = "its producers were asked too often: give it up"
    STOP = "it and all later ones are too young: end this run"
    KEEP = "its producer asked for more time: copy it, so that the queue can move on"
    CHECK = "copy it and ask its producer"


def judge(
    record: StoredRecord, *, now_ms: int, run_end: int, timeout_ms: int, checks_max: int
) -> CheckVerdict:
    """What to do with an open half message in a run that began when the half queue ended at `run_end`.

    The reference compares store times with the start of the run to stop at newer messages (broker:9.4); this
    blocks everything after a message that was stored while the clock was ahead.
    """
    if check_times(record) >= checks_max:
        return CheckVerdict.DISCARD
    if record.queue_offset >= run_end:
        return CheckVerdict.STOP
    age = age_ms(record, now_ms)
    custom = property_string.find(record.properties, IMMUNITY.encode())
    if custom:
        limit = immunity_ms(custom.decode("ascii", "replace"), timeout_ms)
        return CheckVerdict.KEEP if age <= limit else CheckVerdict.CHECK
    return CheckVerdict.STOP if 0 <= age <= timeout_ms else CheckVerdict.CHECK


class OpenHalves:
    """Which half messages are open; offsets are those of the half queue, op offsets those of the op queue.

    Everything before `first` is finished, and so is every op record before `first_op`: a start that begins
    there misses nothing.
    """

    def __init__(self, first: int, first_op: int) -> None:
        self.first_op = first_op
        self._done = OffsetSet(first)
        self._latest: dict[int, int] = {}
        self._gone: set[int] = set()
        """Half messages before `first` that, at a start, were found ended by a copy."""
        self._ops: deque[tuple[int, int]] = deque()

    def __len__(self) -> int:
        """Transactions that were copied and are still open."""
        return len(self._latest)

    @property
    def first(self) -> int:
        """The first half message that may be open."""
        return self._done.first

    def waiting(self, end: int) -> int:
        """Number of half messages before `end`, the end of the half queue, that are not done."""
        return max(0, end - self._done.first - self._done.count)

    def left_from(self, end: int) -> int:
        """From which offset on half messages may stay where they are, although nobody can be asked.

        A start reads everything behind the first one, so those further back are copied. Each copy comes after
        several half messages that were ended: the copies of many waiting ones do not fill the log.
        """
        return end - LEFT_BEHIND - 4 * self.waiting(end)

    def load_op(self, op_offset: int, body: bytes, end: int) -> None:
        """Load an op record; all op records are loaded before the half messages.

        `end` is the end of the half queue: offsets beyond it in an op record are ignored.
        """
        numbers = [number for number in op_numbers(body) if number < end]
        for number in numbers:
            self._done.add(number)
        self._note_op(op_offset, max(numbers, default=-1))

    def _note_op(self, op_offset: int, last: int) -> None:
        """Keep an op record until the checks have passed `last`. Many op records are recorded in pairs."""
        ops = self._ops
        ops.append((op_offset, last))
        if len(ops) > OPS_NOTED_MAX:
            pairs = zip(islice(ops, 0, None, 2), islice(ops, 1, None, 2), strict=False)
            merged = [(later[0], max(earlier[1], later[1])) for earlier, later in pairs]
            self._ops = deque(merged if len(ops) % 2 == 0 else [*merged, ops[-1]])

    def load_half(self, offset: int, origin: int) -> None:
        """Load a half message, in queue order."""
        if origin == offset:
            return
        before = self._latest.get(origin, origin)
        if before in self._gone or (before >= self.first and before in self._done):
            self._done.add(offset)  # it was ended, but a crash lost that information
        else:
            self._done.add(before)
        self._latest[origin] = offset
        if offset in self._done:
            del self._latest[origin]
            self._done.add(origin)
            if origin < self.first:
                self._gone.add(origin)

    def is_done(self, offset: int) -> bool:
        """Whether the half message at `offset` needs no further action."""
        return offset in self._done

    def latest(self, origin: int) -> int | None:
        """Where the open copy of a transaction is; None when it was ended or given up."""
        offset = self._latest.get(origin, origin)
        return None if offset in self._done else offset

    def moved(self, offset: int, origin: int, copy: int) -> None:
        """The half message at `offset` was copied to `copy`."""
        self._done.add(offset)
        self._latest[origin] = copy

    def ended(self, origins: Iterable[int], op_offset: int) -> None:
        """Record that one op record ended these transactions."""
        self._note_op(op_offset, max(map(self.given_up, origins)))

    def given_up(self, origin: int) -> int:
        """Record that the transaction ended without an op record; returns the offset of its latest copy."""
        offset = self._latest.pop(origin, origin)
        self._done.add(offset)
        if origin != offset:
            self._done.add(origin)
        return offset

    def missed(self, start: int, end: int, found: Collection[int]) -> int:
        """Of the half messages from `start` to `end` only `found` can be read: the others are finished, and
        so are their transactions. Returns how many of them were open."""
        gone = {offset for offset in range(start, end) if offset not in found and offset not in self._done}
        for offset in gone:
            self._done.add(offset)
        if gone:
            for origin in [origin for origin, copy in self._latest.items() if copy in gone]:
                del self._latest[origin]
        return len(gone)

    def skip(self, offset: int, count_max: int) -> int:
        """The first offset from `offset` on that is not done, at most `count_max` further."""
        return self._done.skip(offset, offset + count_max)

    def advance(self, first: int) -> None:
        """Everything before `first` is finished."""
        self._done.advance(first)
        self._gone.clear()
        while self._ops and self._ops[0][1] < first:
            self.first_op = self._ops.popleft()[0] + 1
