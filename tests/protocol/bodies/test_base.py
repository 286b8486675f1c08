"""What all bodies share: nulls, numbers as strings, errors; and noise against every body."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import about

import sparrowmq
from sparrowmq.core.errors import BodyError, JavaJsonError
from sparrowmq.protocol import bodies
from sparrowmq.protocol.bodies.base import (
    DIALECT_BYTES_MAX,
    LENIENT_BYTES_MAX,
    REQUEST_BYTES_MAX,
    Body,
    Int32,
    convert,
    read_request,
    without_nulls,
)
from sparrowmq.protocol.bodies.clients import HEARTBEAT_ENTRIES_MAX
from sparrowmq.protocol.java_json import dumps


class Sample(Body, frozen=True):
    """A body with one member of each kind."""

    a_number: Int32
    a_list: list[int]
    a_text: str | None = None
    a_table: dict[int, float] = {}  # noqa: RUF012 - msgspec copies it


DECODERS: dict[str, Callable[[bytes], Any]] = {
    "plain registration": lambda data: bodies.decode_register_body(data, False, 513),
    "compressed registration": lambda data: bodies.decode_register_body(data, True, 513),
    "route": bodies.route_from_json,
    **{
        type_.__name__: type_.decode
        for type_ in (
            bodies.ClusterInfo,
            bodies.ConsumeStats,
            bodies.ConsumerConnection,
            bodies.ConsumerList,
            bodies.DataVersion,
            bodies.GroupList,
            bodies.HeartbeatData,
            bodies.KVTable,
            bodies.LockBatchRequestBody,
            bodies.LockBatchResponseBody,
            bodies.ProducerConnection,
            bodies.SubscriptionGroupConfig,
            bodies.SubscriptionGroupTable,
            bodies.TopicConfig,
            bodies.TopicConfigTable,
            bodies.TopicList,
            bodies.TopicStatsTable,
        )
    },
}
NAMES = """topic topicName groupName clientID clientId consumerGroup brokerName brokerAddrs cluster queueId
    perm readQueueNums brokerDatas queueDatas orderTopicConf topicConfigTable dataVersion counter
    attributes offsetTable consumerDataSet producerDataSet subscriptionDataSet subString tagsSet codeSet
    expressionType consumeType messageModel mqSet lockOKMQSet connectionSet subscriptionTable table
    topicList brokerAddr groupList topicConfigSerializeWrapper filterServerList brokerAddrTable
    clusterAddrTable forbiddenTable""".split()
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**65), 2**65)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "5", "x", "||", "*", "TAG", "CLUSTERING", '{"queueId":1}', "a:1;b", "\x00"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5),
    max_leaves=20,
)


def test_strings_become_numbers_and_nulls_are_left_out() -> None:
    read = Sample.decode(b'{"aNumber":"5","aList":["1",null,2.0],"aText":null,"aTable":{3:"1.5"},"other":{}}')
    assert read == Sample(5, [1, 2], None, {3: 1.5})
    assert read.encode() == b'{"aNumber":5,"aList":[1,2],"aTable":{"3":1.5}}'


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"{}", "Sample: .*aNumber"),
        (b'{"aNumber":1}', "Sample: .*aList"),
        (b'{"aNumber":"x","aList":[]}', "aNumber"),
        (b'{"aNumber":2147483648,"aList":[]}', "aNumber"),
        (b'{"aNumber":null,"aList":[]}', "aNumber"),
        (b'{"aNumber":1,"aList":{}}', "aList"),
        (b'{"aNumber":1,"aList":[],"aTable":{"x":1}}', "aTable"),
        (b"[]", "Sample"),
        (b"5", "Sample"),
    ],
)
def test_members_that_do_not_fit_are_named(data: bytes, text: str) -> None:
    with pytest.raises(BodyError, match=text):
        Sample.decode(data)


@pytest.mark.parametrize("decoder", DECODERS.values(), ids=DECODERS)
@pytest.mark.parametrize("data", [b"x", b"{", b"\xff", b"[" * 50_000, b'{"a":' * 50_000])
def test_text_that_is_no_json_is_refused(decoder: Callable[[bytes], Any], data: bytes) -> None:
    with pytest.raises((JavaJsonError, BodyError)):
        decoder(data)


@pytest.mark.parametrize("decoder", DECODERS.values(), ids=DECODERS)
@settings(max_examples=settings().max_examples // 2)
@given(value=VALUES)
def test_odd_json_is_a_body_error_or_a_body(decoder: Callable[[bytes], Any], value: Any) -> None:
    try:
        body = decoder(dumps(value))
    except (BodyError, JavaJsonError):
        return
    if isinstance(body, Body):
        assert type(body).decode(body.encode()) == body


def test_nulls_are_removed_at_every_depth() -> None:
    assert without_nulls({"a": None, "b": [None, {"c": None, "d": 0}], "e": ""}) == {"b": [{"d": 0}], "e": ""}


def test_values_too_deep_to_walk_are_refused() -> None:
    value: list[Any] = []
    for _ in range(50_000):
        value = [value]
    with pytest.raises(BodyError, match="recursion"):
        convert(value, list[int])
    while value:  # taken apart here: freeing it whole would recurse as deep
        value = value.pop()


def padded(text: str, size: int) -> bytes:
    """JSON of an object, with a member more that makes it `size` bytes long."""
    head = text.encode()[:-1] + b',"x":"'
    return head + b"y" * (size - len(head) - 2) + b'"}'


class TestRequests:
    """Servers read the bodies of strangers' requests in a bounded time."""

    PLAIN = '{"aNumber":"5","aList":[1]}'
    NULLS = '{"aNumber":5,"aList":[1,null],"aText":null}'
    DIALECT = '{"aNumber":5,"aList":[1],"aTable":{7:0.5}}'

    @pytest.mark.parametrize(
        ("text", "most"),
        [(PLAIN, REQUEST_BYTES_MAX), (NULLS, LENIENT_BYTES_MAX), (DIALECT, DIALECT_BYTES_MAX)],
        ids=["plain", "nulls", "dialect"],
    )
    def test_each_form_has_its_limit(self, text: str, most: int) -> None:
        read = Sample.decode_request(padded(text, most))
        assert read == Sample.decode(text.encode())
        assert (read.a_number, read.a_list) == (5, [1])
        with pytest.raises((BodyError, JavaJsonError), check=about(value=most + 1, limit=most)):
            Sample.decode_request(padded(text, most + 1))

    def test_references_are_plain(self) -> None:
        text = '{"aNumber":5,"aList":[1],"other":{"$ref":"$.x"}}'
        assert Sample.decode_request(padded(text, REQUEST_BYTES_MAX)).a_number == 5

    def test_another_limit(self) -> None:
        with pytest.raises(BodyError, check=about(what="Sample", value=11, limit=10)):
            read_request(b" " * 11, Sample, bytes_max=10)

    def test_a_heartbeat_brings_so_much_at_most(self) -> None:
        group = {"groupName": "g", "subscriptionDataSet": [{"topic": "t"}] * 9}
        beat = {"clientID": "c", "consumerDataSet": [group] * (HEARTBEAT_ENTRIES_MAX // 10)}
        assert len(bodies.HeartbeatData.decode(dumps(beat)).consumers) == HEARTBEAT_ENTRIES_MAX // 10
        with pytest.raises(BodyError, match=rf"has {HEARTBEAT_ENTRIES_MAX + 1} groups and subscriptions"):
            bodies.HeartbeatData.decode(dumps({**beat, "producerDataSet": [{"groupName": "p"}]}))

    def test_servers_read_no_body_without_a_limit(self) -> None:
        """Only what is limited itself may be read by its plain `decode`."""
        root = Path(sparrowmq.__file__).parent
        found = {
            (path.name, name)
            for package in ("broker", "nameserver", "coordinator")
            for path in (root / package).rglob("*.py")
            for name in re.findall(r"(\w+)\.decod(?:e|ing)\((?:command|request)\.body", path.read_text())
        }
        assert {name for _, name in found} == {"HeartbeatData"}


class _Some(Body, frozen=True):
    first: str | None = None
    second_one: Any = None
    table: Any = None
    last: int | None = 1


_TRICKY = st.sampled_from(["null", ',"a":null', '{"a":null,', "a,", ":null", '"', "\\", ",\\", ""])
_VALUES = st.recursive(
    st.none() | st.integers(-3, 3) | _TRICKY,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TRICKY | st.just("b"), inner, max_size=3),
    max_leaves=8,
)


@given(st.none() | _TRICKY, _VALUES, _VALUES, st.none() | st.integers())
def test_what_is_none_is_left_out_wherever_it_is(first: Any, second: Any, table: Any, last: Any) -> None:
    """Quickly where that can be done, and with the same outcome as by taking everything apart."""
    body = _Some(first, second, table, last)
    assert body.encode() == dumps(without_nulls(msgspec.to_builtins(body)))
    nested = _Some(second_one=[body, {"x": body}])
    assert nested.encode() == dumps(without_nulls(msgspec.to_builtins(nested)))
