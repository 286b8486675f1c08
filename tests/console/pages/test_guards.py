"""What brokers guard, as pages show it: holds of topics, and the policies and fences of groups."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.console.site import Reader, Site
from tests.console.test_forms import entries
from tests.console.test_pages import read
from tests.support import until_sync

import sparrowmq as mq
from sparrowmq.core.errors import RefusedError
from sparrowmq.protocol.managed import GroupPolicy, PauseRule, QueueGrant
from sparrowmq.testing import LocalCluster

TOPIC, GROUP = "Guarded", "guarded-archive"
MARKUP = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def guarded(console: Site, cluster: LocalCluster) -> Iterator[mq.Admin]:
    """A topic whose two messages are held for a group, one queue of which has an owner."""
    with mq.Admin(namesrv=cluster.namesrv) as admin:
        admin.topics.create(TOPIC, queues=1)
        admin.groups.create(GROUP)
        with mq.Producer("guards", namesrv=cluster.namesrv) as producer:
            for _ in range(2):
                producer.send(mq.Message(TOPIC, b"x"))
        admin.holds.set(TOPIC, GROUP, hours=24)
        grant = QueueGrant(TOPIC, "broker-a", 0, 7, owner="archive@1")
        pause = PauseRule("Other", until=0, reason=MARKUP)
        admin.policies.set(
            GroupPolicy(GROUP, revision=3, members=["archive@1", MARKUP], queues=[grant], pauses=[pause])
        )
        yield admin
        admin.holds.delete(TOPIC)
        admin.policies.delete(GROUP)


def test_holds_are_on_the_pages_of_brokers_and_of_their_topic(
    guarded: mq.Admin, console: Site, viewer: Reader
) -> None:
    (hold,) = json.loads(console.call("GET", "/cluster/holds").text)
    assert (hold["topic"], hold["broker"], hold["group"]) == (TOPIC, "broker-a", GROUP)
    assert (hold["messages"], hold["hours"], hold["overrun"]) == (2, 24, "")
    for path in ("/brokers", f"/topics/{TOPIC}"):
        page = until_sync(
            lambda path=path: one if TOPIC in (one := viewer.page(path)).part("holds") else None  # type: ignore[misc]
        )
        read(page)
        assert f"{TOPIC} broker-a {GROUP} keeps messages 2" in page.part("holds")
    assert "Its messages are not held" in viewer.page("/topics/Orders").part("holds")


def test_hold_that_gave_way_is_shown_with_its_reason(
    guarded: mq.Admin, viewer: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def told(*_: object) -> list[mq.HoldStatus]:
        return [
            mq.HoldStatus(TOPIC, "broker-a", GROUP, 1, 1024, 9, 1_000, "the oldest message waits 2 hours")
        ]

    monkeypatch.setattr("sparrowmq.coordinator.api.told.guards.told", told)
    shown = viewer.page("/brokers").part("holds")
    assert "no longer keeps them 9" in shown and "the oldest message waits 2 hours" in shown


def test_messages_are_held_and_released_with_a_preview_and_an_audit_entry(
    guarded: mq.Admin, console: Site, admin: Reader, cluster: LocalCluster
) -> None:
    guarded.topics.create("HeldHere", queues=2)
    with mq.Producer("held-here", namesrv=cluster.namesrv) as producer:
        for _ in range(3):
            producer.send(mq.Message("HeldHere", b"x"))
    page = until_sync(
        lambda: one if "broker-a" in (one := admin.page("/topics/HeldHere")).part("at") else None
    )
    assert "/topics/HeldHere/hold" in page.text and "/topics/HeldHere/release-hold" not in page.text
    path, fields = "/topics/HeldHere/hold", {"group": GROUP, "hours": "48", "size_max": "1048576"}
    seen = admin.post(path, fields | {"csrf": admin.page(path).hidden("csrf"), "step": "look"})
    read(seen)
    for says in ("3 unread messages", "at most 48 hours", "1.0 MiB", "has no offsets", "full disk"):
        assert says in seen.words.replace("\u202f", " "), says
    assert admin.change(path, fields).headers["location"] == "/topics/HeldHere?_done=saved"
    assert f"HeldHere broker-a {GROUP} keeps messages 3" in admin.page("/topics/HeldHere").part("holds")
    assert "/topics/HeldHere/release-hold" in admin.page("/topics/HeldHere").text
    changed = admin.change(path, fields | {"hours": "24"})
    assert changed.status == 303
    for field, value in (("hours", "0"), ("hours", "8785"), ("size_max", "-1"), ("group", " ")):
        assert admin.change(path, fields | {field: value}).status == 422, (field, value)
    long = admin.change(path, fields | {"group": "g" * 300})
    assert long.status == 422 and "group: String should have at most" in long.words
    assert "pydantic" not in long.text, "a sentence for readers, not one for programmers"

    path = "/topics/HeldHere/release-hold"
    assert f"broker-a: 3 messages that {GROUP} has not consumed" in admin.page(path).words
    assert admin.change(path).status == 422, "its name has to be typed"
    assert admin.change(path, typed="HeldHere").status == 303
    assert "Its messages are not held" in admin.page("/topics/HeldHere").part("holds")
    assert admin.get(path).status == 404
    noted = entries(console, object="HeldHere")
    assert [one["action"] for one in noted] == ["hold.release", "hold.set", "hold.set"]
    assert (
        noted[1]["before"] == {"broker-a": f"{GROUP}, 48 h, 1048576 B"} and noted[1]["after"]["hours"] == 24
    )
    assert all(one["reason"] == "agreed" for one in noted)


def test_hold_that_another_user_changed_meanwhile_is_shown_again(guarded: mq.Admin, admin: Reader) -> None:
    path, fields = f"/topics/{TOPIC}/hold", {"group": GROUP, "hours": "12", "size_max": "0"}
    seen = admin.post(path, fields | {"csrf": admin.page(path).hidden("csrf"), "step": "look"})
    guarded.holds.set(TOPIC, GROUP, hours=36)
    late = {name: seen.hidden(name) for name in ("csrf", "stamp")} | {"step": "do", "reason": "late"}
    answer = admin.post(path, fields | late)
    assert answer.status == 409 and "at most 36 hours" in answer.words
    assert [one.hours for one in guarded.holds.list() if one.topic == TOPIC] == [36]
    guarded.holds.set(TOPIC, GROUP, hours=24)


def test_viewer_sees_no_form_of_holds(guarded: mq.Admin, console: Site, viewer: Reader) -> None:
    assert f"/topics/{TOPIC}/hold" not in viewer.page(f"/topics/{TOPIC}").text
    path = f"/topics/{TOPIC}/hold"
    fields = {"csrf": viewer.page("/").hidden("csrf"), "group": GROUP, "hours": "1", "size_max": "0"}
    seen = viewer.post(path, fields | {"step": "look"})
    answer = viewer.post(path, fields | {"step": "do", "stamp": seen.hidden("stamp"), "reason": "mine"})
    assert answer.status == 403 and [one.hours for one in guarded.holds.list() if one.topic == TOPIC] == [24]


def test_fences_of_a_group_are_those_that_the_brokers_enforce(
    guarded: mq.Admin, console: Site, viewer: Reader
) -> None:
    (found,) = json.loads(console.call("GET", f"/cluster/groups/{GROUP}/policies").text)["brokers"]
    assert (found["broker"], found["epoch"], found["revision"], found["maximum"]) == ("broker-a", 0, 3, 0)
    assert found["queues"] == [
        {"topic": TOPIC, "queue": 0, "owner": "archive@1", "generation": 7, "fenced": True}
    ]
    page = viewer.page(f"/groups/{GROUP}")
    read(page)
    shown = page.part("fences")
    assert f"{TOPIC} broker-a 0 archive@1 7 fenced" in shown
    assert "broker-a enforces policy 0.3. These may consume: archive@1" in shown
    assert f"delivers nothing of Other until it is resumed. Reason: {MARKUP}" in shown, "escaped, not lost"
    assert MARKUP not in page.text
    assert "No broker has granted queues" in viewer.page("/groups/billing").part("fences")


def test_broker_that_does_not_tell_leaves_only_its_part_grey(
    guarded: mq.Admin, viewer: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def told(*_: object) -> object:
        raise RefusedError("no broker answers", status=503)

    monkeypatch.setattr("sparrowmq.coordinator.api.told.guards.told", told)
    page = viewer.page(f"/groups/{GROUP}")
    assert "no broker answers" in page.part("fences")
    assert "no offsets yet" in page.part("queues"), "the other parts are shown"
