"""Decisions about transactions: what is stored, which half messages are open, what a check does (broker:9).

A half message waits in queue 0 of the half topic until its producer ends it. Ending it writes an op record
that names its queue offset. A half message that is checked is copied to the queue's end first, so that the
queue can move on; every copy names the first half message of its transaction (`TRAN_PREPARED_QUEUE_OFFSET`),
and only the latest copy is open. The commit log holds all of this: `OpenHalves` is made from it at a start.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrowmq.broker.inner import InnerMessage
from sparrowmq.core.errors import InvalidMessageError
from sparrowmq.core.message import PROPERTIES_BYTES_MAX
from sparrowmq.core.names import HALF_TOPIC, OP_HALF_TOPIC
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
"""The group whose consumer offsets of half and op topic are the progress of the checks."""
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
IMMUNITY: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
CHECK_BYTES_MAX: Final = len(f"{CHECK_TIMES}{FIRST_OFFSET}") + 4 + len(f"{2**31}{2**63}")
"""What checks may add to the properties of a half message; a send must leave room for it."""
QUEUE_ID_MAX: Final = 2**31 - 1
OP_NUMBERS_MAX: Final = 100
"""Ends that one op record names: it stays below `transactionOpMsgMaxSize`, and fits any log file."""
_OP_PROPERTIES: Final = property_string.encode({"TAGS": "d", "WAIT": "true"})
_LONG_DIGITS_MAX: Final = 18
_FIRST_OFFSET: Final = FIRST_OFFSET.encode()
_IMMUNITY: Final = IMMUNITY.encode()
_PLACE: Final = re.compile(rb"REAL_TOPIC\x01([^\x01\x02]+)\x02REAL_QID\x01([0-9]{1,9})\x02")


def is_half(properties: Mapping[str, str], *, reconsume_times: int, delay_level: int) -> bool:
    """Whether a send is a half message: `TRAN_MSG` is true and it is no delayed retry (broker:9.1)."""
    if properties.get(TRAN_MSG, "").lower() != "true":
        return False
    return not (reconsume_times > 0 and delay_level > 0)


def may_be_half(properties: str | None) -> bool:
    """Whether a send's property string may be that of a half message."""
    return properties is not None and TRAN_MSG in properties


def half_properties(properties: Mapping[str, str], topic: str, queue_id: int) -> dict[str, str]:
    """The properties of a send to `topic` as its half message is stored."""
    half = {**properties, REAL_TOPIC: topic, REAL_QUEUE: str(queue_id)}
    if "UNIQ_KEY" in half:
        half[TRANSACTION_ID] = half["UNIQ_KEY"]
    return half


def encode_half(properties: Mapping[str, str], topic: str, queue_id: int, added_bytes: int) -> bytes:
    """The same as a property string, to which the broker's own `added_bytes` come.

    Raises `InvalidMessageError` when checks could add nothing to it.
    """
    data = property_string.encode(half_properties(properties, topic, queue_id))
    limit = PROPERTIES_BYTES_MAX - CHECK_BYTES_MAX - added_bytes
    if len(data) > limit:
        raise InvalidMessageError(
            f"the properties of a half message take {len(data)} bytes, the limit is {limit}: its checks need "
            f"{CHECK_BYTES_MAX} more; send less of them"
        )
    return data


def plain_half(text: bytes, topic: str, queue_id: int, added_bytes: int) -> tuple[bytes, bytes] | None:
    """What `encode_half` gives for the property string of a plain half message, and its unique key.

    None for any other message: one without unique key, with a delay, a time or names of the broker's own,
    with other spellings of true, or too long.
    """
    if (
        text[-1:] != b"\x02"
        or b"DELAY\x01" in text
        or b"TIMER_D" in text
        or b"POP_CK" in text
        or b"REAL_" in text
        or b"__transactionId__" in text
    ):
        return None
    if not (b"\x02TRAN_MSG\x01true\x02" in text or text.startswith(b"TRAN_MSG\x01true\x02")):
        return None
    at = text.rfind(b"UNIQ_KEY\x01")
    key = text[at + 9 : text.find(b"\x02", at)]
    if at < 0 or (at and text[at - 1] != 2) or not key.isalnum() or text.count(b"TRAN_MSG\x01") > 1:
        return None
    half = b"%bREAL_TOPIC\x01%b\x02REAL_QID\x01%d\x02__transactionId__\x01%b\x02" % (
        text,
        topic.encode(),
        queue_id,
        key,
    )
    return None if len(half) > PROPERTIES_BYTES_MAX - CHECK_BYTES_MAX - added_bytes else (half, key)


