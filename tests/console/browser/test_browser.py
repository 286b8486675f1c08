"""Walks through the pages in a real browser, by keyboard and mouse, in both languages, checked by axe.

They need the system's Chromium. Without it they are skipped with a reason; where all checks must run
(`CI`), they fail."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright import sync_api
from tests.console.furnished import ODD
from tests.console.site import Site
from tests.support import until_sync

import sparrowmq as mq
from sparrowmq.console.pages import FORMS, PAGES
from sparrowmq.console.rendering import KEYS, MENU
from sparrowmq.console.texts import words
from sparrowmq.testing import LocalCluster

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
MISSING = "no Chromium here; install the system's package, e.g.: apt-get install -y chromium"
IS_CI = os.environ.get("CI", "").lower() not in ("", "0", "false")
pytestmark = pytest.mark.skipif(CHROMIUM is None and not IS_CI, reason=MISSING)
WAIT_MS = 90_000
IS_LONG = os.environ.get("SPARROW_TEST_TIER") == "long"
SAID = words("en")
AXE: dict[str, Any] = {"resultTypes": ["violations"]}
COLOURS = AXE | {"runOnly": ["color-contrast"]}
TAG = ODD.markup.replace("|", "")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    assert CHROMIUM is not None, MISSING
    with sync_api.sync_playwright() as player:
        found = player.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def page(browser: Any, console: Site) -> Iterator[Any]:
    """A page of a logged-in user in Shanghai; no script failed and the content security policy refused
    nothing."""
    context = browser.new_context(timezone_id="Asia/Shanghai", locale="en-GB")
    context.set_default_timeout(WAIT_MS)
    found, faults = context.new_page(), list[str]()
    found.on("console", lambda said: faults.append(said.text) if is_fault(said) else None)
    found.on("pageerror", lambda error: faults.append(str(error)))
    found.on("dialog", lambda dialog: faults.append(dialog.message))
    enter(found, console)
    yield found
    context.close()
    assert faults == []


def is_fault(said: Any, expected: Sequence[int] = (401,)) -> bool:
    """Whether a browser wrote a fault. It writes each refusal: 401 is the login in the place of a form."""
    refused = any(f"status of {status}" in said.text for status in expected)
    return said.type in ("error", "warning") and not refused


def enter(found: Any, console: Site) -> None:
    """Log in and open the audit log."""
    found.goto(f"{console.started.url}/audit")
    found.fill("#name", "admin")
    found.fill("#password", console.password)
    found.click("main button")
    found.wait_for_url("**/audit")


def usual_paths() -> list[str]:
    """The pages of the menu, and one of each kind they link to."""
    more = [f"/topics/{ODD.topic}", f"/groups/{ODD.group}", f"/groups/{ODD.group}/skip", "/me", "/search?q=o"]
    return [*(link for _, link in MENU), *more, "/people/viewer/change"]


def some_paths(console: Site) -> list[str]:
    """A path of every page and every form that needs no special state."""
    names = {
        "topic": ODD.topic,
        "group": ODD.group,
        "address": console.call("GET", "/cluster/servers").text.split('"address":"')[1].split('"')[0],
        "name": "viewer",
        "broker": "broker-a",
        "queue": "0",
        "user": "viewer",
        "offset": "0",
    }
    services = {"name": "lag-alarm"}
    found = []
    for path in [one.path for one in PAGES] + [one.path for one in FORMS]:
        given = names | (services if path.startswith("/services") else {})
        try:
            found.append(path.format(**given))
        except KeyError:
            continue  # a member, an alarm, a token: the tests of those pages have them
    more = [
        f"/messages?topic={ODD.topic}&by=key&key=order-3",
        "/search?q=o",
        "/search?q=order-3",
        "/login",
        "/nowhere",
    ]
    return [*found, *more]


def test_pages_have_no_errors_and_fit_a_narrow_screen(page: Any, console: Site) -> None:
    more = [f"/topics/{ODD.topic}", f"/groups/{ODD.group}", f"/messages?topic={ODD.topic}&by=key&key=order-3"]
    forms = [f"/groups/{ODD.group}/{name}" for name in ("reset", "setting", "skip")]
    more += [
        f"/tail/{ODD.topic}", f"/topics/{ODD.topic}/send", f"/messages?topic={ODD.topic}&by=sql&sql=x",
        f"/life/{ODD.topic}?id=NONE", "/traces?id=NONE", "/dead-letters/fragile/resends",
    ]  # fmt: skip
    for width in (360, 1280):
        page.set_viewport_size({"width": width, "height": 740})
        for path in [*(link for _, link in MENU), *more, *forms, "/services/lag-alarm", "/me", "/search?q=o"]:
            page.goto(f"{console.started.url}{path}")
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= width, f"{path} is {wide} wide at {width}"


def test_times_are_in_the_readers_time_zone(page: Any) -> None:
    time = page.locator("td time").first
    assert time.inner_text().endswith("GMT+8")
    assert time.get_attribute("title").endswith("Z")


def test_forms_offer_times_in_the_readers_time_zone_and_keep_typed_ones(page: Any, console: Site) -> None:
    page.goto(f"{console.started.url}/groups/{ODD.group}/reset")
    offered = page.input_value("[name=time]")
    assert offered.endswith("+08:00")
    assert abs(datetime.fromisoformat(offered) - datetime.now(UTC)) < timedelta(minutes=5)
    page.fill("[name=time]", "2026-11-23T09:00:00+01:00")
    page.locator("button[value=look]").first.click()
    page.locator(".preview").wait_for()
    assert page.input_value("[name=time]") == "2026-11-23T09:00:00+01:00"


def test_menu_shows_where_the_reader_is_on_a_narrow_screen(page: Any, console: Site) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    for path in ("/", "/brokers", "/audit"):
        page.goto(f"{console.started.url}{path}")
        box = page.locator("nav [aria-current]").bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 360, path


def test_focus_goes_through_the_bar_as_it_is_read(page: Any, console: Site) -> None:
    places = page.evaluate(
        """() => [...document.querySelectorAll("header.bar :is(a, select, button)")].map((one) => {
            const box = one.getBoundingClientRect();
            return [box.left, box.top + box.height / 2];
        })"""
    )
    assert len(places) > 15
    for (left, middle), (next_left, next_middle) in pairwise(places):
        assert next_left > left or next_middle > middle + 10


def test_pages_can_be_used_with_the_keyboard_alone(page: Any, console: Site) -> None:
    page.goto(f"{console.started.url}/services")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("/")
    page.keyboard.type("lag-al")
    page.keyboard.press("Enter")
    page.wait_for_url("**services.q=lag-al*")
    assert page.locator("tbody tr").count() == 1


def test_open_page_is_updated_until_its_session_ends(
    page: Any, console: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparrowmq.console.answers.LIVE_SECONDS", 0.5)
    monkeypatch.setattr("sparrowmq.console.answers.LIVE_TURNS", 1000)
    page.goto(f"{console.started.url}/services/queue-alarm")
    assert console.admin.change("/services/queue-alarm/pause").status == 303
    page.locator("[data-part=service] .middling").wait_for()
    assert console.admin.change("/services/queue-alarm/resume").status == 303
    page.locator("[data-part=service] .good").wait_for()
    other = page.context.new_page()
    other.goto(console.started.url)
    other.click("form.who button")
    other.wait_for_url("**/login")
    page.bring_to_front()
    page.locator("body.ended .problem").wait_for()


def test_topic_is_created_and_deleted_and_preferences_are_kept(page: Any, console: Site) -> None:
    page.goto(f"{console.started.url}/topics")
    page.click("text=New topic")
    page.fill("[name=topic]", "Walked")
    page.click("button:has-text('Preview')")
    page.fill("[name=reason]", "a walk")
    page.click("button:has-text('Confirm')")
    page.locator(".done").wait_for()
    page.click("text=Walked")
    page.click("text=Delete topic")
    page.fill("[name=reason]", "a walk")
    page.fill("[name=typed]", "Walked")
    page.click("button:has-text('Confirm')")
    page.locator(".done").wait_for()
    assert page.locator("text=Walked").count() == 0
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.select_option("[name=theme]", "dark")
    page.select_option("[name=language]", "zh")
    page.click("form.preferences button")
    page.wait_for_url("**/topics*")
    assert page.locator("h1").inner_text() == "主题"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light


@pytest.mark.timeout(600)
def test_axe_finds_no_violation(browser: Any, console: Site) -> None:
    """The usual pages with all rules, in the long tier every page and form; some with the colour rules in
    the dark and in Chinese."""
    light = browser.new_context(color_scheme="light", locale="en-GB")
    light.set_default_timeout(WAIT_MS)
    page, faults = light.new_page(), list[str]()
    enter(page, console)
    for path in some_paths(console) if IS_LONG else usual_paths():
        page.goto(f"{console.started.url}{path}")
        faults += [f"{path}: {text}" for text in looked_at(page)]
    page.goto(console.started.url)
    page.keyboard.press("Control+k")
    page.fill("#palette input", "o")
    page.locator("#palette li").first.wait_for()
    faults += [f"palette: {text}" for text in looked_at(page)]
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    faults += [f"keys: {text}" for text in looked_at(page)]
    light.close()
    dark = browser.new_context(color_scheme="dark", locale="zh-CN")
    dark.set_default_timeout(WAIT_MS)
    page = dark.new_page()
    enter(page, console)
    for path in ("/", f"/groups/{ODD.group}/reset", "/services", "/audit"):
        page.goto(f"{console.started.url}{path}")
        faults += [f"dark {path}: {text}" for text in looked_at(page, COLOURS)]
    dark.close()
    assert sorted({one.partition(": ")[2] for one in faults}) == [], faults[:3]


def looked_at(page: Any, options: dict[str, Any] = AXE) -> list[str]:
    """Violations that axe finds on a page."""
    found = Axe().run(page, options=options).response["violations"]
    return [
        f"{one['id']} at {node['target']}: {node['html'][:200]}" for one in found for node in one["nodes"]
    ]


def test_every_page_is_reachable_with_two_keys(page: Any, console: Site) -> None:
    assert KEYS.keys() == {name for name, _ in MENU} and len(set(KEYS.values())) == len(KEYS)
    for name, link in MENU:
        page.keyboard.press("g")
        page.keyboard.press(KEYS[name])
        page.wait_for_url(f"{console.started.url}{link}")
    page.keyboard.press("?")
    assert page.locator("#keys").is_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.keyboard.type("gt")
    assert page.url == f"{console.started.url}/audit", "who types goes nowhere"


def test_palette_shows_results_while_typing(page: Any, console: Site) -> None:
    page.keyboard.press("Control+k")
    page.keyboard.type("billin")
    page.locator("#palette li a", has_text="billing").wait_for()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/groups/{ODD.group}")
    page.click("[data-palette]")
    assert page.evaluate("document.activeElement.name") == "q"
    page.fill("#palette input", ODD.markup)
    page.locator("#palette li").first.wait_for()
    page.click("#palette [data-close]")
    assert not page.locator("#palette").is_visible()


# Walks as they are written in docs/console.md: each answers one question in under five clicks.


class Walk:
    """A user whose clicks are counted; typed keys are not."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.clicks = 0

    def click(self, what: str, **more: Any) -> None:
        self.clicks += 1
        self.page.locator(what, **more).first.click()


