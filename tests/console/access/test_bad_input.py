"""Pages with expired sessions, deleted objects, different clocks, an unavailable database, and very large
data."""

from __future__ import annotations

import gzip
import shutil
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from sqlalchemy.exc import OperationalError
from tests.console.furnished import ODD
from tests.console.site import Reader, Site, site
from tests.console.test_forms import entries
from tests.console.test_live import follow
from tests.console.test_pages import read
from tests.support import sqlite_url, until_sync

import sparrowmq as mq
from sparrowmq.console.pages.columns import lag_rows
from sparrowmq.coordinator.api import cluster
from sparrowmq.coordinator.api.told import pipelines
from sparrowmq.coordinator.records.pipelines import PipelineRow
from sparrowmq.testing import LocalCluster

NAMES = {
    "arabic": "\u0637\u0644\u0628-42",
    "chinese": "\u8ba2\u5355-42",
    "emoji": "\U0001f984-42",
    "thai": "\u0e04\u0e33",
}


def logged_out(found: Site, reader: Reader) -> None:
    """End the reader's session in another browser."""
    other = Reader(found.address, cookies=dict(reader.cookies))
    assert other.post("/logout", {"csrf": other.page("/").hidden("csrf")}).status == 303


def test_expired_session_during_a_form_changes_nothing_and_brings_back_what_was_typed(console: Site) -> None:
    reader = console.reader("admin", console.password)
    path, given = "/new/topic", {"topic": "MidForm", "queues": "3", "perm": "4"}
    seen = reader.post(path, given | {"csrf": reader.page(path).hidden("csrf"), "step": "look"})
    sent = given | {"csrf": seen.hidden("csrf"), "stamp": seen.hidden("stamp"), "step": "do"}
    sent |= {"reason": 'late & "odd"', "typed": "MidForm"}
    logged_out(console, reader)
    late = reader.post(path, sent)
    assert late.status == 401 and "nothing was done" in late.words and "csrf" not in late.text
    waiting = {name: late.hidden(name) for name in ("step", *(f"kept.{one}" for one in (*given, "reason")))}
    wrong = reader.post(path, waiting | {"name": "admin", "password": "a wrong password"})
    assert wrong.status == 401 and "name or the password is wrong" in wrong.words
    assert wrong.hidden("kept.topic") == "MidForm" and "a wrong password" not in wrong.text

    entered = waiting | {"name": "admin", "password": console.password}
    back = reader.post(path, entered)
    assert back.status == 200 and reader.cookies["sparrow_session"].startswith("smq_")
    for one in (
        'value="MidForm"',
        'value="3"',
        '<option value="4" selected',
        'value="late &amp; &#34;odd&#34;"',
    ):
        assert one in back.text, one
    assert console.password not in back.text
    assert "MidForm" in back.words and 'name="stamp"' in back.text, "the preview is made again"
    again = reader.post(path, entered)  # the reader reloads the page
    assert again.status == 403 and 'value="MidForm"' in again.text
    assert entries(console, object="MidForm") == [], "only a confirmation creates it"
    confirmed = sent | {"csrf": back.hidden("csrf"), "stamp": back.hidden("stamp")}
    assert reader.post(path, confirmed).status == 303
    (made,) = entries(console, object="MidForm")
    assert made["reason"] == 'late & "odd"'
    assert reader.post(path, confirmed).status in (409, 422)
    assert len(entries(console, object="MidForm")) == 1


def test_form_of_an_earlier_session_keeps_what_was_typed(console: Site) -> None:
    """The person has logged in again in another tab."""
    reader = console.reader("admin", console.password)
    path, given = "/topics/Orders/send", {"body": "one\r\ntwo <b>", "keys": "k-1", "reason": "a test"}
    sent = given | {"csrf": reader.page(path).hidden("csrf"), "step": "do", "stamp": "x"}
    assert reader.login("admin", console.password).status == 303
    late = reader.post(path, sent)
    assert late.status == 403 and "belongs to another session; nothing was done" in late.words
    assert (
        late.typed("body") == given["body"] and 'value="k-1"' in late.text and 'value="a test"' in late.text
    )
    assert late.hidden("csrf") != sent["csrf"]


