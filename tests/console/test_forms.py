"""Changes from pages, on a real cluster: each has a preview and leaves its audit entry."""

from __future__ import annotations

import asyncio
import json
import re
from html import unescape
from typing import Any
from urllib.parse import urlencode

import pytest
from tests.console.furnished import ODD
from tests.console.site import Reader, Site
from tests.console.test_pages import read
from tests.support import until_sync

import sparrowmq as mq
from sparrowmq.cli.coordinator.mcp_tools import FORMS as PLANNED
from sparrowmq.console import visits
from sparrowmq.coordinator.api import cluster
from sparrowmq.coordinator.records import findings
from sparrowmq.coordinator.records.findings import Finding, Repair
from sparrowmq.testing import LocalCluster


def entries(console: Site, **fields: str) -> list[dict[str, Any]]:
    query = "&".join(f"{name}={value}" for name, value in fields.items())
    found: list[dict[str, Any]] = json.loads(console.call("GET", f"/audit?{query}").text)
    return found


def test_service_is_paused_and_resumed(console: Site, admin: Reader) -> None:
    done = admin.change("/services/governance/pause", reason=ODD.markup)
    assert (done.status, done.headers["location"]) == (303, "/services/governance?_done=pause")
    page = admin.page(done.headers["location"])
    assert "Paused." in page.words and "paused" in page.part("service") and "alert(1)" in page.part("service")
    (entry,) = entries(console, action="service.pause", object="governance")
    assert (entry["actor"], entry["reason"]) == ("admin", ODD.markup)
    again = admin.change("/services/governance/pause")
    assert again.status == 409 and "already paused" in again.words
    assert admin.change("/services/governance/resume").status == 303


def test_service_settings_are_previewed_before_they_are_saved(console: Site, admin: Reader) -> None:
    path = "/services/lag-alarm/settings"
    csrf = admin.page(path).hidden("csrf")
    fields = {"interval_seconds": "30", "messages": "100", "csrf": csrf}
    seen = admin.post(path, fields | {"step": "look"})
    assert "messages: 100000 → 100" in seen.words and "30000 ms" in seen.words
    assert json.loads(console.call("GET", "/services/lag-alarm").text)["interval_ms"] == 60_000
    assert admin.change(path, {"interval_seconds": "60", "messages": "100"}).status == 303
    options = json.loads(console.call("GET", "/services/lag-alarm").text)["options"]
    assert next(one["value"] for one in options if one["name"] == "messages") == 100
    assert admin.change(path, {"interval_seconds": "60", "messages": "100000"}).status == 303
    for field, value in (
        ("messages", "-1"),
        ("messages", "many"),
        ("interval_seconds", "nan"),
        ("checks", "101"),
    ):
        wrong = admin.change(path, {field: value})
        assert wrong.status == 422 and 'role="alert"' in wrong.text, (field, value)
        assert f'value="{value}"' in wrong.text, "what was typed stays"


def test_concurrent_changes_do_not_overwrite_each_other(admin: Reader) -> None:
    path = "/services/retention/pause"
    seen = admin.post(path, {"csrf": admin.page(path).hidden("csrf"), "step": "look"})
    assert admin.change(path).status == 303
    late = {"csrf": seen.hidden("csrf"), "stamp": seen.hidden("stamp"), "step": "do", "reason": "mine"}
    answer = admin.post(path, late)
    assert (
        answer.status == 409 and "The situation has changed" in answer.words and 'value="mine"' in answer.text
    )
    assert admin.change("/services/retention/resume").status == 303


def test_service_shows_what_it_found_and_how_it_is_repaired(console: Site, viewer: Reader) -> None:
    assert "found nothing" in viewer.page("/services/notices").part("findings")
    database = console.coordinator._database
    assert database is not None
    limit = Repair("drop-limit", {"group": "billing", "topic": "*"}, {})
    found = [Finding("odd", ODD.markup, ODD.markup, ODD.group, ODD.topic, {}, limit)]
    with database.write() as connection:
        findings.replace(connection, "notices", found)
    page = viewer.page("/services/notices")
    read(page)
    part = page.part("findings")
    assert ODD.markup in part and "sparrow repair run" in part
    assert f'href="/groups/{ODD.group}"' in page.text and f'href="/topics/{ODD.topic}"' in page.text
    with database.write() as connection:
        findings.replace(connection, "notices", [])


