"""Charts in a real browser: they show values, keep their range, and work without colour."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

import pytest
from tests.console.browser.charted import fill
from tests.console.browser.test_browser import browser, page, pytestmark  # noqa: F401
from tests.console.furnished import ODD
from tests.console.site import Site

pytest.importorskip("playwright.sync_api", reason="type: pip install playwright")


@pytest.fixture(scope="module")
def past(console: Site) -> str:
    """The address of the group's page, on a cluster with a history."""
    fill(console, ODD.group, ODD.topic)
    return f"{console.started.url}/groups/{ODD.group}"


def test_pointer_and_keys_show_the_values_of_a_chart(page: Any, past: str) -> None:  # noqa: F811
    page.goto(past)
    chart = page.locator("figure.chart").first
    chart.locator(".plot svg").hover(position={"x": 300, "y": 60})
    said = re.sub("[\u2068\u2069]", "", chart.locator("output").inner_text())
    assert "GMT+8" in said and "messages that wait: " in said
    plot = chart.locator(".plot")
    plot.focus()
    page.keyboard.press("End")
    last = chart.locator("output").inner_text()
    page.keyboard.press("ArrowLeft")
    assert chart.locator("output").inner_text() != last
    page.keyboard.press("Home")
    first = chart.locator("table.series tbody tr").first.locator("td").first.text_content()
    assert chart.locator("output").inner_text().endswith(f"\u2069: {first}")
    assert chart.locator(".rule.shown").count() == 1


def test_range_is_kept_in_the_address_and_times_are_local(page: Any, past: str) -> None:  # noqa: F811
    page.goto(f"{past}?queues.sort=queue")
    page.click(".ranges >> text=24 hours")
    page.wait_for_url("**range=24h**")
    assert "queues.sort=queue" in page.url
    assert page.locator(".ranges [aria-current]").inner_text() == "24 hours"
    mark = page.locator("figure.chart text[data-at]").first
    hour = int(mark.get_attribute("data-at")) // 3_600_000 % 24
    assert mark.text_content() == f"{(hour + 8) % 24:02}:00"


def test_lines_can_be_told_apart_without_colour(page: Any, past: str) -> None:  # noqa: F811
    page.goto(past)
    lines = page.locator("figure.chart >> nth=2").locator(".plot g")
    looks = {
        (
            one.locator(".stroke").evaluate("found => getComputedStyle(found).strokeDasharray"),
            one.locator(".mark").first.get_attribute("d"),
        )
        for one in lines.all()
    }
    assert lines.count() >= 4 and len(looks) == lines.count()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_with_history_has_charts(
    page: Any,  # noqa: F811
    past: str,
    console: Site,
    theme: str,
) -> None:
    page.emulate_media(color_scheme=theme)
    broker = console.admin.page("/brokers").text.partition('href="/brokers/')[2].partition('"')[0]
    for path, count in (
        ("/", 2),
        (f"/topics/{ODD.topic}", 1),
        (f"/groups/{ODD.group}", 3),
        (f"/brokers/{broker}", 3),
        (f"/services/{quote('history')}", 2),
    ):
        page.goto(f"{console.started.url}{path}?range=30d")
        assert page.locator("figure.chart .plot").count() == count, path
        card = page.locator(".card").first.evaluate("found => getComputedStyle(found).backgroundColor")
        line = page.locator(".line-0 .stroke").first.evaluate("found => getComputedStyle(found).stroke")
        assert line not in (card, "none")


def test_newest_values_are_shown_first_where_a_chart_is_wider_than_the_screen(page: Any, past: str) -> None:  # noqa: F811
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(past)
    for plot in page.locator(".plot").all():
        left, inner, outer = plot.evaluate("one => [one.scrollLeft, one.clientWidth, one.scrollWidth]")
        assert outer > inner and abs(left + inner - outer) <= 1
