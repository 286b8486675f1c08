"""The walks of docs/architecture.md lead through the code: each hop is there, and they run in this order."""

from __future__ import annotations

import importlib
import inspect
import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import pytest
from tests.pages import ROOT, Page

PAGE: Final = Page(ROOT / "docs" / "architecture.md")
SOURCES: Final = ROOT / "src" / "sparrowmq"
WALKS: Final = {
    "log": "### From the socket to the log",
    "send": "### From `send` to the socket",
    "offset": "### From a pulled batch to the committed offset",
    "rows": "### From the offsets of a micro-batch to rows",
}
"""Each walk and the heading of its table."""
SECONDS_MAX: Final = 120.0

Call = tuple[str, str]
"""Module path below the package, qualified name."""


class Hop(NamedTuple):
    """One row of a walk."""

    path: str
    function: str

    @property
    def room(self) -> str:
        """The folder of the module."""
        return self.path.rpartition("/")[0]


def hops(walk: str) -> list[Hop]:
    """The rows of a walk on the page."""
    return [Hop(path.strip("`"), function.strip("`")) for path, function, _ in PAGE.table(WALKS[walk])]


def first_missing(walk: Sequence[Hop], calls: Iterable[Call]) -> Hop | None:
    """The first hop that is not called after all before it."""
    left = iter(calls)
    return next((hop for hop in walk if (hop.path, hop.function) not in left), None)


def crossed_again(walk: Sequence[Hop]) -> list[tuple[str, str]]:
    """Pairs of rooms between which a walk goes in one direction more than once."""
    steps = [(one.room, other.room) for one, other in pairwise(walk) if one.room != other.room]
    return [step for at, step in enumerate(steps) if step in steps[:at]]


@pytest.fixture(scope="module")
def called() -> dict[str, list[Call]]:
    """What was called when each walk ran once."""
    command = [sys.executable, "-m", "tests.walks_child"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=SECONDS_MAX)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    return {walk: [(path, function) for path, function in calls] for walk, calls in found.items()}


def test_order_and_direction_are_seen() -> None:
    walk = [Hop("a/x.py", "f"), Hop("b/y.py", "C.g"), Hop("a/x.py", "h")]
    calls = [("a/x.py", "h"), ("a/x.py", "f"), ("b/y.py", "C.g")]
    assert first_missing(walk[:2], calls) is None
    assert first_missing(walk, calls) == walk[2]
    assert crossed_again(walk) == []
    assert crossed_again([*walk, Hop("b/z.py", "i")]) == [("a", "b")]


@pytest.mark.parametrize("walk", WALKS)
def test_hops_are_functions_of_the_code(walk: str) -> None:
    for hop in hops(walk):
        module = importlib.import_module("sparrowmq." + hop.path.removesuffix(".py").replace("/", "."))
        found = module
        for name in hop.function.split("."):
            found = getattr(found, name)
        assert inspect.isroutine(found), hop
        assert found.__qualname__ == hop.function
        assert found.__code__.co_filename == str(SOURCES / hop.path)


@pytest.mark.parametrize("walk", WALKS)
def test_hops_run_in_this_order(walk: str, called: dict[str, list[Call]]) -> None:
    assert first_missing(hops(walk), called[walk]) is None


@pytest.mark.parametrize("walk", WALKS)
def test_no_walk_goes_back_and_forth_between_two_rooms(walk: str) -> None:
    assert crossed_again(hops(walk)) == []
