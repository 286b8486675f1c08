"""Messages of sends: tag codes, clean batches, limits; whole sends are in `test_sending`."""

from __future__ import annotations

from itertools import repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.broker.send_items import TAG_CODES_KEPT, Refused, SendItems, ended
from sparrowmq.core.errors import RecordError
from sparrowmq.core.hashing import java_hash
from sparrowmq.protocol.batch import encode_batch
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.headers import SendMessageRequest

ADDED = b"MSG_REGION\x01DefaultRegion\x02"
OWN = b"TAGS\x01A\x02"


def items(body_max: int = 1000) -> SendItems:
    return SendItems(body_max, ADDED)


def request(batch: bool) -> SendMessageRequest:
    return SendMessageRequest(
        producer_group="p",
        topic="T",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=1,
        flag=7,
        batch=batch,
    )


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        (b"TAGS\x01TagA\x02", "TagA"),
        (b"a\x01b\x02TAGS\x01x y\x02KEYS\x01k\x02", "x y"),
        (b"TAGS\x01last", "last"),
        ("TAGS\x01Größe\x02".encode(), "Größe"),
        (b"MYTAGS\x01no\x02", None),
        (b"TAGS\x01\x02", None),
        (b"", None),
        (b"TAGS\x01A\x02MYTAGS\x01no\x02", "A"),
    ],
)
def test_tag_codes_are_javas_hashes(text: bytes, tag: str | None) -> None:
    found = items()
    for _ in range(2):
        assert found.tags_code(text) == (0 if tag is None else java_hash(tag))


def test_not_every_tag_is_kept() -> None:
    found = items()
    for number in range(TAG_CODES_KEPT + 5):
        assert found.tags_code(b"TAGS\x01%d\x02" % number) == java_hash(str(number))
    assert len(found._tag_codes) <= TAG_CODES_KEPT


def test_a_clean_batch_is_its_messages() -> None:
    body = encode_batch([(1, b"one", OWN), (2, b"two", b"KEYS\x01k\x02")])
    assert items().of_clean_batch("T", body) == [
        (1, b"one", OWN, java_hash("A")),
        (2, b"two", b"KEYS\x01k\x02", 0),
    ]


PROPERTIES = st.sampled_from(
    [
        b"TAGS\x01A\x02a\x01b\x02",
        b"TAGS\x01B\x02a\x01b\x02",
        b"a\x01b\x02TAGS\x01A\x02",
        b"TAGS\x01A\x02TAGS\x01B",
        b"a\x01bcTAGS\x01A\x02",
        b"MYTAGS\x01A\x02x\x01\x02",
        b"TAGS\x01AA\x02b\x01\x02",
        b"a\x01b\x02a\x01DELAY\x01",
        b"TIMER_D\x01aaaaa\x02",
        b"POP_CK\x01aaaaaa\x02",
        b"a\x01aaaaaaaaaaa\x02",
        b"aaaaaaaaaaaaaaa",
    ]
)


@given(st.lists(st.tuples(st.sampled_from([b"", b"x", b"y"]), PROPERTIES | st.just(b"")), min_size=1))
def test_an_alike_batch_has_the_messages_and_codes_of_a_clean_one(members: list[tuple[bytes, bytes]]) -> None:
    body = encode_batch((3, one, own) for one, own in members)
    clean = items().of_clean_batch("T", body)
    found = items().of_alike_batch("T", body)
    if len({(len(one), len(own)) for one, own in members}) > 1:
        assert found is None
    elif found is not None:
        batch, codes = found
        assert clean == list(zip(repeat(batch.flag), batch.bodies, batch.properties, codes))
    else:
        assert not clean


def test_an_alike_batch_has_the_limit_of_a_batch() -> None:
    body = encode_batch([(0, b"x" * 900, OWN)] * 80)
    assert items().of_alike_batch("T", body) is None
    assert items(2000 * 80).of_alike_batch("T", body) is not None


@pytest.mark.parametrize(
    "members",
    [
        [(0, b"", OWN)],
        [(0, b"x", OWN[:-1])],
        [(0, b"x", b"")],
        [(0, b"x", OWN + b"DELAY\x011\x02")],
        [(0, b"x", OWN + b"TIMER_DELAY_SEC\x011\x02")],
        [(0, b"x", OWN + b"POP_CK\x011\x02")],
        [(0, b"x" * 70_000, OWN)],
        [(0, b"one", OWN), (0, b"", OWN)],
    ],
)
def test_what_needs_a_closer_look_is_no_clean_batch(members: list[tuple[int, bytes, bytes]]) -> None:
    assert items().of_clean_batch("T", encode_batch(members)) == []


def test_a_batch_that_is_cut_off_is_refused() -> None:
    body = encode_batch([(0, b"one", OWN)])[:-1]
    with pytest.raises(RecordError):
        items().of_clean_batch("T", body)
    with pytest.raises(Refused, match="the batch cannot be read") as refused:
        items().of_request(Command(320, body=body), request(True), b"")
    assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL


def test_a_single_message_loses_what_is_the_brokers() -> None:
    found = items().of_request(Command(310, body=b"x"), request(False), b"POP_CK\x011\x02TAGS\x01A")
    assert found == [(7, b"x", OWN, java_hash("A"))]


@pytest.mark.parametrize(
    ("body", "text", "said"),
    [
        (b"", OWN, "its body is empty"),
        (b"x" * 1001, OWN, "its body has 1001 bytes, maxMessageSize is 1000"),
        (b"x", b"a\x01" + b"b" * 32_760 + b"\x02", "the limit is 32767"),
    ],
)
@pytest.mark.parametrize("batch", [False, True])
def test_messages_beyond_a_limit_are_refused(body: bytes, text: bytes, said: str, batch: bool) -> None:
    command = Command(320, body=encode_batch([(0, body, text)]) if batch else body)
    with pytest.raises(Refused, match=said) as refused:
        items().of_request(command, request(batch), b"" if batch else text)
    assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL


@pytest.mark.parametrize("own", [b"DELAY\x011\x02", b"TIMER_DELAY_SEC\x015\x02"])
@pytest.mark.parametrize("where", ["header", "message"])
def test_a_batch_has_no_delayed_messages(own: bytes, where: str) -> None:
    body = encode_batch([(0, b"x", OWN + (own if where == "message" else b""))])
    with pytest.raises(Refused, match="send them singly"):
        items().of_request(Command(320, body=body), request(True), own if where == "header" else b"")


def test_a_batch_has_a_limit_as_a_whole() -> None:
    body = encode_batch([(0, b"x" * 900, OWN)] * 80)
    with pytest.raises(Refused, match="the limit is 66536; send fewer"):
        items().of_request(Command(320, body=body), request(True), b"")


@pytest.mark.parametrize(("text", "whole"), [(b"", b""), (b"a\x01b", b"a\x01b\x02"), (OWN, OWN)])
def test_more_can_be_put_behind_properties(text: bytes, whole: bytes) -> None:
    assert ended(text) == whole