def behind(cluster: LocalCluster, topic: str, group: str) -> None:
    """A group that has read three of five messages, the last of which has the key order-42."""
    with (
        mq.Admin(namesrv=cluster.namesrv) as admin,
        mq.Producer("walker", namesrv=cluster.namesrv) as producer,
    ):
        admin.topics.create(topic, queues=1)
        admin.groups.create(group)
        for number in range(38, 43):
            producer.send(
                mq.Message(topic, str(number).encode(), keys=[f"{topic}-{number}", f"order-{number}"])
            )
        (queue,) = admin.topics.status(topic)
        admin.groups.commit(group, queue.queue, 3)


def test_walk_find_the_group_that_lags_and_the_reason(page: Any, console: Site) -> None:
    page.goto(console.started.url)
    walk = Walk(page)
    walk.click(f"[data-part=lag] a:text-is('{ODD.group}')")
    page.wait_for_url(f"**/groups/{ODD.group}")
    assert ODD.topic in page.locator("[data-part=queues]").inner_text()
    assert SAID("empty.members") in page.locator("[data-part=members]").inner_text(), "why"
    assert walk.clicks < 5


def test_walk_find_order_42(page: Any, console: Site, cluster: LocalCluster) -> None:
    behind(cluster, "Shipments", "shipping")
    until_sync(lambda: "Shipments" in console.admin.page("/topics").text)  # a look is shared for seconds
    page.goto(console.started.url)
    walk = Walk(page)
    walk.click("[data-palette]")
    page.keyboard.type("order-42")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search?q=order-42")
    walk.click("[data-part=anywhere] tbody td:nth-child(2) a")
    page.locator("[data-part=message]").wait_for()
    assert "order-42" in page.locator("[data-part=message]").inner_text()
    assert "shipping" in page.locator("[data-part=consumed]").inner_text(), "who has read it"
    assert walk.clicks < 5


