"""What a command of `mqadmin` showed at Apache's servers and at ours, and where the two differ. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.interop.mqadmin.commands import Case, Facts

BACKGROUND: Final = {34, 35, 38, 40, 46}
"""Heartbeats and what follows them: clients send and get these when their time comes."""
LINES_SHOWN: Final = 6

_PLACEHOLDERS: Final = (
    (re.compile(r"\d{4}-\d\d-\d\d[ T#]\d\d:\d\d:\d\d([,.:]\d{3})?|\b\d{17}\b"), "TIME"),
    (re.compile(r"\bV\d_\d+_\d+(_SNAPSHOT)?\b"), "VERSION"),
    (re.compile(r"\b[0-9A-F]{32,60}\b"), "ID"),
    (re.compile(r"\b1[5-9]\d{11}\b"), "MILLIS"),
    (re.compile(r"\b\d+ ?ms\b"), "N ms"),
    (re.compile(r"\b\d+\.\d+\.\d+\.\d+@[\w#@-]+|CLIENT-\d+"), "CLIENT"),
    (re.compile(r"/?\b\d+\.\d+\.\d+\.\d+:\d+"), "ADDRESS"),
    (re.compile(r"@[0-9a-f]{5,8}\b"), "@HASH"),
    (re.compile(r"\s*DESC: .*"), ""),
)
_CHATTER: Final = re.compile(r"\|-(INFO|WARN)|^\s*at \S+\(|^\s*\.\.\. \d+ (more|common)|^=+$|^-+$|^#+$|^\s*$")
_NUMBER: Final = re.compile(r"-?\d+(\.\d+)?")
_NAME: Final = re.compile(r'^[\s"]*([\w.%$@-][\w.%$@ -]*?)["\s]*[:=]')


@dataclass(frozen=True, slots=True)
class Shown:
    """What one side showed: the exit status (None: it did not end), the answers by request code, and the
    lines of the output, with names in place of what differs from run to run.
    """

    status: int | None
    answers: Mapping[int, Sequence[int]]
    lines: Sequence[str]
    remarks: Sequence[str] = field(default=())


def shown(
    status: int | None, texts: Iterable[str], answers: Iterable[Mapping[str, Any]], names: Mapping[str, str]
) -> Shown:
    """The facts of a run; `names` are the run's own addresses and directories, and what stands for them."""
    lines = [line for text in texts for line in text.splitlines() if not _CHATTER.search(line)]
    by_code: dict[int, set[int]] = {}
    remarks = []
    for one in answers:
        if one["asked"] not in BACKGROUND:
            by_code.setdefault(one["asked"], set())
            if one.get("answered") is not None:
                by_code[one["asked"]].add(one["answered"])
            if one.get("answered") and one.get("remark"):
                remarks.append(f"{one['asked']}: {one['remark'].splitlines()[0]}")
    return Shown(
        status,
        {code: sorted(found) for code, found in sorted(by_code.items())},
        [plain(line, names) for line in lines],
        list(dict.fromkeys(remarks)),
    )


def plain(line: str, names: Mapping[str, str]) -> str:
    """A line without what differs from run to run."""
    for text, name in names.items():
        line = line.replace(text, name)
    for pattern, name in _PLACEHOLDERS:
        line = pattern.sub(name, line)
    return " ".join(line.split())


def facts(case: Case, lines: Iterable[str]) -> Counter[str]:
    """What of the lines must be the same."""
    if case.facts is Facts.STATUS:
        return Counter()
    if case.facts is Facts.NUMBERS:
        lines = [_NUMBER.sub("N", line) for line in lines]
    elif case.facts is Facts.NAMES:
        lines = [found[1] for line in lines if (found := _NAME.match(line))]
    return Counter(line for line in lines if not any(re.search(text, line) for text in case.leaves_out))


def differences(case: Case, ours: Shown, apache: Shown) -> list[str]:
    """Where the two differ, one text each; empty when they do not."""
    found = []
    if ours.status != apache.status:
        found.append(f"exit status: {_status(ours)}, Apache's {_status(apache)}")
    for code in sorted({*ours.answers, *apache.answers}):
        here, there = ours.answers.get(code), apache.answers.get(code)
        if here != there:
            found.append(f"request {code}: {_codes(here)}, Apache's {_codes(there)}")
    here, there = facts(case, ours.lines), facts(case, apache.lines)
    if case.facts is not Facts.NAMES:
        found += _only("only ours", here - there)
    return found + _only("only Apache's", there - here)


def surprises(case: Case, ours: Shown, apache: Shown) -> list[str]:
    """What is not as the case expects; empty when all is."""
    found = differences(case, ours, apache)
    if not case.reason:
        return found
    if not found:
        return [f"it is the same, and it was expected to differ: {case.reason}"]
    told = "\n".join((*ours.lines, *ours.remarks))
    return [] if case.ours in told else [f"ours does not tell {case.ours!r}", *found]


def _only(who: str, lines: Counter[str]) -> list[str]:
    return [f"{who}: {line}" for line in sorted(lines.elements())]


def _status(side: Shown) -> str:
    return "does not end" if side.status is None else str(side.status)


def _codes(codes: Sequence[int] | None) -> str:
    if codes is None:
        return "not asked"
    return " and ".join(map(str, codes)) or "no answer"
