from __future__ import annotations

from pathlib import Path

import pytest
from tests.support import about

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.options import values as kinds


@pytest.mark.parametrize("text", ["1", "10"])
def test_numbers_in_range(text: str) -> None:
    assert kinds.number(1, 10)("n", text) == int(text)


@pytest.mark.parametrize("text", ["0", "11", "1.5", "", "ten"])
def test_other_numbers_are_refused(text: str) -> None:
    with pytest.raises(SettingsError, check=about(setting="n", value=text)):
        kinds.number(1, 10)("n", text)


def test_switches() -> None:
    assert kinds.switch("s", "TRUE") is True
    assert kinds.switch("s", " false ") is False
    with pytest.raises(SettingsError, check=about(setting="s", value="yes")):
        kinds.switch("s", "yes")


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1700000000000", 1700000000000),
        ("2023-11-14T23:13:20+01:00", 1700000000000),
        (" 2023-11-14 22:13:20.5Z ", 1700000000500),
    ],
)
def test_times(text: str, ms: int) -> None:
    assert kinds.time("n", text) == ms


@pytest.mark.parametrize("text", ["", "-1", "1e3", "yesterday", "2023-11-14T22:13", "1969-12-31T00:00Z"])
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(SettingsError, check=about(setting="n", value=text)):
        kinds.time("n", text)


@pytest.mark.parametrize(
    ("text", "value"),
    [("500ms", 0.5), ("30s", 30.0), ("15m", 900.0), ("15 min", 900.0), ("1.5h", 5400.0), ("2D", 172800.0)],
)
def test_durations(text: str, value: float) -> None:
    assert kinds.seconds("d", text) == value


@pytest.mark.parametrize("text", ["15", "m", "-1s", "1w"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(SettingsError, check=about(setting="d", value=text)):
        kinds.seconds("d", text)


def test_milliseconds_become_seconds() -> None:
    assert kinds.millis("m", "250") == 0.25
    with pytest.raises(SettingsError, check=about(setting="m", value="-1")):
        kinds.millis("m", "-1")


def test_name_servers() -> None:
    assert kinds.name_servers("nameServer", "a:1; [::1]:9876 ;") == "a:1;[::1]:9876"


@pytest.mark.parametrize("text", ["", ";", "host", "host:", ":9876", "a b:1", "a:1,b:2", "http://a:1"])
def test_other_name_servers_are_refused(text: str) -> None:
    with pytest.raises(SettingsError, check=about(setting="nameServer", value=text)):
        kinds.name_servers("nameServer", text)


def test_topics() -> None:
    assert kinds.topics("subscribe", "b, a,b,") == ("b", "a")
    for text in ("", ",", "a b", "a,b/c"):
        with pytest.raises(SettingsError, check=about(setting="subscribe")):
            kinds.topics("subscribe", text)


def test_patterns() -> None:
    assert kinds.pattern("subscribePattern", "orders-.*") == "orders-.*"
    with pytest.raises(SettingsError, check=about(setting="subscribePattern", value="(")):
        kinds.pattern("subscribePattern", "(")


def test_groups() -> None:
    assert kinds.group("groupId", " g1 ") == "g1"
    for text in ("", "a b", "DEFAULT_CONSUMER"):
        with pytest.raises(SettingsError, check=about(setting="groupId", value=text)):
            kinds.group("groupId", text)


def test_tags() -> None:
    assert kinds.tags("tags", "TagA || TagB||TagA") == {"TagA", "TagB"}
    assert kinds.tags("tags", "*") == kinds.tags("tags", "") == frozenset()
    with pytest.raises(SettingsError, check=about(setting="tags", value="TagA ||")):
        kinds.tags("tags", "TagA ||")


def test_tokens_of_losses() -> None:
    given = "3f0c9a1b2d4e-20, 000000000000-all"
    assert kinds.loss_tokens("acceptLoss", given) == {"3f0c9a1b2d4e-20", "000000000000-all"}
    for text in ("", "true", "all", "3f0c9a1b2d4e", "3f0c9a1b2d4e-20 000000000000-1"):
        with pytest.raises(SettingsError, check=about(setting="acceptLoss", value=text)):
            kinds.loss_tokens("acceptLoss", text)


def test_texts_are_not_empty() -> None:
    assert kinds.text("sql92", " a > 1 ") == "a > 1"
    with pytest.raises(SettingsError, check=about(setting="sql92", value=" ")):
        kinds.text("sql92", " ")


def test_secrets_are_not_shown() -> None:
    assert kinds.secret("secretKey", " s3cret ") == "s3cret"
    with pytest.raises(SettingsError, check=about(setting="secretKey")):
        kinds.secret("secretKey", "")


def test_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"\x00x")
    assert kinds.content("protobufDescriptor", str(tmp_path / "f")) == b"\x00x"
    with pytest.raises(SettingsError, check=about(setting="protobufDescriptor", value=str(tmp_path))):
        kinds.content("protobufDescriptor", str(tmp_path))


def test_times_per_queue() -> None:
    assert kinds.times("endingOffsetsByTimestamp", '{"t": {"b": {"0": 1700000000000, "1": 0}}}') == {
        MessageQueue("t", "b", 0): 1_700_000_000_000,
        MessageQueue("t", "b", 1): 0,
    }
    for text in ("latest", "7", '{"t": {"b": {"0": -1}}}'):
        with pytest.raises(SettingsError, check=about(setting="endingOffsetsByTimestamp", value=text)):
            kinds.times("endingOffsetsByTimestamp", text)


def test_words() -> None:
    assert kinds.one_of(("error", "latest"))("o", "Latest") == "latest"
    with pytest.raises(SettingsError, check=about(setting="o", value="no")):
        kinds.one_of(("error", "latest"))("o", "no")


def test_assignments_are_sorted_queues() -> None:
    found = kinds.assignment("assign", '{"t": {"b": [1, 0, 1]}, "s": {"a": [5]}}')
    assert found == (MessageQueue("s", "a", 5), MessageQueue("t", "b", 0), MessageQueue("t", "b", 1))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "t",
        "[]",
        "{}",
        '{"t": [0]}',
        '{"t": {"b": 0}}',
        '{"t": {"b": [-1]}}',
        '{"t": {"b": ["0"]}}',
        '{"t": {"b": [true]}}',
        '{"t": {"b": []}}',
    ],
)
def test_other_assignments_are_refused(text: str) -> None:
    with pytest.raises(SettingsError, check=about(setting="assign")):
        kinds.assignment("assign", text)


