"""Brokers with a second copy in a real browser: by axe, by the keyboard alone, on a narrow screen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.console.browser.test_browser import WAIT_MS, browser, enter, looked_at, pytestmark  # noqa: F401
from tests.console.replicated import GROUP_PAGE, elect, replicated, three_brokers
from tests.console.site import Site
from tests.coordinator.replicas.made_up_brokers import MadeUpBrokers
from tests.support import until_sync

PATHS = ("/replicas", GROUP_PAGE, *(f"{GROUP_PAGE}/{name}" for name in ("elect", "elect-unclean", "release")))


@pytest.fixture(scope="module")
def brokers() -> MadeUpBrokers:
    return three_brokers()


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, brokers: MadeUpBrokers) -> Iterator[Site]:
    with replicated(tmp_path_factory.mktemp("replicas") / "coordinator.db", brokers) as made:
        elect(made, brokers)
        yield made


@pytest.mark.parametrize(("colours", "locale"), [("light", "en-GB"), ("dark", "zh-CN")])
def test_axe_finds_nothing_and_narrow_screens_are_enough(
    browser: Any,  # noqa: F811
    found: Site,
    colours: str,
    locale: str,
) -> None:
    context = browser.new_context(color_scheme=colours, locale=locale, viewport={"width": 360, "height": 740})
    context.set_default_timeout(WAIT_MS)
    page, faults = context.new_page(), list[str]()
    enter(page, found)
    for path in PATHS:
        page.goto(f"{found.started.url}{path}")
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 360, f"{path} is {wide} wide"
        faults += [f"{path}: {text}" for text in looked_at(page)]
    context.close()
    assert faults == []


def test_another_master_is_elected_by_the_keyboard_alone(
    browser: Any,  # noqa: F811
    found: Site,
    brokers: MadeUpBrokers,
) -> None:
    context = browser.new_context(locale="en-GB")
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    enter(page, found)

    def to(what: str) -> None:
        """Press Tab until a part of the page has the focus."""
        page.locator(what).first.wait_for()
        for _ in range(100):
            page.keyboard.press("Tab")
            if page.evaluate("what => document.activeElement.matches(what)", what):
                return
        raise AssertionError(f"Tab does not reach {what}")

    page.keyboard.press("g")
    page.keyboard.press("e")
    page.wait_for_url("**/replicas")
    to(f"a[href='{GROUP_PAGE}']")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{GROUP_PAGE}")
    to(f"a[href='{GROUP_PAGE}/elect']")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{GROUP_PAGE}/elect")
    to("[name=reason]")
    page.keyboard.type("by the keyboard")
    to("button[value=do]")
    page.keyboard.press("Enter")
    page.locator(".done").wait_for()
    until_sync(lambda: brokers.states["b"].state == "SERVING")
    context.close()
