"""Makes the screenshots of docs/console.md: `python -m tests.console.screenshots [DIRECTORY]`.

It needs the system's Chromium, and a font for Chinese."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias
from urllib.parse import quote

from PIL import Image
from playwright.sync_api import sync_playwright
from tests.console.access.guarded import USER_PAGE, add_users, with_access_control
from tests.console.browser.test_browser import CHROMIUM
from tests.console.replicated import GROUP_PAGE, elect, replicated, three_brokers
from tests.console.site import Site, site
from tests.support import sqlite_url, until_sync

import sparrowmq as mq
from sparrowmq.testing import LocalCluster

Theme: TypeAlias = Literal["light", "dark"]
ROOT = Path(__file__).parent.parent.parent
COLOURS = 40
THUMBNAIL = 0.6
"""Scale of the pictures in pairs."""


class Shot(NamedTuple):
    """A picture of a page. The path may name `{broker}`, `{namesrv}`, `{client}`, `{id}` and `{alarm}`."""

    name: str
    path: str
    theme: Theme
    language: str
    width: int
    height: int
    scale: float = 1.0


def pair(name: str, path: str, height: int) -> tuple[Shot, Shot]:
    """A page in light English and in dark Chinese, small."""
    return (
        Shot(f"{name}-light-en", path, "light", "en", 1280, height, THUMBNAIL),
        Shot(f"{name}-dark-zh", path, "dark", "zh", 1280, height, THUMBNAIL),
    )


SHOTS: tuple[Shot, ...] = (
    Shot("overview-light-en", "/", "light", "en", 1280, 900),
    Shot("overview-dark-zh", "/", "dark", "zh", 1280, 900),
    Shot("overview-narrow", "/", "light", "en", 360, 740),
    Shot("group-light-en", "/groups/billing", "light", "en", 1280, 1000),
    Shot("group-light-zh", "/groups/shipping", "light", "zh", 1280, 1000),
    Shot("topic-light-en", "/topics/Orders", "light", "en", 1280, 1100),
    Shot("reset-light-en", "/groups/billing/reset", "light", "en", 1280, 1000),
    Shot("search-dark-en", "/search?q=order-42", "dark", "en", 1280, 560),
    Shot("messages-light-en", "/messages?topic=Orders&by=key&key=order-42", "light", "en", 1280, 620),
    Shot("brokers-dark-zh", "/brokers", "dark", "zh", 1280, 760),
    Shot("people-light-en", "/people", "light", "en", 1280, 460),
    Shot("pipelines-dark-en", "/pipelines/orders-to-dc2", "dark", "en", 1280, 620),
    *pair("topics", "/topics", 560),
    *pair("hold", "/topics/Orders/hold", 900),
    *pair("groups", "/groups", 560),
    *pair("plan", "/groups/shipping/plan?join=1", 900),
    *pair("member", "/groups/shipping/members/{client}", 900),
    *pair("tail", "/tail/Orders", 760),
    *pair("message", "/messages/Orders/broker-a/0/0", 900),
    *pair("life", "/life/Orders?id={id}", 620),
    *pair("traces", "/traces?id={id}", 560),
    *pair("dead", "/dead-letters", 460),
    *pair("letters", "/dead-letters/invoicing", 760),
    *pair("resends", "/dead-letters/invoicing/resends", 560),
    *pair("waiting", "/waiting", 760),
    *pair("broker", "/brokers/{broker}", 1100),
    *pair("clients", "/brokers/{broker}/clients", 560),
    *pair("name-server", "/name-servers/{namesrv}", 900),
    *pair("replicas-all", "/replicas", 560),
    *pair("services", "/services", 900),
    *pair("service", "/services/lag-alarm", 1000),
    *pair("figures", "/figures", 560),
    *pair("alarms", "/alarms", 460),
    *pair("alarm", "/alarms/{alarm}", 660),
    *pair("me", "/me", 620),
    *pair("person", "/people/anna", 760),
    *pair("pipelines-all", "/pipelines", 460),
    *pair("audit", "/audit", 760),
)
REPLICAS: tuple[Shot, ...] = (Shot("replicas-light-en", GROUP_PAGE, "light", "en", 1280, 900),)
"""Those of a console in front of brokers with a second copy."""
GUARDED: tuple[Shot, ...] = (*pair("access", "/access", 620), *pair("access-user", USER_PAGE, 620))
"""Those of a console in front of a broker with access control."""


@contextmanager
def furnish(found: Site, cluster: LocalCluster) -> Iterator[dict[str, str]]:
    """A shop: one group that lags, one that keeps up, one with dead letters. Gives what paths name."""
    assert found.admin.login("admin", found.password).status == 303
    settings = mq.ConsumerSettings(namesrv=cluster.namesrv, consume_from="first", max_reconsume_times=0)
    with (
        mq.Admin(namesrv=cluster.namesrv) as admin,
        mq.Producer("shop", namesrv=cluster.namesrv) as shop,
        mq.PushConsumer("shipping", settings=settings) as shipping,
        mq.PushConsumer("invoicing", settings=settings) as invoicing,
    ):
        for topic in ("Orders", "Payments", "Shipments"):
            admin.topics.create(topic, queues=4)
        for number in range(240):
            body = json.dumps({"order": number, "amount": 10 + number % 90, "currency": "CNY"}).encode()
            shop.send(mq.Message("Orders", body, tags="paid", keys=[f"order-{number}"]))
        for number in range(3):
            shop.send(mq.Message("Payments", b"{}", keys=[f"order-{number}"]))
            shop.send(mq.Message("Shipments", b"{}", keys=[f"order-{number}"], delay=3600))
        admin.groups.create("billing")
        for queue in admin.topics.status("Orders"):
            admin.groups.commit("billing", queue.queue, 12)
        shipping.subscribe("Orders", handler=lambda message: None)
        invoicing.subscribe("Payments", handler=lambda message: mq.Retry("the customer has no address"))
        report_and_limit(found)
        until_sync(lambda: "shipping" in found.admin.page("/groups").text)
        until_sync(lambda: "invoicing 3" in found.admin.page("/dead-letters").part("dead"))
        (order,) = json.loads(found.call("GET", "/cluster/messages/Orders/by-key?key=order-42").text)
        member = json.loads(found.call("GET", "/cluster/groups/shipping").text)["members"][0]
        alarm = until_sync(lambda: json.loads(found.call("GET", "/alarms").text))[0]
        known = {"broker": cluster.broker_address, "namesrv": cluster.namesrv, "client": member["client_id"]}
        known |= {"id": order["message_id"], "alarm": str(alarm["id"])}
        yield {name: quote(text, safe="") for name, text in known.items()}


def report_and_limit(found: Site) -> None:
    """Users, a pipeline that reports, and a limit that a group exceeds."""
    for name, role in (("li.wei", "operator"), ("anna", "viewer")):
        body = json.dumps({"name": name, "role": role, "reason": "new in the team"}).encode()
        assert found.call("POST", "/people", body).status == 201
    topics = [{"topic": "Orders", "messages": 312, "seconds": 4.5}]
    topics += [{"topic": "Payments", "messages": 20, "seconds": 1.0}]
    report = {"kind": "mirror", "run": "1", "batches": 84, "rows": 1_204_331, "bytes": 98_304_000, "lag": 332}
    report |= {"batch_seconds": 1.25, "topics": topics}
    answer = found.call("PUT", "/pipelines/orders-to-dc2", json.dumps(report).encode())
    assert answer.status == 200
    limit = {"topic": "*", "messages": 100, "age_ms": 0, "reason": "invoices are due daily"}
    assert found.call("PUT", "/limits/billing", json.dumps(limit).encode()).status == 200
    for service in ("capacity", "broker-check", "lag-alarm"):
        assert found.call("POST", f"/services/{service}/run", b'{"reason": "look now"}').status == 200


def shoot(found: Site, directory: Path, known: Mapping[str, str], shots: Sequence[Shot] = SHOTS) -> None:
    """Take pictures."""
    with sync_playwright() as player:
        browser = player.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        looks = groupby(sorted(shots, key=_look), _look)
        for (theme, language, scale), some in looks:
            context = browser.new_context(
                color_scheme=theme, locale="zh-CN" if language == "zh" else "en-GB",
                timezone_id="Asia/Shanghai", device_scale_factor=scale,
            )  # fmt: skip
            page = context.new_page()
            page.goto(f"{found.started.url}/login")
            page.fill("#name", "admin")
            page.fill("#password", found.password)
            page.click("main button")
            for shot in some:
                page.set_viewport_size({"width": shot.width, "height": shot.height})
                page.goto(f"{found.started.url}{shot.path.format(**known)}")
                fill(page, shot.path)
                save(page, directory, shot.name)
            context.close()
        browser.close()


def _look(shot: Shot) -> tuple[Theme, str, float]:
    return shot.theme, shot.language, shot.scale


def save(page: Any, directory: Path, name: str) -> None:
    """A picture of few colours."""
    raw = directory / f"{name}.raw.png"
    page.screenshot(path=raw)
    with Image.open(raw) as picture:
        few = picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
        few.save(directory / f"console-{name}.png", optimize=True)
    raw.unlink()


def shoot_replicas(directory: Path) -> None:
    """Take those of brokers with a second copy."""
    with tempfile.TemporaryDirectory() as made:
        brokers = three_brokers()
        with replicated(Path(made) / "coordinator.db", brokers) as found:
            elect(found, brokers)
            shoot(found, directory, {}, REPLICAS)


def shoot_guarded(directory: Path) -> None:
    """Take those of a broker with access control."""
    with tempfile.TemporaryDirectory() as made, with_access_control(Path(made) / "coordinator.db") as found:
        add_users(found)
        shoot(found, directory, {}, GUARDED)


def fill(page: Any, path: str) -> None:
    """Fill in the data that a picture shows."""
    if path.endswith("/hold"):
        page.fill("[name=group]", "billing")
    if path.endswith("/reset"):
        page.select_option("[name=to]", "first")
    if path.endswith(("/reset", "/hold")):
        page.locator("button[value=look]").first.click()
        page.locator(".preview").wait_for()


def main(arguments: list[str]) -> int:
    """Make the pictures; returns the exit status."""
    directory = Path(arguments[0]) if arguments else ROOT / "docs" / "images"
    if CHROMIUM is None:
        print("Chromium is needed; install it with the system's package manager")
        return 1
    if not subprocess.run(["fc-list", ":lang=zh"], capture_output=True, check=True, timeout=60).stdout:
        print("a font for Chinese is needed; install it, for example: apt-get install fonts-wqy-microhei")
        return 1
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made, LocalCluster() as cluster:
        url = sqlite_url(Path(made) / "coordinator.db")
        with (
            site(database_url=url, namesrv_addr=cluster.namesrv) as found,
            furnish(found, cluster) as known,
        ):
            shoot(found, directory, known)
    shoot_replicas(directory)
    shoot_guarded(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