def test_reason_is_required(admin: Reader) -> None:
    answer = admin.change("/services/notices/run", reason="  ")
    assert answer.status == 422 and "Give a reason" in answer.words


def test_topic_is_created_changed_and_deleted(console: Site, admin: Reader, cluster: LocalCluster) -> None:
    fields = {"topic": "Made", "queues": "4", "perm": "6"}
    assert admin.change("/new/topic", fields).headers["location"] == "/topics?_done=created"
    assert "broker-a 4 4" in admin.page("/topics/Made").part("at")
    there = admin.change("/new/topic", fields)
    assert there.status == 409 and "already" in there.words and 'value="Made"' in there.text

    seen = admin.post(
        "/topics/Made/change",
        {
            "csrf": admin.page("/topics/Made/change").hidden("csrf"),
            "step": "look",
            "queues": "2",
            "perm": "4",
        },
    )
    assert (
        "changes from 4 to 2" in seen.words
        and "2–3 are no longer" in seen.words
        and "read only" in seen.words
    )
    assert admin.change("/topics/Made/change", {"queues": "2", "perm": "4"}).status == 303
    assert "read only" in admin.page("/topics/Made").part("at")

    with mq.Producer("shop2", namesrv=cluster.namesrv) as producer:
        assert admin.change("/topics/Made/change", {"queues": "2", "perm": "6"}).status == 303
        producer.send(mq.Message("Made", b"x"))
    wrong = admin.change("/topics/Made/delete", typed="made")
    assert wrong.status == 422 and "did not type Made" in wrong.words
    assert "with 1 messages" in wrong.words
    assert admin.change("/topics/Made/delete", typed="Made").status == 303
    assert "Made" not in [
        one["topic"] for one in json.loads(console.call("GET", "/cluster/topics").text)["topics"]
    ]
    actions = [one["action"] for one in entries(console, object="Made")]
    assert actions == ["topic.delete", "topic.change", "topic.change", "topic.create"]
    (entry, *_) = entries(console, object="Made")
    assert entry["before"]["messages"] == 1


def test_topic_is_created_for_a_type_of_messages(console: Site, admin: Reader, cluster: LocalCluster) -> None:
    fields = {"topic": "Steps", "queues": "1", "perm": "6", "type": "FIFO"}
    token = admin.page("/new/topic").hidden("csrf")
    seen = admin.post("/new/topic", fields | {"csrf": token, "step": "look"})
    assert "of type FIFO" in seen.words
    wrong = admin.post("/new/topic", fields | {"type": "LIFO", "csrf": token, "step": "look"})
    assert wrong.status == 422 and "not &#39;LIFO&#39;" in wrong.text
    assert admin.change("/new/topic", fields).status == 303
    with mq.Admin(namesrv=cluster.namesrv) as brokers:
        config = brokers.topics.config("broker-a", "Steps")
        assert config is not None and config.attributes == {"message.type": "FIFO"}
    assert "message.type=FIFO" in admin.page("/topics/Steps").part("at")
    (entry,) = entries(console, object="Steps")
    assert entry["after"]["type"] == "FIFO"
    body = json.dumps({"type": "DELAY", "reason": "they wait"}).encode()
    assert console.call("PUT", "/cluster/topics/Steps", body).status == 200
    found = json.loads(console.call("GET", "/cluster/topics/Steps").text)
    assert (found["type"], len(found["queues"])) == ("DELAY", 1)
    assert admin.change("/topics/Steps/delete", typed="Steps").status == 303


def test_broker_refusal_is_shown_and_audited(console: Site, admin: Reader) -> None:
    answer = admin.change("/new/topic", {"topic": "no blank", "queues": "4", "perm": "6"})
    assert answer.status in (422, 502) and "no blank" in answer.words
    noted = [one["action"] for one in entries(console, object="no%20blank")]
    assert noted == ["topic.create.failed", "topic.create"]


