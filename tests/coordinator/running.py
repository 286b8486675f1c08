"""A coordinator in a separate thread, and plain HTTP calls to it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from typing import Any

import pytest
from argon2 import PasswordHasher
from tests.coordinator.cluster.explored import MadeUpAdmin, explorer
from tests.coordinator.services.flowing import MadeUpFlow
from tests.coordinator.services.surveyed import MadeUpSurvey
from tests.coordinator.services.watched import MadeUp

from sparrowmq.coordinator.replicas.group_watch import GroupBrokers
from sparrowmq.coordinator.server import Coordinator, Started
from sparrowmq.coordinator.users import passwords
from sparrowmq.core.settings.servers import CoordinatorSettings


@dataclass
class Running:
    """`call` returns status and answer; `token` is that of the user `admin`."""

    coordinator: Coordinator
    started: Started
    cluster: MadeUp
    survey: MadeUpSurvey
    token: str = ""
    passwords: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return self.started.url

    def raw(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        host, _, port = self.url.removeprefix("http://").partition(":")
        connection = HTTPConnection(host, int(port), timeout=20)
        try:
            connection.request(method, path, body, dict(headers))
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def call(
        self, method: str, path: str, body: object = None, *, token: str | None = None
    ) -> tuple[int, Any]:
        headers = {"Content-Type": "application/json"}
        given = self.token if token is None else token
        if given:
            headers["Authorization"] = f"Bearer {given}"
        data = None if body is None else json.dumps(body).encode()
        status, answer = self.raw(method, f"/api/v1{path}", data, headers)
        return status, json.loads(answer)

    def get(self, path: str) -> Any:
        status, answer = self.call("GET", path)
        assert status == 200, answer
        return answer

    def person(self, name: str, role: str = "viewer") -> str:
        """A token of a new user."""
        status, made = self.call("POST", "/people", {"name": name, "role": role})
        assert status == 201, made
        self.passwords[name] = made["password"]
        return str(self.call("POST", "/tokens", {"person": name})[1]["token"])


@contextmanager
def cheap_passwords() -> Iterator[None]:
    """Hashes of passwords cost nothing: as it is, each takes a quarter of a second of a processor."""
    cheap = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passwords, "_hasher", cheap)
        patch.setattr(passwords, "_NOBODY", cheap.hash("nobody"))
        yield


@contextmanager
def running(brokers: GroupBrokers | None = None, **settings: Any) -> Iterator[Running]:
    """A coordinator on `database_url`, on a free port; of the cluster at `namesrv_addr`, otherwise a fake
    one, with replicated `brokers`."""
    cluster, survey, ready = MadeUp(), MadeUpSurvey(), threading.Event()
    found: list[Any] = []

    async def main() -> None:
        given = CoordinatorSettings(listen_port=0, **settings)
        seen = None if "namesrv_addr" in settings else cluster
        explores = None if seen is None else explorer(survey, MadeUpAdmin())
        flow = None if seen is None else MadeUpFlow()
        coordinator = Coordinator(
            given, cluster=seen, survey=survey, explorer=explores, flow=flow, brokers=brokers
        )
        stop = asyncio.Event()
        try:
            it = Running(coordinator, await coordinator.start(), cluster, survey)
            found.extend((asyncio.get_running_loop(), stop, it))
            ready.set()
            await stop.wait()
        finally:
            await coordinator.close()
            ready.set()

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    with cheap_passwords():
        thread.start()
        ready.wait(60)
        loop, stop, it = found
        try:
            if it.started.first_password:
                login = {"name": "admin", "password": it.started.first_password}
                status, answer = it.call("POST", "/login", login)
                assert status == 200, answer
                it.token = answer["token"]
            yield it
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join(30)
            assert not thread.is_alive()
