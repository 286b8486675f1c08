"""Makes the screenshots of docs/console.md: `python -m tests.console.screenshots [DIRECTORY]`.

It needs the system's Chromium."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright
from tests.console.browser.test_browser import CHROMIUM
from tests.console.replicated import GROUP_PAGE, elect, replicated, three_brokers
from tests.console.site import Site, site
from tests.support import until_sync

import sparrowmq as mq
from sparrowmq.coordinator.database.connect import sqlite_url
from sparrowmq.testing import LocalCluster

ROOT = Path(__file__).parent.parent.parent
COLOURS = 40
SHOTS: tuple[tuple[str, str, str, str, int, int], ...] = (
    ("overview-light-en", "/", "light", "en", 1280, 900),
    ("overview-dark-zh", "/", "dark", "zh", 1280, 900),
    ("overview-narrow", "/", "light", "en", 360, 740),
    ("group-light-en", "/groups/billing", "light", "en", 1280, 1000),
    ("group-light-zh", "/groups/shipping", "light", "zh", 1280, 1000),
    ("topic-light-en", "/topics/Orders", "light", "en", 1280, 1100),
    ("reset-light-en", "/groups/billing/reset", "light", "en", 1280, 1000),
    ("search-dark-en", "/search?q=order-42", "dark", "en", 1280, 560),
    ("messages-light-en", "/messages?topic=Orders&by=key&key=order-42", "light", "en", 1280, 620),
    ("brokers-dark-zh", "/brokers", "dark", "zh", 1280, 760),
    ("people-light-en", "/people", "light", "en", 1280, 460),
    ("pipelines-dark-en", "/pipelines/orders-to-dc2", "dark", "en", 1280, 620),
)
"""Name, path, colours, language, width and height of each."""
REPLICAS: tuple[tuple[str, str, str, str, int, int], ...] = (
    ("replicas-light-en", GROUP_PAGE, "light", "en", 1280, 900),
)
"""The same, of a console in front of brokers with a second copy."""


def furnish(found: Site, cluster: LocalCluster) -> mq.PushConsumer:
    """A shop: orders and payments, one group that lags and one that keeps up."""
    assert found.admin.login("admin", found.password).status == 303
    with mq.Admin(namesrv=cluster.namesrv) as admin, mq.Producer("shop", namesrv=cluster.namesrv) as shop:
        for topic in ("Orders", "Payments", "Shipments"):
            admin.create_topic(topic, queues=4)
        for number in range(240):
            body = json.dumps({"order": number, "amount": 10 + number % 90, "currency": "CNY"}).encode()
            shop.send(mq.Message("Orders", body, tags="paid", keys=[f"order-{number}"]))
        admin.create_group("billing")
        for queue in admin.topic_status("Orders"):
            admin.commit("billing", queue.queue, 12)
    for name, role in (("li.wei", "operator"), ("anna", "viewer")):
        body = json.dumps({"name": name, "role": role, "reason": "new in the team"}).encode()
        assert found.call("POST", "/people", body).status == 201
    topics = [{"topic": "Orders", "messages": 312, "seconds": 4.5}]
    topics += [{"topic": "Payments", "messages": 20, "seconds": 1.0}]
    report = {"kind": "mirror", "run": "1", "batches": 84, "rows": 1_204_331, "bytes": 98_304_000, "lag": 332}
    report |= {"batch_seconds": 1.25, "topics": topics}
    answer = found.call("PUT", "/pipelines/orders-to-dc2", json.dumps(report).encode())
    assert answer.status == 200
    shipping = mq.PushConsumer("shipping", namesrv=cluster.namesrv, consume_from="first")
    shipping.start()
    shipping.subscribe("Orders", handler=lambda message: None)
    until_sync(lambda: "shipping" in found.admin.page("/groups").text)
    return shipping


def shoot(found: Site, directory: Path, shots: Sequence[tuple[str, str, str, str, int, int]] = SHOTS) -> None:
    """Take pictures."""
    with sync_playwright() as player:
        browser = player.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for name, path, theme, language, width, height in shots:
            locale = "zh-CN" if language == "zh" else "en-GB"
            context = browser.new_context(
                color_scheme=theme, locale=locale, timezone_id="Asia/Shanghai",  # type: ignore[arg-type]
                viewport={"width": width, "height": height},
            )  # fmt: skip
            page = context.new_page()
            page.goto(f"{found.started.url}/login")
            page.fill("#name", "admin")
            page.fill("#password", found.password)
            page.click("main button")
            page.goto(f"{found.started.url}{path}")
            fill(page, path)
            raw = directory / f"{name}.raw.png"
            page.screenshot(path=raw)
            target = directory / f"console-{name}.png"
            with Image.open(raw) as picture:
                picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(target, optimize=True)
            raw.unlink()
            context.close()
        browser.close()


def shoot_replicas(directory: Path) -> None:
    """Take those of brokers with a second copy."""
    with tempfile.TemporaryDirectory() as made:
        brokers = three_brokers()
        with replicated(Path(made) / "coordinator.db", brokers) as found:
            elect(found, brokers)
            shoot(found, directory, REPLICAS)


def fill(page: Any, path: str) -> None:
    """Fill in the data that a picture shows."""
    if path.endswith("/reset"):
        page.select_option("[name=to]", "first")
        page.locator("button[value=look]").first.click()
        page.locator(".preview").wait_for()


def main(arguments: list[str]) -> int:
    """Make the pictures; returns the exit status."""
    directory = Path(arguments[0]) if arguments else ROOT / "docs" / "images"
    if CHROMIUM is None:
        print("Chromium is needed; install it with the system's package manager")
        return 1
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made, LocalCluster() as cluster:
        url = sqlite_url(Path(made) / "coordinator.db")
        with site(database_url=url, namesrv_addr=cluster.namesrv) as found:
            shipping = furnish(found, cluster)
            try:
                shoot(found, directory)
            finally:
                shipping.close()
    shoot_replicas(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