def test_walk_reset_a_group_to_nine_o_clock(page: Any, console: Site, cluster: LocalCluster) -> None:
    behind(cluster, "MorningBills", "bills")
    nine = (datetime.now(UTC) - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%S+00:00")
    page.goto(console.started.url)
    page.locator("[data-part=lag] a:text-is('bills')").wait_for()
    walk = Walk(page)
    walk.click("[data-part=lag] a:text-is('bills')")
    walk.click(f"text={SAID('do.reset')}")
    page.fill("[name=time]", nine)
    walk.click(f"button:text-is('{SAID('form.look')}')")
    said = SAID("form.reset", group="bills", place="MorningBills", again=3, never=0)
    assert said in page.locator(".preview").inner_text()
    page.fill("[name=reason]", "the bills of this morning were wrong")
    page.fill("[name=typed]", "bills")
    walk.click(f"button:text-is('{SAID('form.do')}')")
    page.locator(".done").wait_for()
    assert walk.clicks < 5

    with mq.Admin(namesrv=cluster.namesrv) as admin:
        until_sync(lambda: [one.consumer_offset for one in admin.groups.progress("bills")] == [0])


def test_message_is_sent_found_and_traced(page: Any, console: Site, cluster: LocalCluster) -> None:
    """From the topic's newest messages to one of them and its history; the form shows the fields of the
    selected mode."""
    with mq.Admin(namesrv=cluster.namesrv) as brokers:
        brokers.topics.create("Followed", queues=1)
    page.goto(f"{console.started.url}/tail/Followed")
    page.locator(".empty").wait_for()
    with mq.Producer("followed", namesrv=cluster.namesrv) as producer:
        producer.send(mq.Message("Followed", b"it comes by itself", tags=TAG, keys=["one"]))
    page.locator("td:has-text('it comes by itself')").wait_for()
    page.click("text=Send a test message")
    page.fill("[name=body]", ODD.markup)
    page.fill("[name=properties]", "amount=5")
    page.click("button[value=look]")
    page.fill("[name=reason]", "a walk")
    page.click("button[value=do]")
    page.locator(".done").wait_for()
    page.click("text=Find messages")
    page.select_option("[name=by]", "sql")
    assert page.locator("[name=sql]").is_visible() and not page.locator("[name=key]").is_visible()
    page.fill("[name=sql]", "amount >")
    page.keyboard.press("Enter")
    page.locator(".problem").wait_for()
    assert page.input_value("[name=sql]") == "amount >"
    page.fill("[name=sql]", "amount = 5")
    page.keyboard.press("Enter")
    page.locator("tbody tr").wait_for()
    assert page.locator("tbody tr").count() == 1
    with page.expect_download() as begun:
        page.click("text=JSON Lines")
    assert begun.value.suggested_filename == "Followed.jsonl"
    page.click("tbody a")
    page.click('a[href^="/life/"]')
    page.locator("[data-part=stages] tbody tr").nth(1).wait_for()


def test_form_comes_back_after_a_login(page: Any, console: Site) -> None:
    """The session ends while the reader writes a message of several lines."""
    body = "{\n\t'order': 42,\n}"
    page.goto(f"{console.started.url}/topics/{ODD.topic}/send")
    page.fill("[name=body]", body)
    page.fill("[name=keys]", "mid-form")
    page.context.clear_cookies()
    page.click("button[value=look]")
    page.locator("[role=alert]").wait_for()
    assert page.url.endswith(f"/topics/{ODD.topic}/send")
    page.fill("#name", "admin")
    page.fill("#password", console.password)
    page.click("main button")
    page.locator(".preview").wait_for()
    assert (page.input_value("[name=body]"), page.input_value("[name=keys]")) == (body, "mid-form")
    page.fill("[name=reason]", "a walk")
    page.click("button[value=do]")
    page.locator(".done").wait_for()


def test_stream_ends_when_the_page_is_closed(page: Any, console: Site) -> None:
    streams: list[str] = []
    page.on(
        "requestfinished", lambda request: streams.append(request.url) if "_live" in request.url else None
    )
    page.on("requestfailed", lambda request: streams.append(request.url) if "_live" in request.url else None)
    page.goto(f"{console.started.url}/tail/{ODD.topic}")
    page.locator("[data-part=newest] tbody tr").first.wait_for()
    page.evaluate(
        """() => {
            Object.defineProperty(document, "visibilityState", {value: "hidden"});
            document.dispatchEvent(new Event("visibilitychange"));
        }"""
    )
    until_sync(lambda: page.wait_for_timeout(50) or streams)