class Half(NamedTuple):
    """What a half message's properties say about its end; `rest` is what its committed message keeps.

    `first` is where a copy's first half message is, -1 in the first one itself.
    """

    group: str | None
    topic: str | None
    queue_id: int
    immunity: str | None
    first: int
    rest: bytes

    def origin(self, queue_offset: int) -> int:
        """The queue offset of the first half message; its own for what names none before it."""
        return self.first if 0 <= self.first < queue_offset else queue_offset


def read_half(data: bytes) -> Half:
    """Read a property string once for all that ending its half message needs."""
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
    """The same for properties in any order, of copies and of those with a time of their own too."""
    own = property_string.decode(data)
    topic, queue_id = own.pop(REAL_TOPIC, None), _queue_id(own.pop(REAL_QUEUE, None))
    first = _number(own.pop(FIRST_OFFSET, None), -1)
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
    """The time before a half message's first check; -1 and what is no number mean `timeout_ms`."""
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
    """Why a transaction cannot be ended so, or None (broker:9.2). `half` is read from the record."""
    if record.topic != HALF_TOPIC:
        return no_half(request.commit_log_offset)
    if half.immunity and not request.from_transaction_check:
        limit = max(immunity_ms(half.immunity, timeout_ms), timeout_ms)
        age = now_ms - record.born_timestamp
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
        return ResponseCode.SYSTEM_ERROR, "the half message does not say which topic it is for"
    return None


def no_half(physical_offset: int) -> tuple[ResponseCode, str]:
    """The refusal for a place where no half message is."""
    remark = f"Find prepared transaction message failed: no half message at {physical_offset}"
    return ResponseCode.SYSTEM_ERROR, remark


def committed(record: StoredRecord, half: Half) -> InnerMessage:
    """The message that consumers of the real topic see once a half message is committed."""
    assert half.topic is not None, "end_refusal lets no such half message through"
    message = InnerMessage.copy_of(record, half.topic, half.queue_id)
    message.properties = half.rest
    message.sys_flag = message.sys_flag & ~TRANSACTION_MASK | COMMIT
    message.prepared_offset = record.physical_offset
    return message


def op_message(half_offsets: Sequence[int], *, now_ms: int, host: bytes) -> InnerMessage:
    """The op record that ends up to `OP_NUMBERS_MAX` half messages (broker:9.3).

    One is named in the form that RocketMQ 4.9 and 5 read, several as RocketMQ 5 does.
    """
    assert 0 < len(half_offsets) <= OP_NUMBERS_MAX, half_offsets
    one = len(half_offsets) == 1
    body = b"%d" % half_offsets[0] if one else b"".join([b"%d," % offset for offset in half_offsets])
    return InnerMessage(OP_HALF_TOPIC, 0, body, _OP_PROPERTIES, 0, 0, now_ms, host)


def op_numbers(body: bytes) -> list[int]:
    """The half offsets an op record names; 5.x joins several with commas."""
    return [int(part) for part in body.split(b",") if part.isdigit() and len(part) <= _LONG_DIGITS_MAX]


def first_offset(record: StoredRecord) -> int:
    """The queue offset of the first half message of a transaction; its own unless it is a copy."""
    text = property_string.find(record.properties, _FIRST_OFFSET)
    first = -1 if text is None else _number(text.decode("ascii", "replace"), -1)
    return first if 0 <= first < record.queue_offset else record.queue_offset


def check_times(record: StoredRecord) -> int:
    """How often a half message was copied."""
    text = property_string.find(record.properties, CHECK_TIMES.encode())
    return 0 if text is None else max(0, _number(text.decode("ascii", "replace"), 0))


def renewed(record: StoredRecord) -> InnerMessage:
    """The next copy of a half message, with one more check counted."""
    found = property_string.decode(record.properties)
    found[CHECK_TIMES] = str(check_times(record) + 1)
    found[FIRST_OFFSET] = str(first_offset(record))
    message = InnerMessage.copy_of(record, HALF_TOPIC, 0)
    message.properties = property_string.encode(found)
    return message


