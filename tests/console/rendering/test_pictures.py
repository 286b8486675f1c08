"""Every page has a picture in docs/console.md; `tests.console.screenshots` makes them."""

from __future__ import annotations

import re

import pytest

from sparrowmq.console.pages import PAGES

pytest.importorskip("playwright.sync_api", reason="type: pip install playwright")

from tests.console.screenshots import GUARDED, REPLICAS, ROOT, SHOTS

TAKEN = (*SHOTS, *REPLICAS, *GUARDED)
NAMES = {f"console-{shot.name}.png" for shot in TAKEN}


@pytest.mark.parametrize("path", sorted({page.path for page in PAGES}))
def test_every_page_has_a_picture(path: str) -> None:
    like = re.sub(r"\{\w+\}", "[^/]+", path)
    assert any(re.fullmatch(like, shot.path.partition("?")[0]) for shot in TAKEN)


def test_pictures_are_made_stored_and_shown() -> None:
    shown = re.findall(r"\]\(images/(console-[\w-]+\.png)\)", (ROOT / "docs" / "console.md").read_text())
    assert sorted(shown) == sorted(NAMES), "each once"
    assert {path.name for path in (ROOT / "docs" / "images").glob("console-*.png")} == NAMES
