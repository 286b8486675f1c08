"""Every page and every link, on a real cluster: valid HTML, no inline script, nothing from other sites."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from urllib.parse import parse_qsl, urlsplit

import pytest
from tests.console.furnished import ODD
from tests.console.site import Answer, Reader, Site
from tests.support import until_sync

import sparrowmq as mq
from sparrowmq.console.pages import FORMS, PAGES
from sparrowmq.console.safety import HEADERS
from sparrowmq.console.texts import catalogue
from sparrowmq.testing import LocalCluster

VOID = frozenset("meta link input br img hr circle path rect meter option".split()) - {"meter", "option"}
PAGES_MAX = 1200


class Whole(HTMLParser):
    """Checks that all elements are closed, and collects what a page says of itself."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.faults: list[str] = []
        self.links: list[str] = []
        self.loads: list[str] = []
        self.ids: list[str] = []
        self.labelled: set[str] = set()
        self.fields: list[dict[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag not in VOID and not self.get_starttag_text().endswith("/>"):
            self.open.append(tag)
        if tag == "a" and values.get("href"):
            self.links.append(values["href"] or "")
        if tag in ("script", "link", "img"):
            self.loads.append(values.get("src") or values.get("href") or "inline")
        if values.get("id"):
            self.ids.append(values["id"] or "")
        if tag == "label" and values.get("for"):
            self.labelled.add(values["for"] or "")
        if tag in ("input", "select", "textarea") and values.get("type") != "hidden":
            self.fields.append(values | {"in_label": "yes" if "label" in self.open else None})
        for name in values:
            if name.startswith("on") or name in ("style", "srcdoc"):
                self.faults.append(f"{tag} has {name}")

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> closes something else")

    def handle_startendtag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)


def read(found: Answer) -> Whole:
    """A valid page, with what every page must have."""
    page = Whole()
    page.feed(found.text)
    assert page.faults == [] and page.open == []
    assert len(page.ids) == len(set(page.ids)), "one id for one thing"
    for one in page.fields:
        assert one["in_label"] or one.get("id") in page.labelled or one.get("aria-label"), one
    assert found.text.count("<h1") == 1
    assert re.search(r'<html lang="(en|zh)"', found.text)
    assert all(one.startswith("/static/") for one in page.loads), page.loads
    for name, value in HEADERS.items():
        assert found.headers[name.lower()] == value
    assert found.headers["cache-control"] == "no-store"
    assert "\u202e" not in found.text
    assert "<script>alert" not in found.text and "<img src=x" not in found.text
    return page


def shape_of(path: str) -> str:
    """Pages that differ only in numbers or in query fields have the same shape."""
    parts = urlsplit(path)
    names = {name.rpartition(".")[2] for name, _ in parse_qsl(parts.query)} - {
        "ids",
        "broker",
        "queue",
        "offset",
    }
    path = re.sub(r"^/(groups|topics|people|services|dead-letters)/[^/]+/", r"/\1/X/", parts.path)
    return re.sub(r"/\d+", "/N", path) + ("?" + "&".join(sorted(names)) if names else "")


def crawl(reader: Reader, *begin: str) -> dict[str, Answer]:
    """Every page that can be reached by links from the given pages."""
    found: dict[str, Answer] = {}
    wanted = list(begin)
    while wanted and len(found) < PAGES_MAX:
        path = wanted.pop()
        shape = shape_of(path)
        if shape in found:
            continue
        answer = reader.get(path)
        assert answer.status == 200, (path, answer.status, answer.words[-200:])
        found[shape] = answer
        if "text/html" in answer.headers["content-type"]:
            for link in read(answer).links:
                parts = urlsplit(link)
                assert not parts.scheme and not parts.netloc, f"{path} leads to {link}"
                if link.startswith("/"):
                    wanted.append(link.partition("#")[0])
    return found


def problems(found: Answer) -> list[str]:
    """Parts of a page that could not be shown."""
    return re.findall(r'<p class="grey"><span class="state unknown">.*?</p>', found.text, re.S)


STARTS = (
    "/",
    "/dead-letters",
    "/messages?topic=Orders&by=key&key=order-3",
    "/messages?topic=Orders&by=key&key=bytes",
)


@pytest.fixture
def busy(console: Site, admin: Reader, cluster: LocalCluster) -> Iterator[None]:
    """A group with a setting, a pause and a member, and a pipeline, all of which have their own pages."""
    report = json.dumps({"kind": "mirror", "run": "1", "topics": [{"topic": ODD.topic, "messages": 1}]})
    assert console.call("PUT", "/pipelines/busy", report.encode()).status == 200
    path = "/groups/busy/settings"
    for name, value in (("threads", 8), ("pause", True)):
        body = json.dumps({"value": value, "place": "*" if name == "threads" else "Nowhere"}).encode()
        assert console.call("PUT", f"{path}/{name}", body).status == 200
    with mq.PushConsumer("busy", namesrv=cluster.namesrv) as consumer:
        consumer.subscribe(ODD.topic, handler=lambda message: None)
        until_sync(lambda: "busy/members/" in admin.page("/groups/busy").text)
        yield
    assert console.call("DELETE", "/pipelines/busy").status == 200
    assert console.call("DELETE", f"{path}/threads").status == 200
    assert console.call("DELETE", f"{path}/pause?place=Nowhere").status == 200


def test_every_link_leads_to_a_valid_page(admin: Reader, busy: None) -> None:
    found = crawl(admin, "/groups/busy", *STARTS)
    shapes = [
        re.compile("^" + re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path)) + r"(\?|$)")
        for path in [*(one.path for one in PAGES), *(one.path for one in FORMS)]
    ]
    unseen = [one.pattern for one in shapes if not any(one.match(path) for path in found)]
    # test_group_changes.py and test_guards.py lead to the last two
    special = ("dead", "access", "replicas/", "/undo", "/release")
    assert [one for one in unseen if not any(name in one for name in special)] == [], (
        "a page that nothing leads to"
    )
    wrong = {path: problems(one) for path, one in found.items() if problems(one)}
    assert wrong == {}


