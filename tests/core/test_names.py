"""Names of topics and groups."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import about

from sparrowmq.core import names
from sparrowmq.core.errors import InvalidNameError

CHECKS = [names.check_topic, names.check_topic_for_send, names.check_group]


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", ["T", "a-b_c%d|e", "0", "%RETRY%g", "%DLQ%g", "t" * 120])
def test_legal_names_are_accepted(check: Callable[[str], None], name: str) -> None:
    check(name)  # raises when it is not
    with pytest.raises(InvalidNameError):
        check(name + " ")


@pytest.mark.proves("client:B-02", "client:B-05")
@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize(
    "name", ["", " ", "\t", "a b", "a.b", "a/b", "..", "é", "名", "a\n", "a\x00", "t" * 256]
)
def test_illegal_names_are_refused(check: Callable[[str], None], name: str) -> None:
    with pytest.raises(InvalidNameError):
        check(name)


@pytest.mark.parametrize(
    ("check", "kind"),
    [*zip(CHECKS, ("topic", "topic", "group"), strict=True), (names.check_namespace, "namespace")],
)
def test_error_names_the_kind_of_name(check: Callable[[Any], None], kind: str) -> None:
    for wrong, text in (
        (5, "must be text, not int (5)"),
        (None, "must be text, not NoneType (None)"),
        (" ", "is blank; give it a name"),
        ("x" * 256, "has 256 characters"),
        ("a.b", "'a.b' may only have letters"),
    ):
        with pytest.raises(InvalidNameError, match=re.escape(text)) as caught:
            check(wrong)
        assert str(caught.value).startswith(f"the {kind} ")


@given(st.text(max_size=20))
def test_only_legal_characters_are_accepted(name: str) -> None:
    legal = bool(name) and all(c in "%|-_" or (c.isascii() and c.isalnum()) for c in name)
    try:
        names.check_topic(name)
    except InvalidNameError:
        assert not legal
    else:
        assert legal


@pytest.mark.proves("client:B-02", "client:B-05", "client:G-09")
@pytest.mark.parametrize(
    ("check", "prefix", "limit"),
    [
        (names.check_topic, "", 127),
        (names.check_topic, "%RETRY%", 255),
        (names.check_topic, "%DLQ%", 255),
        (names.check_group, "", 120),
    ],
)
def test_length_of_names_is_limited(check: Callable[[str], None], prefix: str, limit: int) -> None:
    check(prefix.ljust(limit, "x"))
    with pytest.raises(InvalidNameError, check=about(value=limit + 1, limit=limit)):
        check(prefix.ljust(limit + 1, "x"))


@pytest.mark.proves("client:B-06")
@pytest.mark.parametrize(
    "topic",
    [
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    ],
)
def test_clients_cannot_send_to_topics_of_the_broker(topic: str) -> None:
    names.check_topic(topic)
    with pytest.raises(InvalidNameError, check=about(what="topic", value=topic)):
        names.check_topic_for_send(topic)


def test_template_topic_is_reserved_but_accepts_sends() -> None:
    assert names.is_system_topic(names.TEMPLATE_TOPIC)
    names.check_topic_for_send(names.TEMPLATE_TOPIC)


@pytest.mark.proves("client:B-03", "client:D.2-1")
@pytest.mark.parametrize("group", ["DEFAULT_PRODUCER", "DEFAULT_CONSUMER"])
def test_placeholders_are_refused_as_groups(group: str) -> None:
    with pytest.raises(InvalidNameError, check=about(what="group", value=group)):
        names.check_group(group)


@pytest.mark.parametrize(
    ("topic", "system"),
    [
        ("SCHEDULE_TOPIC_XXXX", True),
        ("rmq_sys_wheel_timer", True),
        ("RMQ_SYS_TRACE_TOPIC", True),
        ("T", False),
    ],
)
def test_system_topics_are_recognized(topic: str, system: bool) -> None:
    assert names.is_system_topic(topic) is system


@pytest.mark.parametrize(
    ("group", "system"),
    [("TOOLS_CONSUMER", True), ("CID_RMQ_SYS_TRANS", True), ("CID_RMQ_SYS_x", True), ("g", False)],
)
def test_system_groups_are_recognized(group: str, system: bool) -> None:
    assert names.is_system_group(group) is system


def test_retry_and_dead_letter_topics_are_named_after_their_group() -> None:
    assert names.retry_topic("g") == "%RETRY%g"
    assert names.dlq_topic("g") == "%DLQ%g"
    assert len(names.retry_topic("g" * names.GROUP_CHARS_MAX)) == names.TOPIC_CHARS_MAX


@pytest.mark.proves("client:B-121", "client:B-122", "client:B-123")
@pytest.mark.parametrize(
    ("name", "wrapped"),
    [
        ("T", "ns%T"),
        ("%RETRY%g", "%RETRY%ns%g"),
        ("%DLQ%g", "%DLQ%ns%g"),
        ("other%T", "ns%other%T"),
        ("nsT", "ns%nsT"),
        ("", ""),
        *((name, name) for name in sorted(names.SYSTEM_TOPICS)),
        ("rmq_sys_x", "rmq_sys_x"),
        ("CID_RMQ_SYS_x", "CID_RMQ_SYS_x"),
        ("%RETRY%CID_RMQ_SYS_x", "%RETRY%CID_RMQ_SYS_x"),
    ],
)
def test_namespace_is_added_to_names_and_removed(name: str, wrapped: str) -> None:
    assert names.with_namespace("ns", name) == wrapped
    assert names.with_namespace("ns", wrapped) == wrapped
    assert names.without_namespace("ns", wrapped) == name
    for none in (None, ""):
        assert names.with_namespace(none, name) == name
        assert names.without_namespace(none, wrapped) == wrapped


@given(st.from_regex(r"[a-zA-Z0-9_-]{1,20}", fullmatch=True))
def test_removing_a_namespace_restores_the_name(name: str) -> None:
    for each in (name, f"%RETRY%{name}", f"%DLQ%{name}"):
        assert names.without_namespace("ns", names.with_namespace("ns", each)) == each


@pytest.mark.proves("client:B-123")
@pytest.mark.parametrize(
    ("name", "space"),
    [
        ("ns%T", "ns"),
        ("%RETRY%ns%g", "ns"),
        ("%DLQ%ns%g%x", "ns"),
        ("T", None),
        ("%T", None),
        ("TBW102", None),
    ],
)
def test_namespace_is_read_from_a_name(name: str, space: str | None) -> None:
    assert names.namespace_of(name) == space


@pytest.mark.proves("client:B-125")
@pytest.mark.parametrize(
    ("address", "space"),
    [
        ("http://MQ_INST_12_abc.mq.example:80", "MQ_INST_12_abc"),
        ("MQ_INST_12_abc.mq.example:80", "MQ_INST_12_abc"),
        ("  http://MQ_INST_12_abc.mq.example:80 ", "MQ_INST_12_abc"),
        ("127.0.0.1:9876", None),
        ("http://mq.example/MQ_INST_1", None),
    ],
)
def test_namespace_is_read_from_an_endpoint(address: str, space: str | None) -> None:
    assert names.namespace_of_endpoint(address) == space


def test_length_of_a_namespace_is_limited_like_that_of_a_topic() -> None:
    names.check_namespace("x" * 127)  # raises when it is longer
    with pytest.raises(InvalidNameError, check=about(value=128, limit=127)):
        names.check_namespace("x" * 128)


@pytest.mark.parametrize("space", ["", "a%b", "a b", "x" * 128])
def test_illegal_namespaces_are_refused(space: str) -> None:
    with pytest.raises(InvalidNameError):
        names.check_namespace(space)
