"""What was seen of each case, kept beside the table: the page of `mqadmin` is made from it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tests.interop.mqadmin.commands import Case
from tests.interop.mqadmin.compare import Shown, differences

RECORD: Final = Path(__file__).parent / "recorded.jsonl"


@dataclass(frozen=True, slots=True)
class Seen:
    """One case at both: the codes it asks, how it ended on each side, and whether the facts were the same."""

    case: str
    asks: list[int]
    ours: str
    apache: str
    same: bool


def seen(case: Case, ours: Shown, apache: Shown) -> Seen:
    """What is kept of two runs."""
    asks = sorted({*ours.answers, *apache.answers})
    return Seen(case.id, asks, ended(ours), ended(apache), not differences(case, ours, apache))


def ended(shown: Shown) -> str:
    """The exit status, with the codes of answers that were no success."""
    failed = sorted({code for codes in shown.answers.values() for code in codes if code})
    status = "does not end" if shown.status is None else str(shown.status)
    return f"{status}, code {' and '.join(map(str, failed))}" if failed else status


def write(rows: Iterable[Seen]) -> None:
    """Keep what was seen in place of what was kept."""
    RECORD.write_text("".join(json.dumps(asdict(row)) + "\n" for row in rows))


def read() -> list[Seen]:
    """What is kept, in the order of the table."""
    return [Seen(**json.loads(line)) for line in RECORD.read_text().splitlines()]
