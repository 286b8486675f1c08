"""Decisions about transactions: stored records, open half messages, checks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.broker.rig import STORE_HOST
from tests.broker.send.plain import find, plain_sends

from sparrowmq.broker.transactions import half_messages as rules
from sparrowmq.broker.transactions.half_messages import CheckVerdict, OpenHalves
from sparrowmq.core.message import COPY_BYTES_MAX
from sparrowmq.core.names import HALF_TOPIC, OP_HALF_TOPIC
from sparrowmq.core.offset_set import PAGE
from sparrowmq.protocol import properties
from sparrowmq.protocol.call_headers import EndTransactionRequest
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.record import StoredRecord, decode_record

NOW = 1_700_000_100_000
OWN = {
    "TRAN_MSG": "true",
    "PGROUP": "p",
    "UNIQ_KEY": "AB12",
    "REAL_TOPIC": "Orders",
    "REAL_QID": "2",
    "__transactionId__": "AB12",
    "TAGS": "A",
}


def half(
    offset: int = 7, *, born: int = NOW - 10_000, topic: str = HALF_TOPIC, **changes: Any
) -> StoredRecord:
    """A stored half message; keyword arguments change its properties, None removes one."""
    own = {name: value for name, value in (OWN | changes).items() if value is not None}
    return StoredRecord(
        size=0,
        magic=0,
        body_crc=0,
        queue_id=0,
        flag=5,
        queue_offset=offset,
        physical_offset=1000 + offset,
        sys_flag=0x301,
        born_timestamp=born,
        born_host=STORE_HOST,
        store_timestamp=born,
        store_host=STORE_HOST,
        reconsume_times=3,
        prepared_offset=0,
        body=b"body",
        topic=topic,
        properties=properties.encode(own),
    )


def ending(**changes: Any) -> EndTransactionRequest:
    fields: dict[str, Any] = {
        "producer_group": "p",
        "tran_state_table_offset": 7,
        "commit_log_offset": 1007,
        "commit_or_rollback": rules.COMMIT,
    }
    return EndTransactionRequest(**(fields | changes))


def refused(record: StoredRecord, **changes: Any) -> ResponseCode | None:
    half = rules.read_half(record.properties)
    found = rules.end_refusal(ending(**changes), record, half, now_ms=NOW, timeout_ms=6000)
    return None if found is None else found[0]


@pytest.mark.proves("broker:9.1")
def test_half_messages_are_recognised() -> None:
    def is_half(text: str | None, times: int = 0, level: int = 0) -> bool:
        own = {} if text is None else {"TRAN_MSG": text}
        return rules.is_half(own, reconsume_times=times, delay_level=level)

    assert is_half("true") and is_half("TRUE") and is_half("true", 3, 0) and is_half("true", 0, 3)
    assert not is_half("true", 1, 1)
    assert not is_half("false") and not is_half(None) and not is_half("yes")


@pytest.mark.proves("broker:9.1")
def test_half_message_remembers_its_target() -> None:
    own = rules.half_properties({"UNIQ_KEY": "AB12", "K": "v"}, "Orders", 2)
    assert own == {
        "UNIQ_KEY": "AB12",
        "K": "v",
        "REAL_TOPIC": "Orders",
        "REAL_QID": "2",
        "__transactionId__": "AB12",
    }


@pytest.mark.proves("broker:9.2", "client:B-103")
def test_committed_message_is_the_half_message_in_its_real_queue() -> None:
    record = half(TRAN_PREPARED_QUEUE_OFFSET="4", TRANSACTION_CHECK_TIMES="2")
    message = rules.committed(record, rules.read_half(record.properties))
    assert (message.topic, message.queue_id, message.body, message.flag) == ("Orders", 2, b"body", 5)
    assert (message.born_timestamp, message.reconsume_times) == (NOW - 10_000, 3)
    assert message.sys_flag == 0x301 | 8
    assert message.prepared_offset == 1007
    own = properties.decode(message.properties)
    assert own == {
        "TRAN_MSG": "true",
        "PGROUP": "p",
        "UNIQ_KEY": "AB12",
        "__transactionId__": "AB12",
        "TAGS": "A",
        "TRANSACTION_CHECK_TIMES": "2",
    }


@pytest.mark.proves("broker:9.2")
@pytest.mark.parametrize(
    ("record", "changes", "code"),
    [
        (half(), {}, None),
        (half(topic="Orders"), {}, ResponseCode.SYSTEM_ERROR),
        (half(), {"producer_group": "other"}, ResponseCode.SYSTEM_ERROR),
        (half(PGROUP=None), {}, ResponseCode.SYSTEM_ERROR),
        (half(), {"tran_state_table_offset": 8}, ResponseCode.SYSTEM_ERROR),
        (half(REAL_TOPIC=None), {}, ResponseCode.SYSTEM_ERROR),
        (half(CHECK_IMMUNITY_TIME_IN_SECONDS="9"), {}, ResponseCode.ILLEGAL_OPERATION),
        (half(CHECK_IMMUNITY_TIME_IN_SECONDS="9"), {"from_transaction_check": True}, None),
        (half(CHECK_IMMUNITY_TIME_IN_SECONDS="10"), {}, None),
        (half(CHECK_IMMUNITY_TIME_IN_SECONDS="1", born=NOW - 6000), {}, None),
        (half(CHECK_IMMUNITY_TIME_IN_SECONDS="1", born=NOW - 6001), {}, ResponseCode.ILLEGAL_OPERATION),
    ],
)
def test_producers_permitted_to_end_a_transaction_are_decided(
    record: StoredRecord,
    changes: dict[str, Any],
    code: ResponseCode | None,
) -> None:
    assert refused(record, **changes) == code


@pytest.mark.proves("broker:9.3")
def test_op_record_has_the_format_of_both_generations() -> None:
    message = rules.op_message([12], now_ms=NOW, host=STORE_HOST)
    assert (message.topic, message.queue_id, message.body) == (OP_HALF_TOPIC, 0, b"12")
    assert properties.decode(message.properties) == {"TAGS": "d", "WAIT": "true"}


@pytest.mark.proves("broker:9.3")
@given(st.lists(st.integers(0, 10**18 - 1), min_size=1, max_size=rules.OP_NUMBERS_MAX))
def test_one_op_record_names_many_messages(numbers: list[int]) -> None:
    body = rules.op_message(numbers, now_ms=NOW, host=STORE_HOST).body
    assert rules.op_numbers(body) == numbers
    assert len(body) <= 4096 and (len(numbers) == 1 or body.endswith(b","))


PLAIN = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=8)
OTHERS = st.dictionaries(PLAIN, PLAIN, max_size=4)
NOTED_BY_CHECKS = [rules.CHECK_TIMES, rules.FIRST_OFFSET, rules.REOPENED, rules.FIRST_STORED]
NOT_PLAIN = [
    *("DELAY", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS", "POP_CK", "REAL_TOPIC", "REAL_QID"),
    *NOTED_BY_CHECKS,
]


def property_texts() -> st.SearchStrategy[bytes]:
    """Property strings of half messages and of similar messages, with pieces in any order."""
    own = st.fixed_dictionaries({"TRAN_MSG": st.sampled_from(["true", "True", "false"])})
    special = st.dictionaries(
        st.sampled_from([*NOT_PLAIN, "UNIQ_KEY", "xREAL_TOPIC", "PGROUP"]), PLAIN, max_size=3
    )
    key = st.fixed_dictionaries({}, optional={"UNIQ_KEY": st.sampled_from(["AB12", "é", "a b"])})
    parts = st.tuples(OTHERS, own, key, st.one_of(st.just({}), special), OTHERS)
    items = parts.flatmap(lambda all_: st.permutations([item for part in all_ for item in part.items()]))
    texts = items.map(lambda all_: "".join(f"{name}\x01{value}\x02" for name, value in all_).encode())
    return st.one_of(texts, texts.map(lambda text: text[:-1]))


def short_way(text: bytes, topic: str, queue_id: int, added_bytes: int) -> tuple[bytes, bytes] | None:
    """The properties of a plain half message and its unique key; None for any other.

    Without `added_bytes`, which the broker adds."""
    added = b"+" * added_bytes
    found = find(plain_sends(added), text, topic=topic, queue_id=queue_id)
    return None if found is None else (found[3].removesuffix(added), found[5])


@pytest.mark.proves("broker:9.1")
@given(property_texts(), st.integers(0, 99))
def test_fast_and_general_parsing_of_half_messages_agree(text: bytes, queue_id: int) -> None:
    plain = short_way(text, "Orders", queue_id, 10)
    own = properties.decode(text)
    if plain is None:
        return
    half, key = plain
    assert properties.decode(half) == rules.half_properties(own, "Orders", queue_id)
    assert rules.is_half(own, reconsume_times=1, delay_level=0) and own["UNIQ_KEY"].encode() == key
    assert not {*NOT_PLAIN} & own.keys()


@pytest.mark.parametrize("name", NOTED_BY_CHECKS)
def test_senders_cannot_set_properties_of_checks(name: str) -> None:
    own = {"TRAN_MSG": "true", "UNIQ_KEY": "AB12", name: "0"}
    assert short_way(properties.encode(own), "Orders", 3, 10) is None
    half = rules.read_half(rules.encode_half(own, "Orders", 3, 10))
    assert name.encode() not in half.rest and half.origin(5) == 5


def test_plain_half_message_is_parsed_fast() -> None:
    text = b"TRAN_MSG\x01true\x02UNIQ_KEY\x01AB12\x02"
    added = b"REAL_TOPIC\x01Orders\x02REAL_QID\x013\x02__transactionId__\x01AB12\x02"
    assert short_way(text, "Orders", 3, 10) == (text + added, b"AB12")


@pytest.mark.parametrize("over", [0, 1])
def test_fast_path_leaves_room_for_checks(over: int) -> None:
    text = b"TRAN_MSG\x01true\x02UNIQ_KEY\x01AB12\x02k\x01%b\x02"
    added = len("REAL_TOPIC..Orders.REAL_QID.3.__transactionId__.AB12.") - 1
    room = 32767 - COPY_BYTES_MAX - 10 - added - len(text % b"")
    short = short_way(text % (b"x" * (room + over)), "Orders", 3, 10)
    assert (short is None) == bool(over)
    if short is not None:
        own = properties.decode(text % (b"x" * room))
        assert len(rules.encode_half(own, "Orders", 3, 10)) == len(short[0])


@pytest.mark.proves("broker:9.2")
@given(property_texts(), st.permutations(["REAL_TOPIC\x01Orders\x02", "REAL_QID\x013\x02"]), st.booleans())
def test_half_message_is_read_alike_in_any_property_order(text: bytes, place: list[str], copy: bool) -> None:
    """The fast path needs both properties of the place next to each other; it must not match anything
    else."""
    whole = text + (b"" if text.endswith(b"\x02") else b"\x02") + "".join(place).encode() + b"PGROUP\x01p\x02"
    if copy:
        whole += b"TRAN_PREPARED_QUEUE_OFFSET\x017\x02"
    half, own = rules.read_half(whole), properties.decode(whole)
    assert (half.topic, half.queue_id, half.group, half.immunity) == ("Orders", 3, "p", None)
    kept = own.keys() - {
        "REAL_TOPIC",
        "REAL_QID",
        "TRAN_PREPARED_QUEUE_OFFSET",
        rules.REOPENED,
        rules.FIRST_STORED,
    }
    assert properties.decode(half.rest) == {name: own[name] for name in kept}


@pytest.mark.proves("broker:9.3")
@pytest.mark.parametrize(
    ("body", "numbers"),
    [(b"12", [12]), (b"12,13,15,", [12, 13, 15]), (b"", []), (b",x,-3,7", [7]), (b"9" * 30, [])],
)
def test_op_records_of_both_generations_are_read(body: bytes, numbers: list[int]) -> None:
    assert rules.op_numbers(body) == numbers


@pytest.mark.proves("broker:9.4")
def test_copy_counts_checks_and_names_the_first_half_message() -> None:
    first = rules.renewed(half(7), now_ms=NOW, asked=True)
    own = properties.decode(first.properties)
    assert (first.topic, first.queue_id, first.sys_flag) == (HALF_TOPIC, 0, 0x301)
    noted = {"TRAN_PREPARED_QUEUE_OFFSET": "7", "REAL_HALF_STORED": str(NOW - 10_000)}
    assert own == OWN | noted | {"TRANSACTION_CHECK_TIMES": "1"}
    second = rules.renewed(half(20, TRANSACTION_CHECK_TIMES="1", **noted), now_ms=NOW, asked=True)
    assert properties.decode(second.properties) == OWN | noted | {"TRANSACTION_CHECK_TIMES": "2"}


def test_copy_of_a_message_that_was_not_asked_counts_no_check() -> None:
    own = properties.decode(rules.renewed(half(7), now_ms=NOW, asked=False).properties)
    assert "TRANSACTION_CHECK_TIMES" not in own


def test_age_counts_from_the_first_store_time_and_begins_anew_when_the_clock_was_set_back() -> None:
    copy = half(20, born=NOW - 5, REAL_HALF_STORED=str(NOW - 70))
    assert rules.age_ms(half(born=NOW - 9), NOW) == 9 and rules.age_ms(copy, NOW) == 70
    assert rules.age_ms(copy, NOW - 100) == -30
    again = properties.decode(rules.renewed(copy, now_ms=NOW - 100, asked=False).properties)
    assert again["REAL_HALF_STORED"] == str(NOW - 100)


@pytest.mark.parametrize("text", ["", "x", "-1", "20", "21", "9" * 40])
def test_impossible_first_offset_is_ignored(text: str) -> None:
    assert rules.first_offset(half(20, TRAN_PREPARED_QUEUE_OFFSET=text or None)) == 20


@pytest.mark.proves("broker:9.5")
def test_check_contains_the_message_with_its_real_topic_and_the_half_messages_offsets() -> None:
    record = decode_record(rules.check_body(half(7)))
    assert (record.topic, record.queue_id) == ("Orders", 2)
    assert (record.queue_offset, record.physical_offset, record.body) == (7, 1007, b"body")
    assert properties.decode(record.properties) == OWN


def test_only_abandoned_half_messages_are_resumed() -> None:
    noted = {"TRAN_PREPARED_QUEUE_OFFSET": "7", "REAL_HALF_STORED": "1"}
    again = rules.resumed(half(20, TRANSACTION_CHECK_TIMES="15", **noted))
    assert again is not None
    assert properties.decode(again.properties) == OWN | {"TRANSACTION_CHECK_TIMES": "0"}
    for name in ("REAL_TOPIC", "PGROUP", "TRAN_MSG"):
        assert rules.resumed(half(20, **{name: None})) is None


@pytest.mark.proves("broker:9.4", "client:B-103")
@pytest.mark.parametrize(
    ("record", "verdict"),
    [
        (half(born=NOW - 6001), CheckVerdict.CHECK),
        (half(born=NOW - 6000), CheckVerdict.STOP),
        (half(TRANSACTION_CHECK_TIMES="14"), CheckVerdict.CHECK),
        (half(TRANSACTION_CHECK_TIMES="15"), CheckVerdict.DISCARD),
        (half(born=NOW - 365 * 86_400_000), CheckVerdict.CHECK),
        (half(born=NOW + 365 * 86_400_000), CheckVerdict.CHECK),
        (half(CHECK_IMMUNITY_TIME_IN_SECONDS="10"), CheckVerdict.KEEP),
        (half(CHECK_IMMUNITY_TIME_IN_SECONDS="9"), CheckVerdict.CHECK),
        (half(CHECK_IMMUNITY_TIME_IN_SECONDS="-1"), CheckVerdict.CHECK),
        (half(CHECK_IMMUNITY_TIME_IN_SECONDS="-1", born=NOW - 6000), CheckVerdict.KEEP),
        (half(CHECK_IMMUNITY_TIME_IN_SECONDS="soon", born=NOW - 6000), CheckVerdict.KEEP),
    ],
)
def test_check_decision_depends_on_age_and_count(record: StoredRecord, verdict: CheckVerdict) -> None:
    found = rules.judge(record, now_ms=NOW, run_end=record.queue_offset + 1, timeout_ms=6000, checks_max=15)
    assert found is verdict


@pytest.mark.proves("broker:9.4")
def test_messages_stored_since_the_run_began_wait_for_the_next_run() -> None:
    record = half(born=NOW - 10_000)
    found = rules.judge(record, now_ms=NOW, run_end=record.queue_offset, timeout_ms=6000, checks_max=15)
    assert found is CheckVerdict.STOP


@pytest.mark.parametrize("ahead_ms", [365 * 86_400_000, -365 * 86_400_000])
def test_clock_of_a_producer_has_no_influence_on_its_checks(ahead_ms: int) -> None:
    for age, verdict in ((6000, CheckVerdict.STOP), (6001, CheckVerdict.CHECK)):
        record = replace(half(born=NOW + ahead_ms), store_timestamp=NOW - age)
        found = rules.judge(record, now_ms=NOW, run_end=99, timeout_ms=6000, checks_max=15)
        assert found is verdict
    record = replace(half(born=NOW + ahead_ms, CHECK_IMMUNITY_TIME_IN_SECONDS="9"), store_timestamp=NOW)
    assert refused(record) is None


def test_half_message_stored_while_the_clock_was_ahead_blocks_no_other() -> None:
    stored = replace(half(born=NOW - 7000), store_timestamp=NOW + 365 * 86_400_000)
    found = rules.judge(stored, now_ms=NOW, run_end=99, timeout_ms=6000, checks_max=15)
    assert found is CheckVerdict.CHECK


class TestOpenHalves:
    """Which transactions are open: ended ones, copies, progress."""

    @pytest.mark.proves("broker:9.4")
    def test_ended_transaction_lets_the_queue_advance(self) -> None:
        halves = OpenHalves(0, 0)
        halves.ended([0], op_offset=0)
        halves.ended([1], op_offset=1)
        assert [halves.is_done(n) for n in range(3)] == [True, True, False]
        assert halves.skip(0, 100) == 2
        assert halves.skip(0, 1) == 1
        halves.advance(2)
        assert (halves.first, halves.first_op) == (2, 2)
        assert halves.latest(1) is None

    def test_op_records_of_later_messages_stay(self) -> None:
        halves = OpenHalves(0, 0)
        halves.ended([5], op_offset=0)
        halves.ended([0], op_offset=1)
        halves.advance(1)
        assert halves.first_op == 0
        halves.advance(6)
        assert halves.first_op == 2

    @pytest.mark.proves("broker:9.3")
    def test_op_record_of_many_messages_stays_until_all_are_passed(self) -> None:
        halves = OpenHalves(0, 0)
        halves.ended([3, 0, 1], op_offset=0)
        halves.advance(2)
        assert halves.first_op == 0 and halves.is_done(3) and not halves.is_done(2)
        halves.ended([2], op_offset=1)
        halves.advance(4)
        assert halves.first_op == 2

    def test_abandoned_transaction_leaves_no_op_record(self) -> None:
        halves = OpenHalves(0, 0)
        halves.moved(0, 0, 3)
        assert halves.given_up(0) == 3
        assert halves.latest(0) is None and halves.is_done(3)
        halves.advance(4)
        assert halves.first_op == 0

    def test_only_the_latest_copy_is_open_and_any_name_ends_it(self) -> None:
        halves = OpenHalves(0, 0)
        halves.moved(0, 0, 4)
        assert halves.is_done(0) and not halves.is_done(4)
        assert halves.latest(0) == 4
        halves.advance(1)
        assert halves.latest(0) == 4
        halves.moved(4, 0, 9)
        assert (halves.latest(0), len(halves)) == (9, 1)
        halves.ended([0], op_offset=0)
        assert halves.latest(0) is None and halves.is_done(9) and len(halves) == 0

    def test_copy_is_trusted_after_a_start_without_the_first_message(self) -> None:
        halves = OpenHalves(3, 0)
        halves.load_half(3, 3)
        halves.load_half(4, 0)
        assert halves.latest(0) == 4
        assert halves.latest(3) == 3

    def test_op_record_entries_about_later_messages_are_ignored(self) -> None:
        halves = OpenHalves(0, 0)
        halves.load_op(0, b"1,7,900000000000000000", end=8)
        assert halves.is_done(7) and not halves.is_done(900_000_000_000_000_000)
        assert len(halves._done._pages) == 1

    def test_long_open_transaction_costs_one_bit_per_ended_one_behind_it(self) -> None:
        """Only a limited number of their op records is kept individually."""
        halves, count = OpenHalves(0, 0), 3 * rules.OPS_NOTED_MAX
        for number in range(1, count):
            halves.ended([number], op_offset=number - 1)
        assert len(halves._done._pages) <= count // PAGE + 1
        assert len(halves._ops) <= rules.OPS_NOTED_MAX
        halves.advance(count // 2)
        assert count // 2 - 8 <= halves.first_op <= count // 2 - 1
        halves.advance(count)
        assert (halves.first_op, len(halves._ops)) == (count - 1, 0)

    def test_start_after_the_end_of_a_copy_opens_no_other_copy(self) -> None:
        halves = OpenHalves(3, 0)
        halves.load_op(0, b"4", end=9)
        halves.load_half(4, 0)
        halves.load_half(6, 0)
        assert halves.is_done(6) and len(halves) == 0

    def test_open_transactions_are_counted(self) -> None:
        halves = OpenHalves(10, 0)
        assert [halves.waiting(end) for end in (12, 13)] == [2, 3]
        halves.moved(10, 10, 13)
        assert halves.waiting(14) == 3
        halves.ended([10], op_offset=0)
        assert [halves.waiting(end) for end in (14, 15)] == [2, 3]
        halves.advance(11)
        assert [halves.waiting(end) for end in (14, 15)] == [2, 3]


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, int]]:
    """Steps of a broker: sends, checks of the oldest open ones, ends."""
    kinds = st.sampled_from(["send", "send", "check", "end", "save"])
    return draw(st.lists(st.tuples(kinds, st.integers(0, 30)), max_size=60))


@pytest.mark.proves("broker:9.4", "broker:9.3")
@given(histories())
def test_start_after_any_history_finds_the_open_transactions(steps: list[tuple[str, int]]) -> None:
    """The log has half messages and op records; saved progress may be old; both tables must agree."""
    log: list[int] = []  # origin of each half message by offset
    ops: list[bytes] = []
    live = OpenHalves(0, 0)
    saved = (0, 0)
    for kind, pick in steps:
        if kind == "send":
            log.append(len(log))
        elif kind == "end" and log:
            wanted = dict.fromkeys(log[(pick * step) % len(log)] for step in (1, 7, 11)[: 1 + pick % 3])
            ending = {origin: latest for origin in wanted if (latest := live.latest(origin)) is not None}
            if ending:
                ops.append(rules.op_message([*ending.values()], now_ms=NOW, host=STORE_HOST).body)
                live.ended(ending, len(ops) - 1)
        elif kind == "check":
            offset = live.first
            for offset in range(live.first, min(len(log), live.first + pick)):
                if not live.is_done(offset):
                    live.moved(offset, log[offset], len(log))
                    log.append(log[offset])
            live.advance(live.skip(min(offset + 1, len(log)) if pick and log else live.first, 100))
        elif kind == "save":
            saved = (live.first, live.first_op)
    fresh = OpenHalves(*saved)
    for number, body in enumerate(ops):
        if number >= saved[1]:
            fresh.load_op(number, body, len(log))
    for offset in range(saved[0], len(log)):
        fresh.load_half(offset, log[offset])
    assert [fresh.latest(origin) for origin in log] == [live.latest(origin) for origin in log]
    assert all(fresh.is_done(offset) == live.is_done(offset) for offset in range(live.first, len(log)))
