"""Audit entries as a file: one row or line for each, whatever its contents."""

from __future__ import annotations

import csv
import io
import json

import pytest

from sparrowmq.coordinator.records.audit import AuditEntry
from sparrowmq.coordinator.records.audit_files import COLUMNS, AuditFormat, head, rows

ODD = AuditEntry(7, 1_700_000_000_123, "=1+1", "a", "group", '\u202ex,\n"y', {"b": [1]}, None, "-2", None)
PLAIN = AuditEntry(8, 0, "ann", "a", "topic", "T", None, {"c": "ü"}, "", 3)


def test_csv_can_be_read_back_and_contains_no_formula() -> None:
    text = head(AuditFormat.CSV) + rows(AuditFormat.CSV, [ODD, PLAIN])
    first, second = csv.DictReader(io.StringIO(text, newline=""))
    assert tuple(first) == COLUMNS
    assert (first["at"], first["actor"], first["reason"]) == ("2023-11-14T22:13:20.123Z", "'=1+1", "'-2")
    assert (first["object"], first["before"], first["after"]) == (ODD.object, '{"b": [1]}', "")
    assert (second["at"], second["after"], second["generation"]) == ("0", '{"c": "ü"}', "3")


def test_each_entry_is_a_line_of_json() -> None:
    lines = rows(AuditFormat.JSONL, [ODD, PLAIN]).splitlines()
    assert head(AuditFormat.JSONL) == "" and len(lines) == 2
    assert json.loads(lines[0])["object"] == ODD.object and json.loads(lines[1])["after"] == {"c": "ü"}


@pytest.mark.parametrize("form", AuditFormat)
def test_empty_log_gives_an_empty_file(form: AuditFormat) -> None:
    assert rows(form, []) == ""
