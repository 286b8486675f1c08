"""Ending, checking and abandoning transactions, with a real store and across restarts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.rig import STORE_HOST, Rig, connection, damage
from tests.support import run

from sparrowmq.broker.base.internal_store import InnerMessage, Placed
from sparrowmq.broker.tables.clients import ConnectedMember
from sparrowmq.broker.transactions import half_messages as rules
from sparrowmq.broker.transactions.check_back import STEP_COUNT, UNSENT_BYTES_MAX, CheckBack
from sparrowmq.core.errors import StoreFullError
from sparrowmq.core.ids import offset_message_id
from sparrowmq.core.names import HALF_TOPIC, OP_HALF_TOPIC
from sparrowmq.protocol import properties
from sparrowmq.protocol.call_headers import CheckTransactionStateRequest, EndTransactionRequest
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import FLAG_ONEWAY, Command
from sparrowmq.protocol.headers import from_ext, to_ext
from sparrowmq.protocol.record import StoredRecord, decode_record

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0


class Broker:
    """A rig with transactions; `again` closes it and opens the same directory."""

    def __init__(self, root: Path, **settings: Any) -> None:
        self._root, self._settings = root, settings
        self._open()

    def _open(self) -> None:
        self.rig = Rig(self._root, **self._settings)
        self.rig.make_topic("Orders", 2)
        self.parts = self.rig.parts.exchange.transactions

    def again(self, *, saved: bool = True) -> None:
        """Restart; without `saved` the progress of the checks is lost, as when the process is killed."""
        now = self.rig.clock.ms
        if saved:
            self.rig.offsets.save()
        self.rig.close()
        self._open()
        self.rig.clock.ms = now

    def prepare(self, text: bytes = b"x", group: str = "p", **own: str) -> Placed:
        all_own = {"TRAN_MSG": "true", "PGROUP": group, "UNIQ_KEY": "K" + text.decode(), **own}
        half = rules.half_properties(all_own, "Orders", 1)
        now = self.rig.clock.ms
        (placed,) = self.rig.inner.put(
            [InnerMessage(HALF_TOPIC, 0, text, properties.encode(half), 0, 0, now, STORE_HOST)]
        )
        return placed

    def end(self, placed: Placed, state: int = COMMIT, **changes: Any) -> Command:
        fields: dict[str, Any] = {
            "producer_group": "p",
            "tran_state_table_offset": placed.queue_offset,
            "commit_log_offset": placed.physical_offset,
            "commit_or_rollback": state,
        }
        request = EndTransactionRequest(**(fields | changes))
        command = Command(RequestCode.END_TRANSACTION, 1, ext=to_ext(request))
        return self.parts.ends.handle(connection(), command)

    def stored(self, topic: str, queue_id: int = 0) -> list[StoredRecord]:
        return self.rig.inner.scan(topic, queue_id, 0, 1000, 1 << 20).records

    @property
    def orders(self) -> list[bytes]:
        return [record.body for record in self.stored("Orders", 1)]

    def check(self, later_ms: int = 0) -> None:
        self.rig.clock.ms += later_ms
        run(self.parts.check())

    def join(self, group: str = "p", client: Any = None) -> Any:
        client = client or connection()
        self.rig.clients.add_producer(group, client, ConnectedMember(f"c{client.peer[1]}", "JAVA", 1, 0.0))
        return client


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Broker]]:
    made: list[Broker] = []

    def _make(**settings: Any) -> Broker:
        made.append(Broker(tmp_path / f"store{len(made)}", **settings))
        return made[-1]

    yield _make
    for broker in made:
        broker.rig.close()


@pytest.fixture
def broker(make: Callable[..., Broker]) -> Broker:
    return make()


def code(answer: Command) -> int:
    return answer.code


@pytest.mark.proves("broker:9.2", "broker:9.3", "client:B-101")
def test_commit_shows_the_message_and_writes_an_op_record(broker: Broker) -> None:
    placed = broker.prepare(b"one")
    assert broker.orders == []
    assert code(broker.end(placed)) == ResponseCode.SUCCESS
    (shown,) = broker.stored("Orders", 1)
    assert (shown.body, shown.sys_flag, shown.prepared_offset) == (b"one", 8, placed.physical_offset)
    assert [record.body for record in broker.stored(OP_HALF_TOPIC)] == [b"0"]


@pytest.mark.proves("broker:9.2")
def test_rollback_shows_nothing_and_writes_an_op_record(broker: Broker) -> None:
    placed = broker.prepare()
    assert code(broker.end(placed, ROLLBACK)) == ResponseCode.SUCCESS
    assert broker.orders == []
    assert [record.body for record in broker.stored(OP_HALF_TOPIC)] == [b"0"]


@pytest.mark.proves("broker:9.2")
@pytest.mark.parametrize(
    ("state", "wanted"), [(UNKNOWN, 0), *((state, ResponseCode.INVALID_PARAMETER) for state in (4, -1, 99))]
)
def test_unknown_and_impossible_states_do_nothing(broker: Broker, state: int, wanted: int) -> None:
    assert code(broker.end(broker.prepare(), state)) == wanted
    assert broker.orders == [] and broker.stored(OP_HALF_TOPIC) == []


@pytest.mark.parametrize("states", [(COMMIT, COMMIT), (COMMIT, ROLLBACK), (ROLLBACK, COMMIT)])
def test_finished_transaction_cannot_be_ended_again(broker: Broker, states: tuple[int, int]) -> None:
    placed = broker.prepare()
    broker.end(placed, states[0])
    answer = broker.end(placed, states[1], from_transaction_check=True)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "finished already" in (answer.remark or "")
    assert len(broker.orders) == (1 if states[0] == COMMIT else 0)
    broker.again()
    assert code(broker.end(placed, states[1])) == ResponseCode.SYSTEM_ERROR
    assert len(broker.orders) == (1 if states[0] == COMMIT else 0)


@pytest.mark.proves("broker:9.2")
@pytest.mark.parametrize(
    "changes",
    [
        {"commit_log_offset": 1 << 40},
        {"commit_log_offset": -5},
        {"commit_log_offset": 3},
        {"tran_state_table_offset": 9},
        {"producer_group": "stranger"},
    ],
)
def test_mismatched_ends_are_refused(broker: Broker, changes: dict[str, Any]) -> None:
    answer = broker.end(broker.prepare(), **changes)
    assert answer.code == ResponseCode.SYSTEM_ERROR and answer.remark
    assert broker.orders == []


def test_only_half_messages_are_committed(broker: Broker) -> None:
    placed = broker.prepare()
    broker.end(placed)
    (shown,) = broker.stored("Orders", 1)
    again = Placed(shown.physical_offset, shown.queue_offset)
    assert code(broker.end(again)) == ResponseCode.SYSTEM_ERROR
    assert len(broker.orders) == 1


def test_commit_that_cannot_be_stored_leaves_the_transaction_open(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed = broker.prepare()

    def full() -> None:
        broker.rig.store.drop_chunk()
        raise StoreFullError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(broker.rig.store, "commit_chunk", full)
        with pytest.raises(StoreFullError):
            broker.end(placed)
        broker.check(60_000)  # logged, tried again
    assert code(broker.end(placed)) == ResponseCode.SUCCESS
    assert broker.orders == [b"x"]


@pytest.mark.proves("broker:9.4", "broker:9.5", "client:B-102")
def test_old_half_message_is_copied_and_its_producer_checked(broker: Broker) -> None:
    producer = broker.join()
    placed = broker.prepare(b"one")
    broker.check(6000)
    assert producer.notices == []
    broker.check(1)
    (asked,) = producer.notices
    copy = broker.stored(HALF_TOPIC)[1]
    header = from_ext(CheckTransactionStateRequest, asked.ext)
    assert asked.code == RequestCode.CHECK_TRANSACTION_STATE
    assert (header.tran_state_table_offset, header.commit_log_offset) == (1, copy.physical_offset)
    assert (header.msg_id, header.transaction_id, header.topic) == ("Kone", "Kone", HALF_TOPIC)
    assert header.offset_msg_id == offset_message_id(STORE_HOST, copy.physical_offset)
    assert header.broker_name == "broker-a"
    record = decode_record(asked.body)
    assert (record.topic, record.queue_id, record.body) == ("Orders", 1, b"one")
    assert copy.born_timestamp == record.born_timestamp
    answer = broker.end(Placed(header.commit_log_offset, 1), from_transaction_check=True)
    assert code(answer) == ResponseCode.SUCCESS
    assert broker.orders == [b"one"]
    assert code(broker.end(placed)) == ResponseCode.SYSTEM_ERROR  # its first name is finished as well


@pytest.mark.proves("broker:9.5")
def test_late_end_with_an_old_name_ends_the_latest_copy(broker: Broker) -> None:
    producer = broker.join()
    placed = broker.prepare(b"one")
    broker.check(7000)
    broker.check(1000)
    assert len(producer.notices) == 2
    assert code(broker.end(placed)) == ResponseCode.SUCCESS
    broker.check(60_000)
    assert len(producer.notices) == 2 and broker.orders == [b"one"]


def test_half_message_is_shown_only_to_producers_that_may_send_to_its_topic(broker: Broker) -> None:
    """Producers choose their group names: the claim of a stranger is not enough."""
    rig = broker.rig
    stranger, producer = broker.join(client=connection(1)), connection(2)
    asked: list[tuple[Any, str]] = []

    def may_check(who: Any, topic: str) -> bool:
        asked.append((who, topic))
        return who is producer

    broker.parts = CheckBack(
        lambda: rig.settings,
        rig.store,
        rig.inner,
        rig.clients,
        rig.offsets,
        rig.clock,
        may_check=may_check,
    )
    broker.prepare(b"secret")
    broker.check(7000)
    broker.check(60_000)
    assert stranger.notices == []
    assert set(asked) == {(stranger, "Orders")}
    broker.join(client=producer)
    broker.check(60_000)
    assert stranger.notices == []
    assert [notice.code for notice in producer.notices] == [RequestCode.CHECK_TRANSACTION_STATE]


@pytest.mark.proves("broker:9.5")
def test_producers_are_checked_in_turn_and_closed_ones_skipped(broker: Broker) -> None:
    first, second, closed = (broker.join(client=connection(port)) for port in (1, 2, 3))
    closed.closed = True
    for number in range(6):
        broker.prepare(b"%d" % number)
    broker.check(7000)
    assert len(first.notices) + len(second.notices) == 6
    assert first.notices and second.notices and not closed.notices


def test_run_that_takes_too_long_ends_and_the_next_one_continues(broker: Broker) -> None:
    rig, asked = broker.rig, 0

    def slow(who: Any, topic: str) -> bool:
        nonlocal asked
        asked += 1
        rig.clock.ms += 2000
        return True

    broker.join()
    broker.parts = CheckBack(
        lambda: rig.settings,
        rig.store,
        rig.inner,
        rig.clients,
        rig.offsets,
        rig.clock,
        may_check=slow,
    )
    for number in range(STEP_COUNT + 8):
        broker.prepare(b"%d" % number)
    broker.check(7000)
    assert asked == STEP_COUNT, "each took 2 s: beyond the limit of 60 s after the first step"
    broker.check()
    assert asked >= STEP_COUNT + 8


@pytest.mark.proves("broker:9.5")
def test_producer_that_accepts_nothing_is_left_to_the_next_run(broker: Broker) -> None:
    stuck, other = broker.join(client=connection(1)), broker.join(client=connection(2))
    stuck.write(bytes(UNSENT_BYTES_MAX + 1))
    for number in range(3):
        broker.prepare(b"%d" % number)
    broker.check(7000)
    assert (len(stuck.notices), len(other.notices)) == (0, 3)
    other.closed = True
    broker.check(7000)
    assert stuck.notices == []
    stuck.written = b""
    broker.check(7000)
    assert len(stuck.notices) == 3


def test_half_message_that_cannot_be_copied_is_discarded_and_blocks_no_other(broker: Broker) -> None:
    """As a store of another broker may have it: no room for the properties of a check."""
    producer = broker.join()
    broker.prepare(b"0")
    room = 32767 - len(broker.stored(HALF_TOPIC)[0].properties)
    broker.prepare(b"1", pad="x" * (room - len("pad") - 2))
    broker.prepare(b"2")
    broker.check(7000)
    assert [decode_record(asked.body).body for asked in producer.notices] == [b"0", b"2"]
    assert [record.body for record in broker.stored(rules.DISCARD_TOPIC)] == [b"1"]
    assert broker.parts.unasked == 1
    broker.check(7000)
    assert len(broker.stored(rules.DISCARD_TOPIC)) == 1


def test_half_message_that_nothing_can_hold_is_given_up_and_blocks_no_other(
    make: Callable[..., Broker], caplog: pytest.LogCaptureFixture
) -> None:
    """Its log file is full of it, and the topic of those given up has a longer name."""
    broker = make(mapped_file_size_commit_log=4096)
    producer = broker.join()
    broker.prepare(b"0")
    (first,) = broker.stored(HALF_TOPIC)
    broker.prepare(bytes(4096 - 8 - first.size + 1), UNIQ_KEY="K0")
    broker.prepare(b"2")
    broker.check(7000)
    assert [decode_record(asked.body).body for asked in producer.notices] == [b"0", b"2"]
    assert broker.rig.store.stats.lost == 1
    assert f"its half message 1 is only in {HALF_TOPIC}" in caplog.text
    producer.notices.clear()
    broker.check(7000)
    assert [decode_record(asked.body).body for asked in producer.notices] == [b"0", b"2"]


def test_half_message_with_an_impossible_queue_is_moved_to_a_valid_one(broker: Broker) -> None:
    own = {"TRAN_MSG": "true", "PGROUP": "p", "REAL_TOPIC": "Orders"}
    for queue, wanted in (("-7", 0), ("9" * 18, rules.QUEUE_ID_MAX), ("", 0), ("x", 0)):
        text = properties.encode(own | {"REAL_QID": queue})
        (placed,) = broker.rig.inner.put([InnerMessage(HALF_TOPIC, 0, b"x", text, 0, 0, 0, STORE_HOST)])
        record = broker.rig.inner.read(placed.physical_offset)
        assert record is not None
        assert rules.committed(record, rules.read_half(record.properties)).queue_id == wanted
        assert decode_record(rules.check_body(record)).queue_id == wanted


@pytest.mark.proves("broker:9.5", "broker:9.4")
def test_checks_without_an_end_repeat_up_to_the_limit(make: Callable[..., Broker]) -> None:
    broker = make(transaction_check_max=3)
    producer = broker.join()
    broker.prepare(b"one")
    for _ in range(4):
        broker.check(7000)
    assert len(producer.notices) == 3
    (lost,) = broker.stored(rules.DISCARD_TOPIC)
    own = properties.decode(lost.properties)
    assert (lost.body, own["TRANSACTION_CHECK_TIMES"], own["REAL_TOPIC"]) == (b"one", "3", "Orders")
    broker.check(7000)
    assert len(broker.stored(rules.DISCARD_TOPIC)) == 1 and broker.parts.unasked == 0
    copy = broker.stored(HALF_TOPIC)[-1]
    assert code(broker.end(Placed(copy.physical_offset, copy.queue_offset))) == ResponseCode.SYSTEM_ERROR
    resume = Command(
        RequestCode.RESUME_CHECK_HALF_MESSAGE,
        1,
        ext={"msgId": offset_message_id(STORE_HOST, lost.physical_offset)},
    )
    assert broker.parts.resume(connection(), resume).code == ResponseCode.SUCCESS
    broker.check(7000)
    assert len(producer.notices) == 4


@pytest.mark.parametrize("restart", [False, True])
def test_half_message_without_a_producer_waits_and_is_asked_about_later(
    make: Callable[..., Broker], restart: bool
) -> None:
    broker = make(transaction_check_max=3)
    broker.end(broker.prepare(b"ended"))
    broker.prepare(b"one")
    for _ in range(10):
        broker.check(7000)
    broker.end(broker.prepare(b"ended later"))
    broker.check(7000)
    assert len(broker.stored(HALF_TOPIC)) == 3, "nobody was asked, so nothing was copied"
    if restart:
        broker.again()
    producer = broker.join()
    broker.check(7000)
    assert [decode_record(asked.body).body for asked in producer.notices] == [b"one"]
    assert broker.stored(rules.DISCARD_TOPIC) == []


def test_half_message_without_a_producer_does_not_hold_up_the_queue_for_ever(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start reads the queue from the first open one on."""
    monkeypatch.setattr(rules, "LEFT_BEHIND", 20)
    broker.prepare(b"one")
    for number in range(30):
        broker.end(broker.prepare(b"%d" % number))
    broker.check(7000)
    assert broker.rig.offsets.query(HALF_TOPIC, rules.CHECK_GROUP, 0) == 31
    copy = broker.stored(HALF_TOPIC)[-1]
    assert copy.body == b"one" and rules.check_times(copy) == 0
    broker.check(7000)
    assert len(broker.stored(HALF_TOPIC)) == 32
    producer = broker.join()
    broker.check(7000)
    assert [decode_record(asked.body).body for asked in producer.notices] == [b"one"]


