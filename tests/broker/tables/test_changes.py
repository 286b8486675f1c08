"""Changes on disk: one after the other, always completed, and never on the loop."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any, cast

import pytest
from tests.broker.doubles import FakeConnection
from tests.broker.housekeeping.test_retention_holds import rigged
from tests.support import run, until

from sparrowmq.broker.access.access_admin import AuthAdmin
from sparrowmq.broker.access.auth_store import AuthStore
from sparrowmq.broker.tables.changes import ChangeQueue
from sparrowmq.core.errors import StoreError
from sparrowmq.files import disk
from sparrowmq.protocol.bodies.access import UserInfo
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command


def test_change_is_made_at_once_without_a_loop() -> None:
    assert ChangeQueue[int]().run(lambda: 5) == 5
    with pytest.raises(StoreError):
        ChangeQueue[int]().run(lambda: fail())


def fail() -> int:
    raise StoreError("full")


def test_changes_are_made_in_order_and_completed() -> None:
    """A change whose caller was cancelled ends before the next begins; a failing one ends only itself."""

    async def main() -> None:
        changes, made, go = ChangeQueue[int](), list[int](), threading.Event()

        def slow() -> int:
            go.wait(10)
            made.append(1)
            return 1

        first = asyncio.ensure_future(cast("Any", changes.run(slow)))
        failing = asyncio.ensure_future(cast("Any", changes.run(fail)))
        last = asyncio.ensure_future(cast("Any", changes.run(lambda: made.append(2) or 2)))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0.01)
        assert first.cancelled() and made == [] and repr(changes) == "<Changes 3 running>"
        go.set()
        assert await last == 2
        with pytest.raises(StoreError):
            await failing
        assert made == [1, 2]
        await until(lambda: repr(changes) == "<Changes 0 running>")

    run(main())


def test_no_file_is_written_on_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Users, policies and holds: saving them to disk delays no other request."""
    store = AuthStore(tmp_path / "auth")
    users = AuthAdmin(store).table()
    threads: list[str] = []
    replace = disk.replace

    def noted(*args: Any, **options: Any) -> None:
        threads.append(threading.current_thread().name)
        replace(*args, **options)

    monkeypatch.setattr(disk, "replace", noted)
    user = UserInfo("alice", "secret12").encode()
    policy = b'{"policies":[{"entries":[{"resource":"Topic:T","actions":["Pub"],"decision":"Allow"}]}]}'
    subject = {"subject": "User:alice"}
    asks = [
        (users, Command(3001, body=user)),
        (users, Command(3002, body=user)),
        (users, Command(3006, ext=subject, body=policy)),
        (users, Command(3007, ext=subject, body=policy)),
        (users, Command(3008, ext=subject)),
        (users, Command(3003, ext={"username": "alice"})),
    ]
    with rigged(tmp_path / "holds") as rig:
        hold = {"topic": "T", "group": "g", "hours": "1"}
        holds: dict[int, Any] = {90101: rig.holds.put, 90102: rig.holds.delete}
        asks += [
            (holds, Command(RequestCode.PUT_RETENTION_HOLD, ext=hold)),
            (holds, Command(RequestCode.DELETE_RETENTION_HOLD, ext=hold)),
        ]

        async def main() -> None:
            threads.clear()
            for table, command in asks:
                before = len(threads)
                answer = await table[command.code](FakeConnection(), command)
                assert answer.code == ResponseCode.SUCCESS, (command.code, answer.remark)
                assert len(threads) > before, command.code

        run(main())
        assert threading.main_thread().name not in threads
