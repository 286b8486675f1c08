"""What the gate leaves out: every place of `tests/tiers.toml` is there, and the longest that fits decides."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.tiers import Tiers, read_tiers

ROOT = Path(__file__).parents[2]
TIERS = Tiers(
    full=("tests/a", "tests/b/test_x.py", "tests/c/test_y.py::test_slow"),
    gate=("tests/a/test_few.py", "tests/b/test_x.py::test_one[cluster-node]"),
)


@pytest.mark.parametrize(
    ("test", "gate"),
    [
        ("tests/a/test_z.py::test_z", False),
        ("tests/a/test_few.py::test_z[1]", True),
        ("tests/ab/test_z.py::test_z", True),
        ("tests/b/test_x.py::test_one[cluster-node]", True),
        ("tests/b/test_x.py::test_one[apache-node]", False),
        ("tests/c/test_y.py::test_slow[1]", False),
        ("tests/c/test_y.py::test_slower", True),
    ],
)
def test_the_longest_place_decides(test: str, gate: bool) -> None:
    assert TIERS.is_in_gate(test) is gate
    assert [TIERS.leaves_out(tier, test, ()) for tier in ("gate", "full", "long", "")] == [not gate] + [
        False
    ] * 3


def test_the_fast_tier_leaves_out_what_needs_other_programs() -> None:
    assert TIERS.leaves_out("fast", "tests/d.py::test", ["timeout", "spark"])
    assert not TIERS.leaves_out("fast", "tests/d.py::test", ["timeout"])
    assert not TIERS.leaves_out("gate", "tests/d.py::test", ["spark"])


def test_every_place_is_there() -> None:
    tiers = read_tiers()
    assert not set(tiers.full) & set(tiers.gate)
    for place in tiers.full + tiers.gate:
        file, _, name = place.partition("::")
        assert (ROOT / file).exists(), place
        function = name.partition("[")[0].split("::")[-1]
        assert not name or f"def {function}(" in (ROOT / file).read_text(), place


def test_gate_is_a_choice_from_what_full_has() -> None:
    """Other entries would change nothing."""
    tiers = read_tiers()
    for place in tiers.gate:
        assert not Tiers(tiers.full, ()).is_in_gate(place), place
