"""Audit entries as text of a file: CSV for spreadsheets, or a line of JSON for each. Pure."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from sparrowmq.coordinator.records.audit import AuditEntry
from sparrowmq.core.outside import cell, json_line

COLUMNS: Final = tuple(one.name for one in fields(AuditEntry))
TIME_MAX_MS: Final = 253_402_300_799_000


class AuditFormat(StrEnum):
    """The form of a file of entries."""

    CSV = "csv"
    JSONL = "jsonl"


MEDIA_TYPES: Final = {
    AuditFormat.CSV: "text/csv; charset=utf-8",
    AuditFormat.JSONL: "application/x-ndjson; charset=utf-8",
}


def head(form: AuditFormat) -> str:
    """The beginning of the file."""
    return _row(COLUMNS) if form is AuditFormat.CSV else ""


def rows(form: AuditFormat, entries: Sequence[AuditEntry]) -> str:
    """Entries as rows, or lines. Times in CSV are in UTC."""
    if form is AuditFormat.JSONL:
        return "".join(json_line(asdict(one)) + "\n" for one in entries)
    return "".join(_row([_cell(name, value) for name, value in asdict(one).items()]) for one in entries)


def _row(cells: Sequence[str]) -> str:
    out = io.StringIO()
    csv.writer(out).writerow(cells)
    return out.getvalue()


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name == "at" and 0 < value <= TIME_MAX_MS:
        return (
            datetime.fromtimestamp(value / 1000, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z")
        )
    if isinstance(value, int):
        return str(value)
    return cell(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True))
