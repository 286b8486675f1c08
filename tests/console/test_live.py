"""Open pages are updated automatically until the session ends. Tables are exported as CSV."""

from __future__ import annotations

import csv
import io
import json
import threading
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPResponse

import pytest
from tests.console.furnished import ODD
from tests.console.site import ANSWER_SECONDS, Reader, Site

from sparrowmq.console import answers
from sparrowmq.console.rendering import render
from sparrowmq.console.visits import Loaded, PagePart, Visit, load
from sparrowmq.coordinator.records import audit


@pytest.fixture
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "LIVE_SECONDS", 0.05)
    monkeypatch.setattr(answers, "STOP_LOOK_SECONDS", 0.02)
    monkeypatch.setattr(answers, "LIVE_TURNS", 1000)


def follow(reader: Reader, path: str) -> tuple[HTTPConnection, HTTPResponse]:
    connection = HTTPConnection(reader.address, timeout=ANSWER_SECONDS)
    cookie = "; ".join(f"{name}={value}" for name, value in reader.cookies.items())
    connection.request("GET", path, headers={"Cookie": cookie, "Accept": "text/event-stream"})
    return connection, connection.getresponse()


def test_changed_parts_are_sent_until_the_session_ends(console: Site, brisk: None) -> None:
    reader = console.reader("viewer", ODD.password)
    connection, stream = follow(reader, "/services/plan-check?_live=1")
    try:
        assert stream.getheader("content-type", "").startswith("text/event-stream")
        found: dict[str, str] = {}
        paused = False
        for line in stream:
            if line.startswith(b'data: {"part"'):
                event = json.loads(line[6:])
                found[event["part"]] = event["html"]
            if "service" in found and not paused:
                assert console.admin.change("/services/plan-check/pause").status == 303
                paused = True
            if paused and "paused" in found["service"]:
                break
        assert "paused" in found["service"]
        reader.post("/logout", {"csrf": reader.page("/").hidden("csrf")})
        assert any(line == b"event: end\n" for line in stream)
        assert stream.read() in (b"", b"data: {}\n\n")
    finally:
        connection.close()
        console.admin.change("/services/plan-check/resume")


def test_unchanged_part_is_rendered_once(console: Site, brisk: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert console.admin.change("/services/plan-check/pause").status == 303
    rendered: list[str] = []
    turns = threading.Event()

    async def loaded(visit: Visit, parts: Sequence[PagePart]) -> list[Loaded]:
        found = await load(visit, [one for one in parts if one.name == "options"])
        loads.append(len(found))
        if len(loads) > 10:
            turns.set()
        return found

    def noted(template: str, **values: object) -> str:
        rendered.append(template)
        return render(template, **values)

    loads: list[int] = []
    reader = console.reader("viewer", ODD.password)
    monkeypatch.setattr(answers, "load", loaded)
    monkeypatch.setattr(answers, "render", noted)
    connection, stream = follow(reader, "/services/plan-check?_live=1")
    try:
        assert any(line.startswith(b'data: {"part": "options"') for line in stream)
        assert turns.wait(60)
        assert rendered == ["parts/table"]
    finally:
        connection.close()
        monkeypatch.undo()
        console.admin.change("/services/plan-check/resume")


def rows(reader: Reader, path: str) -> list[dict[str, str]]:
    found = reader.page(path)
    assert found.headers["content-type"].startswith("text/csv")
    assert "attachment" in found.headers["content-disposition"]
    return list(csv.DictReader(io.StringIO(found.text)))


def test_tables_are_exported_as_csv_without_formulas(admin: Reader) -> None:
    topics = rows(admin, "/topics?_csv=topics")
    assert ODD.topic in [one["topic"] for one in topics]
    entries = rows(admin, "/audit?_get=csv")
    reasons = {one["reason"] for one in entries}
    assert f"'{ODD.formula}" in reasons and ODD.formula not in reasons
    assert all(one["at"].endswith("Z") for one in entries)
    only = rows(admin, "/audit?_get=csv&audit.is.kind=person")
    assert only and {one["kind"] for one in only} == {"person"}
    assert admin.get("/topics?_csv=nothing").status == 404


def test_audit_log_is_read_page_by_page(
    console: Site, admin: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(55):
        assert (
            console.call("PUT", "/limits/many", b'{"messages": 5, "age_ms": 0, "reason": "again"}').status
            == 200
        )
    first = admin.page("/audit?audit.is.object=many")
    assert first.part("audit").count("limit") >= 50
    link = first.text.split('rel="next" href="')[1].split('"')[0].replace("&amp;", "&")
    older = admin.page(link)
    assert 'rel="next"' not in older.text and older.part("audit").count(" again") == 5
    monkeypatch.setattr(audit, "PAGE_MAX", 20)  # three pages of entries make the file
    found = rows(admin, "/audit?_get=csv&audit.is.object=many")
    assert len({one["id"] for one in found}) == len(found) == 55
    listed = admin.page("/audit?_get=jsonl&audit.is.object=many")
    lines = [json.loads(one) for one in listed.text.splitlines()]
    assert [str(one["id"]) for one in lines] == [one["id"] for one in found]
    assert 'filename="audit.jsonl"' in listed.headers["content-disposition"]
    for evil in ("many%27%20OR%20%271%27=%271", "%25", "many;%20DROP%20TABLE%20audit"):
        assert "No entries match" in admin.page(f"/audit?audit.is.object={evil}").words
