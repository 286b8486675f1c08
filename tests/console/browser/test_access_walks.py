"""Every change of brokers, and of their users and policies, made in a real browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from sqlalchemy import insert
from tests.console.access.guarded import with_access_control
from tests.console.browser.pressing import WALKS, Hand, hand, presses  # noqa: F401
from tests.console.browser.test_browser import browser  # noqa: F401
from tests.console.site import Site
from tests.support import until_sync

from sparrowmq.coordinator.database.tables import broker_seen

pytestmark = WALKS

USER = "/access/users/pressed"
LOST = "127.0.0.1:9"
"""The address of a broker that was seen once, and is lost."""


@pytest.fixture(scope="module")
def console(empty_database: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    path = tmp_path_factory.mktemp("pressed") / "coordinator.db"
    path.write_bytes(empty_database.read_bytes())
    with with_access_control(path) as found:
        yield found


def told(console: Site, path: str) -> Any:
    """What the API answers."""
    return json.loads(console.call("GET", path).text)


@presses(
    "/new/access-user",
    "/access/users/{user}/change",
    "/access/users/{user}/policy",
    "/access/users/{user}/revoke",
    "/access/users/{user}/delete",
)
def test_user_of_brokers_is_created_changed_and_deleted(hand: Hand) -> None:  # noqa: F811
    def now() -> Any:
        return {one["name"]: one for one in told(hand.console, "/cluster/access/users")}.get("pressed")

    def policies() -> list[str]:
        found = told(hand.console, "/cluster/access/policies?user=pressed")
        return [one["resource"] for one in found]

    fields = {"name": "pressed", "new": "a secret of walks"}
    hand.change("/access", "/new/access-user", fields, action="access-user.create", says="pressed")
    assert now()["enabled"]
    says = "enabled → disabled"
    hand.change(USER, f"{USER}/change", {"enabled": "disabled"}, action="access-user.change", says=says)
    assert not now()["enabled"]
    fields = {"resources": "Topic:Orders", "actions": "Pub"}
    hand.change(USER, f"{USER}/policy", fields, action="access-policy.set", says="no policy → allow Pub")
    assert policies() == ["Topic:Orders"]
    hand.change(USER, f"{USER}/revoke", action="access-policy.delete", typed="pressed", says="→ no policy")
    assert policies() == []
    hand.change(USER, f"{USER}/delete", action="access-user.delete", typed="pressed", says="pressed")
    assert now() is None


@presses(
    "/brokers/{address}/settings",
    "/brokers/{address}/drain",
    "/brokers/{address}/cancel",
    "/brokers/{address}/remove",
)
def test_broker_is_changed_drained_put_back_and_removed(hand: Hand) -> None:  # noqa: F811
    settle = json.dumps({"options": {"settle_seconds": 1}, "reason": "a walk"}).encode()
    assert hand.console.call("PATCH", "/services/broker-check", settle).status == 200

    def seen() -> Any:
        hand.console.call("POST", "/services/broker-check/run", b"{}")
        return next((one for one in told(hand.console, "/brokers") if one["broker"] == "broker-a"), None)

    def drain() -> str:
        """The state of the broker's drain; empty if there is none, or no such broker any more."""
        found = seen()
        return str(found["drain"]["state"]) if found and found["drain"] else ""

    address = until_sync(seen)["address"]
    page = f"/brokers/{quote(address, safe='')}"

    def settings() -> str:
        return hand.console.call("GET", f"/cluster/servers/{quote(address, safe='')}/settings").text

    fields = {"fileReservedTime": "49"}
    hand.change(page, f"{page}/settings", fields, action="broker.settings", says="→ 49")
    assert json.loads(settings())["fileReservedTime"] == "49"
    hand.change(page, f"{page}/drain", {"forced": "forced"}, action="broker.drain", says="broker-a")
    assert drain() in ("asked", "draining", "drained")
    hand.change(page, f"{page}/cancel", action="broker.cancel", says="broker-a")
    until_sync(lambda: drain() in ("cancelled", ""))
    hand.change(page, f"{page}/drain", {"forced": "forced"}, action="broker.drain")
    until_sync(lambda: drain() == "drained")
    hand.change(page, f"{page}/remove", action="broker.remove", typed=address, says="broker-a")
    until_sync(lambda: drain() in ("removing", "removed", ""))


@presses("/brokers/{address}/forget")
def test_lost_broker_is_forgotten(hand: Hand) -> None:  # noqa: F811
    database = hand.console.coordinator._database
    assert database is not None
    values = {"broker": "lost", "broker_id": 0, "address": LOST, "last_seen": 1, "error": "no answer"}
    with database.write() as connection:
        connection.execute(insert(broker_seen).values(**values))
    page = f"/brokers/{quote(LOST, safe='')}"
    hand.change(page, f"{page}/forget", action="broker.forget", typed=LOST, says="lost")
    assert "lost" not in [one["broker"] for one in told(hand.console, "/brokers")]
