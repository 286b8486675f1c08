"""Every string of the console is in the catalogue in both languages; none is missing, none is unused."""

from __future__ import annotations

import ast
import re
import string
from functools import cache
from pathlib import Path

import pytest

from sparrowmq.console import texts
from sparrowmq.console.pages import FORMS, PAGES
from sparrowmq.console.rendering import MENU, THEMES
from sparrowmq.console.texts import LANGUAGES, catalogue, preferred, words

ROOT = Path(texts.__file__).parent
TEMPLATES = {path.name: path.read_text() for path in (ROOT / "templates").rglob("*.html")}
MADE = (
    "verdict.",
    "state.",
    "role.",
    "minutes.",
    "done.",
    "body.",
    "column.",
    "part.",
    "find.",
    "menu.",
    "chart.",
    "tune.by-",
    "replicas.wish-",
    "search.",
    "access.",
    "server.",
    "bound.",
    "purpose.",
)
"""Sections whose keys are put together when a page is made."""
SAME = frozenset({"Broker", "JSON", "Broker "})


def fields(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


@pytest.mark.parametrize("key", catalogue())
def test_every_string_has_both_languages_with_the_same_placeholders(key: str) -> None:
    found = catalogue()[key]
    assert len(found) == len(LANGUAGES)
    english, chinese = found
    assert english.strip() and chinese.strip()
    assert fields(english) == fields(chinese)
    assert chinese in SAME or re.search("[\u4e00-\u9fff]", chinese), f"{key} is not in Chinese"


@cache
def said() -> set[str]:
    """Keys that templates and modules name."""
    found: set[str] = set()
    for text in TEMPLATES.values():
        found |= set(re.findall(r"\bt\('([\w.-]+)'(?!\s*~)", text))
        found |= set(re.findall(r"'((?:picture|empty|word)\.[\w-]+)'", text))
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and re.fullmatch(r"[a-z]+\.[\w-]+", node.value)
            ):
                found.add(node.value)
    found |= {part.heading for page in PAGES for part in page.parts}
    found |= {page.title for page in PAGES} | {form.title for form in FORMS}
    found |= {f"menu.{name}" for name, _ in MENU} | {f"menu.theme-{name}" for name in THEMES}
    return {one for one in found if one.partition(".")[0] in {key.partition(".")[0] for key in catalogue()}}


def test_every_used_string_exists() -> None:
    begun = {one for one in said() if any(key.startswith(one) for key in catalogue())}
    files = {one for one in said() if one.endswith((".html", ".toml", ".css"))}
    assert said() - begun - files == set()


def test_no_string_is_unused() -> None:
    code = "\n".join([*TEMPLATES.values(), *(path.read_text() for path in ROOT.rglob("*.py"))])
    unused = [
        key
        for key in catalogue()
        if key not in said() and not (key.startswith((*MADE, "do.", "form.")) and made(key, code))
    ]
    assert unused == []


def made(key: str, code: str) -> bool:
    """Whether the name of a key occurs in the code, whole or as the end of a composed key."""
    section, _, name = key.partition(".")
    if section in ("state", "role", "verdict", "minutes", "bound", "purpose") or key.startswith(
        ("tune.by-", "replicas.wish-")
    ):
        return True
    return (
        re.search(rf"\b{re.escape(name)}\b", code) is not None
        or re.search(rf"\b{re.escape(name.rpartition('-')[2])}\b", code) is not None
    )


@pytest.mark.parametrize(
    ("header", "language"),
    [("", "en"), ("zh-CN,en;q=0.5", "zh"), ("en,zh;q=0.9", "en"), ("zh;q=0.1,en;q=0.9", "en"),
     ("fr,zh;q=x", "en"), ("fr-FR, zh;q=0.5", "zh")],
)  # fmt: skip
def test_language_follows_the_browser(header: str, language: str) -> None:
    assert preferred(header) == language


def test_unknown_key_is_an_error_and_unknown_name_is_shown_as_it_is() -> None:
    with pytest.raises(KeyError):
        words("en")("page.nothing")
    assert words("zh").named("state", "firing") == "触发中"
    assert words("zh").named("state", "of Java's own") == "of Java's own"
