"""Streams of open pages are limited, and other users are still served."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path

from tests.console.furnished import ODD
from tests.console.site import ANSWER_SECONDS, Reader, Site, site
from tests.support import sqlite_url, until_sync

from sparrowmq.console.streams import STREAMS_PER_USER, StreamLimit, Streams


def opened(stack: ExitStack, reader: Reader, path: str) -> int:
    """Open the stream of a page until the stack is closed; returns the status, and fails on a refusal
    without a reason."""
    connection = HTTPConnection(reader.address, timeout=ANSWER_SECONDS)
    stack.callback(connection.close)
    cookie = "; ".join(f"{name}={value}" for name, value in reader.cookies.items())
    connection.request("GET", f"{path}?_live=1", headers={"Cookie": cookie, "Accept-Language": "en"})
    answer = connection.getresponse()
    if answer.status == 429:
        text = answer.read().decode()
        assert answer.headers["Retry-After"] and "limit" in text
    else:
        stack.callback(answer.close)
    return answer.status


def test_streams_are_limited_for_each_user_and_in_total() -> None:
    streams = Streams(100)
    assert [streams.enter(f"user-{number}") for number in range(50)] == [None] * 50, "a page of each"
    assert [streams.enter("user-0") for _ in range(STREAMS_PER_USER - 1)] == [None] * (STREAMS_PER_USER - 1)
    assert streams.enter("user-0") == StreamLimit("word.crowded-own", STREAMS_PER_USER)
    while (limit := streams.enter(f"more-{len(streams)}")) is None:
        pass
    assert limit == StreamLimit("word.crowded", 100) and len(streams) == 100
    streams.leave("user-1")
    assert streams.enter("user-2") is None and streams.enter("user-1") is not None


def test_streams_of_one_user_leave_room_for_others(console: Site) -> None:
    viewer, path = console.reader("viewer", ODD.password), "/services/plan-check"
    second = console.reader("viewer", ODD.password)
    with ExitStack() as admins:
        with ExitStack() as stack:
            half = STREAMS_PER_USER // 2
            assert [opened(stack, viewer, path) for _ in range(half)] == [200] * half
            assert [opened(stack, second, path) for _ in range(half)] == [200] * half
            assert opened(stack, viewer, path) == 429, "sessions of one user count together"
            assert opened(stack, second, path) == 429
            assert opened(admins, console.admin, path) == 200
            assert viewer.page(path).status == 200
        with ExitStack() as again:
            until_sync(lambda: opened(again, viewer, path) == 200)


def test_streams_of_all_users_leave_room_for_requests(empty_database: Path, tmp_path: Path) -> None:
    path = tmp_path / "coordinator.db"
    shutil.copy(empty_database, path)
    with site(database_url=sqlite_url(path), namesrv_addr="127.0.0.1:1", connections_max=8) as found:
        assert found.admin.login("admin", found.password).status == 303
        with ExitStack() as stack:
            assert [opened(stack, found.admin, "/services") for _ in range(9)] == [200] * 4 + [429] * 5
            assert found.reader().get("/login").status == 200
