"""The console before Apache's servers, in a real browser: every page, and actions on topics and offsets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from playwright import sync_api
from tests.console.browser.test_browser import CHROMIUM, MISSING, SAID, WAIT_MS
from tests.console.site import Site, site
from tests.interop.apache import ApacheCluster
from tests.interop.driver import JavaDriver
from tests.support import sqlite_url, until_sync

import sparrowmq as mq

TOPIC, GROUP = "ConsoleOrders", "console-billing"


@pytest.fixture(scope="module")
def seen(apache: ApacheCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A console before Apache's broker, with a topic of four messages of which a group has read one."""
    path = tmp_path_factory.mktemp("console") / "coordinator.db"
    with (
        mq.Admin(namesrv=apache.namesrv) as admin,
        mq.Producer("console-shop", namesrv=apache.namesrv) as producer,
        site(database_url=sqlite_url(path), namesrv_addr=apache.namesrv) as found,
    ):
        admin.topics.create(TOPIC, queues=1)
        admin.groups.create(GROUP)
        for number in range(4):
            producer.send(mq.Message(TOPIC, f"order {number}".encode(), tags="paid", keys=[f"co-{number}"]))
        (queue,) = until_sync(lambda: admin.topics.status(TOPIC))
        admin.groups.commit(GROUP, queue.queue, 1)
        assert found.admin.login("admin", found.password).status == 303
        assert found.call("POST", "/services/broker-check/run", b"{}").status == 200
        until_sync(lambda: GROUP in found.admin.page("/groups").text, 120)
        until_sync(lambda: TOPIC in found.admin.page("/topics").text, 120)
        yield found


@pytest.fixture
def page(seen: Site) -> Iterator[Any]:
    """A page of the admin; no script failed on it."""
    assert CHROMIUM is not None, MISSING
    faults = list[str]()
    with sync_api.sync_playwright() as player:
        browser = player.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        found = browser.new_context(locale="en-GB").new_page()
        found.set_default_timeout(WAIT_MS)
        found.on("pageerror", lambda error: faults.append(str(error)))
        found.goto(f"{seen.started.url}/login")
        found.fill("#name", "admin")
        found.fill("#password", seen.password)
        found.click("main button")
        found.locator("form.who").wait_for()
        yield found
        browser.close()
    assert faults == []


def grey(page: Any, url: str) -> list[str]:
    """What a page could not show, once its first look at the cluster is over."""

    def parts() -> list[list[str]] | None:
        answer = page.goto(url)
        assert answer is not None and answer.status == 200, (url, answer and answer.status)
        found = [one.inner_text() for one in page.locator(".parts p.grey:has(.unknown)").all()]
        return None if any("try again" in one for one in found) else [found]

    (found,) = until_sync(parts)
    return found


def test_every_page_is_shown_before_apache_s_servers(page: Any, seen: Site, apache: ApacheCluster) -> None:
    brokers = seen.admin.page("/brokers").text
    broker = brokers.partition('href="/brokers/')[2].partition('"')[0]
    names = f"/name-servers/{quote(apache.namesrv, safe='')}"
    for path in (
        "/", "/topics", f"/topics/{TOPIC}", "/groups", f"/groups/{GROUP}", f"/tail/{TOPIC}",
        f"/messages?topic={TOPIC}&by=key&key=co-2", f"/messages?topic={TOPIC}&by=tags&tags=paid",
        f"/messages/{TOPIC}/broker-a/0/2", f"/life/{TOPIC}?id=NONE", "/dead-letters", "/waiting",
        "/traces?id=NONE", "/pipelines", "/brokers", f"/brokers/{broker}", f"/brokers/{broker}/clients",
        names, "/services", "/alarms", "/people", "/access", "/audit", "/search?q=co-2",
    ):  # fmt: skip
        assert grey(page, f"{seen.started.url}{path}") == [], path
    page.goto(f"{seen.started.url}/brokers/{broker}/clients")
    assert "console-shop" in page.locator("[data-part=clients]").inner_text()
    page.goto(f"{seen.started.url}/groups/{GROUP}")
    assert TOPIC in page.locator("[data-part=queues]").inner_text()


