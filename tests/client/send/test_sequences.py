"""Sequence numbers of an idempotent producer on single messages and batches, and what answers say about
them."""

from __future__ import annotations

import json

import pytest
from tests.support import about

from sparrowmq.client.send.encoding import SendTarget, outgoing_batch, outgoing_single
from sparrowmq.client.send.hook_properties import with_properties
from sparrowmq.client.send.sequences import as_numbered, count_of, judged_result, number
from sparrowmq.core.errors import BrokerError, InvalidMessageError, SequenceTooOldError
from sparrowmq.core.message import Message, MessageQueue
from sparrowmq.protocol.batch import decode_batch
from sparrowmq.protocol.frame import FLAG_RESPONSE, Command
from sparrowmq.protocol.producer_mark import Mark, binding, find_mark, first_of_run, too_old

QUEUE = MessageQueue("T", "broker-a", 2)
TARGET = SendTarget(QUEUE, "127.0.0.1:1", group="g", create_topic_key="TBW102", create_topic_queues=4)
LIMIT = 4_000_000


def test_single_message_is_numbered_before_its_properties() -> None:
    plain = outgoing_single(Message("T", b"x", tags="a"), "AB", 5, LIMIT)
    made = number(plain, "p", QUEUE, 3, 7, LIMIT)
    text = json.loads(made.properties).encode()
    assert find_mark(text) == Mark("p", 3, 7, binding("T", 2))
    assert text.endswith(json.loads(plain.properties).encode())
    assert (made.body, made.message_id, made.is_numbered, plain.is_numbered) == (b"x", "AB", True, False)
    assert made.needs_command and not plain.needs_command
    assert count_of(plain) == 1


def test_each_message_of_a_batch_is_numbered() -> None:
    plain = outgoing_batch([Message("T", b"%d" % n) for n in range(3)], ["A", "B", "C"], "K", 5, LIMIT)
    made = number(plain, "p", QUEUE, 0, 7, LIMIT)
    items = decode_batch(made.body)
    assert first_of_run(own for _, _, own in items) == (Mark("p", 0, 7, binding("T", 2)), 3)
    assert [body for _, body, _ in items] == [b"0", b"1", b"2"]
    assert made.properties == plain.properties and made.is_batch and count_of(plain) == 3


def test_batch_that_grows_too_large_is_refused() -> None:
    plain = outgoing_batch([Message("T", b"x" * 900)], ["A"], "K", 5, 1000)
    with pytest.raises(InvalidMessageError, check=about(part="batch", limit=983)):
        number(plain, "p", QUEUE, 0, 0, len(plain.body) + 40)


def test_requests_ask_for_deduplication_and_keep_it_with_hooks_properties() -> None:
    plain = outgoing_single(Message("T", b"x"), "AB", 5, LIMIT)
    made = with_properties(number(plain, "p", QUEUE, 0, 0, LIMIT), {"hook": "1"}, LIMIT)
    assert TARGET.command(made).ext["idempotent"] == "true"
    assert "idempotent" not in TARGET.command(plain).ext
    assert as_numbered(plain).properties == plain.properties


def test_answer_says_whether_it_was_deduplicated() -> None:
    sent = as_numbered(outgoing_single(Message("T", b"x"), "AB", 5, LIMIT))
    ext = {"msgId": "0" * 32, "queueId": "2", "queueOffset": "9"}
    assert not judged_result(Command(0, 1, FLAG_RESPONSE, ext), sent, TARGET).idempotent
    judged = judged_result(Command(0, 1, FLAG_RESPONSE, {**ext, "idempotent": "true"}), sent, TARGET)
    assert judged.idempotent and judged.queue_offset == 9
    with pytest.raises(BrokerError):
        judged_result(Command(90001, 1, FLAG_RESPONSE), sent, TARGET)


def test_forgotten_place_says_where_known_places_begin() -> None:
    sent = as_numbered(outgoing_single(Message("T", b"x"), "AB", 5, LIMIT))
    told = Command(90002, 1, FLAG_RESPONSE, remark=f"producer p: {too_old(3, 20, 7)}")
    with pytest.raises(SequenceTooOldError, check=about(known_from=20, begins_at=7, code=90002)):
        judged_result(told, sent, TARGET)