def test_texts_of_several_lines_come_back_after_a_login_unchanged(console: Site) -> None:
    reader = console.reader("admin", console.password)
    path, body = "/topics/Orders/send", "{\r\n\t'a': \u202e\u8ba2\u5355\r\n}"
    sent = {"csrf": reader.page(path).hidden("csrf"), "step": "look", "body": body}
    logged_out(console, reader)
    late = reader.post(path, sent)
    waiting = {"step": late.hidden("step"), "kept.body": late.hidden("kept.body")}
    back = reader.post(path, waiting | {"name": "admin", "password": console.password})
    assert back.status == 200 and back.typed("body") == body


def test_topic_deleted_while_its_page_is_open_is_reported(
    console: Site, admin: Reader, cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparrowmq.console.answers.LIVE_SECONDS", 0.2)
    monkeypatch.setattr("sparrowmq.console.answers.STOP_LOOK_SECONDS", 0.1)
    with mq.Admin(namesrv=cluster.namesrv) as brokers:
        brokers.topics.create("Vanishing", queues=1)
    until_sync(lambda: "Vanishing" in admin.page("/topics").text)
    form = admin.post(
        "/topics/Vanishing/change",
        {
            "csrf": admin.page("/topics/Vanishing/change").hidden("csrf"),
            "step": "look",
            "queues": "2",
            "perm": "6",
        },
    )
    connection, stream = follow(admin, "/topics/Vanishing?_live=1")
    try:
        assert admin.change("/topics/Vanishing/delete", typed="Vanishing").status == 303
        assert any(b"no broker has the topic" in line for line in stream)
    finally:
        connection.close()
    page = admin.page("/topics/Vanishing")
    read(page)
    assert "no broker has the topic" in page.part("at")
    late = {"csrf": form.hidden("csrf"), "stamp": form.hidden("stamp"), "step": "do", "reason": "late",
            "queues": "2", "perm": "6"}  # fmt: skip
    assert admin.post("/topics/Vanishing/change", late).status == 404
    assert "Vanishing" not in admin.page("/topics").part("topics")


def test_unavailable_database_is_shown_on_the_page(
    empty_database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "coordinator.db"
    shutil.copy(empty_database, path)
    with site(database_url=sqlite_url(path), namesrv_addr="127.0.0.1:1") as found:
        assert found.admin.login("admin", found.password).status == 303
        database = found.coordinator._database
        assert database is not None

        def away() -> Any:
            raise OperationalError("SELECT 1", None, Exception("no connection"))

        with monkeypatch.context() as patch:
            patch.setattr(database, "_open", away)
            for one in ("/", "/audit", "/services", "/new/topic"):
                page = found.admin.get(one)
                assert page.status == 503 and "database" in page.words, (one, page.status)
                assert "Traceback" not in page.text
            assert Reader(found.address).login("admin", found.password).status == 503
        assert found.admin.get("/").status == 200, "it is there again, and so is the session"


def test_different_clocks_cause_no_negative_ages() -> None:
    ahead = time.time_ns() // 1_000_000 + 3_600_000
    group = {"group": "g", "messages": 3, "oldest_ms": ahead, "queues": 1, "topics": [], "error": ""}
    (row,) = lag_rows({"groups": [group]})
    assert row["age_ms"] == 0
    progress = {"rows": 10, "topics": [], "kind": "mirror"}
    turned = PipelineRow("p", "running", "ann", began_at=ahead, reported_at=ahead - 60_000, progress=progress)
    assert pipelines.view(turned)["rows_per_second"] is None


def test_bodies_of_four_mebibytes_give_small_pages(
    console: Site, admin: Reader, cluster: LocalCluster
) -> None:
    bodies = [b"\xff\xfe" * 2_000_000, b"x" * 4_000_000, b"[" * 4_000_000, gzip.compress(bytes(4_000_000))]
    with (
        mq.Admin(namesrv=cluster.namesrv) as brokers,
        mq.Producer("large", namesrv=cluster.namesrv) as producer,
    ):
        brokers.topics.create("Large", queues=1)
        for body in bodies:
            producer.send(mq.Message("Large", body))
    for offset, body in enumerate(bodies):
        page = admin.page(f"/messages/Large/broker-a/0/{offset}")
        read(page)
        assert len(page.text) < 400_000, (offset, len(page.text))
        assert "MiB" in page.part("body") or len(body) < 1 << 20
    assert len(admin.page("/tail/Large").text) < 100_000


def test_five_thousand_members_are_split_into_pages_of_fifty(
    admin: Reader,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def show(group: str, who: Any) -> dict[str, Any]:
        members = [
            {"client_id": f"10.0.0.1@{number:05}", "address": "10.0.0.1:1", "language": "JAVA", "version": 1,
             "queues": [f"T/b/{number}"] if number > 4990 else [], "error": None}
            for number in range(5000)
        ]  # fmt: skip
        queue = {"topic": "T", "broker": "b", "offset": 0, "next": 1, "lag": 1}
        queue |= {"in_flight": 0, "consumed_ms": 0, "lost": 0}
        return {
            "group": group, "online": True, "model": "CLUSTERING", "subscriptions": {"T": "*"},
            "type": "push", "configs": {}, "delivered_per_second": None,
            "queues": [queue | {"queue": number} for number in range(5000)], "members": members,
        }  # fmt: skip

    monkeypatch.setattr(cluster, "show_group", show)
    page = admin.page("/groups/huge")
    read(page)
    assert page.part("members").count("10.0.0.1@") == 50 and "page 1 of 100" in page.part("members")
    assert len(page.text) < 250_000
    last = admin.page("/groups/huge?members.page=100&members.q=04999")
    assert "10.0.0.1@04999" in last.part("members")


@pytest.mark.parametrize(
    ("query", "first", "pages"),
    [
        ("", "T00000", "page 1 of 2000"),
        ("topics.page=2000", "T99950", "page 2000 of 2000"),
        ("topics.q=T99&topics.sort=-topic", "T99999", "page 1 of 20"),
        ("topics.is.type=FIFO&topics.sort=-queues&topics.page=2", "T", "page 2 of 1000"),
        ("topics.is.brokers=broker-99999", "T99999", "1 of 100"),
    ],
)
def test_one_hundred_thousand_topics_are_split_into_pages_of_fifty(
    admin: Reader, monkeypatch: pytest.MonkeyPatch, query: str, first: str, pages: str
) -> None:
    rows = [
        {"topic": f"T{number:05}", "kind": "normal", "type": ("NORMAL", "FIFO")[number % 2], "perm": 6,
         "queues": number % 64, "brokers": [f"broker-{number}"]}
        for number in range(100_000)
    ]  # fmt: skip

    async def listed(who: Any, system: bool = False) -> dict[str, Any]:
        return {"looked_ms": 1, "topics": rows, "failed": {}}

    monkeypatch.setattr(cluster, "list_topics", listed)
    page = admin.page(f"/topics?{query}")
    found = page.text.count('<td class="text"><a href="/topics/T')
    assert 1 <= found <= 50 and len(page.text) < 150_000, "so many rows and bytes, however many topics"
    assert f">{first}" in page.text and pages in page.part("topics").replace(",", "")


@pytest.mark.parametrize("script", NAMES)
def test_names_in_any_script_are_found_and_shown(
    console: Site, admin: Reader, cluster: LocalCluster, script: str
) -> None:
    name = NAMES[script]
    with mq.Producer("scripts", namesrv=cluster.namesrv) as producer:
        producer.send(mq.Message(ODD.topic, name.encode(), tags=name, keys=[name], properties={name: name}))
    query = urlencode({"topic": ODD.topic, "by": "key", "key": name})
    page = until_sync(
        lambda: one if name in (one := admin.page(f"/messages?{query}")).part("found") else None
    )
    read(page)
    link = page.text.split(f'href="/messages/{ODD.topic}/')[1].split('"')[0]
    shown = admin.page(f"/messages/{ODD.topic}/{link}")
    read(shown)
    assert name in shown.part("body") and name in shown.part("properties") and name in shown.part("message")
    assert name in admin.page(f"/search?q={quote(name)}").words
    csv = admin.get(f"/messages?{query}&_csv=found").text
    assert name in csv