def test_message_with_a_late_first_check_is_asked_about_however_many_checks_come_before(
    make: Callable[..., Broker],
) -> None:
    broker = make(transaction_check_max=3)
    producer = broker.join()
    broker.prepare(b"slow", CHECK_IMMUNITY_TIME_IN_SECONDS="100")
    for _ in range(10):
        broker.check(10_000)
    assert producer.notices == []
    broker.check(10_000)
    assert len(producer.notices) == 1 and broker.stored(rules.DISCARD_TOPIC) == []


HOUR_MS = 3_600_000


def test_nobody_gives_up_a_transaction_unasked_before_its_record_expires(broker: Broker) -> None:
    broker.prepare(b"old")
    broker.check(72 * HOUR_MS)
    assert broker.stored(rules.DISCARD_TOPIC) == []
    broker.prepare(b"new")
    broker.check(7000)
    assert [record.body for record in broker.stored(rules.DISCARD_TOPIC)] == [b"old"]
    assert broker.parts.unasked == 1


def test_expired_half_message_is_asked_about_first(broker: Broker) -> None:
    broker.prepare(b"old")
    producer = broker.join()
    broker.check(100 * HOUR_MS)
    assert len(producer.notices) == 1 and broker.parts.unasked == 0


def test_half_message_that_cannot_be_read_is_counted_and_blocks_no_other(broker: Broker) -> None:
    at = broker.prepare(b"damaged").physical_offset
    broker.prepare(b"one")
    damage(broker.rig, at, "body")
    producer = broker.join()
    broker.check(7000)
    assert [decode_record(asked.body).body for asked in producer.notices] == [b"one"]
    assert broker.parts.unasked == 1
    assert broker.rig.offsets.query(HALF_TOPIC, rules.CHECK_GROUP, 0) == 2


