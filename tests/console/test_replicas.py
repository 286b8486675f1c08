"""Pages and forms of brokers with replicas, on fake brokers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.console.replicated import GROUP_PAGE, elect, replicated, three_brokers
from tests.console.site import Answer, Reader, Site
from tests.console.test_pages import read
from tests.coordinator.replicas.made_up_brokers import MadeUpBrokers
from tests.support import until_sync

from sparrowmq.console.pages.replicas import state_of
from sparrowmq.protocol.bodies.replicas import EpochStart

PAGE = GROUP_PAGE


@pytest.fixture
def brokers() -> MadeUpBrokers:
    return three_brokers()


@pytest.fixture
def found(empty_database: Path, tmp_path: Path, brokers: MadeUpBrokers) -> Iterator[Site]:
    path = tmp_path / "coordinator.db"
    path.write_bytes(empty_database.read_bytes())
    with replicated(path, brokers) as made:
        yield made


def shows(reader: Reader, part: str, *words: str) -> Answer:
    """The group's page, once a part of it has all the words."""

    def look() -> Answer | None:
        page = reader.page(PAGE)
        return page if all(word in page.part(part) for word in words) else None

    page = until_sync(look)
    assert page is not None
    read(page)
    return page


def managed(found: Site, brokers: MadeUpBrokers) -> Answer:
    """Put the group under the coordinator; its page once two brokers are in sync."""
    elect(found, brokers)
    return shows(found.admin, "replica-group", "and a copy in sync", "a, b")


def test_forms_elect_a_master_and_change_it(found: Site, brokers: MadeUpBrokers) -> None:
    first = found.admin.page("/replicas")
    read(first)
    assert "g 3" in first.part("unelected") and 'href="/replicas/g/manage"' in first.text
    page = managed(found, brokers)
    assert re.search(r"b slave follows its master in sync 1 0 0 B nothing acknowledged", page.part("copies"))
    assert "60 B of the log, 60 B of them acknowledged" in page.part("copies"), "c is behind"
    assert "replicas.first-master" in page.part("elections") and "agreed" in page.part("elections")
    listed = found.admin.page("/replicas")
    read(listed)
    assert "g has a master, and a copy in sync a" in listed.part("replicas")
    assert "of all brokers are elected" in listed.part("unelected")
    again = found.admin.get(f"{PAGE}/manage")
    assert again.status == 409 and "elected already" in again.words

    asked = found.admin.get(f"{PAGE}/elect")
    read(asked)
    assert re.findall(r'<option value="(\w*)"', asked.text.partition("<main")[2]) == ["b"], "c is not in sync"
    assert "b becomes master instead of a" in asked.words
    assert found.admin.change(f"{PAGE}/elect", {"target": "c"}).status == 422
    done = found.admin.change(f"{PAGE}/elect", {"target": "b"})
    assert done.status == 303 and done.headers["location"].startswith(PAGE)
    until_sync(lambda: brokers.states["b"].state == "SERVING")
    shows(found.admin, "copies", "b master serves")
    assert found.admin.change(f"{PAGE}/release").status == 303
    until_sync(lambda: "g 3" in found.admin.page("/replicas").part("unelected"))


def test_unclean_election_shows_the_loss_and_needs_the_name(found: Site, brokers: MadeUpBrokers) -> None:
    managed(found, brokers)
    brokers.down.add("a")
    shows(found.admin, "copies", "a is down")
    seen = found.admin.change(f"{PAGE}/elect-unclean", {"target": "c"})
    assert seen.status == 422 and "did not type g" in seen.words
    assert "lost for good" in seen.words and "60 B of them acknowledged" in seen.words
    assert brokers.states["c"].role == "SLAVE", "nothing was done"
    done = found.admin.change(f"{PAGE}/elect-unclean", {"target": "c"}, typed="g")
    assert done.status == 303
    until_sync(lambda: brokers.states["c"].state == "SERVING")
    page = shows(found.admin, "elections", "replicas.elected-unclean")
    entries = json.loads(found.call("GET", "/audit?action=replicas.unclean").text)
    assert [one["reason"] for one in entries] == ["agreed"] and "agreed" in page.part("elections")


def test_form_older_than_an_election_does_nothing(found: Site, brokers: MadeUpBrokers) -> None:
    managed(found, brokers)
    old = found.admin.get(f"{PAGE}/elect")
    fields = {name: old.hidden(name) for name in ("csrf", "stamp")}
    brokers.down.add("a")
    until_sync(lambda: brokers.states["b"].state == "SERVING")
    brokers.down.discard("a")
    shows(found.admin, "copies", "b master serves")
    late = found.admin.post(f"{PAGE}/elect", fields | {"target": "b", "step": "do", "reason": "late"})
    assert late.status in (409, 422) and brokers.states["b"].state == "SERVING"


def test_viewers_see_replicas_but_no_controls(found: Site, brokers: MadeUpBrokers) -> None:
    managed(found, brokers)
    made = json.loads(found.call("POST", "/people", json.dumps({"name": "viewer"}).encode()).text)
    viewer = found.reader("viewer", made["password"])
    page = shows(viewer, "copies", "nothing acknowledged")
    assert f"{PAGE}/elect" not in page.text
    assert viewer.change(f"{PAGE}/elect", {"target": "b"}).status == 403
    viewer.headers["Accept-Language"] = "zh"
    chinese = viewer.page(PAGE)
    read(chinese)
    assert "不缺少已确认的消息" in chinese.part("copies") and "同步集" in chinese.words
    brokers.change("a", epochs=[EpochStart(0, 0), EpochStart(1, 50)])
    viewer.headers["Accept-Language"] = "en"
    shows(viewer, "copies", "at least 60 B")
    assert viewer.get("/replicas/nobody").status == 200, "a page that says so"
    assert "sparrow replicas manage" in viewer.page("/replicas/nobody").words


def test_group_that_was_not_seen_yet_is_unknown() -> None:
    group = {"seen_at": 0, "brokers": [], "master": "a", "epoch": 1, "in_sync": ["a"]}
    assert state_of(group) is None
    broker = {"address": "a", "state": "SERVING", "epoch": 1}
    assert state_of(group | {"seen_at": 1}) == "masterless"
    assert state_of(group | {"seen_at": 1, "brokers": [broker]}) == "one-copy"
    assert state_of(group | {"seen_at": 1, "brokers": [broker | {"epoch": 0}]}) == "masterless"
    assert state_of(group | {"seen_at": 1, "brokers": [broker], "in_sync": ["a", "b"]}) == "two-copies"
