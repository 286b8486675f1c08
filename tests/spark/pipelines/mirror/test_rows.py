"""Names that travel with mirrored messages, and what is no name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import about

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.pipelines.mirror.rows import (
    Origin,
    check_name,
    check_topic,
    mapping_sql,
    parse_origin,
    sink_expressions,
)


@given(
    st.from_regex(r"[A-Za-z0-9_.-]{1,9}", fullmatch=True),
    st.text("ab/-_0", min_size=1, max_size=9),
    st.integers(0, 2**31),
    st.integers(0, 2**63),
)
def test_an_origin_comes_back(cluster: str, broker: str, queue_id: int, offset: int) -> None:
    origin = Origin(cluster, broker, queue_id, offset)
    assert parse_origin(str(origin)) == origin
    assert origin.queue("T") == MessageQueue("T", broker, queue_id)


@pytest.mark.parametrize(
    "text", [None, "", "a", "a/b/1", "a//1/2", "/b/1/2", "a/b/x/2", "a/b/1/-2", "a/b/1/"]
)
def test_other_texts_are_no_origins(text: str | None) -> None:
    assert parse_origin(text) is None


def test_names_that_cannot_stand_in_a_chain() -> None:
    for name in ("", "a,b", "a/b", "a b", "x" * 65):
        with pytest.raises(SettingsError, check=about(setting="source")):
            check_name("source", name)
    check_name("source", "eu-west_1.a")


def test_topics_that_are_not_mirrored() -> None:
    for topic, what in (
        ("%RETRY%g", "retry topic"),
        ("SCHEDULE_TOPIC_XXXX", "system topic"),
        ("rmq_sys_wheel_timer", "system topic"),
    ):
        with pytest.raises(SettingsError, check=about(what=what, value=topic)):
            check_topic(topic)
    check_topic("%DLQ%g")


def test_texts_are_quoted() -> None:
    queue = MessageQueue("T", "it's \\ it", 1)
    assert "('T', 'it\\'s \\\\ it', 1, 'b', 2)" in mapping_sql({queue: MessageQueue("T", "b", 2)})
    assert "'UNIQ_KEY'" in sink_expressions("paris")[-1]
