"""Java's JSON dialect: what is read, what is refused, what is written, and real configuration files."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocol import archives, recorded
from tests.support import about

from sparrowmq.core.errors import JavaJsonError
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.java_json import (
    DEPTH_MAX,
    PARTS_MAX,
    _Text,
    dumps,
    dumps_object_keys,
    dumps_pretty,
    loads,
    queue_of_key,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | TEXT | st.floats(-1e9, 1e9)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
QUEUES = st.builds(MessageQueue, TEXT, TEXT, st.integers(-(2**31), 2**31 - 1))
BARE = st.recursive(
    SCALARS,
    lambda inner: st.dictionaries(st.integers(-99, 9999), inner, min_size=1, max_size=4),
    max_leaves=8,
)


def with_text_keys(value: Any) -> Any:
    """The value as it comes back: integer keys as text."""
    if isinstance(value, dict):
        return {str(key): with_text_keys(item) for key, item in value.items()}
    return [with_text_keys(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a":1}', {"a": 1}),
        ("[1,2.5,true,false,null]", [1, 2.5, True, False, None]),
        (' {\n\t"a" : [ ] , "b" : { } }\r\n', {"a": [], "b": {}}),
        ('{0:"127.0.0.1:10911"}', {"0": "127.0.0.1:10911"}),
        ("{ -1 : 2 , 7 : {3:4} }", {"-1": 2, "7": {"3": 4}}),
        ('{0:"{1:2,3:4}","{5:":[{6:7}]}', {"0": "{1:2,3:4}", "{5:": [{"6": 7}]}),
        ('{0:"a\\"b,1:","c":1}', {"0": 'a"b,1:', "c": 1}),
        ('{{"b":1,"a":"x"}:5}', {'{"a":"x","b":1}': 5}),
        ('{{"a":1}:{{"b":{2:3}}:4}}', {'{"a":1}': {'{"b":{"2":3}}': 4}}),
        ('{"a":{"$ref":"$.x"},"b":1}', {"a": {}, "b": 1}),
        ('[{"$ref":"$"},{"$ref":"..","x":1}]', [{}, {"$ref": "..", "x": 1}]),
        ('{0:{"$ref":"$.x"}}', {"0": {}}),
        ("{true:1,null:2,1.5:3}", {"true": 1, "null": 2, "1.5": 3}),
        ('{"a":1,"a":2}', {"a": 2}),
        ('{0:"尺寸 😀 \\u00e9"}', {"0": "尺寸 😀 é"}),
    ],
)
def test_the_dialect_is_read(text: str, value: Any) -> None:
    assert loads(text.encode()) == value


@given(VALUES)
def test_plain_json_is_read_as_the_standard_library_reads_it(value: Any) -> None:
    assert loads(json.dumps(value).encode()) == value
    assert loads(dumps(value)) == value


@given(BARE)
def test_bare_keys_come_back(value: Any) -> None:
    assert loads(dumps(value, bare_keys=True)) == with_text_keys(value)
    assert loads(dumps_pretty(value)) == with_text_keys(value)


REFERRING = st.recursive(
    SCALARS | st.just("$ref") | st.just('{"$ref":"x"}') | TEXT.map(lambda path: {"$ref": path}),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT | st.just("$ref"), inner, max_size=4),
    max_leaves=12,
)


def without_references(value: Any) -> Any:
    """The value with an empty object for each object that is a reference and nothing else."""
    if isinstance(value, dict):
        if value.keys() == {"$ref"} and isinstance(value["$ref"], str):
            return {}
        return {key: without_references(item) for key, item in value.items()}
    return [without_references(item) for item in value] if isinstance(value, list) else value


@given(REFERRING, st.sampled_from([None, 1]))
def test_references_in_plain_json_do_not_need_the_reader(value: Any, indent: int | None) -> None:
    """However long the body is: a limit on the dialect does not concern them."""
    data = json.dumps(value, indent=indent, separators=None if indent is None else (" ,", " : ")).encode()
    assert loads(data, dialect_max=0) == without_references(value)


@pytest.mark.parametrize(
    "text", ["{0:1}", '{{"a":1}:2}', '{"a":', '["$ref",{0:{"$ref":"x"}}]', '{"$ref":"\xff"}']
)
def test_what_needs_the_reader_can_be_limited(text: str) -> None:
    data = text.encode("latin-1")
    with pytest.raises(JavaJsonError, check=about(value=len(data), limit=3)):
        loads(data, dialect_max=3)


@given(st.dictionaries(QUEUES, VALUES, max_size=4))
def test_object_keys_come_back(table: dict[MessageQueue, Any]) -> None:
    read = loads(dumps_object_keys(table))
    assert {queue_of_key(key): value for key, value in read.items()} == table


def test_written_forms_are_those_of_java() -> None:
    assert dumps({"b": [1, "x"], "a": None}) == b'{"b":[1,"x"],"a":null}'
    assert dumps({0: {1: "a"}, "x": []}, bare_keys=True) == b'{0:{1:"a"},"x":[]}'
    table = {MessageQueue("T", "b", 0): {"minOffset": 0}}
    assert dumps_object_keys(table) == b'{{"brokerName":"b","queueId":0,"topic":"T"}:{"minOffset":0}}'
    assert dumps_object_keys({}) == b"{}"
    pretty = b'{\n\t"a":{},\n\t"b":[\n\t\t1,\n\t\t{\n\t\t\t0:2\n\t\t}\n\t]\n}'
    assert dumps_pretty({"a": {}, "b": [1, {0: 2}]}) == pretty


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "{",
        "[",
        '"',
        '{"a"',
        '{"a":',
        '{"a":1',
        '{"a":1,',
        '{"a":1,}',
        "[1,]",
        "[1 2]",
        "{1 2}",
        "{1}",
        "{:1}",
        "{,}",
        "{[1]:2}",
        "{{}}",
        "}",
        "nul",
        "NaN",
        "01",
        "-",
        "'a'",
        '{"a":1}x',
        "{0:1}{0:1}",
        '["\\ud800"]',
        '["\\x"]',
        '["\x01"]',
        "9" * 5000,
        "{0:" + "9" * 5000 + "}",
        "{0:1e999}",
    ],
)
def test_text_that_is_no_dialect_is_refused(text: str) -> None:
    with pytest.raises(JavaJsonError):
        loads(text.encode())


@pytest.mark.parametrize(
    "data", [b"\xff", b'{0:"\xed\xa0\x80"}', b'{"\xc3":1}', b'{"$ref":"\xff"}', b'[{"$ref":"\\q"}]']
)
def test_bytes_that_are_no_text_are_refused(data: bytes) -> None:
    with pytest.raises(JavaJsonError):
        loads(data)


def test_the_place_of_a_fault_is_named() -> None:
    with pytest.raises(JavaJsonError, match="character 6: unexpected '}'"):
        loads(b"{1:1,}")
    with pytest.raises(JavaJsonError, match="unexpected the end"):
        loads(b"{0:")
    with pytest.raises(JavaJsonError, match="character 8: unexpected '\\{'"):
        loads(b"{{}:1,0{")
    for wrong in (b"{{}:1 2:3}", b"{{}:1:2}", b"{{}:1 ]", b"{{}:[1 2]}"):
        with pytest.raises(JavaJsonError, match="unexpected"):
            loads(wrong)
    with pytest.raises(JavaJsonError, check=about(what="UTF-8", value=4)):
        loads(b'{0:"\xff"}')


@pytest.mark.parametrize("unit", ["[", "{0:", '{"a":', "{{", '{"$ref":[', '[{"a":'])
def test_deep_nesting_is_refused(unit: str) -> None:
    with pytest.raises(JavaJsonError):
        loads(unit.encode() * 50_000)


def test_depth_is_bounded_in_the_dialect() -> None:
    fits = b"{0:" * (DEPTH_MAX - 1) + b"{{}:1}" + b"}" * (DEPTH_MAX - 1)
    assert loads(fits)
    with pytest.raises(JavaJsonError, check=about(what="depth", limit=DEPTH_MAX)):
        loads(b"[" + fits + b"]")


@pytest.mark.parametrize("text", ['"' + '\\"' * 200_000, "{0:" + ", 1 " * 200_000, '{0:"' + "\\" * 200_001])
def test_hostile_text_is_refused_in_linear_time(text: str) -> None:
    """Each would take hours if a scan began again at every character; the suite's timeout is the judge."""
    with pytest.raises(JavaJsonError):
        loads(text.encode())


