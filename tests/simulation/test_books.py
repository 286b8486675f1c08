"""Each acknowledged message has a place that somebody counts, whatever users and operators do.

A failing walk names its seed and the fewest steps that fail;
`python -m tests.simulation.whole.walk --seed 17` runs it again.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.conftest import LONG
from tests.simulation.whole.walk import failure

WALKS = int(os.environ.get("SPARROW_EXAMPLES", 2000 if LONG else 60))
PARTS = 10


@pytest.mark.parametrize("part", range(PARTS))
def test_books_balance(part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(part, WALKS, PARTS):
        text = failure(seed, tmp_path / "walk", monkeypatch)
        assert not text, text