def test_places_are_words_or_offsets() -> None:
    parse = kinds.place("earliest", "latest")
    assert parse("startingOffsets", " Earliest ") == "earliest"
    assert parse("startingOffsets", '{"t": {"b": {"0": 23, "1": -2, "2": -1}}}') == {
        MessageQueue("t", "b", 0): 23,
        MessageQueue("t", "b", 1): -2,
        MessageQueue("t", "b", 2): -1,
    }


@pytest.mark.parametrize(
    "text",
    [
        "group",
        "",
        "{}",
        "[]",
        '{"t": 1}',
        '{"t": {"b": [1]}}',
        '{"t": {"b": {"x": 1}}}',
        '{"t": {"b": {"0": -3}}}',
        '{"t": {"b": {"0": "1"}}}',
        '{"t": {"b": {"0": true}}}',
        '{"t": {"b": {"-1": 1}}}',
    ],
)
def test_other_places_are_refused(text: str) -> None:
    with pytest.raises(SettingsError, check=about(setting="startingOffsets")):
        kinds.place("earliest", "latest")("startingOffsets", text)


def test_a_topic_in_json_is_checked() -> None:
    with pytest.raises(SettingsError, check=about(setting="startingOffsets", value="a b")):
        kinds.place("earliest")("startingOffsets", '{"a b": {"b": {"0": 1}}}')


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (kinds.needs("jobBatch", "jobId", 3), "option jobBatch=3 needs the option jobId"),
        (kinds.needs("tlsCa", "tls", "a", why="=true"), "option tlsCa='a' needs the option tls=true"),
        (
            kinds.half("tlsKey", "tlsCert"),
            "option tlsKey is missing: tlsCert and tlsKey must be given together",
        ),
        (kinds.both("a", "b"), "options a and b are both given; leave one out"),
        (kinds.both("a", "b", why="b is more"), "options a and b are both given; b is more"),
        (
            kinds.other_format("a", ("avro", "protobuf", "json"), "text"),
            "option a is for bodyFormat=avro, protobuf or json, not text",
        ),
        (kinds.above("least", 6, "most", 5), "option least=6: must be at most most=5"),
        (
            kinds.of_clusters("assign", "/store"),
            "option assign is for reads of a cluster, but store='/store' is given; leave one out. To read "
            "part of a store use subscribe, tags, startingTimestamp and endingTimestamp",
        ),
    ],
)
def test_wording_of_options_that_do_not_fit_together(error: SettingsError, text: str) -> None:
    assert str(error) == text
