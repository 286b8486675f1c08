"""Templates: all values in a page are escaped, and characters that change the text direction are made
visible.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from sparrowmq.console import shown
from sparrowmq.console.safety import CSRF_FIELD
from sparrowmq.console.texts import LANGUAGES
from sparrowmq.core import outside

THEMES: Final = ("auto", "light", "dark")
STATIC: Final[Mapping[str, str]] = {
    "console.css": "text/css; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
    "palette.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
"""The files that pages load, and their types."""
MENU: Final = (
    ("overview", "/"),
    ("topics", "/topics"),
    ("groups", "/groups"),
    ("messages", "/messages"),
    ("dead", "/dead-letters"),
    ("waiting", "/waiting"),
    ("traces", "/traces"),
    ("pipelines", "/pipelines"),
    ("brokers", "/brokers"),
    ("replicas", "/replicas"),
    ("services", "/services"),
    ("alarms", "/alarms"),
    ("people", "/people"),
    ("access", "/access"),
    ("audit", "/audit"),
)
CELL_CHARS_MAX: Final = 2000
"""Characters of a cell; a table's CSV has all of them."""
KEYS: Final[Mapping[str, str]] = {
    "overview": "o",
    "topics": "t",
    "groups": "g",
    "messages": "m",
    "dead": "d",
    "waiting": "w",
    "traces": "r",
    "pipelines": "k",
    "brokers": "b",
    "replicas": "e",
    "services": "s",
    "alarms": "a",
    "people": "p",
    "access": "c",
    "audit": "l",
}
"""The letter that opens a menu entry, after `g`."""

LOOKS: Final[Mapping[str, frozenset[str]]] = {
    "good": frozenset(
        {"answers", "leads", "done", "resolved", "active", "online", "newest", "success", "stored", "enabled"}
        | {"allow", "registered", "running", "in-sync", "two-copies", "SERVING", "FOLLOWING"}
    ),
    "bad": frozenset(
        {
            "firing",
            "silent",
            "failed",
            "too long",
            "leaderless",
            "refused",
            "letter",
            "given-up",
            "deny",
            "unregistered",
            "FENCED",
            "masterless",
        }
    ),
    "middling": frozenset(
        {"paused", "pending", "acknowledged", "silenced", "older", "standby", "offline", "again", "retrying"}
        | {"disabled", "moves", "lags", "WAITING", "CHANGING", "nobody", "one-copy"}
    ),
}
"""States by appearance."""


@cache
def environment() -> Environment:
    """The templates, read once and compiled on first use."""
    made = Environment(
        loader=PackageLoader("sparrowmq.console"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalized,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.globals |= {
        "LANGUAGES": LANGUAGES,
        "THEMES": THEMES,
        "MENU": MENU,
        "KEYS": KEYS,
        "CSRF_FIELD": CSRF_FIELD,
        "static": static_link,
        "said": shown.said,
        "iso": shown.iso,
        "moment": shown.moment,
        "size": shown.size,
        "count": shown.count,
        "span": shown.span,
        "state_class": state_class,
    }
    made.filters["lines"] = lines
    made.filters["clipped"] = clipped
    made.filters["kept"] = kept
    return made


def render(template: str, **values: Any) -> str:
    """A template's text."""
    return environment().get_template(f"{template}.html").render(**values)


def state_class(value: object) -> str:
    """The appearance of a state: good, bad, medium, or plain. Its word is always shown as well."""
    return next((name for name, states in LOOKS.items() if value in states), "plain")


def lines(text: str) -> Markup:
    """A text of several lines, for `<pre>`: line feeds and tabs stay, other control characters are
    escaped.
    """
    return escape(outside.lines(text))


def kept(text: str) -> Markup:
    """What a reader typed into a field of several lines, exactly: it is sent again with the next step.

    A browser ends lines with CR LF when it sends them, and shows line feeds the same.
    """
    return escape(text.replace("\r\n", "\n"))


def clipped(text: str) -> str:
    """A text for a cell of a table, with an ellipsis for the rest of one that is very long. Pure.

    Others wrote it, such as the name of a member's setting: fifty rows must not make a page of megabytes.
    """
    return text if len(text) <= CELL_CHARS_MAX else f"{text[:CELL_CHARS_MAX]}…"


@cache
def static_file(name: str) -> bytes:
    """A file that pages load. Raises `KeyError` for any other name."""
    if name not in STATIC:
        raise KeyError(name)
    return (files("sparrowmq.console") / "static" / name).read_bytes()


@cache
def static_link(name: str) -> str:
    """Its address: it changes with the content, so that browsers may cache it."""
    return f"/static/{hashlib.sha256(static_file(name)).hexdigest()[:16]}/{name}"


def _finalized(value: Any) -> Any:
    """The value that a template inserts into a page, before it is escaped."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return outside.one_line(value)
    return value