@pytest.mark.parametrize("msg_id", ["", "x", "00" * 16, offset_message_id(STORE_HOST, 1 << 50)])
def test_only_half_messages_can_be_resumed(broker: Broker, msg_id: str) -> None:
    command = Command(RequestCode.RESUME_CHECK_HALF_MESSAGE, 1, ext={"msgId": msg_id})
    broker.prepare()
    answer = broker.parts.resume(connection(), command)
    if msg_id == "00" * 16:  # the half message itself lies at 0: it is checked anew
        assert answer.code == ResponseCode.SUCCESS
    else:
        assert answer.code == ResponseCode.SYSTEM_ERROR and answer.remark


@pytest.mark.proves("broker:9.4", "client:B-103")
def test_message_with_its_own_check_time_is_put_back_until_then(broker: Broker) -> None:
    producer = broker.join()
    broker.prepare(b"slow", CHECK_IMMUNITY_TIME_IN_SECONDS="60")
    broker.prepare(b"quick")
    broker.check(10_000)
    assert [decode_record(one.body).body for one in producer.notices] == [b"quick"]
    own = properties.decode(broker.stored(HALF_TOPIC)[2].properties)
    assert (own["UNIQ_KEY"], own["TRAN_PREPARED_QUEUE_OFFSET"]) == ("Kslow", "0")
    broker.check(60_000)
    assert b"slow" in [decode_record(one.body).body for one in producer.notices]