def test_viewers_see_everything_but_no_controls(console: Site, viewer: Reader) -> None:
    found = crawl(viewer, *STARTS)
    offered = [
        path for path in found if re.search(r"/(drain|pause|reset|change|delete|settings|topic)$", path)
    ]
    assert offered == []
    assert len(found) > 30


def test_pages_are_in_chinese_for_chinese_readers(console: Site) -> None:
    reader = console.reader("viewer", ODD.password)
    reader.headers["Accept-Language"] = "zh-CN,zh;q=0.9,en;q=0.5"
    page = reader.page("/")
    assert '<html lang="zh"' in page.text and "有问题吗？" in page.words
    assert "Is anything wrong?" not in page.words


def test_services_say_in_both_languages_what_they_are_for(console: Site) -> None:
    titles = {one["name"]: one["title"] for one in json.loads(console.call("GET", "/services").text)}
    known = catalogue()
    assert {name: known[f"purpose.{name}"][0] for name in titles} == titles
    reader = console.reader("viewer", ODD.password)
    reader.headers["Accept-Language"] = "zh"
    shown = reader.page("/services").part("services")
    assert all(known[f"purpose.{name}"][1] in shown for name in titles)


def test_language_and_colour_scheme_are_kept(console: Site) -> None:
    reader = console.reader()
    assert 'data-theme="auto"' in reader.get("/login").text
    assert reader.post("/preferences", {"language": "zh", "theme": "dark", "next": "/login"}).status == 303
    again = reader.get("/login")
    assert '<html lang="zh" data-theme="dark">' in again.text
    reader.post("/preferences", {"language": "xx", "theme": "<b>"})
    assert '<html lang="zh" data-theme="dark">' in reader.get("/login").text


def test_static_files_are_cached_and_their_address_changes_with_content(admin: Reader) -> None:
    for path in read(admin.page("/")).loads:
        found = admin.get(path)
        assert found.status == 200 and "immutable" in found.headers["cache-control"]
        assert found.headers["x-content-type-options"] == "nosniff"
    for odd in ("/static/x/../app.py", "/static/x/%2e%2e%2fapp.py", "/static/x/console.py", "/static/x/"):
        assert admin.get(odd).status in (404, 421), odd


def test_missing_objects_have_an_error_page(admin: Reader) -> None:
    for path in ("/nothing", "/topics/", "/groups/a/b/c", "/%00", "/<script>alert(1)</script>"):
        found = admin.get(path.replace("<", "%3C").replace(">", "%3E"))
        assert found.status == 404, path
        read(found)
    gone = admin.page("/topics/Nothing")
    assert "no broker has the topic" in gone.part("at")
    assert admin.page("/alarms/999999").part("alarm").startswith("unknown there is no alarm 999999")