def test_form_that_gets_no_answer_in_time_does_nothing_and_keeps_the_input(
    admin: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    csrf = admin.page("/new/topic").hidden("csrf")
    monkeypatch.setattr(visits, "SEARCH_SECONDS", 0.05)
    monkeypatch.setattr(cluster, "list_topics", never)
    fields = {"topic": "Silent", "queues": "3", "perm": "6", "reason": "kept"}
    fields |= {"csrf": csrf, "stamp": "Silent"}
    for step in ("look", "do"):
        answer = admin.post("/new/topic", fields | {"step": step})
        assert answer.status == 503 and "No answer within 0.05 seconds; nothing was done" in answer.words
        assert 'value="Silent"' in answer.text and answer.hidden("reason") == "kept"


def test_invalid_numbers_are_refused_and_the_input_is_kept(admin: Reader) -> None:
    for queues in ("0", "x", "70000", "", "-1", "1" * 40):
        answer = admin.change("/new/topic", {"topic": "Odd", "queues": queues, "perm": "6"})
        assert answer.status == 422 and "must be a whole number" in answer.words


def test_offset_reset_is_previewed_and_executed(console: Site, admin: Reader) -> None:
    path, fields = (
        "/groups/billing/reset",
        {"topic": ODD.topic, "queue": "", "to": "last", "time": "", "offset": ""},
    )
    queues = json.loads(console.call("GET", f"/cluster/topics/{ODD.topic}").text)["queues"]
    count = sum(one["next"] - 1 for one in queues)  # it has read one of each queue
    seen = admin.post(path, fields | {"csrf": admin.page(path).hidden("csrf"), "step": "look"})
    assert f"0 messages are read again, {count} are skipped" in seen.words
    assert admin.change(path, fields).status == 422, "the name of the group has to be typed"
    assert admin.change(path, fields, typed="billing").status == 303
    until_sync(lambda: "done" in admin.page("/groups/billing").part("resets"))
    back = fields | {"to": "offset", "offset": "1"}
    seen = admin.post(path, back | {"csrf": admin.page(path).hidden("csrf"), "step": "look"})
    assert f"{count} messages are read again, 0 are skipped" in seen.words
    assert admin.change(path, back, typed="billing").status == 303
    until_sync(lambda: admin.page("/groups/billing").part("resets").count("done") == 2)
    times = ("noon", "2026-11-23T09:00:00", "9999-12-31T23:59:59-12:00")
    for wrong in (
        *({"to": "time", "time": one} for one in times),
        {"to": "offset", "offset": "-1"},
        {"queue": "x/y/z"},
    ):
        answer = admin.change(path, fields | wrong)
        assert answer.status == 422 and 'role="alert"' in answer.text, wrong


def test_alarm_is_acknowledged(console: Site, admin: Reader) -> None:
    def alarm() -> dict[str, Any]:
        console.call("POST", "/services/lag-alarm/run", b'{"reason": "test"}')
        found = json.loads(console.call("GET", "/alarms").text)
        return next((one for one in found if one["rule"] == "lag" and one["state"] != "pending"), {})

    number = until_sync(alarm)["id"]
    assert "unread messages" in admin.page(f"/alarms/{number}").part("alarm")
    assert admin.change(f"/alarms/{number}/silence", {"minutes": "15"}).status == 303
    page = admin.page(f"/alarms/{number}")
    assert "silenced" in page.part("alarm") and "alarm.silenced" in page.part("changes")
    assert admin.change(f"/alarms/{number}/silence", {"minutes": "3"}).status == 422
    assert admin.change(f"/alarms/{number}/wake").status == 303
    assert admin.change(f"/alarms/{number}/acknowledge").status == 303
    assert "acknowledged" in admin.page("/alarms").part("alarms")


def test_dead_letters_are_shown_and_sent_again(console: Site, admin: Reader, cluster: LocalCluster) -> None:
    settings = mq.ConsumerSettings(namesrv=cluster.namesrv, consume_from="first", max_reconsume_times=0)
    with mq.Producer("deadly", namesrv=cluster.namesrv) as producer:
        with mq.Admin(namesrv=cluster.namesrv) as brokers:
            brokers.topics.create("Deadly", queues=1)
        producer.send(mq.Message("Deadly", b"poison", keys=["k"], tags=ODD.markup.replace("|", "")))
    with mq.PushConsumer("fragile", settings=settings) as consumer:
        consumer.subscribe("Deadly", handler=lambda message: mq.Retry(f"poison {ODD.markup}"))
        until_sync(lambda: "fragile" in admin.page("/dead-letters").part("dead"))
    page = admin.page("/dead-letters/fragile")
    assert "Deadly" in page.part("letters")
    read(page)
    assert f"Retry: poison {ODD.markup}" in page.part("letters"), "our clients leave why"
    assert f"Retry: poison {ODD.markup} Deadly 1" in page.part("causes")
    link = page.text.split('data-part="causes"')[1].split('href="/dead-letters/fragile?letters.is.why=')[1]
    picked = admin.page(
        "/dead-letters/fragile?letters.is.why=" + unescape(link.split('"')[0]).partition("#")[0]
    )
    assert "1 of 1 rows" in picked.part("letters")
    (letter,) = re.findall(r'name="ids" value="(\w+)"', page.text)
    path = f"/dead-letters/fragile/resend?ids={letter}"
    typed = admin.page(f"{path}&ids=NOTHING").typed("ids")
    assert typed.split() == [letter, "NOTHING"], "all that are picked"
    done = admin.change(path, {"ids": f"{letter}\nNOTHING", "rate": "100"})
    assert done.headers["location"] == "/dead-letters/fragile/resends?_done=resent"
    outcome = until_sync(
        lambda: one if "Still" in (one := admin.page("/dead-letters/fragile/resends")).words else None
    )
    until_sync(lambda: "no longer exists" in admin.page("/dead-letters/fragile/resends").part("outcomes"))
    read(outcome)
    for wrong in ({"ids": ""}, {"rate": "0"}, {"rate": "nan"}, {"rate": "=1+1"}):
        assert admin.change(path, {"ids": letter, "rate": "10"} | wrong).status == 422, wrong
    (asked,) = entries(console, action="dead-letters.resend")
    (ended,) = entries(console, action="dead-letters.resent")
    assert asked["after"]["per_second"] == 100 and ended["after"]["sent"] == 1 and ended["after"]["gone"] == 1


def test_purging_dead_letters_needs_the_typed_name(
    console: Site, admin: Reader, cluster: LocalCluster
) -> None:
    settings = mq.ConsumerSettings(namesrv=cluster.namesrv, consume_from="first", max_reconsume_times=0)
    with mq.Admin(namesrv=cluster.namesrv) as brokers:
        brokers.topics.create("Purged", queues=1)
    with (
        mq.Producer("purged", namesrv=cluster.namesrv) as producer,
        mq.PushConsumer("purgeable", settings=settings) as consumer,
    ):
        consumer.subscribe("Purged", handler=lambda message: mq.Retry())
        for number in range(2):
            producer.send(mq.Message("Purged", b"x"))
            until_sync(lambda: "purgeable 1" in admin.page("/dead-letters").part("dead"))
            assert admin.change("/dead-letters/purgeable/purge", typed="purged").status == 422
            assert admin.change("/dead-letters/purgeable/purge", typed="purgeable").status == 303, number
            until_sync(lambda: "purgeable" not in admin.page("/dead-letters").part("dead"))
    purged = entries(console, action="dead-letters.purge")
    assert [one["before"]["messages"] for one in purged] == [1, 1]
    assert admin.get("/dead-letters/purgeable/purge").status == 404


def test_broker_is_drained_and_put_back(console: Site, admin: Reader, cluster: LocalCluster) -> None:
    base = f"/brokers/{cluster.broker_address.replace(':', '%3A')}"
    assert admin.change(f"{base}/drain").status in (303, 409)
    assert "drain" in admin.page(base).words
    assert admin.change(f"{base}/cancel").status in (303, 409)
    assert admin.change(f"{base}/forget").status == 422, "its address has to be typed"


def test_links_fill_in_fields_but_not_what_the_person_writes(admin: Reader) -> None:
    """The links of `plan_change`."""
    query = {"topic": "Planned", "queues": "3", "perm": "4"}
    query |= {"reason": "mine", "typed": "mine", "csrf": "mine", "step": "do"}
    page = admin.page(f"/new/topic?{urlencode(query)}")
    read(page)
    assert 'value="Planned"' in page.text and 'value="3"' in page.text
    assert re.search('value="mine"|>mine<', page.text) is None and page.hidden("csrf") != "mine"
    marked = admin.page(f"/new/topic?{urlencode({'topic': ODD.markup})}")
    read(marked)
    assert ODD.markup not in marked.text


@pytest.mark.parametrize("page", PLANNED)
def test_planned_forms_have_the_fields_that_the_tool_names(admin: Reader, page: str) -> None:
    path = page.replace("GROUP", ODD.group).replace("TOPIC", ODD.topic).replace("NAME", "lag-alarm")
    found = admin.get(path)
    assert found.status in (200, 404), "an undo is refused where nothing was reset"
    for name in PLANNED[page]:
        assert f'name="{name}"' in found.text, name