@pytest.mark.proves("broker:9.4")
def test_progress_is_stored_as_group_offsets_and_survives(broker: Broker) -> None:
    for number in range(5):
        broker.end(broker.prepare(b"%d" % number), COMMIT if number % 2 else ROLLBACK)
    open_one = broker.prepare(b"open")
    broker.check(0)
    offsets = broker.rig.offsets
    assert offsets.query(HALF_TOPIC, rules.CHECK_GROUP, 0) == 5
    assert offsets.query(OP_HALF_TOPIC, rules.CHECK_GROUP, 0) == 5
    broker.again()
    assert broker.orders == [b"1", b"3"]
    assert code(broker.end(open_one)) == ResponseCode.SUCCESS
    producer = broker.join()
    broker.check(60_000)
    assert producer.notices == [] and broker.orders == [b"1", b"3", b"open"]


@pytest.mark.proves("broker:9.4")
def test_lost_progress_does_not_repeat_checks_of_ended_transactions(broker: Broker) -> None:
    """After kill -9 the offsets are old: copies and op records in the log show which transactions are
    open."""
    done, kept, rolled = broker.prepare(b"done"), broker.prepare(b"kept"), broker.prepare(b"rolled")
    broker.check(7000)
    broker.end(done)
    broker.end(rolled, ROLLBACK)
    broker.check(7000)
    broker.again(saved=False)
    producer = broker.join()
    broker.check(7000)
    assert [decode_record(one.body).body for one in producer.notices] == [b"kept"]
    assert code(broker.end(done)) == ResponseCode.SYSTEM_ERROR
    assert code(broker.end(kept)) == ResponseCode.SUCCESS
    assert broker.orders == [b"done", b"kept"]


