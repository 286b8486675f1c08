"""Filters of consumer groups: the reference's table and file, and the check before a client starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.broker.doubles import FakeClock
from tests.broker.rig import connection
from tests.support import about, steps

from sparrowmq.broker.members import filters
from sparrowmq.broker.members.filters import (
    EVERYTHING,
    ConsumerFilters,
    FilterCheck,
    compile_filter,
    is_tag_type,
    wanted_filter,
    wanted_tags,
)
from sparrowmq.core.errors import BodyError, InvalidExpressionError, StoreCorruptError
from sparrowmq.core.hashing import java_hash
from sparrowmq.core.subscription import SQL92, SubscriptionData
from sparrowmq.protocol.bloom import BloomFilter
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.store.tables.config_file import ConfigFile

DAY_MS = 86_400_000


class Table:
    """A table with a file, and a clock that the test moves."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "consumerFilter.json"
        self.clock = FakeClock()
        self.filters = self.reopened()

    def reopened(self, bloom: BloomFilter | None = None) -> ConsumerFilters:
        file = ConfigFile(self.path)
        return ConsumerFilters(file, self.clock, bloom or BloomFilter(), keep_ms=DAY_MS)

    def stored(self) -> Any:
        return json.loads(self.path.read_text())["filterDataByTopic"]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path)


def sql(expression: str, version: int = 1, topic: str = "T") -> SubscriptionData:
    return SubscriptionData(topic, expression, version=version, expression_type=SQL92)


@pytest.mark.proves("broker:14.2", "broker:1.4")
def test_filter_is_stored_in_the_references_format(table: Table) -> None:
    table.filters.register("G", [sql("a > 5", 7), SubscriptionData("%RETRY%G")])
    table.filters.save()
    assert table.stored() == {
        "T": {
            "groupFilterData": {
                "G": {
                    "bloomFilterData": {"bitNum": 112, "bitPos": list(BloomFilter().positions("G#T"))},
                    "bornTime": table.clock.ms,
                    "clientVersion": 7,
                    "consumerGroup": "G",
                    "deadTime": 0,
                    "expression": "a > 5",
                    "expressionType": "SQL92",
                    "topic": "T",
                }
            },
            "topic": "T",
        }
    }
    assert table.path.read_text().startswith("{\n\t")


@pytest.mark.proves("broker:1.4")
def test_filters_are_unused_after_a_restart_until_their_group_connects(table: Table) -> None:
    born = table.clock.ms
    table.filters.register("G", [sql("a > 5")])
    table.filters.save()
    table.clock.ms += 10_000
    soon = table.reopened().get("T", "G")
    assert soon is not None and (soon.dead_time, soon.is_dead) == (born, True)
    table.clock.ms += 3_600_000
    later = table.reopened()
    data = later.get("T", "G")
    assert data is not None and data.dead_time == table.clock.ms - 30_000
    later.register("G", [sql("a > 5")])
    assert not data.is_dead
    later.save()
    assert table.stored()["T"]["groupFilterData"]["G"]["deadTime"] == 0


@pytest.mark.proves("broker:1.4")
def test_filter_is_deleted_a_day_after_its_group_left(table: Table) -> None:
    table.filters.register("G", [sql("a > 5")])
    table.filters.register("H", [sql("a > 5")])
    table.filters.unregister("G")
    table.clock.ms += DAY_MS - 1
    table.filters.save()
    assert sorted(table.stored()["T"]["groupFilterData"]) == ["G", "H"]
    table.clock.ms += 1
    table.filters.save()
    assert sorted(table.stored()["T"]["groupFilterData"]) == ["H"]
    assert table.filters.get("T", "G") is None


def test_total_size_of_filters_is_limited(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, "FILTER_CHARS_MAX", 50)
    table.filters.register("G", [sql("a > 5")])
    long = "a = 1" + " OR a = 1" * 5
    table.filters.register("H", [sql(long)])
    assert table.filters.get("T", "H") is None, "there is no room"
    table.filters.register("G", [sql(long, version=2)])
    assert table.filters.get("T", "G") is None, "the old one is not what the group wants"
    table.filters.register("H", [sql("a > 6", version=2)])
    table.filters.register("H", [sql("a > 7", version=3)])
    kept = table.filters.get("T", "H")
    assert kept is not None and kept.expression == "a > 7", "what is replaced or dropped makes room"


def test_update_of_a_group_costs_only_its_own_filters(tmp_path: Path) -> None:
    def resting(others: int) -> int:
        table = Table(tmp_path / str(others))
        for number in range(others):
            table.filters.register(f"g{number}", [sql("a = 1")])
        table.filters.register("mine", [sql("a = 1"), sql("a = 2", topic="U")])
        return steps(lambda: table.filters.register("mine", [sql("a = 1")])) + steps(
            lambda: table.filters.unregister("mine")
        )

    assert resting(others=500) == resting(others=5)


def test_topic_that_is_no_longer_subscribed_is_paused(table: Table) -> None:
    table.filters.register("G", [sql("a > 5"), sql("b = 1", topic="U")])
    table.clock.ms += 5
    table.filters.register("G", [sql("b = 1", topic="U")])
    gone, kept = table.filters.get("T", "G"), table.filters.get("U", "G")
    assert gone is not None and gone.dead_time == table.clock.ms
    assert kept is not None and kept.dead_time == 0
    table.clock.ms += 5
    table.filters.register("G", [])
    assert gone.dead_time == table.clock.ms - 5


