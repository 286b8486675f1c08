"""Finding messages, following a topic, sending by hand, a message's history: on a real cluster."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from html import unescape
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from tests.console.furnished import ODD
from tests.console.site import Answer, Reader, Site
from tests.console.test_forms import entries
from tests.console.test_pages import read
from tests.support import until_sync

import sparrowmq as mq
from sparrowmq.console.pages.bodies import ShownBody, body_of
from sparrowmq.console.pages.messages import one
from sparrowmq.testing import LocalCluster

TAG = ODD.markup.replace("|", "")


@pytest.fixture(scope="module")
def shop(console: Site, cluster: LocalCluster) -> Iterator[str]:
    """A topic with ten messages, two of them of a large amount."""
    with (
        mq.Admin(namesrv=cluster.namesrv) as brokers,
        mq.Producer("shop3", namesrv=cluster.namesrv) as producer,
    ):
        brokers.topics.create("Shop", queues=2)
        for number in range(10):
            properties = {"amount": str(number), "region": "eu" if number % 2 else "us"}
            tag = "even" if number % 2 == 0 else "odd"
            producer.send(mq.Message("Shop", f"body {number}".encode(), tags=tag, properties=properties))
        yield "Shop"


def find(reader: Reader, **fields: str) -> Answer:
    found = reader.page(f"/messages?{urlencode(fields)}")
    read(found)
    return found


def test_messages_are_found_by_tag_and_by_sql(admin: Reader, shop: str) -> None:
    assert find(admin, topic=shop, by="tags", tags="even").part("found").count("body ") == 5
    assert find(admin, topic=shop, by="tags", tags="even || odd").part("found").count("body ") == 10
    large = find(admin, topic=shop, by="sql", sql="amount >= 7 AND region = 'eu'")
    assert [large.part("found").count(f"body {number}") for number in (7, 8, 9)] == [1, 0, 1]
    assert "No messages found" in find(admin, topic=shop, by="tags", tags="none").words


def test_filter_is_combined_with_a_time_range(admin: Reader, shop: str) -> None:
    past = {"begin": "2020-01-01T00:00:00Z", "end": "2021-01-01T00:00:00Z"}
    assert "No messages found" in find(admin, topic=shop, by="tags", tags="even", **past).words
    now = {"begin": "2020-01-01T00:00:00Z", "end": "2099-01-01T00:00:00Z"}
    assert find(admin, topic=shop, by="sql", sql="amount = 3", **now).part("found").count("body ") == 1
    assert find(admin, topic=ODD.topic, by="key", key="order-3", **now).part("found").count("order-3") == 1
    assert "No message" in find(admin, topic=ODD.topic, by="key", key="order-3", **past).words
    turned = find(admin, topic=shop, by="time", begin=now["end"], end=now["begin"])
    assert "is later than" in turned.words


def test_search_results_are_exported(admin: Reader, shop: str) -> None:
    found = find(admin, topic=shop, by="tags", tags="even")
    link = unescape(re.findall(r'href="([^"]*_get=jsonl)"', found.text)[0])
    answer = admin.get(link)
    assert answer.status == 200 and answer.headers["cache-control"] == "no-store"
    assert answer.headers["content-disposition"] == 'attachment; filename="Shop.jsonl"'
    assert [json.loads(line)["tags"] for line in answer.text.splitlines()] == ["even"] * 5
    odd = admin.get(f"/messages?{urlencode({'topic': '../x', 'by': 'tags', 'tags': 'a', '_get': 'jsonl'})}")
    assert odd.status in (404, 422, 502, 503)
    odd = admin.get(
        f"/messages?{urlencode({'topic': ODD.topic, 'by': 'sql', 'sql': 'x >', '_get': 'jsonl'})}"
    )
    assert odd.status == 422 and "text/html" in odd.headers["content-type"]


def test_selected_messages_are_exported_in_order(admin: Reader, shop: str) -> None:
    found = find(admin, topic=shop, by="tags", tags="even")
    places = [unescape(one) for one in re.findall(r'name="ids" value="([^"]+)"', found.text)]
    assert len(places) == 5
    chosen = [places[3], places[0]]
    fields = [("topic", shop), *(("ids", one) for one in chosen)]
    answer = admin.get(f"/messages?{urlencode([*fields, ('_get', 'picked-jsonl')])}")
    assert answer.status == 200 and answer.headers["sparrow-messages"] == "2"
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert [f"{one['broker']}/{one['queue']}/{one['offset']}" for one in lines] == chosen
    table = admin.get(f"/messages?{urlencode([*fields, ('_get', 'picked-parquet')])}")
    assert table.status == 200 and table.text.startswith("PAR1")
    for wrong, status in (
        ([], 422), (["x"], 422), (["broker-a/0/999999"], 404), (["a/b/-1"], 422), (places * 21, 422),
    ):  # fmt: skip
        asked = [("topic", shop), *(("ids", one) for one in wrong), ("_get", "picked-jsonl")]
        refused = admin.get(f"/messages?{urlencode(asked)}")
        assert refused.status == status and "text/html" in refused.headers["content-type"], wrong
        read(refused)


@pytest.mark.parametrize(
    "sql",
    [
        "amount >=",
        "' OR '1'='1",
        "1=1; DROP TABLE audit; --",
        "amount = 1 UNION SELECT password_hash FROM person",
        "(" * 2000,
        ODD.markup,
        "amount IN (" + "'x'," * 900 + "'y')" + "a" * 3000,
    ],
)
def test_invalid_expression_is_reported_and_the_input_is_kept(admin: Reader, shop: str, sql: str) -> None:
    found = find(admin, topic=shop, by="sql", sql=sql)
    assert 'role="alert"' in found.text
    assert "<script>alert" not in found.text
    assert quote(sql[:10]) in quote(
        found.text.replace("&#39;", "'").replace("&lt;", "<").replace("&gt;", ">")
    )
    tail = admin.page(f"/tail/{shop}?{urlencode({'sql': sql})}")
    assert 'role="alert"' in tail.text


def test_newest_messages_are_followed_without_changing_group_offsets(
    admin: Reader, shop: str, cluster: LocalCluster
) -> None:
    with mq.Admin(namesrv=cluster.namesrv) as brokers:
        before = brokers.groups.list(system=True)
        first = admin.page(f"/tail/{shop}")
        read(first)
        assert first.part("newest").count("body ") == 10 and f'data-live="/tail/{shop}"' in first.text
        with mq.Producer("shop4", namesrv=cluster.namesrv) as producer:
            producer.send(mq.Message(shop, b"later", tags=TAG, properties={"late": "yes"}))
        until_sync(lambda: "later" in admin.page(f"/tail/{shop}").part("newest"))
        only = admin.page(f"/tail/{shop}?{urlencode({'sql': 'late IS NOT NULL'})}")
        assert only.part("newest").count("later") == 1 and "body " not in only.part("newest")
        assert brokers.groups.list(system=True) == before
        assert brokers.topics.groups(shop) == []


def test_manual_message_is_sent_with_all_fields(console: Site, admin: Reader, cluster: LocalCluster) -> None:
    with mq.Admin(namesrv=cluster.namesrv) as brokers:
        brokers.topics.create("ByHand", queues=1)
    fields = {
        "body": f"line one\r\n{ODD.markup}",
        "tags": "hand",
        "keys": "k1 k2",
        "properties": f"note={ODD.formula}\nsecond=2",
        "delay": "0",
    }
    done = admin.change("/topics/ByHand/send", fields)
    assert done.headers["location"] == "/tail/ByHand?_done=sent", done.words[-300:]
    page = until_sync(lambda: one if "k1, k2" in (one := admin.page("/tail/ByHand")).words else None)
    link = page.text.split('href="/messages/ByHand/')[1].split('"')[0]
    one = admin.page(f"/messages/ByHand/{link}")
    read(one)
    assert "line one" in one.part("body") and "alert(1)" in one.part("body")
    assert "hand" in one.part("message") and ODD.formula in one.part("properties")
    (entry,) = entries(console, action="message.send", object="ByHand")
    assert entry["after"]["tags"] == "hand" and "line one" not in json.dumps(entry)

    again = admin.change(f"/messages/ByHand/{link}/resend")
    assert again.status == 303
    until_sync(lambda: admin.page("/tail/ByHand").words.count("k1, k2") == 2)
    (entry,) = entries(console, action="message.resend")
    assert entry["after"]["offset"] == 0

    for wrong in (
        {"properties": "no separator"},
        {"properties": "KEYS=reserved"},
        {"properties": "a\x01=b"},
        {"delay": "-1"},
        {"delay": "9999999"},
        {"delay": "x"},
        {"tags": "x" * 300},
    ):
        answer = admin.change("/topics/ByHand/send", fields | wrong)
        assert answer.status == 422 and 'role="alert"' in answer.text, wrong
        assert "line one" in answer.words, "what was typed stays"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_very_large_page_is_shown_as_text(
    console: Site, cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, language: str
) -> None:
    data = f"{'[' * 900}{','.join('1' * 31_600)}{']' * 900}".encode()
    on_loop: list[bool] = []

    def noted(body: bytes) -> ShownBody:
        on_loop.append(asyncio._get_running_loop() is not None)
        return body_of(body)

    monkeypatch.setattr(one, "body_of", noted)
    with (
        mq.Admin(namesrv=cluster.namesrv) as brokers,
        mq.Producer("shop3", namesrv=cluster.namesrv) as producer,
    ):
        brokers.topics.create("Deep", queues=1)
        sent = producer.send(mq.Message("Deep", data, keys=["k" * 5000], properties={"long": "p" * 5000}))
    console.admin.headers = {"Accept-Language": language}
    try:
        name, offset = sent.queue.broker_name, sent.queue_offset
        page = console.admin.page(f"/messages/Deep/{name}/0/{offset}")
        listed = console.admin.page(f"/messages?topic=Deep&by=offset&broker={name}&queue=0&offset=0")
    finally:
        console.admin.headers = {"Accept-Language": "en"}
    assert page.part("body").count("1,1,1") > 1000 and on_loop == [False]
    assert {"en": "more than 32 deep", "zh": "嵌套超过 32 层"}[language] in page.part("body")
    assert len(page.text) < 1_000_000
    assert "p" * 5000 in page.part("properties"), "the page of one message has its properties whole"
    assert "k" * 2000 + "…" in listed.part("found") and "k" * 2001 not in listed.text


def test_multi_line_message_is_sent_as_typed(console: Site, admin: Reader, cluster: LocalCluster) -> None:
    """The same after a preview, with the values that the page then holds."""
    with mq.Admin(namesrv=cluster.namesrv) as brokers:
        brokers.topics.create("Lines", queues=1)
    body, path = '{\n\t"name": "\u0645\u200f & <b>"\n}\n', "/topics/Lines/send"
    typed = {"body": body.replace("\n", "\r\n"), "properties": "one=1\r\ntwo=2", "delay": "0"}
    seen = admin.post(path, typed | {"csrf": admin.page(path).hidden("csrf"), "step": "look"})
    shown = {name: seen.typed(name) for name in ("body", "properties")}
    held = {"csrf": seen.hidden("csrf"), "stamp": seen.hidden("stamp"), "step": "do", "reason": "agreed"}
    assert admin.post(path, typed | shown | held).status == 303
    with mq.Admin(namesrv=cluster.namesrv) as brokers:
        (queue,) = [one.queue for one in brokers.topics.status("Lines")]
    with mq.PullConsumer(namesrv=cluster.namesrv) as reader:
        (sent,) = until_sync(lambda: reader.pull(queue, 0).messages)
    assert sent.body.decode() == body
    assert (sent.properties["one"], sent.properties["two"]) == ("1", "2")


def test_only_permitted_users_can_send(viewer: Reader, admin: Reader) -> None:
    page = viewer.page(f"/topics/{ODD.topic}")
    assert "/send" not in page.text
    answer = viewer.change(f"/topics/{ODD.topic}/send", {"body": "x", "delay": "0"})
    assert answer.status == 403
    for topic in ("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "%25DLQ%25x"):
        assert admin.change(f"/topics/{topic}/send", {"body": "x", "delay": "0"}).status in (404, 422, 502)


def test_delayed_message_waits_and_its_history_is_shown(
    console: Site, admin: Reader, cluster: LocalCluster
) -> None:
    with mq.Admin(namesrv=cluster.namesrv) as brokers:
        brokers.topics.create("Lives", queues=1)
    with mq.Producer("lives", namesrv=cluster.namesrv) as producer:
        timed = producer.send(mq.Message("Lives", b"timed", tags=TAG, delay=3600.0)).message_id
        level = producer.send(mq.Message("Lives", b"level", delay_level=18)).message_id
        failing = producer.send(mq.Message("Lives", b"failing")).message_id
    page = until_sync(lambda: one if timed in (one := admin.page("/waiting")).text else None)
    read(page)
    assert level in page.part("due") and "level 18" in page.part("levels")
    assert "Lives" in page.part("by-topic")
    life = until_sync(
        lambda: one if "delayed until" in (one := admin.page(f"/life/Lives?id={timed}")).words else None
    )
    read(life)

    settings = mq.ConsumerSettings(namesrv=cluster.namesrv, consume_from="first", max_reconsume_times=0)
    with mq.PushConsumer("mortal", settings=settings) as consumer:
        consumer.subscribe("Lives", handler=lambda message: mq.Retry("no"))
        until_sync(lambda: "dead letter" in admin.page(f"/life/Lives?id={failing}").part("standings"))
    stages = admin.page(f"/life/Lives?id={failing}")
    assert "stored" in stages.part("stages") and "mortal" in stages.part("stages")
    found = find(admin, topic="Lives", by="id", id=failing)
    assert failing in found.part("found")
    assert "No stored message has this id" in admin.page("/life/Lives?id=NOTHING").part("stages")


def test_half_messages_are_listed_until_they_end(admin: Reader, cluster: LocalCluster) -> None:
    with mq.Admin(namesrv=cluster.namesrv) as brokers:
        brokers.topics.create("Halves", queues=1)

    class Undecided:
        """Ends the transactions whose argument says so, and no others."""

        def execute(self, message: mq.HalfMessage, argument: Any) -> mq.TransactionState:
            return mq.TransactionState.COMMIT if argument else mq.TransactionState.UNKNOWN

        def check(self, message: mq.ReceivedMessage) -> mq.TransactionState:
            return mq.TransactionState.UNKNOWN

    with mq.Producer("halves", namesrv=cluster.namesrv, transaction_listener=Undecided()) as producer:
        open_id, ended = (
            producer.send_in_transaction(mq.Message("Halves", b"half", tags=TAG), commit).send.message_id
            for commit in (False, True)
        )
        page = until_sync(lambda: one if open_id in (one := admin.page("/waiting")).text else None)
        read(page)
        assert "halves" in page.part("halves") and ended not in page.text
        assert "half message" in admin.page(f"/life/Halves?id={open_id}").part("stages")
        assert "committed" in admin.page(f"/life/Halves?id={ended}").part("stages")


def test_offset_id_cannot_make_the_console_connect_elsewhere(console: Site, admin: Reader) -> None:
    """An offset id contains a broker address; an address that is not of the cluster is not contacted."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.3)
        port = server.getsockname()[1]
        strange = f"7F000001{port:08X}{0:016X}"
        found = find(admin, topic=ODD.topic, by="id", id=strange)
        assert "No messages found" in found.words
        with pytest.raises(TimeoutError):
            server.accept()


def test_groups_that_were_not_asked_are_shown_as_unknown(
    admin: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = find(admin, topic=ODD.topic, by="key", key="order-3")
    link = re.search(r'href="(/messages/Orders/[^"]+)"', page.text)
    assert link is not None
    assert f"{ODD.group} unknown" not in admin.page(link[1]).part("consumed")
    monkeypatch.setattr(one, "ASKED_MAX", 0)
    assert f"{ODD.group} unknown" in admin.page(link[1]).part("consumed")
