"""A console on a real cluster: a coordinator with pages in a thread of its own, and readers of its pages."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from html import unescape
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlencode

from tests.coordinator.running import cheap_passwords

from sparrowmq.console import front
from sparrowmq.console.identity import OpenId
from sparrowmq.console.pages import PAGES
from sparrowmq.coordinator.replicas.group_watch import GroupBrokers
from sparrowmq.coordinator.server import Coordinator, Started
from sparrowmq.core.settings.servers import CoordinatorSettings

FORM = "application/x-www-form-urlencoded"
START_SECONDS = 180
"""On a loaded machine, imports and templates alone can take a minute."""
ANSWER_SECONDS = 120
"""Longer than the time limit of any part of a page."""


@dataclass(frozen=True)
class Answer:
    """A response: `text` unchanged, `headers` by lower-case name, all cookies in `cookies`."""

    status: int
    text: str
    headers: Mapping[str, str]
    cookies: tuple[str, ...] = ()

    def hidden(self, name: str) -> str:
        """The value of a hidden field."""
        found = re.search(rf'<input type="hidden" name="{re.escape(name)}" value="([^"]*)"', self.text)
        assert found is not None, f"no field {name}"
        return unescape(found[1])

    def typed(self, name: str) -> str:
        """The content of a text area, as a browser submits it."""
        found = re.search(rf'<textarea id="f-{re.escape(name)}"[^>]*>\n(.*?)</textarea>', self.text, re.S)
        assert found is not None, f"no field {name}"
        return unescape(found[1]).replace("\n", "\r\n")

    @property
    def words(self) -> str:
        """The text without tags."""
        bare = re.sub(r"<[^>]*>", " ", self.text)
        return " ".join(unescape(bare).split())

    def part(self, name: str) -> str:
        """The words of one part of a page."""
        found = re.search(rf'<div data-part="{name}">(.*?)</section>', self.text, re.S)
        assert found is not None, f"no part {name}"
        return " ".join(unescape(re.sub(r"<[^>]*>", " ", found[1])).split())

    def grey(self, name: str) -> bool:
        """Whether that part of a page could not be loaded: its text says why."""
        found = re.search(rf'<div data-part="{name}">(.*?)</section>', self.text, re.S)
        assert found is not None, f"no part {name}"
        return found[1].lstrip().startswith('<p class="grey"><span class="state unknown">')


@dataclass
class Reader:
    """A browser without scripts: it keeps cookies, and sends the origin of a form."""

    address: str
    cookies: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=lambda: {"Accept-Language": "en"})

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        connection = HTTPConnection(self.address, timeout=ANSWER_SECONDS)
        sent = self.headers | dict(headers or {})
        if self.cookies:
            sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        try:
            connection.request(method, path, body, {name: value for name, value in sent.items() if value})
            answer = connection.getresponse()
            text = answer.read().decode(errors="replace")  # a download may be no text
        finally:
            connection.close()
        cookies = tuple(answer.headers.get_all("set-cookie") or ())
        for cookie in cookies:
            name, _, rest = cookie.partition("=")
            value = rest.partition(";")[0].strip('"')
            if value and "Max-Age=0" not in rest:
                self.cookies[name] = value
            else:
                self.cookies.pop(name, None)
        return Answer(
            answer.status, text, {name.lower(): value for name, value in answer.getheaders()}, cookies
        )

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, headers=headers)

    def post(self, path: str, fields: Mapping[str, str], **headers: str) -> Answer:
        sent = {"Origin": f"http://{self.address}", "Content-Type": FORM} | headers
        return self.ask("POST", path, urlencode(fields).encode(), sent)

    def login(self, name: str, password: str) -> Answer:
        return self.post("/login", {"name": name, "password": password})

    def page(self, path: str) -> Answer:
        """A page that exists."""
        found = self.get(path)
        assert found.status == 200, (path, found.status, found.words[-300:])
        return found

    def change(self, path: str, fields: Mapping[str, str] | None = None, **more: str) -> Answer:
        """Preview a form, then submit it."""
        given = dict(fields or {})
        asked = self.get(path)
        assert asked.status == 200, (path, asked.status, asked.words[-300:])
        seen = self.post(path, given | {"csrf": asked.hidden("csrf"), "step": "look"})
        if seen.status != 200:
            return seen
        done = given | {
            "csrf": seen.hidden("csrf"),
            "stamp": seen.hidden("stamp"),
            "step": "do",
            "reason": "agreed",
        }
        return self.post(path, done | more)


@dataclass
class Site:
    """A coordinator with its console; `admin` is logged in."""

    coordinator: Coordinator
    started: Started
    admin: Reader
    password: str = ""

    @property
    def address(self) -> str:
        return self.started.url.removeprefix("http://")

    def reader(self, name: str = "", password: str = "") -> Reader:
        """Another user, logged in if a name is given."""
        found = Reader(self.address)
        if name:
            answer = found.login(name, password)
            assert answer.status == 303, answer.words
        return found

    def call(self, method: str, path: str, body: bytes | None = None) -> Answer:
        """A call of the API by the admin."""
        token = next(iter(self.admin.cookies.values()))
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        return Reader(self.address).ask(method, f"/api/v1{path}", body, headers)


@contextmanager
def part_seconds(wanted: Callable[[float], float]) -> Iterator[None]:
    """Other time limits of all parts of pages."""
    parts = [part for page in PAGES for part in page.parts]
    usual = [part.seconds for part in parts]
    for part in parts:
        object.__setattr__(part, "seconds", wanted(part.seconds))
    try:
        yield
    finally:
        for part, seconds in zip(parts, usual, strict=True):
            object.__setattr__(part, "seconds", seconds)


@contextmanager
def site(url: str = "", brokers: GroupBrokers | None = None, **settings: Any) -> Iterator[Site]:
    """A coordinator with its console on a free port; `brokers` have a replica."""
    ready, found = threading.Event(), list[Any]()

    async def main() -> None:
        given = CoordinatorSettings(listen_port=0, **settings)
        coordinator, stop = (
            Coordinator(given, front=partial(front, url=url, openid=OpenId.of(given)), brokers=brokers),
            asyncio.Event(),
        )
        try:
            started = await coordinator.start()
            found.extend((asyncio.get_running_loop(), stop, coordinator, started))
            ready.set()
            await stop.wait()
        finally:
            await coordinator.close()
            ready.set()

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    with cheap_passwords():
        thread.start()
        assert ready.wait(START_SECONDS) and found, "the coordinator did not start"
        loop, stop, coordinator, started = found
        made = Site(
            coordinator, started, Reader(started.url.removeprefix("http://")), started.first_password or ""
        )
        try:
            yield made
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join(30)
            assert not thread.is_alive()
