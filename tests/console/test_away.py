"""A cluster that is partly or fully unavailable: parts of pages are grey, pages still load."""

from __future__ import annotations

import asyncio
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import quote

import pytest
from tests.console.site import part_seconds, site
from tests.nameserver.helpers import registration
from tests.support import sqlite_url, until_sync

import sparrowmq as mq
from sparrowmq.console.texts import words
from sparrowmq.console.visits import PagePart, Values, Visit, load
from sparrowmq.coordinator.cluster import explorer
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.headers import RegisterBrokerRequest, to_ext
from sparrowmq.testing import LocalCluster
from sparrowmq.transport.client import RemotingClient


@pytest.fixture
def path(empty_database: Path, tmp_path: Path) -> Path:
    path = tmp_path / "coordinator.db"
    shutil.copy(empty_database, path)
    return path


def test_parts_of_an_unavailable_broker_are_grey(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explorer, "FRESH_SECONDS", 0.0)
    monkeypatch.setattr(explorer, "LAG_FRESH_SECONDS", 0.0)
    with (
        LocalCluster() as cluster,
        site(database_url=sqlite_url(path), namesrv_addr=cluster.namesrv) as console,
    ):
        assert console.admin.login("admin", console.password).status == 303
        assert "broker-a responds" in console.admin.page("/brokers").part("brokers")
        cluster.stop_broker()
        until_sync(lambda: "no broker is registered" in console.admin.page("/").part("verdict"))
        overview = console.admin.page("/")
        assert "rebalance" in overview.part("services")
        assert "Something is wrong" in overview.part("verdict")
        groups = console.admin.page("/groups")
        assert groups.part("groups").startswith("unknown") or "no groups" in groups.part("groups")
        for name in ("/topics", "/brokers", "/dead-letters", "/messages?topic=T&by=key&key=k", "/topics/T"):
            console.admin.page(name)


def test_pages_load_without_a_cluster(path: Path) -> None:
    with site(database_url=sqlite_url(path), namesrv_addr="127.0.0.1:1") as console:
        console.admin.login("admin", console.password)
        for name in (
            "/",
            "/topics",
            "/groups",
            "/groups/g",
            "/brokers",
            "/messages",
            "/dead-letters",
            "/services",
        ):
            page = console.admin.page(name)
            assert "audit" in page.text
        assert "unknown" in console.admin.page("/brokers").part("brokers")
        refused = console.admin.change("/new/topic", {"topic": "T", "queues": "1", "perm": "6"})
        assert refused.status == 503 and 'value="T"' in refused.text


@contextmanager
def silent_broker(cluster: LocalCluster) -> Iterator[str]:
    """The address of a registered broker with two topics: it accepts connections and never answers."""
    client = RemotingClient()

    async def register(address: str) -> Command:
        header = RegisterBrokerRequest(
            broker_name="broker-silent",
            broker_addr=address,
            cluster_name="DefaultCluster",
            broker_id=0,
            ha_server_addr="",
            heartbeat_timeout_millis=3_600_000,
        )
        command = Command(
            RequestCode.REGISTER_BROKER, ext=to_ext(header), body=registration("Quiet", "Still")
        )
        return await client.call(cluster.namesrv, command, 5)

    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        assert cluster.call(register(address)).code == ResponseCode.SUCCESS
        try:
            yield address
        finally:
            cluster.call(client.close())


KNOWN = {
    "/": ("services", "changes"),
    "/topics": ("topics",),
    "/topics/Quiet": ("owners",),
    "/groups/here": ("set", "resets"),
    "/brokers": ("brokers", "name_servers"),
    "/services/history?range=24h": ("service", "history"),
}
"""Parts of pages that a silent broker does not make grey."""


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Parts of pages wait for less time than for people, so that many of them time out soon."""
    monkeypatch.setattr(explorer, "WAIT_SECONDS", 0.5)
    with part_seconds(lambda _: 1.5):
        yield


def test_broker_that_never_answers_leaves_only_its_parts_grey(path: Path, impatient: None) -> None:
    with LocalCluster() as cluster:
        with mq.Admin(namesrv=cluster.namesrv) as admin, mq.Producer("p", namesrv=cluster.namesrv) as sender:
            admin.topics.create("Here", queues=1)
            admin.groups.create("here")
            sender.send(mq.Message("Here", b"x", keys=["k"]))
            admin.groups.commit("here", admin.topics.status("Here")[0].queue, 0)
        with (
            silent_broker(cluster) as address,
            site(database_url=sqlite_url(path), namesrv_addr=cluster.namesrv) as console,
        ):
            assert console.admin.login("admin", console.password).status == 303

            def is_grey(page: str, part: str) -> bool:
                """Whether that part of a page is grey; the page loads all the same."""
                return console.admin.page(page.format(silent=quote(address, safe=""))).grey(part)

            for page, parts in KNOWN.items():
                for part in parts:
                    until_sync(lambda page=page, part=part: not is_grey(page, part))  # type: ignore[misc]
            assert is_grey("/topics/Quiet", "queues")
            until_sync(lambda: "does not respond" in console.admin.page("/brokers").part("brokers"))
            answered = "did not answer: broker-silent"  # unknown is not shown as missing
            until_sync(lambda: answered in console.admin.page("/topics/Quiet").part("at"))


@pytest.fixture
def deaf() -> Iterator[str]:
    """The address of a name server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_pages_load_with_a_name_server_that_never_answers(path: Path, impatient: None, deaf: str) -> None:
    with site(database_url=sqlite_url(path), namesrv_addr=deaf) as console:
        assert console.admin.login("admin", console.password).status == 303
        for name, part in (
            ("/", "lag"),
            ("/topics", "topics"),
            ("/groups", "groups"),
            ("/brokers", "brokers"),
        ):
            assert console.admin.page(name).grey(part), name
        until_sync(lambda: not console.admin.page("/").grey("services"))
        for name in ("/groups/g", "/topics/T", "/messages?topic=T&by=key&key=k", "/waiting", "/dead-letters"):
            console.admin.page(name)


def test_part_that_takes_too_long_is_given_up_alone() -> None:
    given_up = list[str]()

    async def never(visit: Visit) -> Values:
        try:
            await visit.once("shared", asyncio.Event().wait)
        finally:
            given_up.append("never")
        return {}

    async def now(visit: Visit) -> Values:
        return {"here": True}

    visit = Visit(cast(Any, SimpleNamespace()), cast(Any, None), words("en"))
    slow, quick = asyncio.run(load(visit, [PagePart("slow", never, seconds=0.01), PagePart("quick", now)]))
    assert "No answer within 0.01 seconds" in slow.problem and slow.values == {}
    assert quick.values == {"here": True} and not quick.problem
    assert given_up == ["never"] and all(task.cancelled() for task in visit.asked.values())