def test_overview_shows_the_cluster(admin: Reader) -> None:
    page = admin.page("/")
    assert "unread messages" in page.part("verdict")
    assert ODD.group in page.part("lag")
    assert "broker-a" in page.part("brokers") and "broker-a" in page.part("disks")
    assert "rebalance" in page.part("services")
    assert page.part("changes")


@pytest.mark.parametrize(
    "way",
    [
        "key=order-3&by=key",
        "by=time&begin=2020-01-01T00:00Z&end=2099-01-01T00:00Z",
        "by=offset&broker=broker-a&queue=0",
    ],
)
def test_messages_are_found(admin: Reader, way: str) -> None:
    page = admin.page(f"/messages?topic={ODD.topic}&{way}")
    assert "order-" in page.part("found")
    link = re.search(r'href="(/messages/Orders/[^"]+)"', page.text)
    assert link is not None
    one = admin.page(link[1])
    assert "order-" in one.part("message")
    assert '"note"' in one.part("body") and "alert(1)" in one.part("body")
    assert "turned abc\\u202egpj.exe" in one.part("properties")
    assert ODD.group in one.part("consumed")


def test_message_is_found_by_its_id(admin: Reader) -> None:
    by_key = admin.page(f"/messages?topic={ODD.topic}&by=key&key=order-3")
    name = re.search(r'href="/messages/Orders/[^"]+">([0-9A-F]+)<', by_key.text)
    assert name is not None
    assert "order-3" in admin.page(f"/messages?topic={ODD.topic}&by=id&id={name[1]}").part("found")
    assert "No messages found" in admin.page(f"/messages?topic={ODD.topic}&by=id&id=nothing").part("found")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("by=key", "Enter a key"),
        ("by=id", "Enter a message id"),
        ("by=time&begin=yesterday&end=2099-01-01", "is not a time"),
        ("by=time&begin=2026-01-01T00:00&end=2099-01-01", "has no time zone"),
        ("by=offset&broker=broker-a&queue=x", "whole number"),
        ("by=offset&broker=nobody&queue=0", ""),
    ],
)
def test_invalid_search_is_explained_and_the_input_is_kept(admin: Reader, fields: str, said: str) -> None:
    page = admin.page(f"/messages?topic={ODD.topic}&{fields}")
    assert 'role="alert"' in page.text and said in page.part("found")
    assert f'value="{ODD.topic}"' in page.text


def test_binary_bodies_are_shown_as_bytes(admin: Reader) -> None:
    page = admin.page(f"/messages?topic={ODD.topic}&by=key&key=bytes")
    link = re.search(r'href="(/messages/Orders/[^"]+)"', page.text)
    assert link is not None
    body = admin.page(link[1]).part("body")
    assert "Binary" in body and "00000010 10 11 12" in body


def test_online_members_are_shown_whatever_their_names(admin: Reader, cluster: LocalCluster) -> None:
    settings = mq.ConsumerSettings(namesrv=cluster.namesrv, instance_name=ODD.markup + ODD.turned)
    with mq.PushConsumer("odd", settings=settings) as consumer:
        consumer.subscribe(ODD.topic, handler=lambda message: None)
        found = until_sync(
            lambda: one if "alert(1)" in (one := admin.page("/groups/odd")).part("members") else None
        )
        read(found)
        assert "abc\\u202egpj.exe" in found.part("members")
        drawn = until_sync(lambda: one if "<path" in (one := admin.page("/groups/odd")).text else None)
        read(drawn)
        assert "alert(1)" in drawn.part("queues")


def test_lag_of_a_group_that_never_consumed_is_unknown(admin: Reader, cluster: LocalCluster) -> None:
    """It is not 0, and no reason to warn on the overview."""
    with mq.Admin(namesrv=cluster.namesrv) as brokers:
        brokers.groups.create("newcomers")
        try:
            until_sync(lambda: "newcomers unknown" in admin.page("/groups").part("groups"))
            summary = admin.page("/groups/newcomers").part("summary")
            assert "Lag unknown" in summary and "no offsets yet" in summary
            overview = admin.page("/")
            assert "could not be checked" not in overview.part("verdict")
            assert "newcomers" not in overview.part("lag")
        finally:
            brokers.groups.delete("newcomers")