TOKENS = st.sampled_from([*'{}[]:,0"\\ ', '"a"', "1.5", "null", '"$ref"'])


@given(st.lists(TOKENS))
def test_token_soup_is_refused_or_read(tokens: list[str]) -> None:
    text = "".join(tokens)
    try:
        value = loads(text.encode())
    except JavaJsonError:
        return
    assert loads(dumps(value)) == value


@given(st.binary(max_size=60))
def test_noise_is_refused_or_read(noise: bytes) -> None:
    for data in (noise, b"{0:" + noise + b"}", b'{"$ref":1,"a":' + noise):
        try:
            value = loads(data)
        except JavaJsonError:
            continue
        assert loads(dumps(value)) == value


@pytest.mark.parametrize(
    "key",
    ['{"brokerName":"b","queueId":3,"topic":"T"}', '{"topic":"T","queueId":"3","brokerName":"b","x":1}'],
)
def test_queue_keys_are_read(key: str) -> None:
    assert queue_of_key(key) == MessageQueue("T", "b", 3)


@pytest.mark.parametrize(
    "key", ["", "x", "5", "{}", '{"brokerName":"b","queueId":"x","topic":"T"}', "\ud800"]
)
def test_keys_that_are_no_queue_are_refused(key: str) -> None:
    with pytest.raises(JavaJsonError):
        queue_of_key(key)


