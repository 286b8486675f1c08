"""Pages in a real browser: copied, printed, on very wide screens, and with right-to-left names."""

from __future__ import annotations

from typing import Any

import pytest
from tests.console.access.test_bad_input import NAMES
from tests.console.browser.test_browser import browser, page, pytestmark  # noqa: F401
from tests.console.furnished import ODD
from tests.console.site import Site
from tests.support import until_sync

import sparrowmq as mq
from sparrowmq.testing import LocalCluster

A4_PIXELS = 794
"""Width of a sheet of A4 at 96 pixels to the inch."""
BROKEN = """() => [...document.querySelectorAll("main th")].filter((one) => {
    const words = document.createRange();
    words.selectNodeContents(one.querySelector("a") ?? one);
    const lines = new Set([...words.getClientRects()].map((line) => Math.round(line.bottom)));
    return lines.size > 1 && !/\\s/.test(one.textContent.trim());
}).map((one) => one.textContent)"""
"""Headings of columns that are one word on several lines."""


def test_copied_rows_contain_no_formulas(page: Any, console: Site) -> None:  # noqa: F811
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"{console.started.url}/audit?audit.is.kind=group")
    rows = page.locator("[data-part=audit] tbody tr").count()
    assert rows >= 1
    page.click("[data-part=audit] button[data-copy-table]")
    page.locator("[data-part=audit] button[data-copy-table]", has_text="Copied").wait_for()
    lines = page.evaluate("navigator.clipboard.readText()").split("\n")
    assert len(lines) == rows + 1 and len({line.count("\t") for line in lines}) == 1
    assert any(f"\t'{ODD.formula}" in line for line in lines), "an apostrophe keeps it a text, as in the CSV"
    page.goto(f"{console.started.url}/topics")
    page.click("[data-part=topics] button[data-copy-table]")
    page.locator("[data-part=topics] button", has_text="Copied").wait_for()
    assert ODD.topic in page.evaluate("navigator.clipboard.readText()")


@pytest.mark.parametrize(
    "path", ["/", "/topics/{topic}", "/groups/{group}", "/brokers", "/services", "/audit"]
)
def test_printed_page_has_everything_but_controls(page: Any, console: Site, path: str) -> None:  # noqa: F811
    page.set_viewport_size({"width": A4_PIXELS, "height": 1123})
    page.goto(console.started.url + path.format(topic=ODD.topic, group=ODD.group))
    page.emulate_media(media="print")
    for what in ("nav", "form.search", ".bar form", ".links"):
        assert all(not one.is_visible() for one in page.locator(what).all()), what
    assert page.locator("main table").first.is_visible()
    wide = page.evaluate(
        "Math.max(...[...document.querySelectorAll('main td, main th, main svg')]"
        ".filter(one => one.getClientRects().length && !one.closest('details'))"
        ".map(one => one.getBoundingClientRect().right))"
    )
    assert wide <= A4_PIXELS, "nothing is cut off at the right"
    assert page.evaluate(BROKEN) == []
    assert page.pdf().startswith(b"%PDF")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_headings_of_columns_are_not_broken_on_a_narrow_screen(
    page: Any,  # noqa: F811
    console: Site,
    language: str,
) -> None:
    """Chinese has no blanks: without a rule, each of its characters may begin a line."""
    page.set_extra_http_headers({"Accept-Language": language})
    page.set_viewport_size({"width": 360, "height": 740})
    for path in ("/", "/groups", f"/groups/{ODD.group}"):
        page.goto(f"{console.started.url}{path}")
        assert page.evaluate("document.documentElement.lang") == language
        assert page.evaluate(BROKEN) == [], path


def test_very_wide_screen_is_used(page: Any, console: Site) -> None:  # noqa: F811
    page.set_viewport_size({"width": 3840, "height": 2160})
    page.goto(console.started.url)
    box = page.locator("main").bounding_box()
    assert box["width"] > 0.7 * 3840
    assert page.evaluate("parseFloat(getComputedStyle(document.body).fontSize)") >= 20
    assert page.evaluate("document.documentElement.scrollWidth") <= 3840


def test_right_to_left_names_do_not_change_the_rest_of_the_page(
    page: Any,  # noqa: F811
    console: Site,
    cluster: LocalCluster,
) -> None:
    name = NAMES["arabic"]
    with mq.Producer("turned", namesrv=cluster.namesrv) as producer:
        producer.send(mq.Message(ODD.topic, f"{name}\n2 + 3".encode(), tags=name, keys=[f"{name}-read"]))
    url = f"{console.started.url}/messages?topic={ODD.topic}&by=key&key={name}-read"

    def found() -> bool:
        page.goto(url)
        return page.locator("[data-part=found] tbody tr").count() == 1

    until_sync(found)
    for cell in page.locator("[data-part=found] td").all():
        box, inner = cell.evaluate(
            """cell => {
                const range = document.createRange();
                range.selectNodeContents(cell);
                const [outer, text] = [cell.getBoundingClientRect(), range.getBoundingClientRect()];
                return [[outer.left, outer.right], [text.left, text.right]];
            }"""
        )
        assert box[0] <= inner[0] and inner[1] <= box[1] + 1, "a text stays in its cell"
        assert cell.evaluate("one => getComputedStyle(one).unicodeBidi") == "plaintext"
    page.click("[data-part=found] tbody a")
    body = page.locator("[data-part=body] pre").first
    body.wait_for()
    assert body.evaluate("one => getComputedStyle(one).unicodeBidi") == "plaintext", "each line by itself"
    assert page.evaluate("document.documentElement.dir") == ""