def test_many_ended_transactions_are_passed_without_reading_them(broker: Broker) -> None:
    for number in range(300):
        broker.end(broker.prepare(b"%d" % number))
    broker.check(0)
    assert broker.rig.offsets.query(HALF_TOPIC, rules.CHECK_GROUP, 0) == 300


def test_op_records_of_5x_are_understood(broker: Broker) -> None:
    for number in range(3):
        broker.prepare(b"%d" % number)
    op = rules.op_message([0, 2], now_ms=1, host=STORE_HOST)
    assert op.body == b"0,2,"
    broker.rig.inner.put([op])
    broker.again()
    producer = broker.join()
    broker.check(7000)
    assert [decode_record(one.body).body for one in producer.notices] == [b"1"]


def test_one_way_end_is_processed_too(broker: Broker) -> None:
    placed = broker.prepare()
    request = EndTransactionRequest(
        producer_group="p",
        tran_state_table_offset=placed.queue_offset,
        commit_log_offset=placed.physical_offset,
        commit_or_rollback=COMMIT,
    )
    command = Command(RequestCode.END_TRANSACTION, 1, FLAG_ONEWAY, to_ext(request))
    broker.parts.ends.handle(connection(), command)
    assert broker.orders == [b"x"]


def crash_without(broker: Broker, placed: list[int]) -> None:
    """Kill the broker, and remove these records at the end of the log, as if they were never written."""
    root, settings = broker.rig.settings.store_path_root_dir, broker.rig.settings
    end, now = broker.rig.store.position, broker.rig.clock.ms
    broker.rig.kill()
    first = min(placed)
    with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(first)
        file.write(bytes(end - first))
    assert settings.store_path_root_dir == root
    broker._open()
    broker.rig.clock.ms = now


