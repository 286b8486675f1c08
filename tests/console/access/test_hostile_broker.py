"""A broker that answers garbage, and markup where brokers and senders can write: pages stay valid."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
import pytest
from tests.console.site import Site, site
from tests.console.test_pages import read
from tests.support import sqlite_url, until_sync

import sparrowmq as mq
from sparrowmq.coordinator.cluster import explorer
from sparrowmq.protocol.frame import Command
from sparrowmq.testing import LocalCluster
from sparrowmq.transport.client import RemotingClient

MARKUP = "<svg/onload=alert(1)>"
NAMES = {MARKUP: {MARKUP: MARKUP}}
GARBAGE: dict[str, dict[str, Any]] = {
    "bytes": {"body": b"\xff\x00\xfe" * 1000},
    "cut JSON": {"body": b'{"table":{"a":'},
    "deep JSON": {"body": b"[" * 100_000},
    "wrong types": {"body": b'{"table":7,"offsetTable":[],"topicList":{},"holds":"x","connectionSet":3}'},
    "null": {"body": b"null"},
    "large numbers": {
        "body": b'{"table":{"putTps":"1e999","commitLogMaxOffset":"-9"},"x":1' + b"0" * 400 + b"}"
    },
    "markup": {
        "body": json.dumps(
            {"table": NAMES[MARKUP], "topicConfigTable": {MARKUP: {"topicName": MARKUP}}}
        ).encode()
    },
    "settings": {"body": f"brokerRole={MARKUP}\n{MARKUP}={MARKUP}\nfileReservedTime=x\n".encode()},
    "fields": {"ext": {"maxOffset": MARKUP, "minOffset": "-1", "offset": "9" * 400, "timestamp": ""}},
    "error": {"code": -7, "remark": MARKUP * 500, "body": b""},
}
PATHS = (
    "/",
    "/brokers",
    "/brokers/{broker}",
    "/brokers/{broker}/clients",
    "/topics",
    "/topics/Garbled",
    "/groups",
    "/groups/garbled",
    "/groups/garbled/plan",
    "/waiting",
    "/dead-letters",
    "/replicas",
    "/access",
    "/messages?topic=Garbled&by=key&key=k",
    "/messages?topic=Garbled&by=time",
    "/tail/Garbled",
)


@pytest.fixture(scope="module")
def garbled(
    empty_database: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Site, LocalCluster]]:
    """A console whose looks at the cluster are never kept, with a topic and a group."""
    path = tmp_path_factory.mktemp("garbled") / "coordinator.db"
    path.write_bytes(empty_database.read_bytes())
    with (
        pytest.MonkeyPatch.context() as patch,
        LocalCluster() as cluster,
        site(database_url=sqlite_url(path), namesrv_addr=cluster.namesrv) as found,
    ):
        for name in ("FRESH_SECONDS", "LAG_FRESH_SECONDS"):
            patch.setattr(explorer, name, 0.0)
        with (
            mq.Admin(namesrv=cluster.namesrv) as admin,
            mq.Producer("p", namesrv=cluster.namesrv) as producer,
        ):
            admin.topics.create("Garbled", queues=1)
            admin.groups.create("garbled")
            producer.send(mq.Message("Garbled", b"x", keys=["k", MARKUP], tags=MARKUP))
            admin.groups.commit("garbled", admin.topics.status("Garbled")[0].queue, 0)
        assert found.admin.login("admin", found.password).status == 303
        until_sync(lambda: "Garbled" in found.admin.page("/topics").text)
        yield found, cluster


@pytest.mark.parametrize("kind", GARBAGE)
def test_broker_that_answers_garbage_leaves_valid_pages(
    garbled: tuple[Site, LocalCluster], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    found, cluster = garbled
    whole, spoiled = RemotingClient._call, set[int]()

    async def call(self: RemotingClient, addr: str, command: Command, timeout: float) -> Command:
        answer = await whole(self, addr, command, timeout)
        if addr != cluster.broker_address:
            return answer
        spoiled.add(command.code)
        return msgspec.structs.replace(answer, **GARBAGE[kind])

    monkeypatch.setattr(RemotingClient, "_call", call)
    for path in PATHS:
        page = found.admin.get(path.replace("{broker}", quote(cluster.broker_address, safe="")))
        assert page.status in (200, 404, 502, 503), (path, page.status, page.words[-300:])
        read(page)
        assert "The coordinator failed" not in page.words, (path, page.words)
        assert MARKUP not in page.text and len(page.text) < 500_000, path
    assert len(spoiled) >= 5, "the broker was asked, and answered garbage"
    assert found.admin.page("/services").part("services"), "what needs no broker is there"


def test_markup_in_keys_and_tags_is_text(garbled: tuple[Site, LocalCluster]) -> None:
    found, _ = garbled
    query = urlencode({"topic": "Garbled", "by": "key", "key": MARKUP})
    page = until_sync(
        lambda: one if MARKUP in (one := found.admin.page(f"/messages?{query}")).part("found") else None
    )
    shown = found.admin.page("/messages/Garbled/broker-a/0/0")
    for one in (page, shown, found.admin.page(f"/search?{urlencode({'q': MARKUP})}")):
        read(one)
        assert MARKUP not in one.text
    assert MARKUP in shown.words, "escaped, not lost"


def test_markup_in_settings_of_groups_is_text(garbled: tuple[Site, LocalCluster]) -> None:
    found, _ = garbled
    body = {"value": True, "place": "Garbled", "reason": MARKUP}
    assert found.call("PUT", "/groups/garbled/settings/pause", json.dumps(body).encode()).status == 200
    page = found.admin.page("/groups/garbled")
    read(page)
    assert MARKUP in page.part("set") and MARKUP not in page.text
