"""The search page and the palette: objects by name, messages by id or key in every topic."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from tests.console.furnished import ODD
from tests.console.site import Reader, Site

from sparrowmq.coordinator.api.told.finding import rank


@pytest.mark.parametrize(
    ("text", "kind", "link"),
    [
        ("orders", "Topic", "/topics/Orders"),
        ("bill", "Group", "/groups/billing"),
        ("lag-al", "Service", "/services/lag-alarm"),
        ("viewer", "User", "/people/viewer"),
        ("audit log", "Page", "/audit"),
        ("审计", "Page", "/audit"),
    ],
)
def test_everything_is_found_by_its_name(admin: Reader, text: str, kind: str, link: str) -> None:
    page = admin.ask(
        "GET", f"/search?q={'%20'.join(text.split()) if text.isascii() else '%E5%AE%A1%E8%AE%A1'}"
    )
    assert f'<a href="{link}" data-hit>' in page.text and kind in page.part("hits")


def test_message_is_found_by_its_key_in_any_topic(admin: Reader, console: Site) -> None:
    page = admin.page("/search?q=order-3")
    assert "Orders" in page.part("anywhere") and "topics were searched" in page.part("anywhere")
    found = json.loads(console.call("GET", "/cluster/messages?text=order-3").text)
    (message,) = found["messages"]
    assert message["keys"] == ["order-3"] and found["left"] == 0
    by_id = admin.page(f"/search?q={message['message_id']}")
    assert message["message_id"] in by_id.part("anywhere")
    assert "No message has this id" in admin.page("/search?q=no-such-order").part("anywhere")


def test_messages_are_searched_only_on_request_or_when_no_name_matches(admin: Reader) -> None:
    assert "were searched" not in admin.page("/search?q=billing").part("anywhere")
    assert "were searched" in admin.page("/search?q=billing&in=messages").part("anywhere")
    assert "were searched" not in admin.page("/search").part("anywhere")


def test_palette_loads_only_its_results(admin: Reader) -> None:
    found = admin.get("/search?q=nothing-has-this&_part=hits")
    assert found.status == 200 and "<html" not in found.text and "were searched" not in found.text
    assert "Content-Security-Policy".lower() in found.headers
    assert admin.get("/search?_part=none").status == 404
    assert admin.get("/groups?_part=groups").status == 200


@pytest.mark.parametrize("text", [ODD.markup, ODD.turned, "%", "' OR 1=1 --", "..", "x" * 5000, "{{7*7}}"])
def test_search_text_is_escaped(admin: Reader, text: str) -> None:
    from urllib.parse import quote

    found = admin.get(f"/search?q={quote(text)}")
    assert found.status == 200
    assert "<script>alert" not in found.text and "<img src=x" not in found.text and "\u202e" not in found.text
    assert "49" not in found.part("hits")


def ranked(text: str, named: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    ranks = sorted(found for one in named if (found := rank(text, one)) is not None)
    return [(kind, name) for *_, name, kind in ranks]


def test_best_results_come_first() -> None:
    named = [
        ("topic", "a-orders"),
        ("group", "orders"),
        ("topic", "Orders2"),
        ("topic", "x"),
        ("topic", "orders"),
    ]
    assert ranked("orders", named)[:2] == [("group", "orders"), ("topic", "orders")]
    assert ranked("ORDERS", named)[2:] == [("topic", "Orders2"), ("topic", "a-orders")]
    assert ranked("a ord", named) == [("topic", "a-orders")] and ranked("  ", named) == []