def told(driver: JavaDriver, apache: ApacheCluster, *arguments: str) -> list[list[str]]:
    """What Apache's mqadmin prints: its lines in words."""
    printed = driver.call("Lookups.mqadmin", arguments=[*arguments, "-n", apache.namesrv])
    return [line.split() for line in printed.splitlines()]


def test_the_numbers_are_those_of_mqadmin(driver: JavaDriver, seen: Site, apache: ApacheCluster) -> None:
    """At rest, console and mqadmin have the same numbers of queues, offsets, lag and brokers."""

    def asked(path: str) -> Any:
        answer = seen.call("GET", path)
        assert answer.status == 200, answer.text
        return json.loads(answer.text)

    queues = asked(f"/cluster/topics/{TOPIC}")["queues"]
    rows = told(driver, apache, "topicStatus", "-t", TOPIC)
    listed = [[one["broker"], *(str(one[name]) for name in ("queue", "first", "next"))] for one in queues]
    assert [row[:4] for row in rows if row and row[0] == "broker-a"] == listed

    progress = [one for one in asked(f"/cluster/groups/{GROUP}")["queues"] if one["topic"] == TOPIC]
    alone = told(driver, apache, "consumerProgress", "-g", GROUP)
    assert not any(row[:1] == [TOPIC] for row in alone), "of a group that never had a member it shows nothing"
    rows = told(driver, apache, "consumerProgress", "-g", GROUP, "-t", TOPIC)
    names = ("topic", "broker", "queue", "next", "offset", "lag")
    mine = [[str(one[name]) for name in names] for one in progress]
    assert [row[:6] for row in rows if row and row[0] == TOPIC] == mine
    total = next(int(row[-1]) for row in rows if row[:3] == ["Consume", "Diff", "Total:"])
    lagging = next(one for one in asked("/cluster/lag")["groups"] if one["group"] == GROUP)
    assert total == lagging["messages"] and lagging["oldest_ms"] > 0, "which mqadmin does not tell"

    (broker,) = asked("/cluster/servers")["brokers"]
    (row,) = [
        row for row in told(driver, apache, "clusterList") if len(row) > 3 and row[3] == broker["address"]
    ]
    assert row[:3] == [broker["cluster"], broker["broker"], str(broker["broker_id"])]
    assert row[4] == broker["version"]
    copies = asked(f"/cluster/servers/{broker['broker']}/replication")
    assert copies["known"] and copies["is_master"] and copies["slaves"] == []


def confirm(page: Any, typed: str = "") -> None:
    """Look at what will happen if the form asks for that, and do it."""
    if not page.locator("button[value=do]").count():
        page.locator("button[value=look]").first.click()
    page.fill("[name=reason]", "a walk")
    if typed:
        page.fill("[name=typed]", typed)
    page.locator("button[value=do]").click()
    page.locator(".done").wait_for()


def test_topics_messages_and_offsets_are_changed_at_apache_s_broker(
    page: Any, seen: Site, apache: ApacheCluster
) -> None:
    url = seen.started.url
    with mq.Admin(namesrv=apache.namesrv) as admin:
        page.goto(f"{url}/new/topic")
        page.fill("[name=topic]", "ConsoleWalked")
        page.fill("[name=queues]", "2")
        confirm(page)
        until_sync(lambda: len(admin.topics.status("ConsoleWalked")) == 2)
        page.goto(f"{url}/topics/ConsoleWalked/send")
        page.fill("[name=body]", "by hand")
        confirm(page)
        page.locator("[data-part=newest] td", has_text="by hand").first.wait_for()
        page.goto(f"{url}/topics/ConsoleWalked/delete")
        confirm(page, "ConsoleWalked")
        until_sync(lambda: "ConsoleWalked" not in admin.topics.list())

        page.goto(f"{url}/groups/{GROUP}/reset")
        page.select_option("[name=topic]", TOPIC)
        page.select_option("[name=to]", "first")
        page.locator("button[value=look]").first.click()
        assert (
            SAID("form.reset", group=GROUP, place=TOPIC, again=1, never=0)
            in page.locator(".preview").inner_text()
        )
        confirm(page, GROUP)
        until_sync(lambda: [one.consumer_offset for one in admin.groups.progress(GROUP, TOPIC)] == [0])
