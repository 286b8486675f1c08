"""Routes that read messages, over a topic whose messages are very large when they are decompressed, or have
very many properties: nothing of that is done on the loop, and all callers together hold little.
"""

from __future__ import annotations

import asyncio
import json
import threading
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from tests.coordinator.api.furnished import House, furnished
from tests.coordinator.cluster.explored import MadeUpAdmin, MadeUpReader, message

from sparrowmq import aio
from sparrowmq.coordinator.cluster import exporting, looking
from sparrowmq.core.message import BODY_BYTES_MAX, ReceivedMessage
from sparrowmq.protocol import compression
from sparrowmq.protocol.compression import compress, decompress
from sparrowmq.protocol.sysflag import COMPRESSED

PACKED = compress(bytes(BODY_BYTES_MAX))
COUNT = 64
ROUTES = [
    "/cluster/messages/T/by-id?id=id-0",
    "/cluster/messages/T/by-key?key=k",
    "/cluster/messages/T/at?broker=a&queue=0&count=200",
    "/cluster/messages/T/between?count=200",
    "/cluster/messages/T/search?tags=t&count=200",
    "/cluster/messages/T/newest?tags=t&count=200",
    "/cluster/messages/T/export",
    "/cluster/messages/T/export?key=k",
    "/cluster/messages/T/life?id=id-0",
    "/cluster/messages?text=k",
    "/cluster/dead-letters/mine",
    "/cluster/delayed",
    "/cluster/halves",
]
LISTS = ROUTES[:5]


def bomb(number: int = 0, topic: str = "T") -> ReceivedMessage:
    one = message(number, body=PACKED, topic=topic)
    return replace(one, sys_flag=COMPRESSED, store_size=len(PACKED) + 200)


class BombAdmin(MadeUpAdmin):
    """Every key and id finds very large messages, and every dead letter is one."""

    def __init__(self) -> None:
        super().__init__()
        self.ends = {"T": (0, COUNT)}

    async def messages_query(self, topic: str, key: str, **how: Any) -> list[ReceivedMessage]:
        return self._given(how, *(bomb(number, topic) for number in range(32)))

    async def messages_get(self, topic: str, key: str, **how: Any) -> ReceivedMessage | None:
        return self._given(how, bomb(99, topic))[0]

    async def dead_letters_list(self, group: str, **how: Any) -> list[ReceivedMessage]:
        return [] if how["after"] is not None else self._given(how, *map(bomb, range(16)))

    def _given(self, how: dict[str, Any], *found: ReceivedMessage) -> list[ReceivedMessage]:
        """As clients do by default: here, on the loop."""
        if how.get("decompress", True):
            return [replace(one, body=decompress(one.body, one.sys_flag), sys_flag=0) for one in found]
        return list(found)


