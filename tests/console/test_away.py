"""A cluster that is partly or fully unavailable: parts of pages are grey, pages still load."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.console.site import site
from tests.support import sqlite_url, until_sync

from sparrowmq.coordinator.cluster import explorer
from sparrowmq.testing import LocalCluster


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