@pytest.mark.parametrize(
    ("expression", "version", "kept"),
    [
        ("a > 6", 8, "a > 6"),
        ("a > 6", 7, "a > 6"),
        ("a > 6", 6, "a > 6"),
        ("a > 5", 8, "a > 5"),
        ("a >", 8, None),
    ],
)
def test_subscription_of_any_version_replaces_a_filter(
    table: Table, expression: str, version: int, kept: str | None
) -> None:
    table.filters.register("G", [sql("a > 5", 7)])
    table.filters.register("G", [sql(expression, version)])
    data = table.filters.get("T", "G")
    assert (None if data is None else data.expression) == kept
    assert data is None or data.client_version == version


def test_stored_filter_of_a_client_whose_clock_was_ahead_is_replaced_after_a_restart(table: Table) -> None:
    table.filters.register("G", [sql("a > 5", 9_000_000)])
    table.filters.save()
    later = table.reopened()
    later.register("G", [sql("a > 6", 7)])
    data = later.get("T", "G")
    assert data is not None and data.expression == "a > 6" and not data.is_dead


def test_invalid_expressions_are_refused(table: Table) -> None:
    odd = SubscriptionData("T", "x", version=1, expression_type="FOO")
    table.filters.register("G", [sql("a @"), sql("", topic="U"), odd])
    assert table.filters.get("T", "G") is None and table.filters.get("U", "G") is None
    assert table.filters.unsaved() is None


def test_file_is_not_written_without_a_change(table: Table) -> None:
    table.filters.save()
    assert not table.path.exists()
    table.filters.register("G", [sql("a > 5")])
    table.filters.save()
    table.filters.register("G", [sql("a > 5")])
    assert table.filters.unsaved() is None


def test_file_of_another_bloom_filter_is_skipped(table: Table) -> None:
    table.filters.register("G", [sql("a > 5")])
    table.filters.save()
    assert table.reopened(BloomFilter(10, 128)).get("T", "G") is None
    assert table.reopened().get("T", "G") is not None


def test_unsupported_expression_in_the_file_is_ignored(table: Table) -> None:
    table.filters.register("G", [sql("a > 5")])
    table.filters.save()
    table.path.write_text(table.path.read_text().replace("a > 5", "a LIKE 5 @@").replace("LIKE", "@"))
    assert table.reopened().get("T", "G") is None


@pytest.mark.parametrize("text", ["5", '{"T": {"groupFilterData": 1}}'])
def test_invalid_file_prevents_the_start(table: Table, text: str) -> None:
    table.path.write_text(f'{{"filterDataByTopic": {text}}}')
    with pytest.raises(StoreCorruptError, check=about(what="table")):
        table.reopened()


@pytest.mark.proves("broker:14.1", "remoting:5.6")
def test_tags_match_by_code_and_no_tag_matches_everything() -> None:
    assert wanted_tags(frozenset()) is EVERYTHING
    assert wanted_tags(frozenset({"TagA", "中"})).codes == {java_hash("TagA"), java_hash("中")}
    assert all(map(is_tag_type, (None, "", "TAG")))
    assert not any(map(is_tag_type, ("SQL92", "tag")))


def test_unknown_types_and_empty_expressions_are_refused() -> None:
    with pytest.raises(InvalidExpressionError, match="'FOO' is unknown; known: TAG, SQL92"):
        compile_filter("FOO", "a = 1")
    with pytest.raises(InvalidExpressionError, check=about(position=0, token="")):
        wanted_filter(SQL92, "")


def check(body: bytes, *, enabled: bool = True) -> Command:
    command = Command(RequestCode.CHECK_CLIENT_CONFIG, 9, body=body)
    return FilterCheck(enabled=enabled).check(connection(), command)


def asked(kind: str, text: str) -> bytes:
    data = {"expressionType": kind, "subString": text, "topic": "T", "subVersion": 1}
    return json.dumps({"clientId": "c", "group": "g", "subscriptionData": data}).encode()


@pytest.mark.proves("broker:14.2")
@pytest.mark.parametrize(
    ("body", "enabled", "code", "word"),
    [
        (asked("SQL92", "a > 5"), True, ResponseCode.SUCCESS, ""),
        (asked("TAG", "||"), True, ResponseCode.SUCCESS, ""),
        (asked("", "x"), False, ResponseCode.SUCCESS, ""),
        (b'{"clientId":"c"}', True, ResponseCode.SUCCESS, ""),
        (asked("SQL92", "a > 5"), False, ResponseCode.SYSTEM_ERROR, "enablePropertyFilter=true"),
        (asked("SQL92", "a >"), True, ResponseCode.SUBSCRIPTION_PARSE_FAILED, "column 4"),
        (asked("SQL92", ""), True, ResponseCode.SUBSCRIPTION_PARSE_FAILED, "empty"),
        (asked("FOO", "a"), True, ResponseCode.SUBSCRIPTION_PARSE_FAILED, "FOO"),
    ],
)
def test_clients_check_filters_before_they_start(
    body: bytes,
    enabled: bool,
    code: ResponseCode,
    word: str,
) -> None:
    answer = check(body, enabled=enabled)
    assert (answer.code, answer.opaque) == (code, 9)
    assert word in (answer.remark or "")


def test_check_with_an_invalid_body_is_a_protocol_error() -> None:
    with pytest.raises(BodyError):
        check(b"[]")
