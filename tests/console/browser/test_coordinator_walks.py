"""Every change of services, alarms, users, tokens and pipelines, made in a real browser."""

from __future__ import annotations

import json
from typing import Any

from tests.console.browser.pressing import WALKS, Hand, hand, presses  # noqa: F401
from tests.console.browser.test_browser import behind, browser  # noqa: F401
from tests.console.test_pipelines import report
from tests.support import until_sync

from sparrowmq.testing import LocalCluster

pytestmark = WALKS

SERVICE = "/services/retention"
PERSON = "/people/presser"
PASSWORD = "the password of a presser"


@presses(
    "/services/{name}/run",
    "/services/{name}/pause",
    "/services/{name}/resume",
    "/services/{name}/settings",
    "/services/{name}/hand-over",
)
def test_service_is_run_paused_resumed_changed_and_handed_over(hand: Hand) -> None:  # noqa: F811
    def now() -> Any:
        return json.loads(hand.console.call("GET", SERVICE).text)

    until_sync(lambda: now()["leader"])
    hand.change(SERVICE, f"{SERVICE}/run", action="service.run", says="retention")
    until_sync(lambda: now()["last_run"])
    hand.change(SERVICE, f"{SERVICE}/pause", action="service.pause")
    assert now()["paused"]
    hand.change(SERVICE, f"{SERVICE}/resume", action="service.resume")
    assert not now()["paused"]
    before = now()["interval_ms"]
    fields = {"interval_seconds": f"{before // 1000 + 60}"}
    hand.change(SERVICE, f"{SERVICE}/settings", fields, action="service.", says=f"{before} → ")
    assert now()["interval_ms"] == before + 60_000
    fields = {"interval_seconds": f"{before // 1000}"}
    hand.change(SERVICE, f"{SERVICE}/settings", fields, action="service.")
    epoch = until_sync(lambda: now()["leader"] and now()["epoch"])
    hand.change(SERVICE, f"{SERVICE}/hand-over", action="service.hand-over", says="retention")
    until_sync(lambda: now()["epoch"] > epoch or now()["leader"] is None)


@presses("/alarms/{number}/silence", "/alarms/{number}/wake", "/alarms/{number}/acknowledge")
def test_alarm_is_silenced_woken_and_acknowledged(hand: Hand, cluster: LocalCluster) -> None:  # noqa: F811
    behind(cluster, "PressedLate", "pressed-late")
    limit = json.dumps({"topic": "*", "messages": 1, "age_ms": 0, "reason": "a walk"}).encode()
    assert hand.console.call("PUT", "/limits/pressed-late", limit).status == 200

    def alarm() -> Any:
        hand.console.call("POST", "/services/lag-alarm/run", b'{"reason": "a walk"}')
        found = json.loads(hand.console.call("GET", "/alarms").text)
        mine = [one for one in found if "pressed-late" in one["object"] and one["state"] != "pending"]
        return mine[0] if mine else None

    page = f"/alarms/{until_sync(alarm)['id']}"
    hand.change(page, f"{page}/silence", {"minutes": "15"}, action="alarm.silenced")
    assert alarm()["state"] == "silenced"
    hand.change(page, f"{page}/wake", action="alarm.")
    assert alarm()["state"] == "firing"
    hand.change(page, f"{page}/acknowledge", action="alarm.acknowledged")
    assert alarm()["state"] == "acknowledged"


@presses(
    "/new/person",
    "/people/{name}/change",
    "/people/{name}/grant",
    "/people/{name}/password",
    "/people/{name}/token",
    "/people/{name}/tokens/{number}/revoke",
    "/people/{name}/delete",
)
def test_user_is_created_changed_and_deleted(hand: Hand) -> None:  # noqa: F811
    def now() -> Any:
        found = json.loads(hand.console.call("GET", "/people").text)
        return {one["name"]: one for one in found}.get("presser")

    hand.change("/people", "/new/person", {"name": "presser"}, action="person.add", says="presser")
    assert now()["role"] == "viewer" and hand.page.locator("main pre").inner_text()
    says = "viewer → operator"
    hand.change(PERSON, f"{PERSON}/change", {"role": "operator"}, action="person.edit", says=says)
    assert now()["role"] == "operator"
    hand.change(PERSON, f"{PERSON}/grant", {"object": "pressed-group"}, action="grant", says="pressed-group")
    assert [one["object"] for one in now()["objects"]] == ["pressed-group"]
    hand.change(PERSON, f"{PERSON}/password", {"new": PASSWORD}, action="person.edit", says="presser")
    hand.console.reader("presser", PASSWORD)
    fields = {"label": "pressed", "days": "1", "password": hand.console.password}
    hand.change(PERSON, f"{PERSON}/token", fields, action="token.add", says="presser")
    assert hand.page.locator("main pre").inner_text().startswith("smq_")
    hand.change(f"{PERSON}?tokens.q=pressed", "/revoke", action="token.delete", says="presser")
    assert "pressed" not in hand.console.admin.page(PERSON).part("tokens")
    hand.change(PERSON, f"{PERSON}/delete", action="person.delete", typed="presser", says="presser")
    assert now() is None


@presses("/login", "/preferences", "/me/token", "/me/password", "/logout")
def test_own_token_password_and_preferences_are_changed(hand: Hand) -> None:  # noqa: F811
    body = json.dumps({"name": "self", "password": PASSWORD, "reason": "a walk"}).encode()
    assert hand.console.call("POST", "/people", body).status == 201
    hand.page.click("form.who button")
    hand.page.wait_for_url("**/login")
    log_in(hand, "self", PASSWORD)
    hand.page.select_option("[name=theme]", "dark")
    hand.page.click("form.preferences button")
    hand.page.locator("html[data-theme=dark]").wait_for()
    hand.name = "self"
    fields = {"label": "own", "days": "1", "password": PASSWORD}
    hand.change("/me", "/me/token", fields, action="token.add", says="self")
    assert hand.page.locator("main pre").inner_text().startswith("smq_")
    hand.open("/me/password")
    hand.fill({"old": PASSWORD, "new": PASSWORD[::-1], "reason": "a walk"})
    hand.send("do")
    hand.page.wait_for_url("**/login*")  # a new password ends all sessions
    log_in(hand, "self", PASSWORD[::-1])
    hand.noted("person.edit", "a walk")


def log_in(hand: Hand, name: str, password: str) -> None:  # noqa: F811
    """Log in on the login page."""
    hand.page.fill("#name", name)
    hand.page.fill("#password", password)
    hand.page.click("main button")
    hand.page.locator("form.who").wait_for()


@presses("/pipelines/{name}/forget")
def test_reports_of_a_pipeline_are_deleted(hand: Hand) -> None:  # noqa: F811
    assert report(hand.console, "pressed") == 200
    page = "/pipelines/pressed"
    hand.change(page, f"{page}/forget", action="pipeline.forget", says="pressed")
    assert hand.console.call("GET", page).status == 404
