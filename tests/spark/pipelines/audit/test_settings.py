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
        with pytest.raises(SettingsError, check=about(setting="spans", value=wrong)):
            spans_from(wrong)


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"topics": ()}, {"setting": "topics"}),
        ({"match": "body"}, {"setting": "match", "value": "body"}),
        (
            {"match": "keys", "topics": ("T", "U"), "groups": (AuditedGroup("g"),)},
            {"setting": "match", "other": "topics"},
        ),
        ({"late_seconds": -1}, {"setting": "late_seconds", "value": -1}),
        ({"since": 2, "until": 2}, {"setting": "since", "value": 2}),
        ({"since": 2, "spans": (Span(QUEUE, 0, 1),)}, {"setting": "spans", "other": "since"}),
        ({"topics": ("U",), "spans": (Span(QUEUE, 0, 1),)}, {"setting": "spans", "value": "T"}),
        ({"spans": (Span(QUEUE, 0, 1), Span(QUEUE, 2, 3))}, {"setting": "spans", "value": None}),
        ({"ledger": "x.txt"}, {"setting": "ledger", "value": "x.txt", "other": ""}),
        ({"ledger": "x.csv", "with_sent": False}, {"setting": "ledger", "other": "with_sent"}),
        ({"ledger_columns": {"idd": "x"}}, {"setting": "ledger_columns", "value": "idd"}),
        ({"allow": {"lots": 1}}, {"setting": "allow", "value": "lots"}),
        ({"live": False}, {"setting": "archive", "other": "live"}),
        ({"with_sent": False}, {"setting": "groups", "other": "with_sent"}),
    ],
)
def test_what_is_wrong_is_said(values: dict[str, Any], facts: dict[str, object]) -> None:
    with pytest.raises(SettingsError, check=about(**facts)):
        settings(**values)