@pytest.fixture(scope="module")
def house(migrated: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with furnished(migrated, tmp_path_factory.mktemp("large")) as found:
        clients = found.app.state.context.explorer._clients
        clients.made_admin = cast(aio.Admin, BombAdmin())
        give(found, {number: bomb(number) for number in range(COUNT)})
        yield found


def give(house: House, stored: dict[int, ReceivedMessage]) -> None:
    reader = MadeUpReader(stored)
    reader.step = 32
    house.app.state.context.explorer._clients.made_reader = cast(aio.PullConsumer, reader)


def get(house: House, path: str) -> Any:
    found = house.ask("GET", f"/api/v1{path}", token=house.tokens["viewer"])
    assert found.status == 200, found.answer
    return found.answer


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """The threads that decompressed anything."""
    found: list[threading.Thread] = []
    real = compression._inflate

    def noted(body: bytes, bytes_max: int) -> tuple[bytes, bool]:
        found.append(threading.current_thread())
        return real(body, bytes_max)

    monkeypatch.setattr(compression, "_inflate", noted)
    return found


@pytest.mark.parametrize("path", [*ROUTES, *(f"{one}&heads=true" for one in LISTS)])
def test_no_route_decompresses_on_the_loop(house: House, threads: list[threading.Thread], path: str) -> None:
    """Everything else in the process waits for that thread, including leases and heartbeats."""
    get(house, path)
    assert threading.current_thread() not in threads
    if any(one in path for one in ("/life", "/dead", "/delayed", "/halves")):
        assert not threads, "they show no bodies"


def test_many_simultaneous_callers_use_bounded_memory(house: House) -> None:
    """Excess callers wait; 32 bodies for each would be 3 GiB here."""
    people = ("viewer", "other", "helper", "guest")

    async def all_of_them() -> list[int]:
        asked = [
            house._ask("GET", f"/api/v1{path}", None, house.tokens[person])
            for path in ROUTES
            for person in people
        ]
        return [one.status for one in await asyncio.gather(*asked)]

    tracemalloc.start()
    try:
        statuses = house.runner.run(all_of_them())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert set(statuses) <= {200, 429, 503} and statuses.count(200) >= len(ROUTES)
    assert peak < 600 * 1024 * 1024
    explorer = house.app.state.context.explorer
    assert (explorer.looks.taken, explorer.exports.taken) == (0, 0)


@pytest.mark.parametrize("path", LISTS)
def test_number_of_bodies_in_an_answer_is_limited(house: House, path: str) -> None:
    found = get(house, path)
    messages = found["messages"] if isinstance(found, dict) else found
    assert 1 <= len(messages) <= looking.BYTES_MAX // BODY_BYTES_MAX
    assert all(one["body_bytes"] == BODY_BYTES_MAX and one["body_base64"] for one in messages)
    if "search" in path:
        assert found["stopped_ms"] is not None
    found = get(house, f"{path}&heads=true")
    messages = found["messages"] if isinstance(found, dict) else found
    assert len(messages) >= min(32, len(messages)) and "body_base64" not in messages[0]
    assert all(one["body_bytes"] == BODY_BYTES_MAX and len(one["head_base64"]) < 2000 for one in messages)
    if "by-id" not in path:
        assert len(messages) > looking.BYTES_MAX // BODY_BYTES_MAX


class Reading:
    """A client that reads its answer when the test wants it to."""

    def __init__(self, house: House, person: str) -> None:
        self.house, self.person = house, person
        self.may_read = asyncio.Event()
        self.begun = asyncio.Event()
        self.status, self.headers, self.size = 0, dict[str, str](), 0
        self.largest = 0
        self.pieces: list[bytes] = []
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        token = self.house.tokens[self.person]
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET",
            "scheme": "http", "path": "/api/v1/cluster/messages/T/export", "query_string": b"",
            "raw_path": b"/api/v1/cluster/messages/T/export", "root_path": "", "state": {},
            "headers": [(b"host", b"test"), (b"authorization", f"Bearer {token}".encode())],
            "client": ("10.0.0.1", 1), "server": ("test", 80),
        }  # fmt: skip

        async def receive() -> dict[str, Any]:
            await asyncio.Event().wait()
            raise AssertionError

        async def send(said: Any) -> None:
            if said["type"] == "http.response.start":
                self.status = said["status"]
                self.headers = {name.decode(): value.decode() for name, value in said["headers"]}
                return
            self.begun.set()
            if self.status == 200:
                await self.may_read.wait()
            self.largest = max(self.largest, len(said.get("body", b"")))
            self.pieces.append(said.get("body", b""))

        await self.house.app(scope, receive, send)

    @property
    def text(self) -> bytes:
        return b"".join(self.pieces)


def test_unread_exports_hold_no_file_and_are_limited(house: House) -> None:
    async def work() -> None:
        first, second = Reading(house, "viewer"), Reading(house, "other")
        await first.begun.wait()
        await second.begun.wait()
        again, third = Reading(house, "viewer"), Reading(house, "helper")
        await asyncio.gather(again.task, third.task)
        assert (again.status, third.status) == (429, 503)
        assert int(again.headers["retry-after"]) > 0 and int(third.headers["retry-after"]) > 0
        assert "the limit for one user is 1" in json.loads(again.text)["error"]
        assert "the limit is 2" in json.loads(third.text)["error"]
        for one in (first, second):
            one.may_read.set()
            await one.task
            assert one.status == 200 and one.largest <= 64 * 1024
            assert len(one.text) == int(one.headers["content-length"]) > BODY_BYTES_MAX
        later = Reading(house, "viewer")
        later.may_read.set()
        await later.task
        assert later.status == 200

    house.runner.run(work())


def test_cancelled_export_frees_its_place(house: House) -> None:
    async def work() -> None:
        one = Reading(house, "viewer")
        await one.begun.wait()
        assert house.app.state.context.explorer.exports.taken == 1
        one.task.cancel()
        await asyncio.gather(one.task, return_exceptions=True)
        assert house.app.state.context.explorer.exports.taken == 0

    house.runner.run(work())


def test_export_counts_properties(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """An export of messages without bodies ends at the same size, and says where the rest begins."""
    monkeypatch.setattr(exporting, "BYTES_MAX", 1024 * 1024)
    monkeypatch.setattr("sparrowmq.coordinator.api.searching.BYTES_MAX", 1024 * 1024)
    stored = {number: message(number, stored=1000 + number, body=b"x") for number in range(200)}
    for one in stored.values():
        one.properties["note"] = "n" * 30_000
    before = house.app.state.context.explorer._clients.made_reader
    clients = house.app.state.context.explorer._clients
    clients.made_admin.ends = {"T": (0, 200)}
    give(house, stored)
    try:

        async def work() -> None:
            one = Reading(house, "viewer")
            one.may_read.set()
            await one.task
            lines = one.text.splitlines()
            assert 1 <= len(lines) <= 1024 * 1024 // 30_000
            assert int(one.headers["sparrow-stopped-ms"]) == 1000 + len(lines)

        house.runner.run(work())
    finally:
        clients.made_reader = before
        clients.made_admin.ends = {"T": (0, COUNT)}
