"""Which sends are plain. The decision about properties is made once for all sends that differ only in
their unique keys."""

from __future__ import annotations

from itertools import repeat
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.send.plain import QUEUES, AnyTopic, find, plain_sends

from sparrowmq.broker.send import plain_sends as module
from sparrowmq.broker.send.batch_limits import BatchLimits
from sparrowmq.broker.send.plain_sends import TAG_CODES_KEPT, PlainSends, PlainShape
from sparrowmq.core.errors import RecordError
from sparrowmq.core.hashing import java_hash
from sparrowmq.core.names import HALF_TOPIC
from sparrowmq.protocol import properties
from sparrowmq.protocol.batch import encode_batch

NAMES = st.sampled_from(["a", "TAGS", "UNIQ_KEY", "XUNIQ_KEY", "DELAY", "KEYS", "TRAN_MSG"])
VALUES = st.sampled_from(["", "K1", "K2", "true", "a b", "é", "UNIQ_KEY"])
ADDED = b"MSG_REGION\x01DefaultRegion\x02"
OWN = b"TAGS\x01A\x02"
KEYED = OWN + b"UNIQ_KEY\x01K1\x02"


class Noting(PlainSends):
    """Records what it checks."""

    judged: list[bytes]
    answer: PlainShape | None = (7, False)

    def judge(self, shape: bytes) -> PlainShape | None:
        self.judged = [*getattr(self, "judged", []), shape]
        return self.answer


class NeverPlain(Noting):
    answer = None


def test_plain_send_has_everything_that_is_stored() -> None:
    found = find(plain_sends(ADDED), KEYED, topic="T", queue_id=3, opaque=9)
    assert found is not None
    frame, topic, queue, text, tags_code, key = found
    assert (frame.opaque, queue.topic, queue.queue_id, topic.queue_count) == (9, "T", 3, QUEUES)
    assert (text, tags_code, key) == (KEYED + ADDED, java_hash("A"), b"K1")


def test_plain_half_message_goes_to_the_half_queue() -> None:
    found = find(plain_sends(ADDED), KEYED + b"TRAN_MSG\x01true\x02", topic="T", sys_flag=4)
    assert found is not None and found[2].topic == HALF_TOPIC
    assert b"REAL_TOPIC\x01T\x02" in found[3] and found[3].endswith(ADDED)


@pytest.mark.parametrize(
    "changes",
    [
        {"queue_id": -1},
        {"queue_id": QUEUES},
        {"body": b""},
        {"body": b"x" * 1001},
        {"sys_flag": 4},
        {"sys_flag": 8},
        {"text": KEYED + b"DELAY\x011\x02"},
        {"text": KEYED + b"TIMER_DELAY_SEC\x011\x02"},
        {"text": KEYED + b"POP_CK\x011\x02"},
        {"text": KEYED + b"TRAN_MSG\x01false\x02"},
        {"text": KEYED + b"TRAN_MSG\x01true\x02", "batch": True},
        {"text": KEYED[:-1]},
        {"text": KEYED + b"a\x01" + b"b" * 32_767 + b"\x02"},
    ],
)
def test_send_with_special_requests_is_not_plain(changes: dict[str, Any]) -> None:
    assert find(plain_sends(ADDED), KEYED) is not None
    assert find(plain_sends(ADDED), **({"text": KEYED} | changes)) is None


