"""What an audit can be asked, and what not."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support import about

from sparrowmq import ClientSettings
from sparrowmq.core.errors import InvalidNameError, SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.offsets.offsets import Span
from sparrowmq.spark.pipelines.audit.settings import (
    DAY_MS,
    TRACE_TOPIC,
    AuditedGroup,
    AuditSettings,
    spans_from,
)

QUEUE = MessageQueue("T", "b", 0)


def settings(**values: Any) -> AuditSettings:
    return AuditSettings(**{"directory": "audit", "topics": ("T",), **values})


def test_the_window() -> None:
    assert settings().window(10 * DAY_MS) == (9 * DAY_MS, 10 * DAY_MS)
    assert settings(until=5 * DAY_MS).window(10 * DAY_MS) == (4 * DAY_MS, 5 * DAY_MS)
    assert settings(since=7, until=9).window(10) == (7, 9)
    with pytest.raises(SettingsError, check=about(setting="until", value=11)):
        settings(since=7, until=11).window(10)


def test_where_traces_are() -> None:
    assert ClientSettings().trace_topic == TRACE_TOPIC == settings().trace_topic
    assert settings().needs_trace
    assert settings().trace.topics == (TRACE_TOPIC,)
    assert not settings(ledger="sent.csv").needs_trace
    assert settings(ledger="sent.csv", groups=(AuditedGroup("g"),)).needs_trace
    assert settings(with_sent=False, groups=(AuditedGroup("g"),)).needs_trace


def test_formats_of_ledgers() -> None:
    assert settings(ledger="/a/b.CSV").ledger_kind == "csv"
    assert settings(ledger="/a/b.parquet/").ledger_kind == "parquet"
    assert settings(ledger="/a/b", ledger_format="json").ledger_kind == "json"


def test_groups() -> None:
    assert AuditedGroup.parse("billing") == AuditedGroup("billing")
    assert AuditedGroup.parse("billing=A || B") == AuditedGroup("billing", frozenset({"A", "B"}))
    with pytest.raises(InvalidNameError):
        AuditedGroup.parse("bill ing")


def test_offsets() -> None:
    text = '{"T": {"b": {"0": [3, 9], "1": [0, 1]}}}'
    assert spans_from(text) == (Span(QUEUE, 3, 9), Span(MessageQueue("T", "b", 1), 0, 1))
    for wrong in ("", "[]", "{}", '{"T": 1}', '{"T": {"b": {"0": 3}}}', '{"T": {"b": {"0": [9, 3]}}}'):
        with pytest.raises(SettingsError, match="give JSON such as"):
            spans_from(wrong)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"topics": ()}, "needs at least one topic"),
        ({"match": "body"}, "match='body': must be id or keys"),
        ({"match": "keys", "topics": ("T", "U"), "groups": (AuditedGroup("g"),)}, "one topic at a time"),
        ({"late_seconds": -1}, "late_seconds=-1: must be 0 or more"),
        ({"since": 2, "until": 2}, "since=2 is not before until=2"),
        ({"since": 2, "spans": (Span(QUEUE, 0, 1),)}, "give either offsets or times for an audit"),
        ({"topics": ("U",), "spans": (Span(QUEUE, 0, 1),)}, "offsets name topic 'T'"),
        ({"spans": (Span(QUEUE, 0, 1), Span(QUEUE, 2, 3))}, "name a queue twice"),
        ({"ledger": "x.txt"}, "ledger='x.txt': unknown format"),
        ({"ledger": "x.csv", "with_sent": False}, "which are not checked"),
        ({"ledger_columns": {"idd": "x"}}, "ledger_columns 'idd': must be one of topic, id, time"),
        ({"allow": {"lots": 1}}, "not a kind of finding"),
        ({"live": False}, "without the live log an audit needs an archive"),
        ({"with_sent": False}, "needs a group, or there is nothing to compare"),
    ],
)
def test_what_is_wrong_is_said(values: dict[str, Any], text: str) -> None:
    with pytest.raises(SettingsError, match=text):
        settings(**values)
