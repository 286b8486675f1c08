"""Every change of topics, groups, messages and dead letters, made in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.console.browser.pressing import WALKS, Hand, hand, presses  # noqa: F401
from tests.console.browser.test_browser import browser  # noqa: F401
from tests.console.furnished import ODD
from tests.support import until_sync

import sparrowmq as mq
from sparrowmq.testing import LocalCluster

pytestmark = WALKS

BASE = "/topics/Pressed"
GROUP = "/groups/pressed"


@pytest.fixture(scope="module")
def brokers(cluster: LocalCluster) -> Iterator[mq.Admin]:
    with mq.Admin(namesrv=cluster.namesrv) as admin:
        yield admin


@presses(
    "/new/topic",
    "/topics/{topic}/change",
    "/topics/{topic}/hold",
    "/topics/{topic}/release-hold",
    "/topics/{topic}/delete",
)
def test_topic_is_created_changed_held_released_and_deleted(hand: Hand, brokers: mq.Admin) -> None:  # noqa: F811
    fields = {"topic": "Pressed", "queues": "2"}
    hand.change("/topics", "/new/topic", fields, action="topic.create", says="Pressed")
    assert len(brokers.topics.status("Pressed")) == 2
    hand.change(BASE, f"{BASE}/change", {"queues": "3"}, action="topic.change", says="from 2 to 3")
    assert len(brokers.topics.status("Pressed")) == 3
    fields = {"group": ODD.group, "hours": "24"}
    hand.change(BASE, f"{BASE}/hold", fields, action="hold.set", says="at most 24 hours")
    assert [one.hours for one in brokers.holds.list() if one.topic == "Pressed"] == [24]
    hand.change(BASE, f"{BASE}/release-hold", action="hold.release", typed="Pressed")
    assert [one for one in brokers.holds.list() if one.topic == "Pressed"] == []
    hand.change(BASE, f"{BASE}/delete", action="topic.delete", typed="Pressed", says="Pressed")
    assert "Pressed" not in brokers.topics.list()


@pytest.fixture(scope="module")
def queue(brokers: mq.Admin, cluster: LocalCluster) -> mq.MessageQueue:
    """The queue of a topic with ten messages: `pressed` and `behind` have read three of them, `ahead`
    eight.
    """
    brokers.topics.create("PressedBills", queues=1)
    with mq.Producer("presser", namesrv=cluster.namesrv) as producer:
        for number in range(10):
            producer.send(mq.Message("PressedBills", str(number).encode()))
    (found,) = brokers.topics.status("PressedBills")
    for group, offset in (("pressed", 3), ("behind", 3), ("ahead", 8)):
        brokers.groups.create(group)
        brokers.groups.commit(group, found.queue, offset)
    return found.queue


@presses("/groups/{group}/reset", "/groups/{group}/undo", "/groups/{group}/skip", "/groups/{group}/clone")
def test_offsets_of_a_group_are_reset_undone_skipped_and_copied(
    hand: Hand,  # noqa: F811
    brokers: mq.Admin,
    queue: mq.MessageQueue,
) -> None:
    def is_at(offset: int, group: str = "pressed") -> bool:
        found = brokers.groups.progress(group)
        return [one.consumer_offset for one in found if one.queue == queue] == [offset]

    def is_done(count: int) -> bool:
        return hand.console.admin.page(GROUP).part("resets").count("done") == count

    fields = {"topic": queue.topic, "to": "first"}
    says = "3 messages are read again"
    hand.change(GROUP, f"{GROUP}/reset", fields, action="group.reset", typed="pressed", says=says)
    until_sync(lambda: is_at(0) and is_done(1))
    hand.change(GROUP, f"{GROUP}/undo", action="group.reset", typed="pressed", says="3 are skipped")
    until_sync(lambda: is_at(3) and is_done(2))
    fields = {"topic": queue.topic, "queue": f"{queue.broker_name}/{queue.queue_id}", "count": "2"}
    hand.change(GROUP, f"{GROUP}/skip", fields, action="group.reset", typed="pressed", says="2 are skipped")
    until_sync(lambda: is_at(5) and is_done(3))
    form, fields = "/groups/behind/clone", {"source": "ahead"}
    says = "5 are skipped"
    hand.change("/groups/behind", form, fields, action="group.takeover", typed="behind", says=says)
    assert is_at(8, "behind")


@presses(
    "/groups/{group}/setting", "/groups/{group}/unset", "/groups/{group}/pause", "/groups/{group}/resume"
)
def test_dynamic_settings_of_a_group_are_set_and_unset(hand: Hand, queue: mq.MessageQueue) -> None:  # noqa: F811
    def now() -> str:
        return hand.console.call("GET", "/groups/pressed/settings").text

    fields = {"name": "threads", "value": "8"}
    hand.change(GROUP, f"{GROUP}/setting", fields, action="setting.set", says="8")
    assert '"threads"' in now()
    hand.change(GROUP, f"{GROUP}/unset?which=threads", action="setting.unset", says="threads")
    assert '"threads"' not in now()
    hand.change(GROUP, f"{GROUP}/pause", {"minutes": "5"}, action="setting.set", says="5 minutes")
    assert '"pause"' in now()
    hand.change(GROUP, f"{GROUP}/resume?which=pause", action="setting.unset", says="pressed")
    assert '"pause"' not in now()


@presses("/topics/{topic}/send", "/messages/{topic}/{broker}/{queue}/{offset}/resend")
def test_message_is_sent_and_sent_again(hand: Hand, brokers: mq.Admin) -> None:  # noqa: F811
    brokers.topics.create("PressedMail", queues=1)
    fields = {"body": "line 1\nline 2", "keys": "pressed-1", "properties": "amount=5"}
    hand.change("/tail/PressedMail", "/topics/PressedMail/send", fields, action="message.send", says="13")

    def count() -> int:
        return sum(one.max_offset for one in brokers.topics.status("PressedMail"))

    assert count() == 1
    place = f"/messages/PressedMail/{brokers.topics.status('PressedMail')[0].queue.broker_name}/0/0"
    hand.change(place, f"{place}/resend", action="message.resend", says="PressedMail")
    assert count() == 2


@pytest.fixture
def letters(hand: Hand, brokers: mq.Admin, cluster: LocalCluster) -> str:  # noqa: F811
    """The page of a group with three dead letters."""
    settings = mq.ConsumerSettings(namesrv=cluster.namesrv, consume_from="first", max_reconsume_times=0)
    brokers.topics.create("PressedDead", queues=1)
    with (
        mq.Producer("dead-presser", namesrv=cluster.namesrv) as producer,
        mq.PushConsumer("pressed-dead", settings=settings) as consumer,
    ):
        for number in range(3):
            producer.send(mq.Message("PressedDead", str(number).encode()))
        consumer.subscribe("PressedDead", handler=lambda message: mq.Retry("poison"))
        until_sync(lambda: "pressed-dead 3" in hand.console.admin.page("/dead-letters").part("dead"))
    return "/dead-letters/pressed-dead"


@presses(
    "/dead-letters/{group}/resend",
    "/dead-letters/{group}/resends/{number}/stop",
    "/dead-letters/{group}/purge",
)
def test_dead_letters_are_resent_stopped_and_deleted(hand: Hand, letters: str) -> None:  # noqa: F811
    """Selected rows fill in the form; at one letter in ten seconds there is time to stop."""
    hand.open(letters)
    picks: Any = hand.page.locator("[data-part=letters] input[type=checkbox]")
    for number in range(3):
        picks.nth(number).check()
    with hand.page.expect_navigation():
        hand.page.click("form#picked button")
    assert len(hand.page.input_value("[name=ids]").split()) == 3
    hand.fill({"rate": "0.1"})
    hand.send("look")
    assert "3" in hand.page.locator(".preview").inner_text()
    hand.confirm({}, action="dead-letters.resend")
    hand.change(f"{letters}/resends", "/stop", action="dead-letters.stop")
    until_sync(lambda: '/stop"' not in hand.console.admin.page(f"{letters}/resends").text)
    hand.change(letters, f"{letters}/purge", action="dead-letters.purge", typed="pressed-dead")
    until_sync(lambda: "pressed-dead" not in hand.console.admin.page("/dead-letters").part("dead"))