@pytest.mark.parametrize("copied", [False, True])
def test_commit_whose_op_record_was_lost_in_a_crash_is_not_checked(broker: Broker, copied: bool) -> None:
    """A chunk across the end of a log file is two writes, and the broker died between them."""
    placed = [broker.prepare(b"a"), broker.prepare(b"b")]
    if copied:
        broker.check(7000)
    assert code(broker.end(placed[0])) == ResponseCode.SUCCESS
    (op,) = broker.stored(OP_HALF_TOPIC)
    crash_without(broker, [op.physical_offset])
    assert broker.orders == [b"a"]
    assert len(broker.stored(OP_HALF_TOPIC)) == 1, "it was written by the start"
    client = broker.join()
    for _ in range(3):
        broker.check(7000)
    assert {decode_record(asked.body).body for asked in client.notices} == {b"b"}, "only the open one"
    assert code(broker.end(placed[0])) != ResponseCode.SUCCESS
    assert broker.orders == [b"a"]
    broker.again(saved=False)
    assert code(broker.end(placed[0])) != ResponseCode.SUCCESS
    assert broker.orders == [b"a"]


def test_commit_lost_from_its_chunk_in_a_power_failure_is_checked(broker: Broker) -> None:
    """The op record of the same chunk still exists. A rollback looks the same and is checked, too."""
    placed = [broker.prepare(text) for text in (b"lost", b"kept", b"open", b"rolled")]
    assert code(broker.end(placed[0])) == ResponseCode.SUCCESS
    (shown,) = broker.stored("Orders", 1)
    assert code(broker.end(placed[1])) == ResponseCode.SUCCESS
    assert code(broker.end(placed[3], ROLLBACK)) == ResponseCode.SUCCESS
    damage(broker.rig, shown.physical_offset, "body")
    for _ in range(2):
        broker.rig.kill()
        broker._open()
        assert [half.body for half in broker.stored(HALF_TOPIC)][4:] == [b"lost", b"rolled"], "once"
    assert broker.orders == [b"kept"]
    client = broker.join()
    broker.check(7000)
    asked = {decode_record(one.body).body: decode_record(one.body) for one in client.notices}
    assert set(asked) == {b"lost", b"open", b"rolled"}
    assert code(broker.end(placed[0])) == ResponseCode.SYSTEM_ERROR, "it is another transaction now"
    for body, state in ((b"lost", COMMIT), (b"rolled", ROLLBACK)):
        place = Placed(asked[body].physical_offset, asked[body].queue_offset)
        assert code(broker.end(place, state)) == ResponseCode.SUCCESS
    assert broker.orders == [b"kept", b"lost"]
    assert rules.REOPENED not in properties.decode(broker.stored("Orders", 1)[-1].properties)
    broker.again(saved=False)
    client = broker.join()
    broker.check(7000)
    assert {decode_record(one.body).body for one in client.notices} == {b"open"}