def test_every_recorded_json_body_is_read() -> None:
    """Requests and answers whose body begins like JSON; where plain JSON will do, both readers agree."""
    plain = dialect = 0
    for exchange in recorded.exchanges():
        for frame in (exchange.request, exchange.response):
            body = recorded.command(frame).body if frame else b""
            if exchange.body_dropped or body[:1] not in (b"{", b"["):
                continue
            value = loads(body)
            try:
                assert json.loads(body) == value or b'"$ref"' in body, exchange
                plain += 1
            except json.JSONDecodeError:
                dialect += 1
    assert plain > 150
    assert dialect > 20


FILES = "topics subscriptionGroup consumerOffset delayOffset consumerFilter".split()


def with_integer_keys(value: Any) -> Any:
    """The value with keys that look like integers as integers, as the typed tables have them."""
    if isinstance(value, dict):
        return {int(k) if k.isdigit() else k: with_integer_keys(item) for k, item in value.items()}
    return [with_integer_keys(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("store", [archives.CLEAN_5, archives.KILLED_5, archives.CLEAN_4])
def test_configuration_files_of_real_brokers_are_read_and_written_back(store: str, name: str) -> None:
    data = (archives.unpacked(store) / "config" / f"{name}.json").read_bytes()
    value = loads(data)
    again = dumps_pretty(with_integer_keys(value))
    assert loads(again) == value
    if store != archives.CLEAN_4 or not name.endswith("Offset"):
        assert again == data


def test_long_texts_are_joined_a_few_parts_at_a_time() -> None:
    table = {f"topic{number}": {"perm": 6, "name": f"topic{number}"} for number in range(PARTS_MAX)}
    text = _Text()
    text.write(table, "\n")
    assert len(text._pieces) >= 2 and len(text._parts) < PARTS_MAX
    assert loads(text.done()) == table
