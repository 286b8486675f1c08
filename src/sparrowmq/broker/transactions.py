"""Transactions at work: which are open, checking back (39), checking again (323) (broker:9)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from sparrowmq.broker import transaction as rules
from sparrowmq.broker.ending import EndPath
from sparrowmq.broker.inner import InnerMessage
from sparrowmq.broker.progress import answer, refusal
from sparrowmq.broker.transaction import OpenHalves, Verdict
from sparrowmq.core.errors import InvalidMessageError, RecordError, StoreError
from sparrowmq.core.ids import offset_message_id, parse_offset_message_id
from sparrowmq.core.names import HALF_TOPIC, OP_HALF_TOPIC
from sparrowmq.protocol import properties as property_string
from sparrowmq.protocol.call_headers import (
    CheckTransactionStateRequest,
    ResumeCheckHalfMessageRequest,
)
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.headers import from_ext, to_ext
from sparrowmq.transport.occasional import OccasionalLog

if TYPE_CHECKING:
    from sparrowmq.broker.clients import ClientTable
    from sparrowmq.broker.inner import InnerStore
    from sparrowmq.core.clock import Clock
    from sparrowmq.core.settings import BrokerSettings
    from sparrowmq.protocol.record import StoredRecord
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.store.offsets import ConsumerOffsets
    from sparrowmq.transport.connection import Connection

log = logging.getLogger("sparrowmq.broker")

RUN_SECONDS_MAX: Final = 60.0
"""One run of checks ends after this time; the next goes on."""
STEP_COUNT: Final = 32
LOAD_COUNT: Final = 1000
STEP_BYTES: Final = 1024 * 1024
SKIP_COUNT: Final = 20_000
"""Ended half messages that are passed over before others have their turn."""
CHANNEL_TRIES: Final = 3
UNSENT_BYTES_MAX: Final = 1024 * 1024
"""A producer that has so many bytes still to take is not asked more; the next run asks again."""
MS_PER_HOUR: Final = 3_600_000


class Transactions:
    """Keeps the half messages of one broker; `ends` ends them."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        inner: InnerStore,
        clients: ClientTable,
        offsets: ConsumerOffsets,
        clock: Clock,
        *,
        store_host: bytes,
    ) -> None:
        self._settings = settings
        self._store = store
        self._inner = inner
        self._clients = clients
        self._offsets = offsets
        self._clock = clock
        self._turn = 0
        self._occasional = OccasionalLog(log)
        self._halves = OpenHalves(self._start(HALF_TOPIC), self._start(OP_HALF_TOPIC))
        self._load()
        self.ends = EndPath(settings, store, inner, self._halves, clock, store_host=store_host)

    def _start(self, topic: str) -> int:
        """Where the checks go on in a topic's queue."""
        stored = self._offsets.query(topic, rules.CHECK_GROUP, 0)
        queue = self._store.find_queue(topic, 0)
        low = 0 if queue is None else queue.min_offset
        return low if stored is None else max(low, stored)

    def _load(self) -> None:
        halves = self._halves
        for record in self._records(OP_HALF_TOPIC, halves.first_op):
            halves.load_op(record.queue_offset, record.body)
        for record in self._records(HALF_TOPIC, halves.first):
            halves.load_half(record.queue_offset, rules.first_offset(record))

    def _records(self, topic: str, offset: int) -> Iterator[StoredRecord]:
        while True:  # ends with the queue: every round gets ahead
            scan = self._inner.scan(topic, 0, offset, LOAD_COUNT, STEP_BYTES)
            if scan.next_offset <= offset:
                return
            yield from scan.records
            offset = scan.next_offset

    def resume(self, connection: Connection, command: Command) -> Command:
        """323: put a half message that was given up back, so that it is checked again."""
        request = from_ext(ResumeCheckHalfMessageRequest, command.ext)
        try:
            record = self._inner.read(parse_offset_message_id(request.msg_id)[2])
        except RecordError as error:
            return refusal(command, ResponseCode.SYSTEM_ERROR, str(error))
        message = None if record is None else rules.resumed(record)
        if message is None:
            remark = f"{request.msg_id} is no half message of this broker, so it cannot be checked again"
            return refusal(command, ResponseCode.SYSTEM_ERROR, remark)
        self._inner.put([message])
        return answer(command)

    # Checking

    async def check(self) -> None:
        """One run: ask producers about half messages that wait too long, give up the hopeless ones."""
        started = self._clock.now_ms()
        deadline = time.monotonic() + RUN_SECONDS_MAX
        offset = self._halves.first
        try:
            while time.monotonic() < deadline:
                following = self._step(offset, started)
                if following <= offset:
                    break
                offset = following
                await asyncio.sleep(0)
        except StoreError as error:
            text = f"transactions cannot be checked now, the next run tries again: {error}"
            self._occasional.write(logging.ERROR, "check", text)
        self._advance(self._halves.skip(offset, SKIP_COUNT))

    def _advance(self, offset: int) -> None:
        halves = self._halves
        if offset != halves.first:
            halves.advance(offset)
            self._offsets.commit(HALF_TOPIC, rules.CHECK_GROUP, 0, halves.first)
            self._offsets.commit(OP_HALF_TOPIC, rules.CHECK_GROUP, 0, halves.first_op)

    def _step(self, offset: int, started: int) -> int:
        """Look at the next half messages from `offset` on; where to go on, `offset` itself for an end."""
        passed = self._halves.skip(offset, SKIP_COUNT)
        if passed > offset:
            return passed
        scan = self._inner.scan(HALF_TOPIC, 0, offset, STEP_COUNT, STEP_BYTES)
        for record in scan.records:
            if self._halves.is_done(record.queue_offset):
                continue
            verdict = rules.judge(
                record,
                now_ms=self._clock.now_ms(),
                run_started_ms=started,
                timeout_ms=self._settings.transaction_time_out,
                checks_max=self._settings.transaction_check_max,
                kept_ms=self._settings.file_reserved_time * MS_PER_HOUR,
            )
            if verdict is Verdict.STOP:
                return record.queue_offset
            self._carry_out(verdict, record)
        return max(offset, scan.next_offset)

    def _carry_out(self, verdict: Verdict, record: StoredRecord) -> None:
        halves, origin = self._halves, rules.first_offset(record)
        if verdict is Verdict.DISCARD:
            self._give_up(record, f"after {rules.check_times(record)} checks")
            return
        try:
            (placed,) = self._inner.put([rules.renewed(record)])
        except (InvalidMessageError, RecordError) as error:  # one must not hold up all that follow
            self._give_up(record, f"because it cannot be checked: {error}")
            return
        halves.moved(record.queue_offset, origin, placed.queue_offset)
        if verdict is Verdict.CHECK:
            copy = self._inner.read(placed.physical_offset)
            if copy is not None:
                self._ask(copy)

    def _give_up(self, record: StoredRecord, why: str) -> None:
        self._inner.put([InnerMessage.copy_of(record, rules.DISCARD_TOPIC, 0)])
        self._halves.given_up(rules.first_offset(record))
        text = (
            f"a transaction was given up {why}; its half message {record.queue_offset} is in "
            f"{rules.DISCARD_TOPIC}"
        )
        self._occasional.write(logging.WARNING, "discard", text)

    def _ask(self, half: StoredRecord) -> None:
        """Send 39 to one producer of the group; without one the next run tries again (broker:9.5)."""
        found = property_string.decode(half.properties)
        group, key = found.get(rules.PRODUCER_GROUP, ""), found.get("UNIQ_KEY")
        connection = self._producer(group)
        if connection is None:
            text = f"no producer of group {group} is there to be asked about its transactions"
            self._occasional.write(logging.WARNING, f"producer {group}", text)
            return
        request = CheckTransactionStateRequest(
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=half.physical_offset,
            msg_id=key,
            transaction_id=key,
            offset_msg_id=offset_message_id(half.store_host, half.physical_offset),
            topic=HALF_TOPIC,
            broker_name=self._settings.broker_name,
        )
        body = rules.check_body(half)
        connection.notify(Command(RequestCode.CHECK_TRANSACTION_STATE, ext=to_ext(request), body=body))

    def _producer(self, group: str) -> Connection | None:
        """A connected producer of the group that takes what it is sent, each in turn (broker:9.5)."""
        members = list(self._clients.producers.get(group, ()))
        for _ in range(min(CHANNEL_TRIES, len(members))):
            self._turn += 1
            connection = members[self._turn % len(members)]
            if not connection.closed and connection.unsent_bytes <= UNSENT_BYTES_MAX:
                return connection
        return None
