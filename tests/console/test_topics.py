"""The page of a topic: size, next deletion, producers, people; and the impact of a change or a deletion."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.console.site import Reader, Site, site
from tests.console.test_pages import read
from tests.support import sqlite_url, until_sync

import sparrowmq as mq
from sparrowmq.coordinator.cluster import topic_facts
from sparrowmq.coordinator.upkeep.cleaning import Cut
from sparrowmq.testing import LocalCluster

TOPIC, GROUP = "Facts", "facts-readers"
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def topic(console: Site, cluster: LocalCluster) -> Iterator[mq.PushConsumer]:
    """A topic with five messages, three of which an online group has read."""
    with (
        mq.Admin(namesrv=cluster.namesrv) as admin,
        mq.Producer("facts-senders", namesrv=cluster.namesrv) as producer,
        mq.PushConsumer(GROUP, namesrv=cluster.namesrv) as consumer,
    ):
        admin.topics.create(TOPIC, queues=1)
        admin.groups.create(GROUP)
        for number in range(5):
            producer.send(mq.Message(TOPIC, str(number).encode()))
        (queue,) = admin.topics.status(TOPIC)
        admin.groups.commit(GROUP, queue.queue, 3)
        admin.groups.create("facts-behind")
        admin.groups.commit("facts-behind", queue.queue, 1)
        consumer.subscribe(TOPIC, handler=lambda message: None)
        until_sync(lambda: TOPIC in console.admin.page("/topics").text)
        yield consumer


def preview(admin: Reader, path: str, fields: dict[str, str]) -> str:
    seen = admin.post(path, fields | {"csrf": admin.page(path).hidden("csrf"), "step": "look"})
    assert seen.status == 200, seen.words
    read(seen)
    return seen.words


def test_topic_shows_size_producers_and_people(topic: Any, console: Site, viewer: Reader) -> None:
    body = {"name": "viewer", "kind": "topic", "object": TOPIC, "role": "owner", "reason": "hers"}
    assert console.call("POST", "/grants", json.dumps(body).encode()).status == 200
    page = viewer.page(f"/topics/{TOPIC}")
    read(page)
    assert "broker-a 5" in page.part("kept") and "72" in page.part("kept")
    (kept,) = json.loads(console.call("GET", f"/cluster/topics/{TOPIC}/retention").text)["brokers"]
    assert 5 * 80 < kept["bytes"] < 5 * 1000 and kept["deleted"] == 0 and kept["deletes_ms"] is None
    assert "facts-senders" in page.part("senders") and "online" in page.part("senders")
    assert "viewer owner" in page.part("owners")
    del body["role"]
    assert console.call("POST", "/grants", json.dumps(body).encode()).status == 200
    assert "No user has a role" in viewer.page(f"/topics/{TOPIC}").part("owners")


def test_impact_of_a_deletion_is_shown_first(topic: Any, admin: Reader) -> None:
    page = until_sync(
        lambda: (
            words if "members online: 1" in (words := preview(admin, f"/topics/{TOPIC}/delete", {})) else ""
        )
    )
    assert "facts-behind: unread messages that are lost: 4; members online: 0" in page
    assert f"{GROUP}: unread messages that are lost: " in page
    assert "Sends to it fail afterwards. The last senders: " in page


@pytest.mark.parametrize(
    ("perm", "reads", "sends"),
    [("4", False, True), ("2", True, False), ("0", True, True), ("6", False, False)],
)
def test_impact_of_a_permission_change_is_shown_first(
    topic: Any, admin: Reader, perm: str, reads: bool, sends: bool
) -> None:
    words = preview(admin, f"/topics/{TOPIC}/change", {"queues": "1", "perm": perm})
    assert ("facts-behind can no longer read it. Unread messages: 4" in words) is reads
    assert ("Sends to it fail. The last senders" in words) is sends


def test_fewer_queues_show_how_many_messages_are_in_the_removed_ones(
    console: Site, admin: Reader, cluster: LocalCluster
) -> None:
    with (
        mq.Admin(namesrv=cluster.namesrv) as brokers,
        mq.Producer("fewer", namesrv=cluster.namesrv) as producer,
    ):
        brokers.topics.create("Fewer", queues=2)
        for number in range(3):
            producer.send(mq.Message("Fewer", b"x"), queue=mq.MessageQueue("Fewer", "broker-a", number % 2))
    until_sync(lambda: "Fewer" in admin.page("/topics").part("topics"))
    words = preview(admin, "/topics/Fewer/change", {"queues": "1", "perm": "6"})
    assert "queues 1–1 are no longer written or read" in words and "They have 1 messages" in words


def test_next_deletion_is_shown_with_its_calculation(
    empty_database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that deletes messages older than one hour from now."""
    path = tmp_path / "coordinator.db"
    path.write_bytes(empty_database.read_bytes())
    soon = int(time.time() * 1000) + HOUR_MS
    monkeypatch.setattr(topic_facts, "next_cut", lambda log, samples: Cut(soon, soon))
    with (
        LocalCluster() as cluster,
        site(database_url=sqlite_url(path), namesrv_addr=cluster.namesrv) as found,
    ):
        with mq.Admin(namesrv=cluster.namesrv) as brokers, mq.Producer("p", namesrv=cluster.namesrv) as maker:
            brokers.topics.create("Old", queues=2)
            for number in range(4):
                maker.send(mq.Message("Old", str(number).encode()))
        assert found.admin.login("admin", found.password).status == 303
        until_sync(lambda: "Old" in found.admin.page("/topics").part("topics"))
        (kept,) = json.loads(found.call("GET", "/cluster/topics/Old/retention").text)["brokers"]
        assert (kept["deleted"], kept["deletes_ms"], kept["before_ms"]) == (4, soon, soon)
        page = found.admin.page("/topics/Old")
        read(page)
        link = page.text.split('href="/messages?topic=Old&amp;by=time&amp;end=')[1].split('"')[0]
        shown = found.admin.page(f"/messages?topic=Old&by=time&end={link}")
        assert "4 of 4 rows" in shown.part("found"), "exactly those that go"
