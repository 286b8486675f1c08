"""The console at size: how long each page takes, how much it weighs, and what open pages cost.

    python -m benchmarks.console [--topics 1000] [--groups 100] [--members 10] [--days 365] [--seconds 60]

It starts a broker and a coordinator as users do, makes topics of 8 queues and groups with members, fills the
audit log and the history, and asks for every page as a browser does. Members are consumers in this process.
With the system's Chromium, it also measures when a browser first shows something of each page.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import os
import random
import re
import shutil
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from playwright.sync_api import sync_playwright
from tests.interop.apache import free_port
from tests.support import sqlite_url

from benchmarks.peers import OurPeer
from benchmarks.process import cpu_seconds, memory
from sparrowmq import ConsumerSettings, Message, aio
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.history import store
from sparrowmq.coordinator.history.grains import GRAINS

QUEUES: Final = 8
READ_BY_A_GROUP: Final = 10
ENTRIES_A_DAY: Final = 200
DAY_MS: Final = 86_400_000
AT_ONCE: Final = 20
PAGES_OPEN: Final = 50
PAGES_OF_ONE: Final = 10
"""A user may have 16 that follow their changes."""
LOOKS_SECONDS: Final = 30
"""Time for the services to look at everything."""
CHROMIUM: Final = shutil.which("chromium") or shutil.which("chromium-browser")
PAINT_TURNS: Final = 5
PAINTED: Final = """() => new Promise((painted, refused) => {
    setTimeout(() => refused(new Error("nothing was painted within 30 seconds")), 30000);
    new PerformanceObserver((list) => {
        for (const one of list.getEntriesByName("first-contentful-paint")) painted(one.startTime);
    }).observe({type: "paint", buffered: true});
})"""
"""The time of the first text or picture. The browser evaluates it at once: the pages' content security policy
lets nothing be evaluated later."""
FORM: Final = "application/x-www-form-urlencoded"


@dataclass
class Coordinator:
    """`sparrow coordinator` as a process of its own, and a session of its console."""

    pid: int
    address: str
    password: str
    cookie: str = ""

    def login(self) -> None:
        """Log in as the first user."""
        self.cookie = self._session("admin", self.password)

    def user(self, name: str) -> str:
        """Create a viewer; gives the cookie of a session."""
        connection = HTTPConnection(self.address, timeout=60)
        token = self.cookie.partition("=")[2]
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        body = json.dumps({"name": name, "role": "viewer", "reason": "a measurement"})
        connection.request("POST", "/api/v1/people", body, headers)
        made = json.loads(connection.getresponse().read())
        connection.close()
        return self._session(name, made["password"])

    def _session(self, name: str, password: str) -> str:
        connection = HTTPConnection(self.address, timeout=60)
        fields = urlencode({"name": name, "password": password})
        headers = {"Origin": f"http://{self.address}", "Content-Type": FORM}
        connection.request("POST", "/login", fields, headers)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return str(answer.headers["set-cookie"]).partition(";")[0]

    def page(self, path: str, connection: HTTPConnection) -> tuple[int, bytes]:
        """A page's status and text."""
        connection.request("GET", path, headers={"Cookie": self.cookie, "Accept-Language": "en"})
        answer = connection.getresponse()
        return answer.status, answer.read()

    def api(self, path: str) -> Any:
        """What the API answers, over a new connection. Raises `RuntimeError` for a refusal."""
        connection = HTTPConnection(self.address, timeout=60)
        headers = {"Authorization": f"Bearer {self.cookie.partition('=')[2]}"}
        try:
            connection.request("GET", f"/api/v1{path}", headers=headers)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status} {text[:300]!r}")
        return json.loads(text)


@contextmanager
def coordinator(namesrv: str, database: Path, password: str = "") -> Iterator[Coordinator]:
    """A running coordinator with its console. The first one on a database says its password."""
    port = free_port()
    command = [sys.executable, "-m", "sparrowmq.cli.main", "coordinator", "--namesrv", namesrv]
    command += [
        "--port",
        str(port),
        "--database",
        sqlite_url(database),
        "--set",
        f"membersPort={free_port()}",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ))
    assert process.stdout is not None
    try:
        for line in process.stdout:
            found = re.search(r"password (\S+)", line)
            password = found[1] if found else password
            if "Ctrl-C stops" in line:
                break
        made = Coordinator(process.pid, f"127.0.0.1:{port}", password)
        made.login()
        yield made
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()


