"""The properties of idempotent producers: written, read, bound to a queue, numbered one after the other."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import about

from sparrowmq.core.errors import RecordError
from sparrowmq.core.message import SYSTEM_PROPERTIES
from sparrowmq.protocol.producer_mark import (
    MARK_BYTES_MAX,
    NUMBER_MAX,
    Mark,
    binding,
    find_mark,
    first_of_run,
    mark_head,
)

IDS = st.text("abcXYZ019_-", min_size=1, max_size=64)
NUMBERS = st.integers(0, NUMBER_MAX)


def text(sequence: int, *, producer: str = "p", epoch: int = 0, topic: str = "T", queue_id: int = 0) -> bytes:
    return mark_head(producer, epoch, topic, queue_id) + b"%d\x02" % sequence


@given(IDS, NUMBERS, NUMBERS, st.integers(0, 10_000))
def test_what_is_written_is_found(producer: str, epoch: int, sequence: int, queue_id: int) -> None:
    own = text(sequence, producer=producer, epoch=epoch, queue_id=queue_id)
    found = Mark(producer, epoch, sequence, binding("T", queue_id))
    assert len(own) <= MARK_BYTES_MAX
    assert find_mark(own) == find_mark(b"A\x01b\x02" + own + b"UNIQ_KEY\x01x\x02") == found


def test_plain_properties_have_no_mark() -> None:
    assert find_mark(b"UNIQ_KEY\x01x\x02") is None
    assert find_mark(b"A\x01SPARROW_PRODUCER\x02") is None
    assert find_mark(b"XSPARROW_PRODUCER\x01p.0.00000000\x02") is None


@pytest.mark.parametrize(
    "own",
    [
        b"SPARROW_PRODUCER\x01p.0.00000000\x02",
        b"SPARROW_PRODUCER\x01p.0.0000000\x02SPARROW_SEQUENCE\x011\x02",
        b"SPARROW_PRODUCER\x01p.-1.00000000\x02SPARROW_SEQUENCE\x011\x02",
        b"SPARROW_PRODUCER\x01.0.00000000\x02SPARROW_SEQUENCE\x011\x02",
        b"SPARROW_PRODUCER\x01p.0.00000000\x02SPARROW_SEQUENCE\x01-1\x02",
        b"SPARROW_PRODUCER\x01p.0.00000000\x02SPARROW_SEQUENCE\x01\xd9\xa1\x02",
        b"SPARROW_PRODUCER\x01p.0.00000000\x02SPARROW_SEQUENCE\x01%d\x02" % (NUMBER_MAX + 1),
        b"SPARROW_PRODUCER\x01p.%d.00000000\x02SPARROW_SEQUENCE\x011\x02" % (NUMBER_MAX + 1),
    ],
)
def test_a_malformed_mark_is_an_error(own: bytes) -> None:
    with pytest.raises(RecordError, check=about(what="mark")):
        find_mark(own)


@pytest.mark.parametrize(
    ("producer", "epoch"),
    [("", 0), ("a.b", 0), ("p" * 65, 0), ("p\x01", 0), ("p", -1), ("p", NUMBER_MAX + 1)],
)
def test_ids_that_could_not_be_read_are_not_written(producer: str, epoch: int) -> None:
    with pytest.raises(ValueError, match="1 to 64 letters"):
        mark_head(producer, epoch, "T", 0)


def test_a_binding_names_topic_and_queue() -> None:
    assert len({binding("T", 0), binding("T", 1), binding("U", 0), binding("T/1", 0)}) == 4
    assert binding("TopicTest", 3) == b"%08x" % zlib.crc32(b"TopicTest/3")


def test_a_run_is_told_by_its_first_mark() -> None:
    run = [text(7), text(8) + b"TAGS\x01x\x02", b"TAGS\x01x\x02" + text(9)]
    first, count = first_of_run(run)
    assert (first, count) == (Mark("p", 0, 7, binding("T", 0)), 3)
    assert first_of_run([b"A\x01b\x02", b""]) == (None, 2)


@pytest.mark.parametrize(
    "second", [b"A\x01b\x02", text(7), text(9), text(8, epoch=1), text(8, producer="q"), text(8, queue_id=1)]
)
def test_a_run_with_a_hole_or_a_stranger_is_refused(second: bytes) -> None:
    with pytest.raises(RecordError, check=about(what="message", value=2)):
        first_of_run([text(7), second])


def test_a_mark_behind_a_plain_message_is_refused() -> None:
    with pytest.raises(RecordError, check=about(what="message", value=2)):
        first_of_run([b"A\x01b\x02", text(0)])
    head = mark_head("p", 0, "T", 0)
    with pytest.raises(RecordError, check=about(what="sequence", value=NUMBER_MAX, limit=NUMBER_MAX)):
        first_of_run([head + b"%d\x02" % NUMBER_MAX, head + b"%d\x02" % (NUMBER_MAX + 1)])


def test_users_cannot_set_the_names() -> None:
    assert {"SPARROW_PRODUCER", "SPARROW_SEQUENCE"} <= SYSTEM_PROPERTIES
