"""Citations of the reference (`broker:6.3`, `client:B-57`) lead somewhere: docs/reference/README.md says how.

They are in comments, docstrings, `proves` marks and pages; each names a heading, an entry or a step.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
REFERENCE = ROOT / "docs" / "reference"
PAGES = ("broker", "client", "pmq", "remoting", "spark")
FOLDERS = ("src", "tests", "docs", "benchmarks", "examples", "scripts", "deploy")
SUFFIXES = {".py", ".md", ".toml", ".yaml", ".yml", ".sh", ".js", ".java", ".conf", ".txt"}

_NUMBERS = r"\d{1,2}(?:\.\d{1,2})*"
_PLACE = rf"(?:{_NUMBERS}|[A-Z](?:\.{_NUMBERS}|-?\d{{1,3}})?)(?:-\d{{1,2}})?(?![\w])"
_CITATION = re.compile(rf"(?<![\w-])({'|'.join(PAGES)}):({_PLACE}(?:(?:,? and |,? or |, | to ){_PLACE})*)")
_HEADING = re.compile(rf"^#{{2,6}} ({_NUMBERS}|[A-Z](?:\.{_NUMBERS})?)\.? ")
_ENTRY = re.compile(r"^(?:\| |\*\*)([A-Z]-?\d{1,3})(?: \||\*\*)")
_STEP = re.compile(r"^(\d{1,2})\. ")


def places_of(text: str) -> set[str]:
    """What may be cited of a page: headings by number, entries by id, steps by section and number."""
    found: set[str] = set()
    section = ""
    for line in text.splitlines():
        if heading := _HEADING.match(line):
            section = heading[1]
            found.add(section)
        elif entry := _ENTRY.match(line):
            found.add(entry[1])
        elif (step := _STEP.match(line)) and section:
            found.add(f"{section}-{step[1]}")
    return found


@cache
def places(page: str) -> frozenset[str]:
    """What may be cited of a page of the reference."""
    return frozenset(places_of((REFERENCE / f"{page}.md").read_text()))


def citations(text: str) -> Iterator[tuple[str, str]]:
    """Every citation as page and place; `client:B-02 to B-06, D.5` are three."""
    for match in _CITATION.finditer(text):
        yield from ((match[1], place) for place in re.findall(_PLACE, match[2]))


def unresolved(text: str) -> list[str]:
    """The citations of a text that lead nowhere."""
    return [f"{page}:{place}" for page, place in citations(text) if place not in places(page)]


def sources() -> list[Path]:
    """The files whose citations are followed."""
    found = [ROOT / "README.md", ROOT / "SECURITY.md"]
    for folder in FOLDERS:
        found += [path for path in sorted((ROOT / folder).rglob("*")) if path.suffix in SUFFIXES]
    return found


def test_every_citation_leads_somewhere() -> None:
    wrong, count = [], 0
    for path in sources():
        if path == Path(__file__):
            continue  # has wrong ones on purpose
        text = path.read_text(errors="replace")
        count += sum(1 for _ in citations(text))
        for number, line in enumerate(text.splitlines(), 1):
            wrong += [f"{path.relative_to(ROOT)}:{number} cites {one}" for one in unresolved(line)]
    assert wrong == []
    assert count > 1000, "the pattern finds what there is"


def test_facts_and_rows_of_behaviours_are_on_the_page() -> None:
    data = tomllib.loads((ROOT / "tests" / "behaviours.toml").read_text())
    assert [fact for fact in data["facts"] if fact not in places("client")] == []
    marked = set(re.findall(r'"(MUST-\d+)"', "".join(path.read_text() for path in sources())))
    others = re.findall(r"^\| (MUST-\d+) ", (ROOT / "tests" / "coordination.md").read_text(), re.MULTILINE)
    assert marked <= {*data["rows"], *others}


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("`broker:6.3`", []),
        ("`broker:6.99`", ["broker:6.99"]),
        ('@pytest.mark.proves("client:B-57", "client:B-999")', ["client:B-999"]),
        ("(client:B-02 to B-06, D.5, D.77)", ["client:D.77"]),
        ("(remoting:2.6, 2.7) and (remoting:2.6, 2.99)", ["remoting:2.99"]),
        ("step 11: client:D.5-11, no step: client:D.5-88", ["client:D.5-88"]),
        ("pmq:L1 or pmq:L99", ["pmq:L99"]),
        ("spark:S-13, spark:13 and spark:99", ["spark:99"]),
        ("client:Q", ["client:Q"]),
        ("image/sparrowmq-spark:0.1.0, broker:10911, client: A", []),
    ],
)
def test_a_citation_of_nothing_is_found(text: str, wrong: list[str]) -> None:
    assert unresolved(text) == wrong


def test_what_may_be_cited_of_a_page() -> None:
    page = """
## 2. Codes

1. one
2. two

### 2.7 More

## B. Producer

| B-01 | a fact |
**B-02** another one.

### B.13 Strategy

1. first
text 3. no step
"""
    assert places_of(page) == {"2", "2-1", "2-2", "2.7", "B", "B-01", "B-02", "B.13", "B.13-1"}