@pytest.mark.parametrize("change", [{"special": True}, None])
def test_unknown_or_special_topic_is_not_plain(
    change: dict[str, Any] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = AnyTopic().get("T")
    vars(topic).update(change or {})
    monkeypatch.setattr(AnyTopic, "get", lambda self, name: topic if change else None)
    assert find(plain_sends(), KEYED) is None


def test_header_that_needs_more_than_one_step_is_not_plain() -> None:
    assert plain_sends().find(b'{"code":310,"extFields":{"b":7}}', b"x") is None


def test_shape_is_checked_once() -> None:
    sends = plain_sends(kind=Noting)
    assert isinstance(sends, Noting)
    texts = [b"TAGS\x01A\x02UNIQ_KEY\x01K%d\x02WAIT\x01true\x02" % number for number in range(3)]
    found = [find(sends, text) for text in texts]
    assert [one and one[4:] for one in found] == [(7, b"K0"), (7, b"K1"), (7, b"K2")]
    assert sends.judged == [b"TAGS\x01A\x02\x02WAIT\x01true\x02"]


def test_refusals_are_cached_too() -> None:
    sends = plain_sends(kind=NeverPlain)
    assert isinstance(sends, NeverPlain)
    assert find(sends, b"UNIQ_KEY\x01K1\x02") is find(sends, b"UNIQ_KEY\x01K2\x02") is None
    assert sends.judged == [b"\x02"]


@given(st.lists(st.tuples(NAMES, VALUES), max_size=5), st.booleans())
def test_cached_decision_equals_the_decision_for_the_whole_string(
    items: list[tuple[str, str]],
    cut: bool,
) -> None:
    whole = "".join(f"{name}\x01{value}\x02" for name, value in items).encode()
    text = whole[:-1] if cut else whole
    found = find(plain_sends(), text)
    if found is None:
        return
    *_, stored, tags_code, key = found
    assert text[-1:] == b"\x02" and stored.startswith(text)
    assert b"DELAY\x01" not in text and (b"TRAN_MSG" in text) == (found[2].topic == HALF_TOPIC)
    assert tags_code == plain_sends().tags_code(text)
    assert properties.decode(text)["UNIQ_KEY"].encode() == key or text.count(b"UNIQ_KEY\x01") > 1


@pytest.mark.parametrize(
    "text", [b"", b"TAGS\x01A\x02", b"UNIQ_KEY\x01K", b"XUNIQ_KEY\x01K\x02", b"UNIQ_KEY\x01a b\x02"]
)
def test_nothing_is_cached_without_a_plain_unique_key(text: bytes) -> None:
    assert find(plain_sends(kind=Noting), text) is None


def test_only_few_and_short_shapes_are_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHAPES_KEPT", 10)
    sends = plain_sends()
    for number in range(100):
        find(sends, b"k\x01%d\x02UNIQ_KEY\x01K\x02" % number)
        find(sends, b"k\x01%d\x02UNIQ_KEY\x01K\x02" % 10**300)
        assert 0 < len(sends._known) <= 10
    assert all(len(shape) < 20 for shape in sends._known)


# Tag codes


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
    found = plain_sends(ADDED)
    for _ in range(2):
        assert found.tags_code(text) == (0 if tag is None else java_hash(tag))


def test_number_of_cached_tags_is_limited() -> None:
    found = plain_sends(ADDED)
    for number in range(TAG_CODES_KEPT + 5):
        assert found.tags_code(b"TAGS\x01%d\x02" % number) == java_hash(str(number))
    assert len(found._tag_codes) <= TAG_CODES_KEPT


def test_plain_batch_equals_its_messages() -> None:
    body = encode_batch([(1, b"one", OWN), (2, b"two", b"KEYS\x01k\x02")])
    assert plain_sends(ADDED).batch("T", body) == [
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
def test_uniform_batch_has_the_messages_and_codes_of_a_plain_one(members: list[tuple[bytes, bytes]]) -> None:
    body = encode_batch((3, one, own) for one, own in members)
    plain = plain_sends(ADDED).batch("T", body)
    found = plain_sends(ADDED).alike_batch("T", body)
    if len({(len(one), len(own)) for one, own in members}) > 1:
        assert found is None
    elif found is not None:
        batch, codes = found
        assert plain == list(zip(repeat(batch.flag), batch.bodies, batch.properties, codes))
    else:
        assert not plain


def test_uniform_batch_has_the_limit_of_a_batch() -> None:
    body = encode_batch([(0, b"x" * 900, OWN)] * 80)
    assert plain_sends(ADDED).alike_batch("T", body) is None
    assert plain_sends(ADDED, 2000 * 80).alike_batch("T", body) is not None


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
def test_batch_that_needs_further_checks_is_not_plain(members: list[tuple[int, bytes, bytes]]) -> None:
    assert plain_sends(ADDED).batch("T", encode_batch(members)) == []


def test_truncated_batch_is_not_read() -> None:
    body = encode_batch([(0, b"one", OWN)])[:-1]
    with pytest.raises(RecordError):
        plain_sends(ADDED).batch("T", body)


def test_limit_of_a_batch_is_exact() -> None:
    found, limits = plain_sends(ADDED), BatchLimits(1000, len(ADDED))
    most = 66536 // (len(encode_batch([(0, b"x", OWN)])) + limits.size("T", b"", 1))
    for count, fits in ((most, True), (most + 1, False)):
        body = encode_batch([(0, b"x", OWN)] * count)
        assert limits.is_over("T", body) is not fits
        assert (limits.size("T", body, count) <= 66536) is fits
        assert bool(found.batch("T", body)) is fits