async def make(namesrv: str, topics: int, groups: int) -> None:
    """Topics with a few messages each, and groups that have read some of them."""
    async with aio.Admin(namesrv=namesrv) as admin, aio.Producer("bench", namesrv=namesrv) as producer:
        slots = asyncio.Semaphore(AT_ONCE)

        async def topic(number: int) -> None:
            async with slots:
                await admin.topics.create(f"Topic{number:04}", QUEUES)
                for key in range(QUEUES):
                    await producer.send(Message(f"Topic{number:04}", b"x" * 100, keys=[f"k{number}-{key}"]))

        await asyncio.gather(*(topic(number) for number in range(topics)))
        broker = (await admin.topics.status("Topic0000"))[0].queue.broker_name
        for number in range(groups):
            group = f"group{number:03}"
            await admin.groups.create(group)
            for turn in range(READ_BY_A_GROUP):
                name = f"Topic{(number * READ_BY_A_GROUP + turn) % topics:04}"
                for queue in range(QUEUES):
                    place = aio.MessageQueue(name, broker, queue)
                    await admin.groups.commit(group, place, random.randint(0, 1))


@contextmanager
def members(namesrv: str, groups: int, each: int) -> Iterator[None]:
    """Members that are online, in a thread with a loop of its own; they read a topic with nothing new."""
    ready, stop = threading.Event(), threading.Event()

    async def run() -> None:
        async with AsyncExitStack() as stack:
            slots = asyncio.Semaphore(AT_ONCE)

            async def start(number: int) -> None:
                settings = ConsumerSettings(namesrv=namesrv, instance_name=f"bench{number % each}")
                consumer = aio.PushConsumer(f"group{number // each:03}", settings=settings)
                consumer.subscribe("TopicIdle", handler=lambda message: None)
                async with slots:
                    await stack.enter_async_context(consumer)

            async with aio.Admin(namesrv=namesrv) as admin:
                await admin.topics.create("TopicIdle", QUEUES)
            await asyncio.gather(*(start(number) for number in range(groups * each)))
            ready.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    ready.wait(300)
    try:
        yield
    finally:
        stop.set()
        thread.join(120)


def fill_audit(path: Path, days: int) -> int:
    """A year of entries, as people and services make them; gives how many."""
    now = time.time_ns() // 1_000_000
    actions = ("group.reset", "setting.set", "topic.create", "service.pause", "grant", "limit")
    rows = [
        (now - number * DAY_MS // ENTRIES_A_DAY, f"person{number % 40}", actions[number % 6], "group",
         f"group{number % 100:03}", json.dumps({"value": number}), "{}", "because")
        for number in range(days * ENTRIES_A_DAY, 0, -1)
    ]  # fmt: skip
    with sqlite3.connect(path, timeout=60) as connection:
        connection.executemany(
            'INSERT INTO audit (at, actor, action, kind, object, "before", "after", reason) '
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            rows,
        )
    connection.close()
    return len(rows)


