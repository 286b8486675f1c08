"""The rig for dynamic settings: one coordinator and cluster per module, one topic and group per test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Final

import pytest
from tests.coordinator.groups.running_world import World
from tests.coordinator.running import running
from tests.support import sqlite_url

from sparrowmq.testing import LocalCluster

_NUMBERS: Final = count(1)


@pytest.fixture(scope="module")
def running_world(migrated: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    path = tmp_path_factory.mktemp("live") / "coordinator.db"
    shutil.copy(migrated, path)
    with LocalCluster() as cluster, ExitStack() as stack:
        found = stack.enter_context(running(database_url=sqlite_url(path), namesrv_addr=cluster.namesrv))
        yield World(cluster, path, found)


@pytest.fixture
def world(running_world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr("sparrowmq.client.consumer.managed.REPORT_SECONDS", 0.05)
    number = next(_NUMBERS)
    running_world.cluster.create_topic(f"Orders{number}", queues=2)
    return replace(running_world, group=f"billing{number}", topic=f"Orders{number}", handled=[])