def test_half_message_found_torn_by_recovery_is_not_committed(broker: Broker) -> None:
    placed = broker.prepare(b"a", bin="x" * 2000)
    last = broker.prepare(b"b")
    root, now = broker.rig.settings.store_path_root_dir, broker.rig.clock.ms
    broker.rig.kill()
    (root / "safe-point.json").unlink(missing_ok=True)
    with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(1024)
        file.write(bytes(512))
    broker._open()
    broker.rig.clock.ms = now
    assert placed.physical_offset < 1024 < last.physical_offset - 512
    assert broker.rig.inner.read(placed.physical_offset) is None
    assert broker.rig.store.read_record(placed.physical_offset) is None
    assert code(broker.end(placed)) == ResponseCode.SYSTEM_ERROR
    assert code(broker.end(last)) == ResponseCode.SUCCESS
    assert broker.orders == [b"b"]


def test_half_messages_are_kept_as_long_as_the_current_retention_says(broker: Broker) -> None:
    """Nobody can be asked about it, and its record may be deleted soon."""
    broker.prepare(b"two days")
    broker.check(2 * 86_400_000)
    assert broker.stored(rules.DISCARD_TOPIC) == []
    change = Command(RequestCode.UPDATE_BROKER_CONFIG, body=b"fileReservedTime=24")
    broker.rig.parts.handlers[RequestCode.UPDATE_BROKER_CONFIG](connection(), change)
    broker.check(1)
    assert [record.body for record in broker.stored(rules.DISCARD_TOPIC)] == [b"two days"]


def test_open_transactions_are_counted_before_and_after_a_check(broker: Broker) -> None:
    assert broker.parts.open_count == 0
    first, _ = broker.prepare(b"1"), broker.prepare(b"2")
    assert broker.parts.open_count == 2, "nobody was asked about them yet"
    broker.end(first)
    assert broker.parts.open_count == 1
    broker.join()
    broker.check(later_ms=10_000)
    assert broker.parts.open_count == 1
    broker.again()
    assert broker.parts.open_count == 1
