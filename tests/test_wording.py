"""Tests look at what an error is about, not at its wording, which must stay free to improve.

`pytest.raises(Error, check=about(setting="threads", value=0))` compares attributes (`tests.support.about`). A
text is matched where the wording is the point, best in one table per module. What is left is counted here.
"""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).parent
ROOM: Final = 10
"""How far a package may be below its number before the number has to be lowered."""
MATCHES: Final[dict[str, int]] = {
    "broker": 30,
    "cli": 10,
    "client": 60,
    "columnar": 10,
    "coordinator": 20,
    "core": 20,
    "protocol": 25,
    "proxy": 10,
    "runtime": 10,
    "spark": 110,
    "store": 10,
    "transport": 15,
}
"""How many texts of errors each package of tests matches, at most; the numbers may only fall."""
MATCHES_ELSEWHERE: Final = 10


def matches(tree: ast.AST) -> int:
    """Calls of `raises` with a text to match."""
    return sum(
        isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("pytest.raises", "raises")
        and any(keyword.arg == "match" for keyword in node.keywords)
        for node in ast.walk(tree)
    )


def test_ever_fewer_tests_match_the_wording_of_errors() -> None:
    found: Counter[str] = Counter()
    for path in TESTS.rglob("*.py"):
        if "match=" in (text := path.read_text()):
            found[path.relative_to(TESTS).parts[0]] += matches(ast.parse(text))
    more = {name: count for name, count in found.items() if count > MATCHES.get(name, MATCHES_ELSEWHERE)}
    assert not more, "compare what the error is about: check=about(...) of tests.support"
    lower = {name: found[name] for name, most in MATCHES.items() if found[name] + ROOM < most}
    assert not lower, "these have fewer now: lower their numbers"


@pytest.mark.parametrize(
    ("source", "number"),
    [
        ('with pytest.raises(ValueError, match="x"): pass', 1),
        ("with pytest.raises(ValueError, check=about(code=1)): pass", 0),
        ('with pytest.warns(UserWarning, match="x"): pass', 0),
    ],
)
def test_what_a_match_is(source: str, number: int) -> None:
    assert matches(ast.parse(source)) == number
