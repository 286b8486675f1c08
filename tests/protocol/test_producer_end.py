"""The record of an end of idempotent producers: written, found, and told from everything else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import about

from sparrowmq.core.errors import RecordError
from sparrowmq.core.message import SYSTEM_PROPERTIES
from sparrowmq.core.names import INNER_TOPICS, PRODUCER_ENDS_TOPIC, SEND_FORBIDDEN_TOPICS
from sparrowmq.protocol.producer_mark import (
    MARK_START,
    NUMBER_MAX,
    ProducerEnd,
    end_properties,
    find_end,
    find_mark,
)
from sparrowmq.protocol.properties import decode


@given(st.text("abcXYZ019_-", min_size=1, max_size=60), st.integers(1, NUMBER_MAX), st.text(max_size=200))
def test_what_is_written_is_found(family: str, epoch: int, note: str) -> None:
    end = ProducerEnd("Orders", family, epoch, note)
    written = end_properties(end)
    assert find_end(written) == end
    assert written.startswith(MARK_START), "found by the search for marks"
    with pytest.raises(RecordError):
        find_mark(written)
    assert decode(written).keys() <= SYSTEM_PROPERTIES


def test_a_deleted_topic_has_no_family() -> None:
    assert find_end(end_properties(ProducerEnd("Orders"))) == ProducerEnd("Orders", "-", 0, "")


def test_nobody_else_writes_or_reads_them() -> None:
    assert PRODUCER_ENDS_TOPIC in SEND_FORBIDDEN_TOPICS & INNER_TOPICS


@pytest.mark.parametrize(
    "properties",
    [
        b"",
        b"TAGS\x01x\x02",
        b"SPARROW_PRODUCER\x01f.1.00000000\x02SPARROW_SEQUENCE\x010\x02",
        b'SPARROW_PRODUCER\x01f.1\x02SPARROW_ENDED_TOPIC\x01T\x02SPARROW_END_NOTE\x01""\x02',
        b"SPARROW_PRODUCER\x01f.1.00000000\x02SPARROW_ENDED_TOPIC\x01T\x02SPARROW_END_NOTE\x01x\x02",
        b"SPARROW_PRODUCER\x01f.1.00000000\x02SPARROW_ENDED_TOPIC\x01T\x02SPARROW_END_NOTE\x011\x02",
        b'SPARROW_PRODUCER\x01f.1.00000000\x02SPARROW_END_NOTE\x01""\x02',
        b'SPARROW_PRODUCER\x01f.%d.00000000\x02SPARROW_ENDED_TOPIC\x01T\x02SPARROW_END_NOTE\x01""\x02'
        % (NUMBER_MAX + 1),
    ],
)
def test_anything_else_is_an_error(properties: bytes) -> None:
    with pytest.raises(RecordError, check=about(what="end")):
        find_end(properties)