def fill_history(path: Path) -> tuple[int, int, int]:
    """Every step of every line that the service began, with numbers that do not pack well; gives lines, rows
    and bytes.
    """
    database = Database(sqlite_url(path))
    try:
        with database.read() as connection:
            known, now = store.series(connection), database.now(connection)
        for grain in GRAINS:
            last = grain.slot(now)
            for begin in range(last - grain.keep_ms // grain.step_ms, last, grain.points):
                slots = range(begin, min(last, begin + grain.points))
                points = {
                    number: {slot: random.random() * 1000 for slot in slots} for number in known.values()
                }
                with database.write() as connection:
                    store.put(connection, grain, points)
        with database.read() as connection:
            return store.size(connection)
    finally:
        database.close()


def paths(broker: str) -> list[str]:
    """The pages, those that show one thing with one that is there."""
    found = ["/", "/?range=24h", "/?range=30d", "/topics", "/topics?topics.page=20", "/topics/Topic0003"]
    found += ["/topics/Topic0003?range=30d", "/groups", "/groups/group003", "/groups/group003?range=30d"]
    found += ["/messages", "/messages?topic=Topic0003&by=key&key=k3-1", "/dead-letters", "/brokers"]
    found += [f"/brokers/{quote(broker, safe='')}", "/services", "/services/history?range=24h"]
    return [*found, "/alarms", "/audit", "/audit?audit.is.actor=person7"]


def measure(site: Coordinator, path: str, turns: int) -> tuple[list[float], int, int]:
    """How long each of some requests took, in ms, and the page's bytes, plain and compressed."""
    connection, took, text = HTTPConnection(site.address, timeout=60), list[float](), b""
    for _ in range(turns):
        begun = time.perf_counter()
        status, text = site.page(path, connection)
        took.append((time.perf_counter() - begun) * 1000)
        if status != 200:
            raise SystemExit(f"{path}: {status}")
    connection.close()
    return took, len(text), len(gzip.compress(text))


def paint(site: Coordinator, some: list[str]) -> Iterator[tuple[str, list[float]]]:
    """For each page, the times in ms from a click to the first text or picture in a browser, by rising time.

    The browser keeps styles and scripts, as it does for a user who opens a second page.
    """
    with sync_playwright() as player:
        browser = player.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = browser.new_context(locale="en-GB")
        name, _, value = site.cookie.partition("=")
        context.add_cookies([{"name": name, "value": value, "url": f"http://{site.address}"}])
        page = context.new_page()
        page.goto(f"http://{site.address}/alarms")
        for path in some:
            took = []
            for _ in range(PAINT_TURNS):
                page.goto(f"http://{site.address}{path}")
                took.append(float(page.evaluate(PAINTED)))
            yield path, sorted(took)
        browser.close()


@contextmanager
def open_pages(site: Coordinator, some: list[str], count: int) -> Iterator[None]:
    """Pages that are open in browsers: each follows its changes."""
    sockets, stop = [], threading.Event()

    def follow(path: str, cookie: str) -> None:
        host, _, port = site.address.partition(":")
        live = f"{path}{'&' if '?' in path else '?'}_live=1"
        while not stop.is_set():
            with socket.create_connection((host, int(port)), 60) as one:
                one.settimeout(1.0)
                request = f"GET {live} HTTP/1.1\r\nHost: {site.address}\r\nCookie: {cookie}\r\n\r\n"
                one.sendall(request.encode())
                while not stop.is_set():
                    try:
                        if not (got := one.recv(1 << 20)) or got.endswith(b"0\r\n\r\n"):
                            break
                    except TimeoutError:
                        continue

    cookies = [site.user(f"reader-{number}") for number in range(-(-count // PAGES_OF_ONE))]
    for number in range(count):
        cookie = cookies[number // PAGES_OF_ONE]
        thread = threading.Thread(target=follow, args=(some[number % len(some)], cookie))
        thread.start()
        sockets.append(thread)
    try:
        yield
    finally:
        stop.set()
        for thread in sockets:
            thread.join(30)


def cost(site: Coordinator, broker_pid: int, seconds: float) -> tuple[float, float]:
    """Hundredths of a core that the coordinator and the broker use."""
    before = cpu_seconds(site.pid), cpu_seconds(broker_pid)
    time.sleep(seconds)
    after = cpu_seconds(site.pid), cpu_seconds(broker_pid)
    return tuple((end - begin) / seconds * 100 for begin, end in zip(before, after, strict=True))  # type: ignore[return-value]


def main() -> None:
    """Fill, measure, say."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.console", description=__doc__)
    for name, default in (("topics", 1000), ("groups", 100), ("members", 10), ("days", 365), ("turns", 40)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--seconds", type=float, default=60.0)
    given = parser.parse_args()
    peer = OurPeer()
    peer.start()
    try:
        with tempfile.TemporaryDirectory(prefix="bench-console-") as home:
            database = Path(home) / "coordinator.db"
            asyncio.run(make(peer.namesrv, given.topics, given.groups))
            with members(peer.namesrv, given.groups, given.members):
                with coordinator(peer.namesrv, database) as first:
                    time.sleep(LOOKS_SECONDS)
                print(f"audit entries {fill_audit(database, given.days)}")
                lines, rows, size = fill_history(database)
                print(f"history: {lines} lines, {rows} rows, {size / 1e6:.1f} MB of numbers that do not pack")
                with coordinator(peer.namesrv, database, first.password) as site:
                    time.sleep(LOOKS_SECONDS)
                    _run(site, peer, given)
    finally:
        peer.close()


def _run(site: Coordinator, peer: OurPeer, given: argparse.Namespace) -> None:
    print(f"load average {os.getloadavg()[0]:.1f}; coordinator {memory(site.pid)}")
    idle = cost(site, peer.broker_pid, given.seconds)
    print(f"nobody looks: coordinator {idle[0]:.1f} % of a core, broker {idle[1]:.2f} %")
    everything = paths(peer.broker_address)
    for path in everything:
        before = cpu_seconds(site.pid)
        took, plain, packed = measure(site, path, given.turns)
        used = (cpu_seconds(site.pid) - before) / given.turns * 1000
        p95 = statistics.quantiles(took, n=20)[-1]
        print(
            f"{path:45} p50 {statistics.median(took):7.1f}  p95 {p95:7.1f} ms, {used:5.0f} ms of processor  "
            f"{plain / 1e3:7.1f} kB, {packed / 1e3:6.1f} kB compressed"
        )
    if CHROMIUM is not None:
        for path, took in paint(site, everything):
            print(f"{path:45} first paint {statistics.median(took):6.0f}, at most {took[-1]:6.0f} ms")
    with open_pages(site, [one for one in everything if "messages" not in one], PAGES_OPEN):
        time.sleep(10)
        busy = cost(site, peer.broker_pid, given.seconds)
    print(f"{PAGES_OPEN} open pages: coordinator {busy[0]:.1f} % of a core, broker {busy[1]:.2f} %")
    print(f"coordinator's memory: {memory(site.pid)}; load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