def resumed(record: StoredRecord) -> InnerMessage | None:
    """A half message that was given up, as a new one that is checked again; None for any other message."""
    found = property_string.decode(record.properties)
    if (
        REAL_TOPIC not in found
        or PRODUCER_GROUP not in found
        or not is_half(found, reconsume_times=0, delay_level=0)
    ):
        return None
    found[CHECK_TIMES] = "0"
    found.pop(FIRST_OFFSET, None)
    message = InnerMessage.copy_of(record, HALF_TOPIC, 0)
    message.properties = property_string.encode(found)
    return message


def check_body(record: StoredRecord) -> bytes:
    """A half message as its producer is asked about it: a stored record with the real topic and queue."""
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


class Verdict(Enum):
    """What a check does with an open half message."""

    DISCARD = "it was checked too often or is too old: give it up"
    STOP = "it and what follows is too young: end this run"
    KEEP = "its producer asked for more time: copy it, so that the queue can move on"
    CHECK = "copy it and ask its producer"


def judge(
    record: StoredRecord, *, now_ms: int, run_started_ms: int, timeout_ms: int, checks_max: int, kept_ms: int
) -> Verdict:
    """What to do with an open half message in a run that began at `run_started_ms` (broker:9.4).

    One older than `kept_ms` is given up, as its record may be deleted soon.
    """
    age = now_ms - record.born_timestamp
    if check_times(record) >= checks_max or age > kept_ms:
        return Verdict.DISCARD
    if record.store_timestamp >= run_started_ms:
        return Verdict.STOP
    custom = property_string.find(record.properties, IMMUNITY.encode())
    if custom:
        limit = immunity_ms(custom.decode("ascii", "replace"), timeout_ms)
        return Verdict.KEEP if age <= limit else Verdict.CHECK
    return Verdict.STOP if 0 <= age <= timeout_ms else Verdict.CHECK


class OpenHalves:
    """Which half messages are open; offsets are those of the half queue, op offsets those of the op queue.

    Everything before `first` is done with, and so is every op record before `first_op`: a start that begins
    there misses nothing.
    """

    def __init__(self, first: int, first_op: int) -> None:
        self.first = first
        self.first_op = first_op
        self._done: set[int] = set()
        self._latest: dict[int, int] = {}
        self._ops: deque[tuple[int, int]] = deque()

    def __len__(self) -> int:
        """Transactions that were copied and are still open."""
        return len(self._latest)

    def load_op(self, op_offset: int, body: bytes) -> None:
        """Take note of an op record; all op records come before the half messages."""
        numbers = op_numbers(body)
        self._done.update(number for number in numbers if number >= self.first)
        self._ops.append((op_offset, max(numbers, default=-1)))

    def load_half(self, offset: int, origin: int) -> None:
        """Take note of a half message, in queue order."""
        if origin == offset:
            return
        before = self._latest.get(origin, origin)
        if before in self._done:  # it was ended, and a crash lost sight of that
            self._done.add(offset)
        elif before >= self.first:
            self._done.add(before)
        self._latest[origin] = offset
        if offset in self._done:
            del self._latest[origin]
            self._done.add(origin)

    def is_done(self, offset: int) -> bool:
        """Whether nothing is to be done for the half message at `offset`."""
        return offset < self.first or offset in self._done

    def latest(self, origin: int) -> int | None:
        """Where the open copy of a transaction is; None when it is ended, or was given up."""
        offset = self._latest.get(origin, origin)
        return None if self.is_done(offset) else offset

    def moved(self, offset: int, origin: int, copy: int) -> None:
        """The half message at `offset` was copied to `copy`."""
        self._done.add(offset)
        self._latest[origin] = copy

    def ended(self, origins: Iterable[int], op_offset: int) -> None:
        """These transactions are ended by one op record."""
        self._ops.append((op_offset, max(map(self.given_up, origins))))

    def given_up(self, origin: int) -> int:
        """The transaction is over, without an op record; the offset of its latest half message."""
        offset = self._latest.pop(origin, origin)
        self._done.add(offset)
        self._done.add(origin)
        return offset

    def skip(self, offset: int, count_max: int) -> int:
        """The first offset from `offset` on that is not done, at most `count_max` further."""
        done, end = self._done, offset + count_max
        while offset < end and offset in done:
            offset += 1
        return offset

    def advance(self, first: int) -> None:
        """Everything before `first` is done with."""
        self.first = first
        self._done = {offset for offset in self._done if offset >= first}
        while self._ops and self._ops[0][1] < first:
            self.first_op = self._ops.popleft()[0] + 1
