"""A broker's role is written to disk beside the loop, and nobody is told of one that is not there."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from tests.broker.replication.test_replication import group
from tests.broker.replication.test_role_change import becomes, lease, order, state_of
from tests.support import run

from sparrowmq.broker.replication.authority import RoleRecord
from sparrowmq.core.errors import StoreError
from sparrowmq.protocol.bodies.replicas import FOLLOWING, SERVING
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.store.tables.config_file import ConfigFile
from sparrowmq.store.tables.epochs import ROLE_FILE, EpochFile


def test_the_loop_writes_no_roles_and_no_reigns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first question for the state, orders, renewals with another in-sync set, and following a master."""
    writers: list[tuple[str, bool]] = []

    def watched(kind: type, name: str) -> None:
        original = getattr(kind, name)

        def write(self: Any, *values: Any) -> None:
            if not isinstance(self, ConfigFile) or self.path.name == ROLE_FILE:
                writers.append((kind.__name__, threading.current_thread() is threading.main_thread()))
            original(self, *values)

        monkeypatch.setattr(kind, name, write)

    watched(ConfigFile, "save")
    watched(EpochFile, "save")

    async def scenario() -> None:
        async with group(tmp_path) as g:
            first, second = await g.master(), await g.slave()
            store = (await state_of(g, first)).store
            assert RoleRecord.of(first.parts.reign._file.load()).store == store
            assert (await lease(g, first, 1)).code == 0
            await becomes(g, first, SERVING)
            await becomes(g, second, FOLLOWING)
            renewed = await lease(g, first, 1, in_sync=[first.address, second.address], in_sync_number=2)
            assert renewed.code == 0
            assert RoleRecord.of(first.parts.reign._file.load()).number == 2

    run(scenario())
    assert {kind for kind, _ in writers} == {"ConfigFile", "EpochFile"}
    assert not [kind for kind, on_loop in writers if on_loop]


def test_orders_that_were_not_saved_are_saved_before_they_are_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same orders again are no change, but the disk does not have them yet."""
    original = ConfigFile.save

    def full(self: ConfigFile, value: dict[str, Any]) -> None:
        raise StoreError(f"cannot write {self.path}: no space is left")

    async def scenario() -> None:
        async with group(tmp_path) as g:
            broker = await g.master()
            assert (await lease(g, broker, 1)).code == 0
            await becomes(g, broker, SERVING)
            known = await state_of(g, broker)
            grant: dict[str, Any] = {
                "lease_ms": 5000,
                "lease_from": known.stamp,
                "run": known.run,
                "in_sync": [broker.address, "127.0.0.1:9"],
                "in_sync_number": 2,
            }
            monkeypatch.setattr(ConfigFile, "save", full)
            for _ in range(2):
                refused = await order(g, broker, 1, **grant)
                assert refused.code == ResponseCode.SYSTEM_ERROR
                assert "no space is left" in (refused.remark or "")
            monkeypatch.setattr(ConfigFile, "save", original)
            assert (await order(g, broker, 1, **grant)).code == 0
            assert RoleRecord.of(broker.parts.reign._file.load()).number == 2

    run(scenario())
