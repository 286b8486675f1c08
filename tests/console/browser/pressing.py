"""A person at the forms of the console: opens one from a page, fills it in, reads the preview, confirms."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, cast
from urllib.parse import parse_qs, urlsplit

import pytest
from starlette.routing import Match, Route
from tests.console.browser.test_browser import SAID, WAIT_MS, enter, is_fault
from tests.console.browser.test_browser import pytestmark as needs_chromium
from tests.console.site import Site

from sparrowmq.console.app import make_app
from sparrowmq.console.safety import ConsoleAddress
from sparrowmq.coordinator.api.shared import Context

WALKS: Final = [needs_chromium, pytest.mark.timeout(600)]
"""Marks of walks: each presses several forms."""
CONFIRMED_MAX: Final = 5
"""How often a form is confirmed again whose preview has changed, as when a service has moved on."""
REFUSED: Final = (409, 422)
"""Answers to a form that is out of date, or to a wrong name."""
W = TypeVar("W", bound=Callable[..., None])
LAST_STEPS: Final = (None, "do")
"""What the button of a form sends that makes a change; the first is that of forms without a preview."""


@dataclass(frozen=True)
class _NoContext:
    """What the routes need to be made."""

    streams_max: int = 1


def post_routes() -> list[Route]:
    """Every route of the console to which a form is sent."""
    app = make_app(cast(Context, _NoContext()), ConsoleAddress.of(""))
    routes = [one for one in app.routes if isinstance(one, Route)]
    return [one for one in routes if one.methods is not None and "POST" in one.methods]


def route_of(routes: list[Route], path: str) -> str:
    """The path with its names, as the route has it."""
    scope = {"type": "http", "path": path, "method": "POST"}
    return next(one.path for one in routes if one.matches(scope)[0] is Match.FULL)


def presses(*paths: str) -> Callable[[W], W]:
    """Say which routes a walk presses. `Hand.check` compares them with what was pressed, and `test_pressed`
    with all routes.
    """

    def said(walk: W) -> W:
        vars(walk)["presses"] = frozenset(paths)
        return walk

    return said


@dataclass
class Hand:
    """Opens forms on a page of a browser, and notes which it sent."""

    page: Any
    console: Site
    name: str = "admin"
    pressed: set[str] = field(default_factory=set)
    _count: int = 0

    def __post_init__(self) -> None:
        routes = post_routes()

        def note(request: Any) -> None:
            if request.method == "POST":
                step = parse_qs(request.post_data or "").get("step", [None])[0]
                if step in LAST_STEPS:
                    self.pressed.add(route_of(routes, urlsplit(request.url).path))

        self.page.on("request", note)

    def check(self, walk: Any) -> None:
        """Fail if the walk did not press what it says."""
        assert self.pressed >= vars(walk).get("presses", frozenset()), self.pressed

    def open(self, path: str) -> None:
        """Go to a page of the console."""
        self.page.goto(self.console.started.url + path)

    def change(
        self,
        start: str,
        form: str,
        fields: Mapping[str, str] | None = None,
        *,
        action: str,
        typed: str = "",
        says: str = "",
    ) -> None:
        """Make a change with a form that the page `start` leads to. `form` is how its link ends or, with a
        question mark, a part of it. The preview contains `says`, and the audit log then has `action`.
        """
        self.open(start)
        self.page.locator(f"main a[href{'*' if '?' in form else '$'}='{form}']").first.click()
        self.page.locator("form.stacked").wait_for()
        self.fill(fields or {})
        if self.page.locator("button[value=look]").count():
            self.send("look")
        assert says in self.page.locator(".preview").inner_text()
        self.confirm(fields or {}, action=action, typed=typed)

    def confirm(self, fields: Mapping[str, str], *, action: str, typed: str = "") -> None:
        """Give the reason, type the name after a wrong one, confirm, and find the entry of the audit log."""
        self._count += 1
        reason = f"walk {self._count}: {action}"
        if typed:
            self._fill_secrets(fields)
            self.fill({"reason": reason, "typed": f"not {typed}"})
            self.send("do")
            self.page.locator("[role=alert]").wait_for()
            assert self.page.input_value("[name=reason]") == reason, "what was typed stays"
            self.fill({"typed": typed})
        for _ in range(CONFIRMED_MAX):
            self._fill_secrets(fields)
            self.fill({"reason": reason})
            self.send("do")
            if not self.page.locator("[role=alert]", has_text=SAID("form.changed")).count():
                break
        self.page.locator(".done").wait_for()
        self.noted(action, reason)

    def noted(self, action: str, reason: str) -> None:
        """The page of the audit log has the change with its reason."""
        other = self.page.context.new_page()
        other.goto(f"{self.console.started.url}/audit?audit.is.actor={self.name}")
        row = other.locator("[data-part=audit] tbody tr", has_text=reason).first
        assert action in row.inner_text(), row.inner_text()
        other.close()

    def fill(self, fields: Mapping[str, str]) -> None:
        """Fill in fields, whatever they are."""
        for name, value in fields.items():
            one = self.page.locator(f"form.stacked [name='{name}']")
            if one.evaluate("one => one.tagName") == "SELECT":
                one.select_option(value)
            else:
                one.fill(value)

    def _fill_secrets(self, fields: Mapping[str, str]) -> None:
        """Passwords do not come back with a preview: they are typed again."""
        secret = "form.stacked input[type=password]"
        names = self.page.locator(secret).evaluate_all("found => found.map(one => one.name)")
        self.fill({name: fields[name] for name in names if name in fields})

    def send(self, step: str) -> None:
        """Press a button of the form, and wait for the answer."""
        with self.page.expect_navigation():
            self.page.click(f"form.stacked button[value={step}]")


@pytest.fixture
def hand(request: pytest.FixtureRequest, browser: Any, console: Site) -> Iterator[Hand]:
    """A person who is logged in as admin. At the end the walk has pressed what it says, no script failed, and
    the content security policy refused nothing.
    """
    context = browser.new_context(locale="en-GB")
    context.set_default_timeout(WAIT_MS)
    found, faults = Hand(context.new_page(), console), list[str]()
    found.page.on("console", lambda said: faults.append(said.text) if is_fault(said, REFUSED) else None)
    found.page.on("pageerror", lambda error: faults.append(str(error)))
    enter(found.page, console)
    yield found
    context.close()
    assert faults == []
    found.check(request.function)
